"""Calls that are sent more than once: each counts once."""

from __future__ import annotations

import threading

import pytest

from tests.support.http_app import text_of, tool_states

AGENT = {"agentId": "conformance"}


def user(text, id="u1"):
    return {"id": id, "role": "user", "parts": [{"type": "text", "text": text}]}


@pytest.mark.parametrize("times", [2, 3, 5])
@pytest.mark.parametrize("kind", ["generate", "stream"])
def test_repeated_run_of_the_same_message_stores_two_messages_case_98(app, kind, times):
    answers = [app.run(kind, [user("nonce")]) for _ in range(times)]
    texts = {a.json["text"] if kind == "generate" else a.said for a in answers}
    assert len(texts) == 1 and texts.pop().startswith("nonce-")
    assert [m["role"] for m in app.messages()] == ["user", "assistant"]


def test_repeat_under_its_key_counts_once_though_another_turn_ended_in_between_case_98(app):
    """Two pages on one thread, and the first one lost its answer on the way."""
    body = {"id": "t1", "resourceId": "ada"}
    first = app.post("/api/chat", body | {"messages": [user("nonce")]}, key="k1")
    app.post("/api/chat", body | {"messages": [user("say other", id="u2")]}, key="k2")
    again = app.post("/api/chat", body | {"messages": [user("nonce")]}, key="k1")
    assert again.said == first.said
    assert [m["role"] for m in app.messages()] == ["user", "assistant"] * 2


@pytest.mark.parametrize("times", [2, 5])
def test_repeated_chat_turn_stores_two_messages_case_98(app, times):
    body = {"id": "t1", "resourceId": "ada", "messages": [user("nonce")]}
    answers = [app.post("/api/chat", body) for _ in range(times)]
    assert len({a.said for a in answers}) == 1
    assert len({a.of("start")[0]["messageId"] for a in answers}) == 1
    assert [m["role"] for m in app.messages()] == ["user", "assistant"]


def test_overlapping_repeat_waits_or_is_told_to_case_98(app, pace):
    """The gateway gave up and the client sends the turn again while the first one is at work."""
    app.create("t1")
    body = {"id": "t1", "resourceId": "ada", "messages": [user("slow 12 100")]}
    first = {}
    thread = threading.Thread(target=lambda: first.update(answer=app.post("/api/chat", body)))
    thread.start()
    assert pace.said.wait(60)
    second = app.post("/api/chat", body)
    pace.go_on()
    thread.join(60)
    assert second.status == 409 and second.headers["retry-after"]
    third = app.post("/api/chat", body)
    assert third.said == first["answer"].said
    assert [m["role"] for m in app.messages()] == ["user", "assistant"]


def test_overlapping_first_turns_answer_what_was_stored_case_98(app, monkeypatch):
    """A new thread has no header yet in which the second call could see the first one at work."""
    from agent_memory.models.scripted import ScriptedModel

    stream, answers = ScriptedModel.stream, []

    def overtaken(self, request):
        monkeypatch.setattr(ScriptedModel, "stream", stream)
        answers.append(app.run("generate", [user("nonce")]).json)
        return stream(self, request)

    monkeypatch.setattr(ScriptedModel, "stream", overtaken)
    answers.append(app.run("generate", [user("nonce")]).json)
    stored = app.messages()
    assert [m["role"] for m in stored] == ["user", "assistant"]
    assert [answer["text"] for answer in answers] == [text_of(stored[1])] * 2


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/agents/conformance/generate", {"messages": "nonce", "memory": {"thread": "t1", "resource": "ada"}}),
        ("/api/agents/conformance/generate", {"messages": "nonce"}),
        ("/api/agents/conformance/stream", {"messages": "nonce", "memory": {"thread": "t1", "resource": "ada"}}),
        ("/api/agents/forgetful/stream", {"messages": "nonce"}),
        ("/api/chat", {"id": "t1", "resourceId": "ada", "messages": [user("nonce")]}),
    ],
)
def test_same_key_answers_the_same_and_runs_once(app, path, body):
    answers = [app.post(path, body, key="k1") for _ in range(4)]
    assert [a.status for a in answers] == [200] * 4
    assert len({a.body for a in answers}) == 1
    assert answers[0].headers["content-type"] == answers[3].headers["content-type"]
    assert len(app.rows("messages")) in (0, 2)
    other = app.post(path, {**body, "maxSteps": 3}, key="k1")
    assert other.status == 409 and other.json["code"] == "IDEMPOTENCY_KEY_USED"
    assert app.post(path, body, key="k2").status == 200


