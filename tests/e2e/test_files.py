"""Files: uploaded past the gateway with a signed link, used by a message, read through a link, and not by anybody else."""

from __future__ import annotations

import os

import urllib3

from tests.e2e.calls import download, messages, turn

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


def test_file_of_another_resource_does_not_exist(api, owner):
    file = upload(api, owner, PNG)
    assert api("GET", f"/api/attachments/{file['id']}", query={"resourceId": f"{owner}-2"}).status == 404
