"""What becomes of a stack: it takes other parameters, and leaves its data when it is deleted."""

from __future__ import annotations

import pytest

from infra.stack.deployment import client
from tests.e2e.calls import ASSISTANT, messages, turn
from tests.e2e.conftest import STACK, keys_of
from tests.support.signed_api import SignedApi

PARAMETERS = {"DeletionProtection": "false"}


@pytest.fixture(scope="module")
def passing(deployed, built):
    """A stack of defaults, which ends with this file."""
    return deployed(built, f"{STACK}-passing", PARAMETERS)


def test_other_parameters_count_at_once_and_a_deletion_leaves_tables_and_bucket(
    passing, deployed, built, owner, thread
):
    keys = keys_of("caller-of-passing", f"arn:aws:execute-api:*:*:{passing.api_id}/*")
    api = SignedApi(passing.address, keys)
    for text in ("Hello", "Hello again"):
        turn(api, thread, owner, text)

    changed = deployed(built, passing.name, {**PARAMETERS, "QuotaTurnsPerMinute": "1"})
    assert changed.address == passing.address
    body = {"messages": "And again", "memory": {"thread": thread, "resource": owner}}
    assert {api("POST", f"{ASSISTANT}/generate", body).status for _ in range(3)} == {200, 429}
    stored = len(messages(api, thread, owner))
    assert stored >= 6

    data = {changed.outputs[name] for name in ("ThreadsTableName", "MessagesTableName")}
    bucket, functions = changed.outputs["AttachmentsBucketName"], set(changed.functions.values())
    formation = client("cloudformation")
    formation.delete_stack(StackName=passing.name)
    formation.get_waiter("stack_delete_complete").wait(StackName=passing.name, WaiterConfig={"Delay": 1})

    left = client("lambda").list_functions()["Functions"]
    assert not functions & {function["FunctionName"] for function in left}
    assert data <= set(client("dynamodb").list_tables()["TableNames"])
    assert client("dynamodb").scan(TableName=changed.outputs["MessagesTableName"])["Count"] == stored
    assert client("s3").head_bucket(Bucket=bucket)
