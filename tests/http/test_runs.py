"""generate, stream, approvals and what else concerns runs, over HTTP."""

from __future__ import annotations

import pytest

from agent_memory.http import subscriptions
from tests.support.http_app import text_of, tool_states

PREPARED = ["start", "step-start"]
CALL = ["tool-call-input-streaming-start", "tool-call-delta", "tool-call-input-streaming-end", "tool-call"]
SAID = ["text-start", "text-delta", "text-end"]
END = ["step-finish", "finish", "[DONE]"]


# ----------------------------------------------------------------------------------------------------------- generate


def test_generate_answers_and_stores_the_turn(app):
    answer = app.run("generate", "say hello there")
    assert answer.status == 200
    body = answer.json
    assert body["text"] == "hello there" and body["finishReason"] == "stop" and body["runId"]
    assert body["usage"]["totalTokens"] > 0 and body["totalUsage"]["inputTokens"] > 0
    assert body["steps"][0]["stepType"] == "initial" and body["steps"][0]["finishReason"] == "stop"
    assert body["response"]["messages"][-1]["role"] == "assistant"
    assert [m["role"] for m in body["messages"]] == ["user", "assistant"]
    assert body["rememberedMessages"] == []
    for key in ("toolCalls", "toolResults", "reasoning", "sources", "files", "warnings"):
        assert body[key] == []
    assert app.said() == [("user", "say hello there"), ("assistant", "hello there")]


def test_second_turn_remembers_the_first(app):
    app.run("generate", "say one")
    body = app.run("generate", "recall").json
    assert body["text"] == 'SEEN ["user:say one","assistant:one"]'
    assert len(body["rememberedMessages"]) == 2


@pytest.mark.parametrize(
    "messages",
    [
        "say hi",
        ["say hi"],
        [{"role": "user", "content": "say hi"}],
        [{"role": "user", "content": [{"type": "text", "text": "say hi"}]}],
        [{"id": "u1", "role": "user", "parts": [{"type": "text", "text": "say hi"}]}],
        [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "say hi"}],
    ],
)
def test_every_form_of_messages_is_taken(app, messages):
    answer = app.run("generate", messages)
    assert answer.status == 200 and answer.json["text"] == "hi"
    assert app.said() == [("user", "say hi"), ("assistant", "hi")]


def test_without_memory_nothing_is_stored_or_loaded(app):
    app.run("generate", "say one")
    assert app.run("generate", "recall", thread="").json["text"] == "SEEN []"
    assert len(app.messages()) == 2


def test_thread_object_sets_title_and_metadata_of_a_new_thread(app):
    memory = {"thread": {"id": "t9", "title": "Trip", "metadata": {"a": 1}}, "resource": "ada"}
    assert app.post("/api/agents/conformance/generate", {"messages": "say hi", "memory": memory}).status == 200
    thread = app.get("/api/memory/threads/t9").json
    assert thread["title"] == "Trip" and thread["metadata"] == {"a": 1}
    memory = {"thread": {"id": "t9", "title": "Other", "metadata": {"b": 2}}, "resource": "ada"}
    app.post("/api/agents/conformance/generate", {"messages": "say ho", "memory": memory})
    thread = app.get("/api/memory/threads/t9").json
    assert thread["title"] == "Trip" and thread["metadata"] == {"a": 1, "b": 2}


def test_read_only_loads_and_stores_nothing(app):
    app.run("generate", "say one")
    memory = {"thread": "t1", "resource": "ada", "options": {"readOnly": True}}
    answer = app.post("/api/agents/conformance/generate", {"messages": "recall", "memory": memory})
    assert answer.json["text"] == 'SEEN ["user:say one","assistant:one"]'
    assert len(app.messages()) == 2


