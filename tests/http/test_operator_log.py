"""What operators see of requests and turns, as a function on Lambda writes it."""

from __future__ import annotations

import json
import threading

import pytest

from agent_memory import runtime
from agent_memory.agent.agent import Agent
from agent_memory.aws import clients
from agent_memory.errors import ModelError, UnavailableError
from agent_memory.http.routes import ROUTES
from agent_memory.memory import Memory
from agent_memory.ports import Usage
from streaming_runtime.pump import Pump
from tests.bench.costs import LOG_BYTES
from tests.support.http_app import event
from tests.support.models import FakeModel, say
from tests.support.operator_log import on_lambda

SECRET = "the zebra sleeps"
SAID = {"messages": SECRET, "memory": {"thread": "t1", "resource": "ada@example.org"}}


@pytest.fixture
def log():
    with on_lambda() as found:
        yield found


class Dispatched:
    """Takes events as the dispatcher of a deployment does."""

    def __init__(self):
        self.events = []

    def dispatch(self, target, event):
        from agent_memory.observe import with_correlation

        self.events.append((target, with_correlation(event)))


def post(app, path, body, **headers):
    return app.call("POST", path, body=body, headers=headers)


def test_a_request_has_one_line_with_its_route_and_no_text(app, log):
    answer = post(app, "/api/agents/conformance/generate", SAID, **{"x-request-id": "page-7"})
    app.get("/api/memory/threads/a-secret-thread", resourceId="ada@example.org")

    assert answer.headers["x-request-id"] == "page-7"
    first, second = log.of("a request was answered")
    assert first["route"] == "/api/agents/{agentId}/generate"
    assert (first["method"], first["status"], first["correlation_id"]) == ("POST", 200, "page-7")
    assert first["bytes"] == len(answer.body)
    assert first["duration_ms"] >= 0
    assert "code" not in first
    assert second["route"] == "/api/memory/threads/{threadId}"
    assert (second["status"], second["code"], second["request_id"]) == (404, "THREAD_NOT_FOUND", "r-1")
    assert {line["service"] for line in log.lines} == {"chat"}
    assert "zebra" not in log.text
    assert "ada@example.org" not in log.text
    assert "a-secret-thread" not in log.text


def test_a_turn_has_one_line_with_what_it_took(app, log):
    clients.meter.attach(app.dynamodb)
    answer = post(app, "/api/agents/conformance/generate", SAID, **{"x-request-id": "page-8"})

    (turn,) = log.of("a turn ended")
    cost = answer.json["providerMetadata"]["memory"]["cost"]
    assert (turn["outcome"], turn["finish_reason"], turn["steps"]) == ("finished", "stop", 1)
    assert (turn["thread_id"], turn["agent_id"], turn["run_id"]) == ("t1", "conformance", answer.json["runId"])
    assert turn["correlation_id"] == "page-8"
    assert (turn["requests"], turn["read_units"], turn["write_units"]) == (
        cost["requests"],
        cost["readUnits"],
        cost["writeUnits"],
    )
    usage = answer.json["totalUsage"]
    assert (turn["input_tokens"], turn["output_tokens"]) == (usage["inputTokens"], usage["outputTokens"])
    assert log.metrics["Turns"] == 1
    assert log.metrics["StorageRequests"] == cost["requests"] > 0
    assert log.metrics["InputTokens"] == usage["inputTokens"]
    assert log.metrics["TurnFailures"] == 0


def test_a_turn_writes_no_more_log_than_the_cost_page_counts(app, log):
    clients.meter.attach(app.dynamodb)
    post(app, "/api/agents/conformance/generate", SAID)
    assert 1_000 < len(log.text.encode()) < LOG_BYTES / 2  # the rest is the indexer's, and Lambda's own lines


def test_lines_of_a_stream_keep_its_ids_on_the_thread_that_sends_it(app, log):
    given = event("POST", "/api/agents/conformance/stream", body=SAID, headers={"x-request-id": "page-9"})
    response = app.application.handle(given)
    assert log.of("a request was answered") == []  # it has only begun
    pump = Pump(response.body)
    sent = 0
    while (piece := pump.next(10)) is not None:
        sent += len(piece)

    (request,) = log.of("a request was answered")
    (turn,) = log.of("a turn ended")
    assert request["correlation_id"] == turn["correlation_id"] == "page-9"
    assert (request["status"], request["bytes"]) == (200, sent)
    assert threading.current_thread() is threading.main_thread()


