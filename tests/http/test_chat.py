"""The chat endpoint, as useChat drives it."""

from __future__ import annotations

import base64
import threading

import pytest

from tests.support.http_app import Answer, event, text_of, tool_states
from tests.support.pace import first_look, until

CALL = ["tool-input-start", "tool-input-delta", "tool-input-available"]
SAID = ["text-start", "text-delta", "text-end"]
END = ["finish-step", "finish", "[DONE]"]


def user(text, id="u1", **more):
    return {"id": id, "role": "user", "parts": [{"type": "text", "text": text}], **more}


class Page:
    """The page's side: keeps its own history and sends all of it each turn."""

    def __init__(self, app, thread="trip-42", **body):
        self.app = app
        self.thread = thread
        self.body = {"resourceId": "ada", **body}
        self.messages = []

    def send(self, text=None, **more):
        if text is not None:
            self.messages.append(user(text, f"u{len(self.messages) + 1}"))
        return self.post(self.messages, **more)

    def post(self, messages, trigger="submit-message", **more):
        body = {"id": self.thread, "trigger": trigger, "messages": messages, **self.body, **more}
        answer = self.app.post("/api/chat", body)
        if answer.status == 200:
            self.take(answer)
        return answer

    def take(self, answer: Answer):
        """Build the assistant message from the stream, as strict about order as the page is."""
        starts = answer.of("start")
        if not starts:
            return
        message_id = starts[0]["messageId"]
        if not (self.messages and self.messages[-1]["id"] == message_id):
            self.messages.append({"id": message_id, "role": "assistant", "parts": []})
        parts = self.messages[-1]["parts"]
        blocks, calls = {}, {p["toolCallId"]: p for p in parts if "toolCallId" in p}
        finished = False
        for chunk in answer.events[:-1]:
            assert not finished, "nothing follows finish"
            kind = chunk["type"]
            assert None not in chunk.values(), chunk
            if kind == "start-step":
                parts.append({"type": "step-start"})
            elif kind in ("text-start", "reasoning-start"):
                blocks[kind.split("-")[0], chunk["id"]] = part = {"type": kind.split("-")[0], "text": ""}
                parts.append(part)
            elif kind in ("text-delta", "reasoning-delta"):
                blocks[kind.split("-")[0], chunk["id"]]["text"] += chunk["delta"]
            elif kind in ("text-end", "reasoning-end"):
                del blocks[kind.split("-")[0], chunk["id"]]
            elif kind == "tool-input-available":
                part = calls[chunk["toolCallId"]] = {
                    "type": f"tool-{chunk['toolName']}",
                    "toolCallId": chunk["toolCallId"],
                    "state": "input-available",
                    "input": chunk["input"],
                }
                parts.append(part)
            elif kind == "tool-output-available":
                calls[chunk["toolCallId"]].update(state="output-available", output=chunk["output"])
            elif kind == "tool-output-error":
                calls[chunk["toolCallId"]].update(state="output-error", errorText=chunk["errorText"])
            elif kind == "tool-output-denied":
                calls[chunk["toolCallId"]].update(state="output-denied")
            elif kind == "tool-approval-request":
                calls[chunk["toolCallId"]].update(state="approval-requested", approval={"id": chunk["approvalId"]})
            elif kind == "finish":
                finished = True
        assert not blocks and finished

    def tool(self):
        """The last tool part on the page."""
        return next(p for p in reversed(self.messages[-1]["parts"]) if "toolCallId" in p)

    def reload(self):
        """What the page finds after a reload: id, role and parts without what only storage adds."""
        answer = self.app.get(f"/api/chat/{self.thread}")
        assert answer.status == 200
        return answer.json["messages"]


def brief(messages):
    return [
        (
            m["id"],
            m["role"],
            [(p["type"], p.get("text"), p.get("state"), p.get("output")) for p in m["parts"] if _shown(p)],
        )
        for m in messages
    ]


def _shown(part):
    part.pop("state", None) if part["type"] in ("text", "reasoning") else None
    return part["type"] != "step-start"


@pytest.fixture
def page(app):
    return Page(app)


def test_turn_has_headers_framing_and_sequence(app, page):
    answer = page.send("say A raincoat and boots.")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.headers["x-vercel-ai-ui-message-stream"] == "v1"
    assert answer.types == ["start", "start-step", *SAID, *END]
    assert answer.said == "A raincoat and boots."
    assert answer.of("finish") == [{"type": "finish", "finishReason": "stop"}]
    assert brief(page.reload()) == brief(page.messages)