@pytest.mark.parametrize("kind", ["generate", "stream", "stream-until-idle"])
def test_foreign_thread_is_403_before_any_stream(app, kind):
    app.run("generate", "say one")
    body = {"messages": "recall", "memory": {"thread": "t1", "resource": "bob"}}
    answer = app.post(f"/api/agents/conformance/{kind}", body)
    assert answer.status == 403 and answer.json["error"]
    assert len(app.messages()) == 2


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({}, 400, "messages"),
        ({"messages": 7}, 400, "messages"),
        ({"messages": [{"role": "nobody", "content": "x"}]}, 400, "messages.0.role"),
        ({"messages": "hi", "memory": {"thread": "x" * 600, "resource": "a"}}, 400, "memory.thread"),
        ({"messages": "hi", "memory": {"thread": "new"}}, 400, "memory.resource"),
        ({"messages": "hi", "maxSteps": 0}, 400, "maxSteps"),
        ({"messages": "hi", "maxSteps": "five"}, 400, "maxSteps"),
        ({"messages": "hi", "clientTools": {"a": 1}}, 400, "clientTools.a"),
    ],
)
@pytest.mark.parametrize("kind", ["generate", "stream"])
def test_wrong_run_body_names_the_field(app, kind, body, status, field):
    answer = app.post(f"/api/agents/conformance/{kind}", body)
    assert answer.status == status
    assert field in [issue["field"] for issue in answer.json["issues"]], answer.json
    assert app.rows("messages") == []


def test_unknown_agent_is_404(app):
    assert app.run("generate", "hi", agent="nobody").status == 404
    assert app.run("stream", "hi", agent="nobody").status == 404


def test_model_failure_is_500_with_its_reason_and_keeps_the_question(app):
    answer = app.run("generate", "fail no capacity")
    assert answer.status == 500 and "no capacity" in answer.json["error"]
    assert app.said() == [("user", "fail no capacity")]
    assert app.run("generate", "say fine").json["text"] == "fine"


def test_server_tool_is_called_and_its_result_told(app):
    body = app.run("generate", 'tool get_weather {"city":"Oslo"}').json
    assert "get_weather returned" in body["text"]
    assert body["toolCalls"][0]["payload"]["toolName"] == "get_weather"
    assert body["toolResults"][0]["payload"]["result"] == {"city": "Oslo", "tempC": 21, "summary": "sunny"}
    assert [m["role"] for m in body["response"]["messages"]] == ["assistant", "tool", "assistant"]
    assert len(app.messages()) == 2


def test_client_tool_goes_there_and_back_with_generate(app):
    body = app.run("generate", 'tool pick_color {"options":["red","blue"]}').json
    assert body["finishReason"] == "tool-calls"
    call = body["toolCalls"][0]["payload"]
    told = {
        "role": "tool",
        "content": [
            {"type": "tool-result", "toolCallId": call["toolCallId"], "toolName": "pick_color", "result": {"c": "red"}}
        ],
    }
    again = app.run("generate", [*body["response"]["messages"], told])
    assert again.status == 200 and 'pick_color returned {"c":"red"}' in again.json["text"]
    assert tool_states(app.messages()) == [(call["toolCallId"], "result")]
    assert len(app.messages()) == 2


# ------------------------------------------------------------------------------------------------------------- stream


def test_stream_has_headers_framing_and_sequence(app):
    answer = app.run("stream", "say hello there")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.headers["cache-control"] == "no-cache" and answer.headers["x-accel-buffering"] == "no"
    assert answer.types == [*PREPARED, *SAID, *END]
    assert answer.said == "hello there"
    chunks = [event for event in answer.events if event != "[DONE]"]
    assert len({chunk["runId"] for chunk in chunks}) == 1
    assert all(chunk["from"] == "AGENT" and isinstance(chunk["payload"], dict) for chunk in chunks)
    message_id = answer.of("start")[0]["payload"]["messageId"]
    assert answer.of("step-start")[0]["payload"]["messageId"] == message_id
    assert answer.of("finish")[0]["payload"]["stepResult"]["reason"] == "stop"
    assert app.messages()[-1]["id"] == message_id


def test_line_breaks_in_text_stay_inside_one_line(app):
    answer = app.run("stream", "say one\ntwo\r\nthree\u2028four")
    assert answer.said == "one\ntwo\r\nthree\u2028four"


