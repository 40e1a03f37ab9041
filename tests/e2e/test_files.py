"""Files: uploaded past the gateway with a signed link, used by a message, read through a link, and not by anybody else."""

from __future__ import annotations

import os

import urllib3

from infra.stack.deployment import client
from tests.e2e.calls import download, eventually, messages, turn

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4


def upload(api, owner, data):
    body = {"resourceId": owner, "filename": "dot.png", "contentType": "image/png", "size": len(data)}
    promised = api("POST", "/api/attachments", body)
    assert promised.status == 200, promised.body
    file = promised.json()
    with urllib3.PoolManager(ca_certs=os.environ["AWS_CA_BUNDLE"]) as pool:
        sent = pool.request(file["method"], file["url"], body=data, headers=file["headers"])
    assert sent.status == 200, sent.data
    done = api("POST", f"/api/attachments/{file['id']}/complete", {"resourceId": owner})
    assert done.status == 200, done.body
    return file


def test_uploaded_file_is_used_and_read(api, thread, owner):
    file = upload(api, owner, PNG)
    part = {"type": "file", "mediaType": "image/png", "url": file["reference"]}
    message = {"role": "user", "content": [{"type": "text", "text": "What is this?"}, part]}

    turn(api, thread, owner, [message])

    stored = messages(api, thread, owner)[0]["content"]["parts"]
    (link,) = [part.get("data") or part.get("url") for part in stored if part["type"] == "file"]
    assert download(link).data == PNG
    led = api("GET", f"/api/attachments/{file['id']}", query={"resourceId": owner})
    assert led.status == 302
    assert download(led.headers["location"]).data == PNG


def test_use_of_a_file_goes_with_its_message(api, stack, thread, owner):
    file = upload(api, owner, PNG)
    part = {"type": "file", "mediaType": "image/png", "url": file["reference"]}
    turn(api, thread, owner, [{"id": "u1", "role": "user", "content": [{"type": "text", "text": "Look"}, part]}])
    (table,) = [name for made, name in stack.resources["AWS::DynamoDB::Table"].items() if made == "RunsTable"]

    def uses():
        rows = client("dynamodb").scan(TableName=table, ConsistentRead=True)["Items"]
        return [row for row in rows if row["sk"]["S"].startswith(f"F#{file['id']}#")]

    assert len(uses()) == 1
    deleted = api(
        "POST",
        "/api/memory/messages/delete",
        {"messageIds": ["u1"], "resourceId": owner},
        query={"agentId": "assistant"},
    )
    assert deleted.status == 200, deleted.body
    eventually(lambda: not uses())
    assert api("GET", f"/api/attachments/{file['id']}", query={"resourceId": owner}).status == 302


def test_clone_for_another_resource_has_its_own_file(api, thread, owner):
    file = upload(api, owner, PNG)
    part = {"type": "file", "mediaType": "image/png", "url": file["reference"]}
    turn(api, thread, owner, [{"role": "user", "content": [{"type": "text", "text": "Look"}, part]}])
    to = {"newThreadId": f"{thread}-2", "resourceId": f"{owner}-2"}
    assert api("POST", f"/api/memory/threads/{thread}/clone", to, query={"agentId": "assistant"}).status == 200
    led = api("GET", f"/api/attachments/{file['id']}", query={"resourceId": f"{owner}-2"})
    assert led.status == 302
    assert download(led.headers["location"]).data == PNG


def test_file_of_another_resource_does_not_exist(api, owner):
    file = upload(api, owner, PNG)
    assert api("GET", f"/api/attachments/{file['id']}", query={"resourceId": f"{owner}-2"}).status == 404
