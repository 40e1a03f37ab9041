"""Who may do what: callers at the gateway, functions at the other services."""

from __future__ import annotations

import pytest

from infra.stack.derive import dump, read, without_action
from tests.e2e.calls import ASSISTANT, turn
from tests.e2e.conftest import keys_of
from tests.support.signed_api import SignedApi


def test_unsigned_call_is_refused(stack, api, owner, thread):
    unsigned = SignedApi(stack.address, None)
    for path in ("/api/memory/threads", ASSISTANT):
        assert unsigned("GET", path, query={"resourceId": owner}).status in (401, 403)


def test_caller_with_a_wrong_secret_is_refused(stack, api):
    key, _ = keys_of("forger", f"arn:aws:execute-api:*:*:{stack.api_id}/*")
    assert SignedApi(stack.address, (key, "not the secret"))("GET", ASSISTANT).status == 403


def test_caller_without_permission_is_refused(stack, api):
    stranger = SignedApi(stack.address, keys_of("stranger", f"arn:aws:execute-api:*:*:{stack.api_id}/*/GET/api/tools"))
    assert stranger("GET", "/api/tools").status == 200
    assert stranger("GET", "/api/memory/threads").status == 403


@pytest.fixture(scope="module")
def curtailed(deployed, built, stack, parameters):
    """The same stack deployed again, but its chat function may not put items."""
    document = read(built)
    without_action(document, "ChatRole", "dynamodb:PutItem")
    variant = built.with_name("curtailed.yaml")
    variant.write_text(dump(document), encoding="utf-8")
    return deployed(variant, f"{stack.name}-curtailed", parameters)


def test_function_is_refused_what_its_role_does_not_grant(stack, api, curtailed, owner, thread):
    other = SignedApi(
        curtailed.address, keys_of("caller-of-curtailed", f"arn:aws:execute-api:*:*:{curtailed.api_id}/*")
    )
    body = {"messages": "Hello", "memory": {"thread": thread, "resource": owner}}

    refused = other("POST", f"{ASSISTANT}/generate", body)

    assert refused.status == 500, refused.body
    assert "transact_write_items" in refused.json()["error"]
    assert "AccessDeniedException" in refused.json()["error"]
    assert turn(api, thread, owner, "Hello")["text"]  # where nothing was taken away the same turn is made