def test_each_event_leaves_as_one_piece(app):
    from tests.support.http_app import event

    response = app.application.handle(event("POST", "/api/agents/conformance/stream", body={"messages": "say one two"}))
    pieces = list(response.body)
    assert all(piece.startswith(b"data: ") and piece.count(b"\n\n") == 1 for piece in pieces)
    assert pieces[-1] == b"data: [DONE]\n\n"


def test_reasoning_comes_before_the_text(app):
    answer = app.run("stream", "think yes")
    assert answer.types == [*PREPARED, "reasoning-start", "reasoning-delta", "reasoning-end", *SAID, *END]


def test_server_tool_runs_inside_the_stream(app):
    answer = app.run("stream", 'tool get_weather {"city":"Oslo"}')
    assert answer.types == [*PREPARED, *CALL, "tool-result", "step-finish", "step-start", *SAID, *END]
    first, last = answer.of("step-finish")
    assert (
        first["payload"]["stepResult"] | {"reason": "tool-calls", "isContinued": True} == first["payload"]["stepResult"]
    )
    assert last["payload"]["stepResult"]["isContinued"] is False
    assert "".join(e["payload"]["argsTextDelta"] for e in answer.of("tool-call-delta")) == '{"city":"Oslo"}'


def test_failing_tool_is_told_to_the_model(app):
    answer = app.run("stream", "tool broken_tool {}")
    assert answer.types == [*PREPARED, *CALL, "tool-error", "step-finish", "step-start", *SAID, *END]
    assert answer.of("tool-error")[0]["payload"]["error"]["message"] == "tool exploded"
    assert "tool exploded" in answer.said


def test_client_tool_ends_the_stream_and_its_outcome_goes_on(app):
    answer = app.run("stream", 'tool pick_color {"options":["red"]}')
    assert answer.types == [*PREPARED, *CALL, *END]
    assert answer.of("finish")[0]["payload"]["stepResult"]["reason"] == "tool-calls"
    call = answer.of("tool-call")[0]["payload"]
    told = {
        "type": "tool-result",
        **{k: call[k] for k in ("toolCallId", "toolName")},
        "input": call["args"],
        "result": "red",
    }
    again = app.run("stream", [{"role": "tool", "content": [told]}])
    assert again.said == 'Tool pick_color returned "red"'
    assert again.of("start")[0]["payload"]["messageId"] == answer.of("start")[0]["payload"]["messageId"]
    assert tool_states(app.messages()) == [(call["toolCallId"], "result")]


def test_failure_inside_a_stream_is_told_without_a_trace(app):
    answer = app.run("stream", "fail no capacity")
    assert answer.status == 200
    assert answer.types == [*PREPARED, "error", *END]
    error = answer.of("error")[0]["payload"]["error"]
    assert "no capacity" in error["message"] and "Traceback" not in answer.body.decode()
    assert answer.of("finish")[0]["payload"]["stepResult"]["reason"] == "error"
    assert app.said() == [("user", "fail no capacity")]
    assert app.run("stream", "say fine").said == "fine"


def test_structured_answer_is_an_object(app):
    body = {"structuredOutput": {"schema": {"type": "object", "required": ["a"]}}}
    answer = app.run("stream", 'say {"a":1}', **body)
    assert answer.of("object-result")[0]["object"] == {"a": 1}
    assert app.run("generate", 'say {"a":2}', **body).json["object"] == {"a": 2}


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        ({}, "structuredOutput.schema"),
        ({"schema": {"type": "zzz"}}, "structuredOutput.schema"),
        ({"schema": {"$ref": "http://127.0.0.1:9/x"}}, "structuredOutput.schema"),
    ],
)
def test_wrong_schema_is_a_400_before_the_run_case_86(app, wanted, field):
    for path in ("generate", "stream"):
        answer = app.run(path, 'say {"a":1}', structuredOutput=wanted)
        assert answer.status == 400
        assert answer.json["issues"][0]["field"] == field
    assert app.get("/api/memory/threads/t1").status == 404


