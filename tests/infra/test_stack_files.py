"""Files on the local stack: uploaded past the front door, shown, and followed by the real stream when messages go."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request

import pytest

from infra.local.stack import Stack, kept_environment

PNG = b"\x89PNG\r\n\x1a\n" + bytes(3_000_000)


@pytest.fixture(scope="module")
def stack():
    with kept_environment(), Stack(port=0) as running:
        yield running


def ask(stack, path, body=None, method=None, data=None, headers=None):
    url = path if path.startswith("http") else f"http://127.0.0.1:{stack.server.server_address[1]}{path}"
    given = data if data is not None else None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        url, data=given, method=method, headers={"content-type": "application/json", **(headers or {})}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read()


def rows(stack, which):
    dynamodb = stack.emulator.client("dynamodb")
    (table,) = [name for name in dynamodb.list_tables()["TableNames"] if name.endswith(which)]
    return dynamodb.scan(TableName=table, ConsistentRead=True)["Items"]


def uses(stack):
    return [row["mid"]["S"] for row in rows(stack, "-runs") if "token" in row]


def wait_for(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.slow
def test_an_upload_is_used_shown_and_let_go_of(stack):
    body = {"resourceId": "ada", "filename": "big.png", "contentType": "image/png", "size": len(PNG)}
    promise = json.loads(ask(stack, "/api/attachments", body))
    with pytest.raises(urllib.error.HTTPError):
        ask(stack, promise["url"], data=PNG + b"x", method="PUT", headers=promise["headers"])
    ask(stack, promise["url"], data=PNG, method=promise["method"], headers=promise["headers"])
    stable = f"/api/attachments/{promise['id']}"
    done = json.loads(ask(stack, f"{stable}/complete", {"resourceId": "ada"}))
    assert done["size"] == len(PNG)

    file = {"type": "file", "mediaType": "image/png", "url": promise["reference"]}
    message = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "What is this?"}, file]}
    chat = {"id": "t1", "agentId": "assistant", "resourceId": "ada", "messages": [message]}
    assert b"big.png" in ask(stack, "/api/chat", chat)
    assert uses(stack) == ["u1"]
    assert ask(stack, f"{stable}?resourceId=ada") == PNG, "the redirect is followed"

    ask(stack, "/api/memory/messages/delete?agentId=assistant", {"messageIds": ["u1"], "resourceId": "ada"})
    wait_for(lambda: uses(stack) == [])
    marks = [row for row in rows(stack, "-runs") if row["pk"]["S"].startswith("N#M#")]
    assert {row["file"]["S"] for row in marks} == {promise["id"]}
    assert ask(stack, f"{stable}?resourceId=ada") == PNG, "for another day"


@pytest.mark.slow
def test_the_body_of_a_long_message_goes_with_its_row(stack):
    s3 = stack.emulator.client("s3")
    (bucket,) = [found["Name"] for found in s3.list_buckets()["Buckets"]]

    def bodies():
        listed = s3.list_objects_v2(Bucket=bucket, Prefix="o/bob/overflow/").get("Contents", [])
        return [entry["Key"] for entry in listed]

    content = {"format": 2, "parts": [{"type": "text", "text": "long"}], "metadata": {"log": "é" * 200_000}}
    message = {"id": "m1", "role": "user", "content": content, "threadId": "t2", "resourceId": "bob"}
    ask(stack, "/api/memory/save-messages?agentId=assistant", {"messages": [message]})
    assert len(bodies()) == 1
    # As the service removes a row whose time is over: nobody of ours is there to clean up.
    (row,) = [row for row in rows(stack, "-messages") if row["mid"]["S"] == "m1"]
    dynamodb = stack.emulator.client("dynamodb")
    (table,) = [name for name in dynamodb.list_tables()["TableNames"] if name.endswith("-messages")]
    dynamodb.delete_item(TableName=table, Key={name: row[name] for name in ("pk", "sk")})
    wait_for(lambda: bodies() == [])