def test_same_key_saves_once_and_clones_once(app):
    message = {"role": "user", "content": "x", "threadId": "t1", "resourceId": "ada"}
    saved = [app.post("/api/memory/save-messages", {"messages": [message]}, key="k1", **AGENT) for _ in range(3)]
    assert len({a.body for a in saved}) == 1 and len(app.messages()) == 1
    clones = [app.post("/api/memory/threads/t1/clone", {}, key="k2", **AGENT) for _ in range(3)]
    assert len({a.json["thread"]["id"] for a in clones}) == 1
    assert app.get("/api/memory/threads", resourceId="ada").json["total"] == 2


def test_same_key_runs_a_tool_once(app):
    from agent_memory import runtime
    from agent_memory.agent.tools import Tool

    ran = []
    counted = Tool(
        "counted", execute=lambda _args, _context: ran.append(1) or len(ran), input_schema={"type": "object"}
    )
    runtime.agents()["conformance"].tools["counted"] = counted
    path = "/api/agents/conformance/tools/counted/execute"
    assert [app.post(path, {"data": {}}, key="k").json for _ in range(3)] == [1, 1, 1]
    assert ran == [1]


def test_failed_call_is_not_remembered(app):
    assert app.post("/api/agents/conformance/generate", {"messages": "fail x"}, key="k").status == 500
    assert app.post("/api/agents/conformance/generate", {"messages": "say fine"}, key="k").json["text"] == "fine"
    assert app.post("/api/agents/conformance/stream", {"messages": "fail x"}, key="s").status == 200
    assert app.post("/api/agents/conformance/stream", {"messages": "say fine"}, key="s").said == "fine"


def test_keys_of_resources_are_apart(app):
    said = []
    for resource in ("ada", "bob"):
        body = {"messages": "nonce", "memory": {"thread": f"of-{resource}", "resource": resource}}
        said.append(app.post("/api/agents/conformance/generate", body, key="k").json["text"])
    assert len(set(said)) == 2


@pytest.mark.parametrize("key", ["x" * 256, "x" * 1000])
def test_overlong_key_is_a_400(app, key):
    answer = app.post("/api/agents/conformance/generate", {"messages": "hi"}, key=key)
    assert answer.status == 400 and answer.json["issues"][0]["field"] == "Idempotency-Key"


def test_key_while_the_first_call_is_at_work_is_409(app, pace):
    body, first = {"messages": "slow 12 100"}, {}
    path = "/api/agents/conformance/generate"
    thread = threading.Thread(target=lambda: first.update(answer=app.post(path, body, key="k")))
    thread.start()
    assert pace.said.wait(60)
    second = app.post(path, body, key="k")
    pace.go_on()
    thread.join(60)
    assert second.status == 409 and second.headers["retry-after"]
    assert app.post(path, body, key="k").body == first["answer"].body


@pytest.mark.parametrize("times", [2, 5])
def test_repeated_client_tool_outcome_leaves_one_call_and_one_outcome(app, times):
    call = app.run("stream", 'tool pick_color {"options":["red"]}').of("tool-call")[0]["payload"]
    told = {"type": "tool-result", "toolCallId": call["toolCallId"], "toolName": "pick_color", "result": "red"}
    answers = [app.run("stream", [{"role": "tool", "content": [told]}]) for _ in range(times)]
    assert {a.status for a in answers} == {200} and len({a.said for a in answers}) == 1
    assert tool_states(app.messages()) == [(call["toolCallId"], "result")]
    assert len(app.messages()) == 2


def test_repeated_approval_runs_the_tool_once(app):
    from agent_memory import runtime
    from agent_memory.agent.tools import Tool

    ran = []
    risky = Tool(
        "risky",
        execute=lambda _args, _context: ran.append(1) or {"ran": len(ran)},
        input_schema={"type": "object"},
        requires_approval=True,
    )
    runtime.agents()["conformance"].tools["risky"] = risky
    asked = app.run("stream", "tool risky {}").of("tool-call-approval")[0]
    body = {"runId": asked["runId"], "toolCallId": asked["payload"]["toolCallId"]}
    statuses = [app.post("/api/agents/conformance/approve-tool-call", body).status for _ in range(4)]
    assert statuses[0] == 200 and ran == [1]
    assert all(status in (200, 404, 409) for status in statuses)
    assert len(app.messages()) == 2
    assert "ran" in text_of(app.messages()[-1])


def test_repeated_save_delete_and_update_change_nothing_more(app):
    message = {"id": "m1", "role": "user", "content": "x", "threadId": "t1", "resourceId": "ada"}
    for _ in range(3):
        assert app.post("/api/memory/save-messages", {"messages": [message]}, **AGENT).status == 200
    assert len(app.messages()) == 1
    for _ in range(3):
        assert app.post("/api/memory/messages/delete", {"messageIds": ["m1"], "threadId": "t1"}, **AGENT).status == 200
    for _ in range(3):
        memory = {"workingMemory": "same", "resourceId": "ada"}
        assert app.post("/api/memory/threads/t1/working-memory", memory, **AGENT).json["version"] == 1