def test_half_an_emoji_does_not_close_the_thread(app):
    answer = app.run("generate", 'tool get_weather {"city":"\\ud83d"}')
    assert answer.status == 200
    assert app.get("/api/memory/threads/t1/messages", agentId="conformance").status == 200
    assert app.get("/api/chat/t1").status == 200
    assert "get_weather" in app.run("generate", "recall").json["text"]
    assert "error" not in app.run("stream", "recall").types


def test_turn_is_stored_before_done(app):
    from tests.support.http_app import event

    body = {"messages": "say hi", "memory": {"thread": "t1", "resource": "ada"}}
    response = app.application.handle(event("POST", "/api/agents/conformance/stream", body=body))
    for piece in response.body:
        if piece.startswith(b'data: {"type":"finish"'):
            assert app.said() == [("user", "say hi"), ("assistant", "hi")]


def test_page_that_leaves_early_loses_nothing(app):
    from tests.support.http_app import event

    body = {"messages": "say one two three four", "memory": {"thread": "t1", "resource": "ada"}}
    response = app.application.handle(event("POST", "/api/agents/conformance/stream", body=body))
    pieces = iter(response.body)
    for piece in pieces:
        if b"one" in piece:
            break
    pieces.close()
    assert app.said()[0] == ("user", "say one two three four")
    assert app.run("generate", "say fine").json["text"] == "fine"


# ---------------------------------------------------------------------------------------------------------- approvals


def suspended(app, kind="stream"):
    answer = app.run(kind, 'tool delete_record {"id":"r1"}')
    if kind == "generate":
        return answer.json["runId"], answer.json["suspendPayload"]["toolCallId"]
    call = answer.of("tool-call-approval")[0]
    return call["runId"], call["payload"]["toolCallId"]


def test_approval_suspends_the_run_without_a_finish(app):
    answer = app.run("stream", 'tool delete_record {"id":"r1"}')
    assert answer.types == [*PREPARED, *CALL, "tool-call-approval", "[DONE]"]
    payload = answer.of("tool-call-approval")[0]["payload"]
    assert payload["toolName"] == "delete_record" and payload["args"] == {"id": "r1"} and payload["resumeSchema"]


def test_generate_tells_what_waits(app):
    body = app.run("generate", 'tool delete_record {"id":"r1"}').json
    assert body["finishReason"] == "suspended"
    assert body["suspendPayload"]["toolName"] == "delete_record" and body["suspendPayload"]["args"] == {"id": "r1"}
    assert body["resumeSchema"]


def test_approved_call_runs_and_the_answer_goes_on(app):
    run_id, call_id = suspended(app)
    body = {"runId": run_id, "toolCallId": call_id}
    answer = app.post("/api/agents/conformance/approve-tool-call", body)
    assert answer.types == ["start", "tool-call", "tool-result", "step-finish", "step-start", *SAID, *END]
    assert answer.said == 'Tool delete_record returned {"deleted":"r1"}'
    assert tool_states(app.messages()) == [(call_id, "result")]
    part = app.messages()[-1]["content"]["parts"]
    approval = next(p for p in part if p["type"] == "tool-invocation")["toolInvocation"]["approval"]
    assert approval["approved"] is True
    again = app.post("/api/agents/conformance/approve-tool-call", body)
    assert again.status in (404, 409)


def test_declined_call_does_not_run_and_the_model_hears_why(app):
    run_id, call_id = suspended(app)
    answer = app.post(
        "/api/agents/conformance/decline-tool-call", {"runId": run_id, "toolCallId": call_id, "reason": "not today"}
    )
    assert "tool-output-denied" in answer.types and "tool-result" not in answer.types
    denied = answer.of("tool-output-denied")[0]["payload"]["approval"]
    assert denied["approved"] is False and denied["reason"] == "not today"
    assert "not today" in answer.said
    assert tool_states(app.messages()) == [(call_id, "output-denied")]


@pytest.mark.parametrize(("word", "state"), [("approve", "result"), ("decline", "output-denied")])
def test_generate_twins_answer_json(app, word, state):
    run_id, call_id = suspended(app, "generate")
    answer = app.post(f"/api/agents/conformance/{word}-tool-call-generate", {"runId": run_id, "toolCallId": call_id})
    assert answer.status == 200 and answer.json["finishReason"] == "stop" and answer.json["text"]
    assert tool_states(app.messages()) == [(call_id, state)]


