"""Export, erasure and import through the whole local stack: requests, janitor, stream, indexer, one process."""

from __future__ import annotations

import base64
import hashlib
import hmac
import io
import json
import time
import urllib.error
import urllib.request
import zipfile

import pytest

from tests.infra.test_stack import dev

PERSON = "ada.lovelace@example.org"
A = f"agentId=assistant&resourceId={PERSON}"


def done(stack, job, *, within_s=60):
    """The job when it has ended."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        found = json.loads(stack.ask(f"/api/jobs/{job['job']['id']}"))
        if found["state"] in ("finished", "failed"):
            assert found["state"] == "finished", found
            return found
        time.sleep(0.2)
    raise AssertionError(found)


def fetched(url):
    with urllib.request.urlopen(url) as answer:
        return answer.read()


def ask(stack, path, body=None):
    return json.loads(stack.ask(path, body))


def read_back(stack):
    threads = ask(stack, f"/api/memory/threads?{A}")["threads"]
    return {
        thread["id"]: (thread, ask(stack, f"/api/memory/threads/{thread['id']}/messages?{A}")["messages"])
        for thread in threads
    }


@pytest.mark.slow
def test_wish_6_and_15_a_person_is_exported_erased_and_put_back(tmp_path, monkeypatch):
    monkeypatch.setenv("ERASE_WAIT_S", "2")
    data = tmp_path / "data"
    with dev("--data", str(data)) as stack:
        for thread, owner in (("t1", PERSON), ("t2", PERSON), ("t3", "bob")):
            said = {"messages": "My dog is called Rex.", "memory": {"thread": thread, "resource": owner}}
            stack.ask("/api/agents/assistant/generate", said)
        picture = {
            "id": "m-picture",
            "role": "user",
            "threadId": "t1",
            "resourceId": PERSON,
            "content": {"format": 2, "parts": [{"type": "file", "data": "data:image/png;base64,iVBORw0KGgo="}]},
        }
        stack.ask("/api/memory/save-messages?agentId=assistant", {"messages": [picture]})
        time.sleep(2)  # titles
        before = read_back(stack)

        exported = done(stack, ask(stack, "/api/memory/export", {"resourceId": PERSON}))
        file = fetched(exported["result"]["url"])
        with zipfile.ZipFile(io.BytesIO(file)) as opened:
            assert opened.testzip() is None
            assert json.loads(opened.read("manifest.json"))["counts"]["messages"] == 5

        erased = done(stack, ask(stack, "/api/memory/erase", {"resourceId": PERSON}))
        assert read_back(stack) == {}
        found = ask(stack, f"/api/memory/search?searchQuery=dog&{A}")["results"]
        assert found == []
        text = erased["result"]["receipt"]
        receipt = json.loads(text)
        key = bytes.fromhex((data / "receipt.key").read_text())
        assert base64.b64decode(erased["result"]["signature"]) == hmac.digest(key, text.encode(), "sha256")
        assert receipt["resourceSha256"] == hashlib.sha256(PERSON.encode()).hexdigest()
        assert receipt["removed"]["messages"] == 5
        assert PERSON not in json.dumps(erased)
        with pytest.raises(urllib.error.HTTPError):
            fetched(exported["result"]["url"])
        assert len(ask(stack, "/api/memory/threads?agentId=assistant&resourceId=bob")["threads"]) == 1

        promised = ask(
            stack,
            "/api/attachments",
            {"resourceId": PERSON, "filename": "a.zip", "contentType": "application/zip", "size": len(file)},
        )
        upload = urllib.request.Request(
            promised["url"], data=file, method=promised["method"], headers=promised["headers"]
        )
        with urllib.request.urlopen(upload):
            pass
        stack.ask(f"/api/attachments/{promised['id']}/complete", {"resourceId": PERSON})
        given = {"resourceId": PERSON, "attachment": promised["reference"]}
        imported = done(stack, ask(stack, "/api/memory/import", given))
        assert imported["result"]["counts"]["stored"] == 5
        again = done(stack, ask(stack, "/api/memory/import", given))
        assert (again["result"]["counts"]["stored"], again["result"]["counts"]["known"]) == (0, 5)
        after = read_back(stack)
        assert without_links(after) == without_links(before)
        until = time.monotonic() + 60
        while not found and time.monotonic() < until:
            found = ask(stack, f"/api/memory/search?searchQuery=dog&{A}")["results"]
        assert found, "what was imported is found by search"
        code, output = stack.interrupt()
    assert code == 0, output
    assert "Traceback" not in output
    assert PERSON not in output
    assert not (data / "dead-letters.jsonl").exists()


def without_links(found):
    """The same, without signatures of links, which are made anew at each read."""
    return json.loads(json.dumps(found), object_hook=lambda item: {k: v for k, v in item.items() if k != "data"})
