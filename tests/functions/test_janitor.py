"""The janitor's handler, as Lambda calls it."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_memory import runtime
from agent_memory.aws.dynamodb.jobs import DynamoJobStore
from agent_memory.errors import UnavailableError
from agent_memory.jobs.runner import start
from agent_memory.settings import Settings
from tests.support.memories import Bench, conversation
from tests.support.memories import bench as make_bench

APP = Path(__file__).resolve().parents[2] / "functions" / "janitor" / "app.py"


class Context:
    """Lambda's context, with so many seconds left."""

    def __init__(self, left_s: float = 300) -> None:
        self.left_s = left_s
        self.aws_request_id = "req-1"

    def get_remaining_time_in_millis(self) -> int:
        return int(self.left_s * 1000)


class Queue:
    """Asynchronous calls that wait."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def dispatch(self, target: str, event: Any) -> None:
        assert target == "janitor"
        self.events.append(dict(event))


@pytest.fixture
def handler() -> Any:
    spec = importlib.util.spec_from_file_location("janitor_app", APP)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.handler


@pytest.fixture
def bench() -> Iterator[Bench]:
    with make_bench() as made:
        deployment = runtime.Deployment(Settings())
        jobs = DynamoJobStore(made.dynamodb, runs_table=made.names.runs, clock=made.clock)
        vars(deployment).update(
            store=made.store, runs=None, jobs=jobs, blobs=None, index=None, embedder=None, dispatcher=Queue()
        )
        runtime.configure(deployment)
        yield made
        runtime.configure(None)


def queue() -> list[Any]:
    return runtime.services().dispatcher.events  # type: ignore[union-attr]


def long_deleted_thread(bench: Bench, rows: int = 45) -> None:
    bench.memory().save_messages(conversation(rows))
    bench.store.delete_thread("ada", "t1")


def test_a_job_runs_from_call_to_call_until_it_is_done(handler: Any, bench: Bench, monkeypatch: Any) -> None:
    monkeypatch.setattr("agent_memory.jobs.purge.ROWS_A_STEP", 20)
    long_deleted_thread(bench)
    start(runtime.services(), "purge", {"threadId": "t1"}, owner="ada", job_id="p1", correlation_id="c-1")

    states = []
    while queue():
        event = queue().pop(0)
        assert event == {"jobId": "p1", "owner": "ada", "correlationId": "c-1"}
        states.append((handler(event, Context(left_s=10))["state"], len(bench.rows("messages"))))
    assert states == [("waiting", 25), ("waiting", 5), ("finished", 0)]
    assert handler({"jobId": "p1", "owner": "ada"}, Context()) == {"jobId": "p1", "state": None}


def test_what_fails_is_raised_so_that_lambda_calls_again(handler: Any, bench: Bench, monkeypatch: Any) -> None:
    long_deleted_thread(bench)
    start(runtime.services(), "purge", {"threadId": "t1"}, owner="ada", job_id="p1")
    with monkeypatch.context() as broken:

        def busy(*_: Any, **__: Any) -> int:
            raise UnavailableError("storage is busy")

        broken.setattr(bench.store, "purge_thread", busy)
        with pytest.raises(Exception):  # noqa: B017 - on Lambda it comes without its own text
            handler(queue()[0], Context())
    assert handler(queue()[0], Context())["state"] == "finished"
    assert bench.rows("messages") == []


def test_the_schedule_starts_one_job_an_hour(handler: Any, bench: Bench) -> None:
    first = handler({"schedule": "sweep"}, Context())
    assert first == {"jobId": "sweep-2026-01-01T00", "state": "waiting"}
    assert handler({"schedule": "sweep"}, Context()) == first
    assert [event["jobId"] for event in queue()] == ["sweep-2026-01-01T00"]
    assert handler(queue()[0], Context())["state"] == "finished"
    bench.clock.move(hours=1)
    assert handler({"schedule": "sweep"}, Context())["jobId"] == "sweep-2026-01-01T01"


@pytest.mark.parametrize("event", [None, [], {}, {"schedule": "tea"}, {"jobId": 7}, {"Records": [{}]}])
def test_what_is_neither_job_nor_schedule_does_nothing(handler: Any, bench: Bench, event: Any) -> None:
    assert handler(event, Context()) == {"jobId": None, "state": None}
    assert bench.rows("runs") == []