@pytest.mark.parametrize("path", ["resume-stream", "resume-stream-until-idle"])
def test_resume_data_decides(app, path):
    run_id, call_id = suspended(app)
    body = {"runId": run_id, "toolCallId": call_id, "resumeData": {"approved": True}}
    body["memory"] = {"thread": "t1", "resource": "ada"}
    answer = app.post(f"/api/agents/conformance/{path}", body)
    assert answer.status == 200 and '{"deleted":"r1"}' in answer.said


def test_run_of_another_resource_cannot_be_decided(app):
    run_id, call_id = suspended(app)
    body = {"runId": run_id, "toolCallId": call_id, "resourceId": "bob"}
    assert app.post("/api/agents/conformance/approve-tool-call", body).status in (403, 404)
    assert app.post("/api/agents/conformance/approve-tool-call", {"runId": "nope"}).status == 404
    assert tool_states(app.messages()) == [(call_id, "approval-requested")]


def test_suspended_runs_are_listed_until_decided(app):
    run_id, call_id = suspended(app)
    found = app.get("/api/agents/conformance/suspended-runs", resourceId="ada", threadId="t1").json
    assert found["total"] == 1
    run = found["runs"][0]
    assert run["runId"] == run_id and run["status"] == "suspended" and run["threadId"] == "t1"
    assert run["toolCalls"] == [
        {"toolCallId": call_id, "toolName": "delete_record", "args": {"id": "r1"}, "requiresApproval": True}
    ]
    assert app.get("/api/agents/conformance/suspended-runs", resourceId="bob").json["total"] == 0
    app.post("/api/agents/conformance/approve-tool-call", {"runId": run_id, "toolCallId": call_id})
    assert app.get("/api/agents/conformance/suspended-runs", resourceId="ada").json["total"] == 0


def test_decision_by_thread_goes_on_in_the_background(app):
    run_id, call_id = suspended(app)
    body = {"resourceId": "ada", "threadId": "t1", "toolCallId": call_id, "approved": True}
    answer = app.post("/api/agents/conformance/send-tool-approval", body)
    assert answer.json == {"accepted": True, "runId": run_id, "toolCallId": call_id}
    assert tool_states(app.messages()) == [(call_id, "result")]
    assert app.post("/api/agents/conformance/send-tool-approval", body).status == 404


def test_require_tool_approval_suspends_every_call(app):
    answer = app.run("stream", 'tool get_weather {"city":"Oslo"}', requireToolApproval=True)
    assert answer.types[-2:] == ["tool-call-approval", "[DONE]"]


def test_approval_works_without_a_thread(app):
    first = app.run("generate", 'tool delete_record {"id":"r1"}', thread="", agent="forgetful").json
    body = {"runId": first["runId"], "toolCallId": first["suspendPayload"]["toolCallId"]}
    answer = app.post("/api/agents/forgetful/approve-tool-call", body)
    assert '{"deleted":"r1"}' in answer.said


# -------------------------------------------------------------------------------------------------- messages to a thread


@pytest.mark.parametrize("path", ["send-message", "queue-message"])
def test_idle_thread_is_woken_by_a_message(app, path):
    body = {"message": "say hi", "resourceId": "ada", "threadId": "t1"}
    answer = app.post(f"/api/agents/conformance/{path}", body)
    assert answer.status == 200
    assert answer.json["accepted"] is True and answer.json["runId"]
    assert set(answer.json["signal"]) >= {"id", "type", "contents", "createdAt", "acceptedAt"}
    assert app.said() == [("user", "say hi"), ("assistant", "hi")]
    assert app.messages()[0]["id"] == answer.json["signal"]["id"]


@pytest.mark.parametrize(("behavior", "stored"), [("persist", [("user", "say hi")]), ("discard", [])])
def test_message_to_an_idle_thread_may_be_kept_or_dropped(app, behavior, stored):
    app.create("t1")
    body = {"message": {"contents": "say hi", "metadata": {"a": 1}}, "resourceId": "ada", "threadId": "t1"}
    app.post("/api/agents/conformance/send-message", {**body, "ifIdle": {"behavior": behavior}})
    assert app.said() == stored


