"""Long work, which the janitor does: by the clock, and what is asked for a whole resource."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import zipfile

import pytest

from infra.stack.deployment import client
from tests.e2e.calls import download, eventually, messages, read, text_of, turn


def ended(api, answer):
    """The job that an answer names, when it has ended."""
    assert answer.status == 202, answer.body
    return finished(api, answer.json()["job"]["id"])


def finished(api, job_id):
    def look():
        found = api("GET", f"/api/jobs/{job_id}")
        assert found.status == 200, found.body
        job = found.json()
        return job if job["state"] in ("finished", "failed") else None

    job = eventually(look, within_s=60)
    assert job["state"] == "finished", job
    return job


def test_every_schedule_of_the_template_ends_well(api, stack, thread, owner):
    turn(api, thread, owner, "Hello")
    events, functions = client("events"), client("lambda")
    rules = stack.resources["AWS::Events::Rule"].values()
    assert rules
    for rule in rules:
        for target in events.list_targets_by_rule(Rule=rule)["Targets"]:
            answer = functions.invoke(FunctionName=target["Arn"], Payload=target["Input"])
            told = json.load(answer["Payload"])
            assert "FunctionError" not in answer, told
            assert told["jobId"], told
            finished(api, told["jobId"])


def test_export_holds_what_was_said_and_can_be_imported(api, thread, owner):
    turn(api, thread, owner, "The spare key lies under the blue pot")
    said = [text_of(message) for message in messages(api, thread, owner)]

    exported = ended(api, api("POST", "/api/memory/export", {"resourceId": owner}))

    archive = zipfile.ZipFile(io.BytesIO(download(exported["result"]["url"]).data))
    text = b"".join(archive.read(name) for name in archive.namelist()).decode()
    assert "under the blue pot" in text
    other = f"{owner}-2"
    body = {"resourceId": other, "export": {"resourceId": owner, "jobId": exported["id"]}}
    imported = ended(api, api("POST", "/api/memory/import", body))
    assert imported["result"]["counts"]["stored"] >= 2, imported
    (copied,) = read(api, "/api/memory/threads", other).json()["threads"]
    assert [text_of(message) for message in messages(api, copied["id"], other)] == said


@pytest.fixture
def impatient(stack):
    """Erasures of the stack look again after a second, which no parameter of the template allows."""
    stack.set_variables("MemoryFunction", {"ERASE_WAIT_S": "1"})


def test_erasure_leaves_nothing_of_a_resource(api, stack, search, parameters, impatient, thread, owner):
    turn(api, thread, owner, "My name is Ada and I like tea.")
    neighbour = f"{thread}-neighbour"
    turn(api, f"{thread}-2", neighbour, "Hello")
    eventually(lambda: any(document["resource"] == owner for document in search.documents()))

    erased = ended(api, api("POST", "/api/memory/erase", {"resourceId": owner}))

    assert read(api, "/api/memory/threads", owner).json()["threads"] == []
    assert read(api, f"/api/memory/threads/{thread}", owner).status == 404
    eventually(lambda: not any(document["resource"] == owner for document in search.documents()))
    for name in stack.resources["AWS::DynamoDB::Table"].values():
        pages = client("dynamodb").get_paginator("scan").paginate(TableName=name)
        assert owner not in str([page["Items"] for page in pages])
    assert len(messages(api, f"{thread}-2", neighbour)) == 2
    receipt, signature = erased["result"]["receipt"], base64.b64decode(erased["result"]["signature"])
    checked = client("kms").verify(
        KeyId=parameters["ReceiptKeyArn"],
        Message=hashlib.sha256(receipt.encode()).digest(),
        MessageType="DIGEST",
        Signature=signature,
        SigningAlgorithm="ECDSA_SHA_256",
    )
    assert checked["SignatureValid"]