def test_history_is_not_stored_twice_and_ids_survive_a_reload(app, page):
    for text in ("say one", "say two", "recall"):
        page.send(text)
    assert (
        page.messages[-1]["parts"][-1]["text"] == 'SEEN ["user:say one","assistant:one","user:say two","assistant:two"]'
    )
    assert brief(page.reload()) == brief(page.messages)


def test_only_the_last_message_may_be_sent(app):
    memory = {"thread": "trip-42", "resource": "ada"}
    first = app.post("/api/chat", {"memory": memory, "messages": [user("say one", "u1")]})
    second = app.post("/chat/conformance", {"memory": memory, "messages": [user("recall", "u2")]})
    assert first.said == "one" and second.said == 'SEEN ["user:say one","assistant:one"]'


def test_page_metadata_and_date_come_back(app, page):
    page.post([user("say hi", metadata={"mood": "calm"})])
    stored = app.messages("trip-42")[0]
    assert stored["content"]["metadata"]["mood"] == "calm"
    found = page.reload()[0]["metadata"]
    assert found["mood"] == "calm" and found["threadId"] == "trip-42" and found["createdAt"]


def test_reasoning_and_server_tools_are_told(app, page):
    thinking = page.send("think yes")
    assert thinking.types == ["start", "start-step", "reasoning-start", "reasoning-delta", "reasoning-end", *SAID, *END]
    tool = page.send('tool get_weather {"city":"Oslo"}')
    assert tool.types == [
        "start",
        "start-step",
        *CALL,
        "tool-output-available",
        "finish-step",
        "start-step",
        *SAID,
        *END,
    ]
    failing = page.send("tool broken_tool {}")
    assert failing.of("tool-output-error")[0]["errorText"] == "tool exploded"
    assert brief(page.reload()) == brief(page.messages)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    ("outcome", "state", "told"),
    [
        ({"state": "output-available", "output": "red"}, "result", 'pick_color returned "red"'),
        ({"state": "output-error", "errorText": "no colours"}, "output-error", "no colours"),
    ],
)
def test_client_tool_outcome_continues_the_same_message(app, page, whole, outcome, state, told):
    first = page.send('tool pick_color {"options":["red"]}')
    assert first.types == ["start", "start-step", *CALL, *END]
    assert first.of("finish")[0]["finishReason"] == "tool-calls"
    page.tool().update(outcome)
    answer_id = page.messages[-1]["id"]
    sent = page.messages if whole else page.messages[-1:]
    answer = page.post(sent, messageId=answer_id)
    assert answer.types == ["start", "start-step", *SAID, *END]
    assert answer.of("start")[0]["messageId"] == answer_id
    assert told in answer.said
    assert [m["id"] for m in app.messages("trip-42")] == ["u1", answer_id]
    assert [s for _, s in tool_states(app.messages("trip-42"))] == [state]


def test_client_tool_outcome_may_travel_with_the_next_user_message(app, page):
    page.send('tool pick_color {"options":["red"]}')
    page.tool().update(state="output-available", output="red")
    answer = page.send("say thanks")
    assert answer.said == "thanks"
    assert [s for _, s in tool_states(app.messages("trip-42"))] == ["result"]
    assert [m["role"] for m in app.messages("trip-42")] == ["user", "assistant", "user", "assistant"]


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("approved", [True, False])
def test_approval_continues_the_same_message_and_counts_once(app, page, whole, approved):
    first = page.send('tool delete_record {"id":"r1"}')
    assert first.types == ["start", "start-step", *CALL, "tool-approval-request", *END]
    assert first.of("finish")[0]["finishReason"] == "tool-calls"
    part, answer_id = page.tool(), page.messages[-1]["id"]
    part.update(state="approval-responded", approval={"id": part["approval"]["id"], "approved": approved})
    if not approved:
        part["approval"]["reason"] = "not today"
    import copy

    sent = copy.deepcopy(page.messages if whole else page.messages[-1:])
    answer = page.post(sent, messageId=answer_id)
    outcome = "tool-output-available" if approved else "tool-output-denied"
    assert answer.types == ["start", outcome, "finish-step", "start-step", *SAID, *END]
    assert answer.of("start")[0]["messageId"] == answer_id
    assert ('{"deleted":"r1"}' if approved else "not today") in answer.said
    state = "result" if approved else "output-denied"
    assert [s for _, s in tool_states(app.messages("trip-42"))] == [state]
    again = app.post("/api/chat", {"id": "trip-42", "resourceId": "ada", "messages": sent, "messageId": answer_id})
    assert again.status in (200, 409)
    assert [s for _, s in tool_states(app.messages("trip-42"))] == [state]
    assert len(app.messages("trip-42")) == 2