def test_a_failure_behind_the_first_byte_is_told_by_the_turns_line(app, log):
    runtime.agents()["conformance"].model = FakeModel(ModelError("down"))
    assert post(app, "/api/agents/conformance/stream", SAID).status == 200
    (turn,) = log.of("a turn ended")
    assert (turn["level"], turn["outcome"], turn["code"]) == ("WARNING", "failed", "MODEL_FAILED")
    assert log.metrics["TurnFailures"] == 1


def test_a_turn_that_cannot_begin_counts_as_failed_and_a_bad_request_does_not(app, log, monkeypatch):
    post(app, "/api/agents/conformance/generate", {"messages": [{"role": "nobody"}], "memory": SAID["memory"]})
    assert "TurnFailures" not in log.metrics
    monkeypatch.setattr(app.deployment.store, "begin_turn", lambda *_: (_ for _ in ()).throw(UnavailableError("busy")))
    assert post(app, "/api/agents/conformance/generate", SAID).status == 503
    assert log.metrics["TurnFailures"] == 1
    line = log.of("a request was answered")[-1]
    assert (line["level"], line["status"], line["code"]) == ("WARNING", 503, "UNAVAILABLE")


@pytest.mark.parametrize("odd", ["two words", "x" * 200, "a\nb", '{"a": 1}', ""])
def test_an_odd_request_id_is_not_taken_over(app, log, odd):
    answer = app.call("GET", "/health", headers={"x-request-id": odd})
    assert answer.headers["x-request-id"] == "r-1"
    assert log.of("a request was answered")[0]["correlation_id"] == "r-1"


def test_a_request_without_any_id_gets_one(app, log):
    given = event("GET", "/health")
    given["requestContext"] = {}
    made = app.handle(given).headers["x-request-id"]
    assert made.startswith("req-")
    assert log.of("a request was answered")[0]["correlation_id"] == made


def test_tries_of_one_call_share_the_mark_of_their_idempotency_key(app, log):
    for number in range(2):
        post(
            app, "/api/agents/conformance/generate", SAID, **{"idempotency-key": "k 1", "x-request-id": f"try-{number}"}
        )
    marks = {line["idempotency"] for line in log.of("a request was answered")}
    assert len(marks) == 1
    assert "k 1" not in log.text


def test_the_correlation_id_goes_along_with_titles_and_queued_turns_and_jobs(app, log):
    sent = Dispatched()
    vars(app.deployment)["dispatcher"] = sent
    runtime.services().dispatcher = sent
    memory = Memory(last_messages=5, generate_title=True)
    titled = Agent("titled", model=FakeModel(say("hello there")), memory=memory)
    runtime.configure(app.deployment, {**runtime.agents(), "titled": titled})
    runtime.services().dispatcher = sent
    post(app, "/api/agents/titled/generate", SAID, **{"x-request-id": "page-10"})
    queued = {"message": "and this", "threadId": "t1", "resourceId": "ada@example.org"}
    answer = post(app, "/api/agents/titled/queue-message", queued, **{"x-request-id": "page-11"})

    assert answer.status == 200, answer.json
    assert [(target, given["correlationId"]) for target, given in sent.events] == [
        ("titles", "page-10"),
        ("chat", "page-11"),
    ]
    # The function that takes it over logs under the same id.
    log.clear()
    from agent_memory import observe
    from agent_memory.http.background import do_job

    observe.function("chat")(do_job)(sent.events[-1][1], None)
    (turn,) = log.of("a turn ended")
    assert (turn["correlation_id"], turn["run_id"]) == ("page-11", answer.json["runId"])


