"""A job whose invocations die without a word, as by a time-out, is not lost from sight."""

from __future__ import annotations

import pytest

from agent_memory import observe
from agent_memory.agent.services import Services
from agent_memory.aws.dynamodb.jobs import DynamoJobStore
from agent_memory.jobs import kinds
from agent_memory.jobs.runner import MAX_TRIES, Work, run, start
from tests.jobs.test_runner import Crash, Janitor
from tests.support.memories import bench as make_bench


def crash(_work: Work) -> bool:
    raise Crash


def test_the_alarm_rings_when_the_last_try_of_a_crashing_job_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[dict[str, float]] = []
    monkeypatch.setattr(observe, "metrics", lambda **values: counted.append(values))
    monkeypatch.setitem(kinds.KINDS, "work", f"{__name__}:crash")
    with make_bench() as bench:
        jobs = DynamoJobStore(bench.dynamodb, runs_table=bench.names.runs, clock=bench.clock)
        services = Services(store=bench.store, jobs=jobs, dispatcher=Janitor())  # type: ignore[arg-type]
        start(services, "work", {}, owner="ada", job_id="j")
        for _ in range(MAX_TRIES):
            with pytest.raises(Crash):
                run(services, "j", "ada")
            bench.clock.move(minutes=2)
        assert counted == []
        job = run(services, "j", "ada")
    assert job is not None and job.error is not None
    assert (job.state, job.error["code"]) == ("failed", "STORAGE")
    assert counted == [{"JobFailures": 1}]