def test_regenerate_replaces_the_old_answer(app, page):
    page.send("nonce")
    old = page.messages.pop()
    answer = page.post(page.messages, trigger="regenerate-message")
    assert answer.of("start")[0]["messageId"] != old["id"]
    stored = app.messages("trip-42")
    assert [m["role"] for m in stored] == ["user", "assistant"]
    assert stored[1]["id"] == page.messages[-1]["id"]
    assert text_of(stored[1]) == answer.said
    assert brief(page.reload()) == brief(page.messages)


def test_failure_inside_the_stream_and_the_next_turn(app, page):
    answer = page.send("fail no capacity")
    assert answer.types == ["start", "start-step", "error", *END]
    assert answer.of("error")[0]["errorText"] == "no capacity"
    assert answer.of("finish")[0]["finishReason"] == "error"
    assert page.send("say fine").said == "fine"
    assert [m["role"] for m in app.messages("trip-42")] == ["user", "user", "assistant"]


def test_guardrail_on_the_way_in_tells_the_page_and_stores_nothing(app):
    from agent_memory import runtime

    class Stop:
        id = "stop"

        def process_input(self, args):
            args.abort("not allowed")

    runtime.agents()["conformance"].input_processors = (Stop(),)
    answer = Page(app).send("say hi")
    assert answer.events == [
        {"type": "data-tripwire", "data": {"reason": "not allowed", "processorId": "stop"}},
        {"type": "finish", "finishReason": "other"},
        "[DONE]",
    ]
    assert app.get("/api/chat/trip-42").status == 404
    chunks = app.run("stream", "say hi")
    assert chunks.types == ["tripwire", "[DONE]"]
    assert app.run("generate", "say hi").json["tripwire"]["reason"] == "not allowed"


def test_guardrail_on_the_way_out_closes_the_step_and_stores_nothing(app):
    from agent_memory import runtime

    class Stop:
        id = "stop"

        def process_output_result(self, args):
            args.abort("not allowed")

    runtime.agents()["conformance"].output_processors = (Stop(),)
    answer = Page(app).send("say hi")
    assert answer.types == ["start", "start-step", *SAID, "data-tripwire", *END]
    assert answer.of("finish")[0]["finishReason"] == "other"
    assert app.get("/api/chat/trip-42").status == 404
    assert app.run("stream", "say hi").types[-2:] == ["tripwire", "[DONE]"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"id": "t"},
        {"id": "t", "messages": "text"},
        {"messages": [user("hi")]},
        {"id": "t", "messages": [user("hi")], "resourceId": 7},
        {"id": "t", "messages": [], "resourceId": "ada"},
        {"id": "t", "messages": [{"id": "u1", "role": "user"}], "resourceId": "ada"},
    ],
)
def test_wrong_chat_body_is_a_400_as_json(app, body):
    answer = app.post("/api/chat", body)
    assert answer.status == 400 and answer.json["error"], answer.json
    assert app.rows("messages") == []


def test_foreign_thread_is_403(app, page):
    page.send("say hi")
    answer = app.post("/api/chat", {"id": "trip-42", "resourceId": "bob", "messages": [user("recall", "u9")]})
    assert answer.status == 403
    assert app.get("/api/chat/trip-42", resourceId="bob").status == 403
    assert len(app.messages("trip-42")) == 2


def test_files_reach_the_model_and_come_back_once(app, page):
    data = bytes(range(256)) * 8
    url = "data:image/png;base64," + base64.b64encode(data).decode()
    message = user("files", "u1")
    message["parts"].append({"type": "file", "mediaType": "image/png", "filename": "dot.png", "url": url})
    answer = page.post([message])
    assert answer.said == f'FILES [{{"mediaType":"image/png","size":{len(data)}}}]'
    files = [p for m in page.reload() for p in m["parts"] if p["type"] == "file"]
    assert len(files) == 1
    assert files[0]["mediaType"] == "image/png" and files[0]["filename"] == "dot.png"
    assert fetch(app, files[0]["url"]) == data