def test_signal_is_stored_and_answered(app):
    signal = {"type": "system-reminder", "tagName": "reminder", "contents": "say noted"}
    answer = app.post("/api/agents/conformance/signals", {"signal": signal, "resourceId": "ada", "threadId": "t1"})
    assert answer.json["accepted"] is True and answer.json["signal"]["type"] == "system-reminder"
    assert app.said()[-1] == ("assistant", "noted")


def test_message_to_a_foreign_thread_is_403(app):
    app.save("one")
    body = {"message": "say hi", "resourceId": "bob", "threadId": "t1"}
    assert app.post("/api/agents/conformance/send-message", body).status == 403
    assert len(app.messages()) == 1


def test_asynchronous_work_is_handed_over_where_a_function_is_set(app):
    handed = []

    class Kept:
        def dispatch(self, target, event):
            handed.append((target, dict(event)))

    app.deployment.services.dispatcher = Kept()
    body = {"message": "say hi", "resourceId": "ada", "threadId": "t1"}
    run_id = app.post("/api/agents/conformance/send-message", body).json["runId"]
    assert app.get("/api/memory/threads/t1").status == 404
    [(target, job)] = handed
    assert target == "chat" and job["job"] == "turn"
    from agent_memory.http.background import do_job

    assert do_job(job)["runId"] == run_id
    do_job(job)  # delivered twice
    assert app.said() == [("user", "say hi"), ("assistant", "hi")]


# ------------------------------------------------------------------------------------------------- subscribe and abort


def test_nothing_to_abort_on_an_idle_thread(app, monkeypatch):
    monkeypatch.setattr(subscriptions, "POLL_S", 0.01)
    app.save("one")
    for thread in ("t1", "unknown"):
        answer = app.post("/api/agents/conformance/threads/abort", {"resourceId": "ada", "threadId": thread})
        assert answer.json == {"aborted": False}


def test_running_answer_is_stopped_and_keeps_what_was_said(app, pace):
    import threading

    said = {}
    thread = threading.Thread(target=lambda: said.update(answer=app.run("stream", "slow 100 100")))
    thread.start()
    assert pace.said.wait(60)
    answer = app.post("/api/agents/conformance/threads/abort", {"resourceId": "ada", "threadId": "t1"})
    assert answer.json == {"aborted": True}
    thread.join(60)
    assert not thread.is_alive()
    assert "abort" in said["answer"].types
    role, text = app.said()[-1]
    assert role == "assistant" and text.startswith("w1") and "w100" not in text
    assert app.run("generate", "say fine").json["text"] == "fine"


def test_subscriber_gets_the_chunks_of_a_run(app):
    import threading
    import time

    from tests.support.http_app import event

    thread = threading.Thread(target=lambda: app.run("stream", "slow 12 100", agent="resumable"))
    body = {"resourceId": "ada", "threadId": "t1"}
    app.create("t1")
    response = app.application.handle(event("POST", "/api/agents/resumable/threads/subscribe", body=body))
    pieces = iter(response.body)
    assert next(pieces) == b": connected\n\n"
    thread.start()
    found = []
    until = time.monotonic() + 15
    for piece in pieces:
        found.append(piece)
        if b'"type":"finish"' in piece or time.monotonic() > until:
            break
    pieces.close()
    thread.join()
    assert b'"type":"start"' in found[0]
    assert b'"nonUser"' in found[-1]
    text = b"".join(found).decode()
    assert "w1 " in text and "w12" in text


def test_subscriber_gets_each_run_that_begins_and_ends_between_two_looks(app):
    from tests.support.http_app import event

    app.run("stream", "say earlier", agent="resumable")
    body = {"resourceId": "ada", "threadId": "t1"}
    pieces = iter(app.application.handle(event("POST", "/api/agents/resumable/threads/subscribe", body=body)).body)
    assert next(pieces) == b": connected\n\n"
    for word in ("one", "two"):
        app.run("stream", f"say {word}", agent="resumable")
    found = b""
    while found.count(b'"type":"finish"') < 2:
        found += next(pieces)
    pieces.close()
    assert b"earlier" not in found
    assert 0 < found.index(b'"text":"one"') < found.index(b'"text":"two"')


