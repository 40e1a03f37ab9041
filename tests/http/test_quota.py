"""Quotas over HTTP: refused before the first byte, per resource."""

from __future__ import annotations

import pytest

from agent_memory import runtime
from agent_memory.aws.dynamodb.quota import DynamoQuota

PATHS = ["/api/agents/conformance/generate", "/api/agents/conformance/stream", "/api/chat"]


def limit(app, **limits):
    made = DynamoQuota(app.dynamodb, runs_table=app.names.runs, **limits)
    vars(app.deployment)["quota"] = made
    runtime.services().quota = made


def body(path, resource="ada"):
    if path == "/api/chat":
        parts = [{"type": "text", "text": "hello"}]
        return {
            "id": "t1",
            "agentId": "conformance",
            "resourceId": resource,
            "messages": [{"id": "u1", "role": "user", "parts": parts}],
        }
    return {"messages": "hello", "memory": {"thread": "t1", "resource": resource}}


@pytest.mark.parametrize("path", PATHS)
def test_a_turn_over_the_quota_is_a_429_before_the_first_byte(app, path):
    limit(app, turns_per_minute=1)
    assert app.post(PATHS[0], body(PATHS[0])).status == 200
    answer = app.post(path, body(path))
    assert answer.status == 429
    assert answer.headers["content-type"] == "application/json"
    assert answer.json["code"] == "QUOTA_EXCEEDED"
    assert 1 <= int(answer.headers["retry-after"]) <= 60
    assert len(app.messages()) == 2


def test_a_queued_turn_is_refused_when_it_is_handed_over(app):
    limit(app, turns_per_minute=1)
    given = {"message": "hello", "threadId": "t1", "resourceId": "ada"}
    assert app.post("/api/agents/conformance/queue-message", given).status == 200
    assert app.post("/api/agents/conformance/queue-message", given).status == 429


def test_a_signed_in_user_without_a_thread_is_limited_too(signed_in):
    limit(signed_in, tokens_per_day=1)
    path = "/api/agents/forgetful/generate"
    assert signed_in.post(path, {"messages": "hello"}).status == 200
    answer = signed_in.post(path, {"messages": "hello"})
    assert (answer.status, answer.json["code"]) == (429, "QUOTA_EXCEEDED")
    assert int(answer.headers["retry-after"]) <= 86_400
    signed_in.authorizer = {**signed_in.authorizer, "resourceId": "grace"}
    assert signed_in.post(path, {"messages": "hello"}).status == 200
