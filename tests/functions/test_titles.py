"""The titles function."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent_memory import runtime
from agent_memory.agent.agent import Agent
from agent_memory.errors import ModelError
from tests.support.memories import Bench, conversation
from tests.support.memories import bench as make_bench
from tests.support.models import FakeModel, say
from tests.support.operator_log import on_lambda

APP = Path(__file__).resolve().parents[2] / "functions" / "titles" / "app.py"
EVENT = {"agentId": "helper", "resourceId": "ada", "threadId": "t1", "correlationId": "run-1"}
CONTEXT = SimpleNamespace(get_remaining_time_in_millis=lambda: 60_000)


@pytest.fixture
def handler() -> Any:
    spec = importlib.util.spec_from_file_location("titles_app", APP)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.handler


@pytest.fixture
def bench() -> Iterator[Bench]:
    with make_bench() as made:
        yield made


def serve(monkeypatch: pytest.MonkeyPatch, bench: Bench, model: FakeModel) -> FakeModel:
    agent = Agent("helper", model=model, memory=bench.memory(generate_title=True))
    monkeypatch.setattr(runtime, "_agents", {"helper": agent})
    bench.memory().save_messages(conversation(2))
    return model


def test_an_event_writes_the_title_once_case_49(handler: Any, monkeypatch: pytest.MonkeyPatch, bench: Bench) -> None:
    model = serve(monkeypatch, bench, FakeModel(say("Trip to Oslo")))

    assert handler(EVENT, CONTEXT) == {"outcome": "written"}
    assert handler(EVENT, CONTEXT) == {"outcome": "not-due"}
    assert bench.memory().get_thread("t1").title == "Trip to Oslo"  # type: ignore[union-attr]
    assert len(model.requests) == 1


def test_a_failing_model_is_raised_so_that_the_event_comes_again_case_49(
    handler: Any, monkeypatch: pytest.MonkeyPatch, bench: Bench
) -> None:
    serve(monkeypatch, bench, FakeModel(ModelError("down"), say("Later")))

    with pytest.raises(ModelError):
        handler(EVENT, CONTEXT)
    assert handler(EVENT, CONTEXT) == {"outcome": "written"}


@pytest.mark.parametrize(
    "event",
    [
        {"Records": [{"eventName": "MODIFY", "dynamodb": {"NewImage": {"title": {"S": "x"}}}}]},
        {"Records": [{"eventName": "INSERT", "dynamodb": {"NewImage": {"role": {"S": "assistant"}}}}]},
        {},
        None,
        [],
        {**EVENT, "agentId": "gone"},
    ],
)
def test_what_is_no_title_event_calls_no_model_and_writes_nothing_case_48(
    handler: Any, monkeypatch: pytest.MonkeyPatch, bench: Bench, event: Any
) -> None:
    model = serve(monkeypatch, bench, FakeModel())
    before = bench.rows("threads")

    assert handler(event, CONTEXT) == {"outcome": "ignored"}
    assert model.requests == []
    assert bench.rows("threads") == before


def test_neither_title_nor_text_is_logged(handler: Any, monkeypatch: pytest.MonkeyPatch, bench: Bench) -> None:
    serve(monkeypatch, bench, FakeModel(say("Trip to Oslo")))
    monkeypatch.setenv("LOG_LEVEL", "DEBUG")

    with on_lambda("titles") as log:
        handler(EVENT, CONTEXT)

    assert log.of("a title job ended")[0]["correlation_id"] == "run-1"
    assert log.metrics == {"ColdStarts": 1, "InputTokens": 10, "OutputTokens": 3}
    assert "Oslo" not in log.text
    assert "text 1" not in log.text