def fetch(app, url):
    if url.startswith("data:"):
        return base64.b64decode(url.partition(",")[2])
    from urllib.parse import unquote, urlsplit

    key = unquote(urlsplit(url).path).lstrip("/").removeprefix(app.names.bucket + "/")
    return app.deployment.blobs.get(key)


def test_echoed_pictures_do_not_add_up_case_97(app):
    """Five turns with a picture each; the page echoes what it loaded, links included, and the thread stays usable."""
    page = Page(app)
    for turn in range(5):
        url = "data:image/png;base64," + base64.b64encode(bytes([turn]) * 100_000).decode()
        page.messages = page.reload() if turn else []
        message = user("files", f"u{turn}")
        message["parts"].append({"type": "file", "mediaType": "image/png", "url": url})
        answer = page.post([*page.messages, message])
        assert answer.said == 'FILES [{"mediaType":"image/png","size":100000}]'
    assert len(app.messages("trip-42")) == 10
    large = user("files", "u9")
    large["parts"].append({"type": "file", "mediaType": "image/png", "url": "data:image/png;base64," + "A" * 8_000_000})
    assert app.post("/api/chat", {"id": "trip-42", "resourceId": "ada", "messages": [large]}).status == 413
    assert page.post([user("say fine", "u10")]).said == "fine"


def test_history_of_an_unknown_chat_is_404(app):
    answer = app.get("/api/chat/nothing")
    assert answer.status == 404 and answer.json["error"]


# -------------------------------------------------------------------------------------------------------------- resume


def test_nothing_runs_is_204_without_a_body(app, page):
    page.send("say hi")
    for thread in ("trip-42", "unknown"):
        answer = app.get(f"/api/chat/{thread}/stream")
        assert answer.status == 204 and answer.body == b""


def test_reloaded_page_rejoins_a_running_answer_from_its_beginning(app, pace, monkeypatch):
    page = Page(app, agentId="resumable")
    first = {}
    thread = threading.Thread(target=lambda: first.update(answer=page.send("slow 20 100")))
    joined = {}
    reader = threading.Thread(
        target=lambda: joined.update(answer=app.get("/api/chat/trip-42/stream", resourceId="ada"))
    )
    looked = first_look(monkeypatch)
    thread.start()
    assert pace.said.wait(60)
    reader.start()
    assert looked.wait(60)
    pace.go_on()
    for each in (thread, reader):
        each.join(60)
    answer = joined["answer"]
    assert answer.status == 200
    assert answer.headers["x-vercel-ai-ui-message-stream"] == "v1"
    assert answer.events == first["answer"].events
    assert app.get("/api/chat/trip-42/stream", resourceId="ada").status == 204


def test_a_turn_beside_it_does_not_cut_a_rejoined_answer_short(app, monkeypatch):
    first, joined = {}, {}
    page, other = Page(app, agentId="resumable"), Page(app, agentId="resumable")
    runs = [
        threading.Thread(target=lambda: first.update(answer=page.send("slow 30 100"))),
        threading.Thread(target=lambda: joined.update(answer=app.get("/api/chat/trip-42/stream", resourceId="ada"))),
    ]
    looked = first_look(monkeypatch)
    runs[0].start()
    until(lambda: app.deployment.services.runs.get_active("ada", "trip-42"))
    runs[1].start()
    assert looked.wait(60)
    other.post([user("slow 12 100", "beside")])
    for run in runs:
        run.join()
    assert joined["answer"].events == first["answer"].events


def test_foreign_page_cannot_rejoin(app, page):
    page.send("say hi")
    assert app.get("/api/chat/trip-42/stream", resourceId="bob").status == 403


def test_deadline_closes_the_stream_cleanly(app):
    class Context:
        def get_remaining_time_in_millis(self):
            return 6_000

    body = {"id": "trip-42", "resourceId": "ada", "messages": [user("slow 100 100")]}
    answer = app.handle(event("POST", "/api/chat", body=body), Context())
    assert answer.types[-4:] == ["error", "finish-step", "finish", "[DONE]"] or answer.types[-3:] == [
        "error",
        "finish",
        "[DONE]",
    ]
    assert answer.of("finish")[0]["finishReason"] == "error"
    assert app.said("trip-42")[0] == ("user", "slow 100 100")
    assert app.run("generate", "say fine", thread="trip-42").json["text"] == "fine"