def test_subscriber_gets_runs_that_answer_in_one_piece_and_what_follows_a_decision_however_short(app):
    pieces = subscribed(app)
    first = app.run("generate", 'tool delete_record {"id":"r1"}', agent="resumable").json
    assert first["finishReason"] == "suspended"
    found = until(pieces, b'"tool-call-approval"')
    app.run("generate", "say beside", agent="resumable")
    found += until(pieces, b'"type":"finish"')
    body = {"runId": first["runId"], "toolCallId": first["suspendPayload"]["toolCallId"]}
    assert app.post("/api/agents/resumable/approve-tool-call-generate", body).status == 200
    found += until(pieces, b'"type":"finish"')
    pieces.close()
    assert found.count(b'"type":"start"') == 3 and found.count(b'"tool-call-approval"') == 1
    assert 0 < found.index(b'"text":"beside"') < found.index(b'"type":"tool-result"')


def test_approval_goes_on_with_the_answer_that_waits_also_behind_other_turns(app):
    first = app.run("generate", 'tool delete_record {"id":"r1"}').json
    app.run("generate", "say beside")
    body = {"runId": first["runId"], "toolCallId": first["suspendPayload"]["toolCallId"]}
    answer = app.post("/api/agents/conformance/approve-tool-call-generate", body)
    assert (answer.status, answer.json["text"]) == (200, 'Tool delete_record returned {"deleted":"r1"}')
    assert [text for role, text in app.said() if role == "assistant"] == [answer.json["text"], "beside"]
    assert app.post("/api/agents/conformance/approve-tool-call-generate", body).status in (404, 409)


def test_subscriber_gets_runs_that_end_while_another_one_is_shown(app, pace, monkeypatch):
    import threading

    from tests.support.pace import until as wait_until

    looks, found = [], []
    look = subscriptions._Turns.look
    monkeypatch.setattr(subscriptions, "POLL_S", 0.05)
    monkeypatch.setattr(subscriptions._Turns, "look", lambda turns: looks.append(look(turns)))
    pieces = subscribed(app)
    reader = threading.Thread(target=lambda: found.append(until(pieces, b'"type":"finish"', 6)), daemon=True)
    slow = threading.Thread(target=lambda: app.run("stream", "slow 100 100", agent="resumable"), daemon=True)
    reader.start()
    slow.start()
    assert pace.said.wait(60)
    words = ("one", "two", "three", "four", "five")
    for word in words:
        app.run("stream", f"say {word}", agent="resumable")
        seen = len(looks)
        wait_until(lambda seen=seen: len(looks) > seen + 1)
    pace.go_on()
    slow.join(60)
    reader.join(60)
    assert not reader.is_alive()
    assert all(f'"text":"{word}"'.encode() in found[0] for word in words)
    assert found[0].count(b'"type":"start"') == 6


def subscribed(app):
    from tests.support.http_app import event

    body = {"resourceId": "ada", "threadId": "t1"}
    if app.get("/api/memory/threads/t1").status != 200:
        app.create("t1")
    pieces = iter(app.application.handle(event("POST", "/api/agents/resumable/threads/subscribe", body=body)).body)
    assert next(pieces) == b": connected\n\n"
    return pieces


def until(pieces, wanted, count=1):
    found = b""
    while found.count(wanted) < count:
        found += next(pieces)
    return found


def test_agent_that_keeps_no_chunks_cannot_be_subscribed_to(app):
    app.create("t1")
    answer = app.post("/api/agents/conformance/threads/subscribe", {"resourceId": "ada", "threadId": "t1"})
    assert answer.status == 501


def test_stored_answer_carries_its_text(app):
    app.run("stream", "say hi")
    assert text_of(app.messages()[-1]) == "hi"
