"""The chat function's handler, called as the runtime loop calls it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from streaming_runtime import Streamed, buffered
from tests.support.http_app import Tables, event, serve

FUNCTIONS = Path(__file__).resolve().parents[2] / "functions"


def load(name):
    spec = importlib.util.spec_from_file_location(f"{name}_app", FUNCTIONS / name / "app.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.handler


@pytest.fixture(scope="module")
def shared_tables():
    made = Tables()
    yield made
    made.stop()


@pytest.fixture
def app(shared_tables):
    with serve(shared_tables) as app:
        yield app


STREAM = event("POST", "/api/agents/conformance/stream", body={"messages": "say hello there"})


def test_answer_is_one_that_the_runtime_loop_streams(app):
    answer = Streamed.of(load("chat")(STREAM, None))
    assert answer.status == 200 and answer.is_event_stream
    pieces = list(answer.body)
    assert len(pieces) > 5 and pieces[-1] == b"data: [DONE]\n\n"


def test_answer_may_be_buffered_where_nothing_streams(app):
    answer = buffered(load("chat"))(STREAM, None)
    assert answer["statusCode"] == 200 and answer["headers"]["content-type"] == "text/event-stream"
    assert answer["body"].endswith("data: [DONE]\n\n")


def test_handed_over_turn_is_done(app):
    job = {
        "job": "turn",
        "agentId": "conformance",
        "threadId": "t1",
        "resourceId": "ada",
        "runId": "run-1",
        "messages": [{"id": "m1", "role": "user", "content": "say hi"}],
    }
    handler = load("chat")
    assert handler(job, None) == {"runId": "run-1", "done": True, "finishReason": "stop"}
    handler(job, None)
    assert app.said() == [("user", "say hi"), ("assistant", "hi")]


def test_memory_function_answers_in_the_gateways_form(app):
    app.create("t1", title="Reise nach Łódź")
    answer = load("memory")(event("GET", "/api/memory/threads/t1"), None)
    assert answer["statusCode"] == 200 and answer["isBase64Encoded"] is False
    assert "Łódź" in answer["body"]


def test_each_function_serves_its_own_routes_only(app):
    assert load("memory")(event("GET", "/api/agents"), None)["statusCode"] == 404
    assert Streamed.of(load("chat")(event("GET", "/api/memory/threads"), None)).status == 404
    for name in ("chat", "memory"):
        assert Streamed.of(load(name)(event("GET", "/health"), None)).status == 200