def test_a_job_remembers_the_request_that_asked_for_it(app):
    from agent_memory import observe
    from agent_memory.jobs import kinds, runner

    sent = Dispatched()
    runtime.services().dispatcher = sent
    kind = next(iter(kinds.KINDS))
    with observe.scope(correlation_id="page-12"):
        job = runner.start(runtime.services(), kind, {}, owner="ada@example.org")
    with observe.scope(correlation_id="another"):
        runner.dispatch(runtime.services(), job)  # as the function does when it calls itself
    assert [given["correlationId"] for _, given in sent.events] == ["page-12", "page-12"]


def test_recall_and_guardrails_are_counted(app, log):
    class Guard:
        id = "guard"

        def process_input(self, ctx):
            if "stop" in ctx.messages[-1].text:
                ctx.abort("no")

    runtime.agents()["conformance"].input_processors = (Guard(),)
    post(app, "/api/agents/conformance/generate", SAID)
    app.indexed("ada@example.org", "t1")
    other = {"messages": SECRET, "memory": {"thread": "t2", "resource": "ada@example.org"}}
    post(app, "/api/agents/conformance/generate", other)
    assert log.metrics["RecallHits"] >= 1

    app.index.search = lambda _query: (_ for _ in ()).throw(UnavailableError("away"))
    post(app, "/api/agents/conformance/generate", other)
    assert log.metrics["RecallFailures"] == 1
    assert log.of("a turn ended")[-1]["recall_failed"] == "UNAVAILABLE"

    answer = post(app, "/api/agents/conformance/generate", {**other, "messages": "stop it"})
    assert answer.json["tripwire"]
    assert log.metrics["Tripwires"] == 1
    assert log.of("a turn ended")[-1]["outcome"] == "tripwire"
    assert log.metrics["Turns"] == 4


def test_an_unexpected_error_is_logged_by_kind_and_place(app, log, monkeypatch):
    def explode(*_args, **_kwargs):
        raise RuntimeError(SECRET)

    monkeypatch.setattr(app.deployment.store, "owner_of", explode)
    assert app.get("/api/memory/threads/t1").status == 500
    (line,) = log.of("a call failed unexpectedly")
    assert line["error"] == "RuntimeError"
    assert line["places"][-1].endswith("explode")
    assert log.of("a request was answered")[0]["code"] == "INTERNAL"
    assert "zebra" not in log.text


def test_the_sum_of_a_thread_is_shown_with_it(app):
    post(app, "/api/agents/conformance/generate", SAID)
    used = post(app, "/api/agents/conformance/generate", {**SAID, "messages": "more"}).json["totalUsage"]
    shown = app.get("/api/memory/threads/t1", resourceId="ada@example.org").json["usage"]
    assert shown["inputTokens"] > used["inputTokens"]
    assert Usage(shown["inputTokens"], shown["outputTokens"]).total_tokens > used["totalTokens"]
    listed = app.get("/api/memory/threads", resourceId="ada@example.org").json["threads"]
    assert "usage" not in listed[0]
    assert json.dumps(shown)


def texts(value):
    """Texts of an example that are somebody's words: they hold a space."""
    if isinstance(value, str):
        return {value} if " " in value.strip() else set()
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return {text for item in items for text in texts(item)}


def test_no_route_logs_what_its_examples_say_at_any_level(app, monkeypatch):
    monkeypatch.setenv("LOG_LEVEL", "DEBUG")
    app.create("t1", title="A title of somebody")
    app.save("words in storage")
    said = {"A title of somebody", "words in storage"}
    with on_lambda() as log:
        for route in ROUTES:
            path = route.pattern
            for name in route.params:
                path = path.replace(f"{{{name}}}", {"agentId": "conformance", "threadId": "t1"}.get(name, "x"))
            query = {"agentId": "conformance", "resourceId": "ada", "searchQuery": "words in a query"}
            for example in route.examples or (None,):
                app.call(route.method, path, body=example, query={k: v for k, v in query.items() if k in route.query})
                said |= texts(example)
    assert len(said) >= 8
    assert len(log.of("a request was answered")) >= len(ROUTES)
    assert {line["route"] for line in log.of("a request was answered")} == {route.pattern for route in ROUTES}
    assert [text for text in said if text in log.text] == []
    assert "words in a query" not in log.text
