"""Messages to a thread where a turn is running, and outcomes of tools that the page has run."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager

import pytest

from agent_memory import clock, runtime
from agent_memory.http import background
from agent_memory.http.background import do_job
from tests.support import http_app
from tests.support.http_app import tool_states
from tests.support.models import FakeModel, call, say
from tests.support.pace import Pace, until

AGENT = "/api/agents/conformance"
PLACE = {"resourceId": "ada", "threadId": "t1"}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(background, "LOOK_EVERY_S", 0.05)


@pytest.fixture
def pace(monkeypatch):
    """Running answers go on when a message that came meanwhile waits."""
    made = Pace(monkeypatch)
    made.go_on_once_a_message_waits(monkeypatch)
    return made


@pytest.fixture
def held(monkeypatch):
    """Running answers go on when the test says so, and at the end of its block at the latest."""
    return Pace(monkeypatch)


class Kept:
    """A dispatcher that keeps what it is handed."""

    def __init__(self):
        self.jobs = []

    def dispatch(self, target, event):
        assert target == "chat"
        self.jobs.append(dict(event))


@contextmanager
def running(app, text, pace, *, agent="conformance", thread="t1"):
    """A turn that is running, and registered, while the block runs; its answer afterwards."""
    answers = []
    turn = threading.Thread(target=lambda: answers.append(app.run("stream", text, agent=agent, thread=thread)))
    turn.start()
    try:
        until(lambda: runtime.services().runs.get_active("ada", thread))
        assert turn.is_alive()
        yield answers
    finally:
        pace.go_on()
        turn.join(60)
    assert len(answers) == 1


def handed_in(count):
    """Wait until so many messages wait for the running turn to take them."""
    until(lambda: runtime.services().runs.get_active("ada", "t1")["waiting"] == count)


def started(target):
    thread = threading.Thread(target=target)
    thread.start()
    return thread


def send(app, text, path="send-message", **more):
    answer = app.post(f"{AGENT}/{path}", {"message": text, **PLACE, **more})
    assert answer.status == 200, answer.json
    return answer.json


# ------------------------------------------------------------------------------------------------- into a running turn


@pytest.mark.parametrize("known", [True, False])
def test_a_message_goes_into_the_running_turn_and_is_answered_there_once(app, known, pace):
    if known:
        app.run("generate", "say before")
    with running(app, "slow 25 100", pace) as answers:
        sent = send(app, "say now")
    [answer] = answers
    assert app.said()[-4:] == [
        ("user", "slow 25 100"),
        ("assistant", " ".join(f"w{n}" for n in range(1, 26))),
        ("user", "say now"),
        ("assistant", "now"),
    ]
    assert len(app.messages()) == (6 if known else 4)
    assert app.messages()[-2]["id"] == sent["signal"]["id"]
    assert sent["runId"] == answer.of("start")[0]["runId"]
    assert answer.said.endswith("w25now")
    assert [event["payload"]["messageId"] for event in answer.of("step-start")] == [
        app.messages()[-3]["id"],
        app.messages()[-1]["id"],
    ]
    assert [event["payload"]["stepResult"]["isContinued"] for event in answer.of("step-finish")] == [True, False]
    assert len(answer.of("finish")) == 1


def test_the_next_turn_remembers_both_answers_in_their_places(app, pace):
    with running(app, "slow 20 100", pace):
        send(app, "say now")
    seen = app.run("generate", "recall").json["text"]
    assert seen.index("slow 20") < seen.index("w20") < seen.index('"user:say now","assistant:now"')


def test_a_message_waits_for_the_end_where_it_is_queued(app, pace):
    app.run("generate", "say before")
    with running(app, "slow 20 100", pace) as answers:
        queued = send(app, "say later", "queue-message")
    assert "later" not in answers[0].said
    assert queued["runId"] != answers[0].of("start")[0]["runId"]
    assert [text for _, text in app.said()][-2:] == ["say later", "later"]


def test_several_messages_are_taken_in_the_order_they_were_accepted(app, held):
    with running(app, "slow 30 100", held) as answers:
        senders = []
        for word in ("one", "two", "three"):
            senders.append(started(lambda word=word: send(app, f"say {word}")))
            handed_in(len(senders))
    for sender in senders:
        sender.join(60)
    assert [text for role, text in app.said() if role == "user"][1:] == ["say one", "say two", "say three"]
    assert answers[0].said.endswith("w30three")
    assert len(app.messages()) == 6


def test_a_signal_goes_into_the_running_turn_too(app, pace):
    with running(app, "slow 20 100", pace) as answers:
        body = {"signal": {"type": "system-reminder", "contents": "say noted"}, **PLACE}
        assert app.post(f"{AGENT}/signals", body).status == 200
    assert answers[0].said.endswith("noted")
    assert len(app.messages()) == 4


def test_a_run_of_another_agent_does_not_take_it(app, pace):
    with running(app, "slow 20 100", pace) as answers:
        app.post("/api/agents/conformance-thread/send-message", {"message": "say mine", **PLACE})
    assert "mine" not in answers[0].said
    assert app.said()[-2:] == [("user", "say mine"), ("assistant", "mine")]


def test_a_stopped_turn_leaves_the_message_to_a_turn_of_its_own(app, held):
    app.run("generate", "say before")
    with running(app, "slow 100 100", held) as answers:
        sender = started(lambda: send(app, "say now"))
        handed_in(1)
        assert app.post(f"{AGENT}/threads/abort", PLACE).json == {"aborted": True}
        until(lambda: answers)
    sender.join(60)
    assert "abort" in answers[0].types
    assert app.said()[-2:] == [("user", "say now"), ("assistant", "now")]
    assert len(app.messages()) == 6


def test_a_turn_that_waits_for_approval_takes_nothing(app):
    app.post(
        f"{AGENT}/generate",
        {"messages": 'tool delete_record {"id":"r1"}', "memory": {"thread": "t1", "resource": "ada"}},
    )
    send(app, "say now")
    assert app.said()[-1] == ("assistant", "now")


@pytest.mark.parametrize(("wanted", "texts"), [("discard", []), ("persist", [("user", "say now")])])
def test_what_becomes_of_a_message_to_a_busy_thread_may_be_chosen(app, wanted, texts, pace):
    app.run("generate", "say before")
    with running(app, "slow 20 100", pace) as answers:
        answer = send(app, "say now", ifActive={"behavior": wanted})
    assert answer["accepted"] is (wanted == "persist")
    assert answers[0].said.endswith("w20")
    assert [said for said in app.said() if said[1] == "say now"] == texts
    assert ("assistant", "now") not in app.said()


def test_what_cannot_be_read_is_refused_at_once(app):
    for message in ([{"type": "text", "text": 7}], {"contents": [7]}):
        answer = app.post(f"{AGENT}/send-message", {"message": message, **PLACE})
        assert answer.status == 400
    assert app.rows("messages") == []


# ------------------------------------------------------------------------------------------------------ nothing is lost


def handed(app, text="say now"):
    """Send a message whose work is kept; the job."""
    app.deployment.services.dispatcher = Kept()
    send(app, text)
    [job] = app.deployment.services.dispatcher.jobs
    return job


def test_work_that_is_delivered_twice_answers_once(app, held):
    with running(app, "slow 25 100", held) as answers:
        job = handed(app)
        twice = [started(lambda: do_job(job)) for _ in range(2)]
        handed_in(1)
    for each in twice:
        each.join(60)
    assert do_job(job)["done"] is True
    assert answers[0].said.endswith("now")
    assert len(app.messages()) == 4


def dead_run(app, *, registered=True):
    """A run that has died: its records are there, and nobody will end it."""
    from agent_memory.ports import TurnRecord

    runs, store, now = runtime.services().runs, runtime.services().store, clock.now_ms()
    app.run("generate", "say before")
    store.begin_turn("ada", "t1", TurnRecord("k:dead", "running", "run-dead", now, now + 900_000))
    if registered:
        runs.set_active("ada", "t1", "run-dead", agent_id="conformance", expires_at=now + 900_000)
    return runs, store


@pytest.mark.parametrize("registered", [True, False])
def test_a_message_to_a_run_that_died_is_answered_after_a_while(app, monkeypatch, registered):
    monkeypatch.setattr(background, "WAIT_FOR_TURN_S", 0.5)
    dead_run(app, registered=registered)
    send(app, "say now")
    assert app.said()[-2:] == [("user", "say now"), ("assistant", "now")]


def test_a_message_that_a_run_took_before_it_died_is_answered_when_that_is_sure(app, monkeypatch):
    monkeypatch.setattr(background, "WAIT_FOR_TURN_S", 0.2)
    runs, _store = dead_run(app)
    job = handed(app)
    done = []
    worker = started(lambda: done.append(do_job(job)))
    until(lambda: runs.take_in("ada", "t1", "run-dead"))
    time.sleep(0.6)
    assert worker.is_alive(), "it may still be stored by the run that took it"
    now = clock.now_ms
    monkeypatch.setattr(clock, "now_ms", lambda: now() + 1_000_000)
    worker.join(60)
    assert done[0]["done"] is True
    assert done[0]["runId"] == job["runId"]
    assert app.said()[-2:] == [("user", "say now"), ("assistant", "now")]


def test_work_whose_time_is_over_hands_itself_on(app, monkeypatch):
    class Context:
        def get_remaining_time_in_millis(self):
            return 61_000 + app.deployment.settings.stop_before_deadline_ms

    runs, _store = dead_run(app)
    job = handed(app)
    app.deployment.services.dispatcher.jobs.clear()
    worker = started(lambda: do_job(job, Context()))
    until(lambda: runs.take_in("ada", "t1", "run-dead"))
    worker.join(60)
    assert app.deployment.services.dispatcher.jobs == [{**job, "into": "run-dead"}]
    now = clock.now_ms
    monkeypatch.setattr(clock, "now_ms", lambda: now() + 1_000_000)
    assert do_job(app.deployment.services.dispatcher.jobs[0])["done"] is True
    assert app.said()[-2:] == [("user", "say now"), ("assistant", "now")]


def test_a_turn_that_ends_while_a_message_is_handed_in_leaves_it_to_a_turn_of_its_own(app):
    runs, store = dead_run(app)
    job = handed(app)
    worker = started(lambda: do_job(job))
    handed_in(1)
    header = store.get_thread("ada", "t1")
    store.fail_turn(header, next(turn for turn in header.turns if turn.run_id == "run-dead"))
    runs.clear_active("ada", "t1", "run-dead")
    worker.join(60)
    assert app.said()[-2:] == [("user", "say now"), ("assistant", "now")]
    assert len(app.messages()) == 4


def test_a_message_in_the_first_turn_of_a_thread_that_is_made_meanwhile_is_answered_once(app, held):
    with running(app, "slow 25 100", held) as answers:
        sender = started(lambda: send(app, "say now"))
        handed_in(1)
        app.create("t1")
    sender.join(60)
    assert answers[0].said.endswith("w25now")
    assert len(app.messages()) == 4


def test_a_message_waits_for_the_run_that_has_it_while_another_one_is_newer(app):
    runs, store = dead_run(app)
    job = handed(app)
    done = []
    worker = started(lambda: done.append(do_job(job)))
    until(lambda: runs.take_in("ada", "t1", "run-dead"))
    app.run("stream", "say other")
    time.sleep(0.3)
    assert worker.is_alive()
    header = store.get_thread("ada", "t1")
    store.fail_turn(header, next(turn for turn in header.turns if turn.run_id == "run-dead"))
    runs.clear_active("ada", "t1", "run-dead")
    worker.join(60)
    assert done[0]["done"] is True
    assert app.said()[-2:] == [("user", "say now"), ("assistant", "now")]


# ------------------------------------------------------------------------------------------------- outcomes of the page

PAINT = {"paint": {"description": "Paints.", "inputSchema": {"type": "object"}}}


@pytest.fixture
def painter(app):
    app.model = FakeModel(call(("c1", "paint", {"color": "red"})), say("painted"))
    made = http_app.agent("painter", model=app.model, tools=[], scope=None, recall=False)
    runtime.configure(app.deployment, {"painter": made})
    return app


def told(call_id="c1", **more):
    """What a page sends that has run a call of a stream that it watches."""
    parts = [
        {"type": "tool-call", "toolCallId": call_id, "toolName": "paint", "input": {"color": "red"}},
        {
            "type": "tool-result",
            "toolCallId": call_id,
            "toolName": "paint",
            "output": {"type": "json", "value": {"ok": 1}},
            **more,
        },
    ]
    return {
        **PLACE,
        "toolCallId": call_id,
        "approved": True,
        "messages": [{"role": "assistant", "content": parts}],
        "streamOptions": {"clientTools": PAINT, "memory": {"thread": "t1", "resource": "ada"}},
    }


def paint(app):
    body = {"message": "paint it", **PLACE, "ifIdle": {"streamOptions": {"clientTools": PAINT}}}
    assert app.post("/api/agents/painter/send-message", body).status == 200
    assert [tool.name for tool in app.model.requests[-1].tools] == ["paint"]
    assert tool_states(app.messages()) == [("c1", "call")]


def test_an_outcome_goes_to_the_waiting_call_and_the_answer_goes_on(painter):
    paint(painter)
    answer = painter.post("/api/agents/painter/send-tool-approval", told())
    assert answer.json["accepted"] is True
    assert answer.json["toolCallId"] == "c1"
    assert painter.model.prompt()[-2:] == [
        ("assistant", "[call c1 paint]"),
        ("tool", "[result c1 {'ok': 1}]"),
    ]
    assert [tool.name for tool in painter.model.requests[-1].tools] == ["paint"]
    assert tool_states(painter.messages()) == [("c1", "result")]
    assert painter.said() == [("user", "paint it"), ("assistant", "painted")]


def test_an_outcome_counts_once(painter):
    paint(painter)
    for _ in range(2):
        assert painter.post("/api/agents/painter/send-tool-approval", told()).status == 200
    assert len(painter.model.requests) == 2
    assert painter.said() == [("user", "paint it"), ("assistant", "painted")]


def test_what_the_page_shows_the_model_in_place_of_the_result_counts(painter):
    paint(painter)
    options = {"mastra": {"modelOutput": {"type": "text", "value": "red as asked"}}}
    painter.post("/api/agents/painter/send-tool-approval", told(providerOptions=options))
    assert "red as asked" in str(painter.model.prompt())


def test_outcomes_for_nothing_and_for_others_are_refused(painter):
    paint(painter)
    path = "/api/agents/painter/send-tool-approval"
    assert painter.post(path, {**told(), "messages": []}).status == 404
    assert painter.post(path, {**told(), "resourceId": "bob"}).status == 403
    assert painter.post(path, {**told(), "streamOptions": {"clientTools": {"paint": 1}}}).status == 400
    assert painter.post(path, {**told(), "messages": [{"role": "nobody"}]}).status == 400
    assert tool_states(painter.messages()) == [("c1", "call")]
    assert len(painter.model.requests) == 1


def test_options_of_a_decision_count_for_the_rest_of_the_run(app):
    app.model = FakeModel(call(("c1", "delete_record", {"id": "r1"})), say("gone"))
    runtime.configure(app.deployment, {"painter": http_app.agent("painter", model=app.model, scope=None, recall=False)})
    app.run("generate", "delete it", agent="painter")
    body = {**PLACE, "toolCallId": "c1", "approved": True, "streamOptions": {"clientTools": PAINT}}
    assert app.post("/api/agents/painter/send-tool-approval", body).status == 200
    assert "paint" in [tool.name for tool in app.model.requests[-1].tools]
    assert tool_states(app.messages()) == [("c1", "result")]
