"""A thread that was given to another resource: nothing of it is left for the old owner, and the new one has all of it."""

from __future__ import annotations

import base64

import pytest

from agent_memory import runtime
from agent_memory.jobs.runner import run
from tests.support.http_app import text_of

AGENT = {"agentId": "conformance-thread"}
PNG = (
    "data:image/png;base64,"
    + base64.b64encode(bytes.fromhex("89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489")).decode()
)


class Queue:
    def __init__(self):
        self.events = []

    def dispatch(self, target, event):
        if target == "janitor":
            self.events.append(dict(event))


def fill(app):
    """Ada's thread t1 with a picture, working memory, an answer and a call that waits for approval; and another thread."""
    picture = {"type": "file", "mediaType": "image/png", "data": PNG}
    content = [{"type": "text", "text": "zebra in the garden"}, picture]
    answer = app.post(
        "/api/agents/conformance-thread/generate",
        {"messages": [{"role": "user", "content": content}], "memory": {"thread": "t1", "resource": "ada"}},
    )
    assert answer.status == 200, answer.json
    app.save("zebra number two", thread="t1", agent="conformance-thread")
    body = {"workingMemory": "# User\n- Name: Mira\n", "resourceId": "ada"}
    assert app.post("/api/memory/threads/t1/working-memory", body, **AGENT).status == 200
    app.save("zebra elsewhere", thread="t9", agent="conformance-thread")
    app.indexed("ada", "t1", "t9")
    waiting = app.post(
        "/api/agents/conformance-thread/generate",
        {
            "messages": 'tool delete_record {"id": "zebra-7"}',
            "memory": {"thread": "t1", "resource": "ada"},
            "requireToolApproval": True,
        },
    )
    assert waiting.json["finishReason"] == "suspended", waiting.json
    (name,) = {row["sk"]["S"].split("#")[1] for row in app.rows("runs") if row["sk"]["S"].startswith("F#")}
    return name


def shown(app, owner):
    """Everything that each reader shows of the thread to a resource."""
    query = {**AGENT, "resourceId": owner}
    run_body = {"messages": "system zebra", "memory": {"thread": f"new-{owner}", "resource": owner}}
    turn = app.post("/api/agents/conformance-thread/generate", run_body).json
    search = app.get("/api/memory/search", searchQuery="zebra", **query).json
    memory = app.get("/api/memory/threads/t1/working-memory", **query)
    chat = app.get("/api/chat/t1", **query)
    return {
        "thread": app.get("/api/memory/threads/t1", **query).status,
        "messages": app.get("/api/memory/threads/t1/messages", **query).status,
        "listed": "t1" in [t["id"] for t in app.get("/api/memory/threads", **query).json["threads"]],
        "search": sorted({r["threadId"] for r in search["results"]} & {"t1"}),
        "in thread": app.get("/api/memory/search", searchQuery="zebra", threadId="t1", **query).status,
        "recalled": turn["providerMetadata"]["memory"]["recall"]["hits"],
        "prompt": "garden" in turn["text"],
        "memory": memory.json.get("workingMemory") if memory.status == 200 else memory.status,
        "page": "garden" in chat.body.decode(),
        "waiting": app.get("/api/agents/conformance-thread/suspended-runs", resourceId=owner).json["total"],
    }


@pytest.mark.parametrize("long", [False, True])
def test_after_a_transfer_the_old_owner_sees_nothing_and_the_new_one_everything_wish_13(app, monkeypatch, long):
    name = fill(app)
    before = app.messages("t1", resourceId="ada")
    path = f"/api/attachments/{name}"
    assert app.get(path, resourceId="ada").status == 302
    assert app.get(path, resourceId="bob").status == 404
    if long:
        monkeypatch.setattr("agent_memory.memory.threads.COPIED_AT_ONCE", 1)
    queue = runtime.services().dispatcher = Queue()

    answer = app.post("/api/memory/threads/t1/transfer", {"resourceId": "bob"}, **AGENT)

    assert answer.status == (202 if long else 200), answer.json
    for event in queue.events:
        run(runtime.services(), event["jobId"], event["owner"])
    assert [row for row in app.rows("messages") if row["pk"]["S"] == "R#ada#t1"] == []
    app.indexed("bob", "t1")  # the index still holds what the old owner's rows were indexed as
    old = shown(app, "ada")
    assert old == {
        "thread": 403,
        "messages": 403,
        "listed": False,
        "search": [],
        "in thread": 403,
        "recalled": 1,  # zebra elsewhere
        "prompt": False,
        "memory": 403,
        "page": False,
        "waiting": 0,
    }
    assert app.get(path, resourceId="ada").status == 404
    attach = {"type": "file", "mediaType": "image/png", "data": f"attachment://{name}"}
    again = app.post(
        "/api/memory/save-messages",
        {"messages": [{"role": "user", "threadId": "t9", "resourceId": "ada", "content": {"parts": [attach]}}]},
        **AGENT,
    )
    assert again.status == 400, "a name alone does not bring the file back"
    assert app.get(path, resourceId="ada").status == 404

    new = shown(app, "bob")
    assert new == {
        "thread": 200,
        "messages": 200,
        "listed": True,
        "search": ["t1"],
        "in thread": 200,
        "recalled": 3,
        "prompt": True,
        "memory": "# User\n- Name: Mira\n",
        "page": True,
        "waiting": 0,
    }
    assert app.get(path, resourceId="bob").status == 302
    after = app.messages("t1", resourceId="bob")
    keep = ("id", "role", "createdAt", "type")
    assert [{key: m.get(key) for key in keep} for m in after] == [{key: m.get(key) for key in keep} for m in before]
    assert [text_of(m) for m in after] == [text_of(m) for m in before]
    assert {m["resourceId"] for m in after} == {"bob"}


def test_authors_of_messages_stay_with_them(app):
    given = {"role": "user", "threadId": "t1", "resourceId": "ada"}
    messages = [
        {**given, "id": name, "content": {"parts": [{"type": "text", "text": "hi"}], "metadata": {"author": name}}}
        for name in ("mira", "noor")
    ]
    assert app.post("/api/memory/save-messages", {"messages": messages}, **AGENT).status == 200
    assert app.post("/api/memory/threads/t1/transfer", {"resourceId": "bob"}, **AGENT).status == 200
    found = app.messages("t1", resourceId="bob")
    assert [m["content"]["metadata"]["author"] for m in found] == ["mira", "noor"]
