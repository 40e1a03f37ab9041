"""Jobs run by invocations that end, crash and overlap."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from agent_memory.agent.services import Services
from agent_memory.aws.dynamodb import DynamoMessageStore
from agent_memory.aws.dynamodb.jobs import DynamoJobStore
from agent_memory.errors import ConfigurationError, ConflictError, UnavailableError
from agent_memory.jobs import kinds, runner
from agent_memory.jobs.runner import GivenUp, Work, retry, run, start
from tests.support import tables
from tests.support.emulator import shared_emulator
from tests.support.memories import Bench, conversation
from tests.support.memories import bench as make_bench

Step = Callable[[Work], bool]


class Janitor:
    """Takes calls and keeps them."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.busy = False

    def dispatch(self, target: str, event: Any) -> None:
        assert target == "janitor"
        if self.busy:
            raise UnavailableError("throttled")
        self.events.append(dict(event))


class Crash(BaseException):
    """The end of a process: nothing is noted any more."""


@pytest.fixture
def bench() -> Iterator[Bench]:
    with make_bench() as made:
        yield made


@pytest.fixture
def services(bench: Bench) -> Services:
    jobs = DynamoJobStore(bench.dynamodb, runs_table=bench.names.runs, clock=bench.clock)
    return Services(store=bench.store, jobs=jobs, dispatcher=Janitor())


@pytest.fixture
def kind(monkeypatch: pytest.MonkeyPatch) -> Callable[[Step], None]:
    """Makes a function the step of the kind ``work``."""

    def use(step: Step) -> None:
        monkeypatch.setitem(kinds.KINDS, "work", "tests.jobs.test_runner:_step")
        monkeypatch.setitem(globals(), "_step", step)

    return use


def _step(work: Work) -> bool:
    raise AssertionError("no step was given")


def count_to(end: int, log: list[int]) -> Step:
    def step(work: Work) -> bool:
        at = work.cursor.get("at", 0) + 1
        log.append(at)
        work.cursor["at"] = at
        work.count("steps")
        work.result["last"] = at
        return at == end

    return step


def begin(services: Services, **more: Any) -> Any:
    return start(services, "work", {"n": 1}, owner="ada", job_id="j", **more)


def found(services: Services) -> Any:
    return services.jobs.get("j", owner="ada")  # type: ignore[union-attr]


def events(services: Services) -> list[Any]:
    return services.dispatcher.events  # type: ignore[union-attr]


def test_a_job_is_kept_and_handed_to_the_janitor_once(services, kind) -> None:
    kind(count_to(3, log := []))
    made = begin(services, correlation_id="req-1")
    again = begin(services, correlation_id="req-2")

    assert (made.state, again.correlation_id, log) == ("waiting", "req-1", [])
    assert events(services) == [{"jobId": "j", "owner": "ada", "correlationId": "req-1"}]
    done = run(services, "j", "ada")
    assert (done.state, done.progress, done.result) == ("finished", {"steps": 3}, {"last": 3})
    assert found(services).state == "finished"
    assert log == [1, 2, 3]
    assert run(services, "j", "ada") is None
    assert run(services, "nobody", "ada") is None
    assert run(services, "j", "bob") is None


def test_without_a_janitor_a_job_runs_where_it_is_started(services, kind) -> None:
    kind(count_to(3, log := []))
    services.dispatcher = None
    assert begin(services).result == {"last": 3}
    assert log == [1, 2, 3]


def test_a_kind_that_nobody_knows_is_refused_before_anything_is_kept(services, bench) -> None:
    with pytest.raises(ConfigurationError):
        start(services, "unknown", {}, owner="ada")
    assert bench.rows("runs") == []
    with pytest.raises(ConfigurationError):
        runner.jobs_of(Services())


def test_a_call_that_is_not_taken_leaves_an_open_job(services, kind) -> None:
    kind(count_to(1, []))
    services.dispatcher.busy = True
    assert begin(services).state == "waiting"
    assert services.jobs.list_open()[0] == (("j", "ada"),)


def test_near_its_deadline_an_invocation_hands_the_job_on(services, kind, monkeypatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(runner.time, "monotonic", lambda: clock[0])
    counted = count_to(5, log := [])

    def step(work: Work) -> bool:
        clock[0] += 20
        return counted(work)

    kind(step)
    begin(services)
    events(services).clear()
    first = run(services, "j", "ada", deadline=1000 + 75)
    assert (log, first.state, found(services).state) == ([1, 2, 3], "waiting", "waiting")
    assert events(services) == [{"jobId": "j", "owner": "ada", "correlationId": None}]
    assert run(services, "j", "ada", deadline=clock[0] + 75).state == "finished"
    assert log == [1, 2, 3, 4, 5]


def test_a_step_runs_again_after_a_crash_before_its_cursor_was_kept(services, bench, kind) -> None:
    counted = count_to(3, log := [])

    def step(work: Work) -> bool:
        done = counted(work)
        if log == [1, 2]:
            raise Crash
        return done

    kind(step)
    begin(services)
    with pytest.raises(Crash):
        run(services, "j", "ada")
    assert (found(services).state, found(services).cursor) == ("running", {"at": 1})
    assert run(services, "j", "ada") is None  # the lease of the crashed one

    bench.clock.move(seconds=60)  # when Lambda calls again
    done = run(services, "j", "ada")
    assert (done.state, done.progress) == ("finished", {"steps": 3})
    assert log == [1, 2, 2, 3]


def test_an_invocation_that_lost_its_job_stops_and_keeps_nothing(services, bench, kind) -> None:
    log: list[int] = []
    counted = count_to(3, log)

    def step(work: Work) -> bool:
        if not log:
            bench.clock.move(seconds=56)
            other = services.jobs.take("j", owner="ada", holder="other", lease_s=60)
            assert other is not None
        return counted(work)

    kind(step)
    begin(services)
    assert run(services, "j", "ada") is None
    assert (log, found(services).cursor, found(services).holder) == ([1], {}, "other")


def test_of_two_invocations_at_once_one_runs_the_job(kind) -> None:
    emulator = shared_emulator()
    client = emulator.client("dynamodb")
    names = tables.create(client)
    store = DynamoMessageStore(client, threads_table=names.threads, messages_table=names.messages)
    services = Services(
        store=store,
        jobs=DynamoJobStore(client, runs_table=names.runs),
        dispatcher=Janitor(),  # type: ignore[arg-type]
    )
    both, answered, log = threading.Barrier(2), threading.Event(), list[int]()

    def step(work: Work) -> bool:
        log.append(1)
        answered.wait(30)  # the other invocation has seen that the job is held
        return True

    kind(step)
    begin(services)

    def invoke(_: int) -> Any:
        both.wait()
        answer = run(services, "j", "ada")
        answered.set()
        return answer

    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(invoke, range(2)))
    assert log == [1]
    assert sorted(answer is None for answer in answers) == [False, True]


def test_a_failing_step_is_tried_nine_times_and_can_then_be_run_again(services, bench, kind, caplog) -> None:
    tries: list[float] = []
    broken, told = True, " ".join(("a", "secret"))

    def step(work: Work) -> bool:
        if work.cursor.get("at") is None:
            work.cursor["at"] = 1
            return False
        work.cursor["at"] = 2
        work.count("steps")
        if broken:
            tries.append(bench.clock.time.timestamp())
            raise UnavailableError("storage is busy") if len(tries) < 9 else ValueError(told)
        return True

    kind(step)
    begin(services)
    for number in range(1, 9):
        with pytest.raises(UnavailableError):
            run(services, "j", "ada")
        job = found(services)
        assert (job.state, job.tries, job.cursor) == ("waiting", number, {"at": 1})
        assert job.error == {"code": "UNAVAILABLE", "message": "storage is busy"}
        if number % 3 == 0:
            assert run(services, "j", "ada") is None  # Lambda has called three times; the sweep comes later
            bench.clock.move(minutes=10)
    with caplog.at_level(logging.DEBUG, logger="agent_memory"):
        assert run(services, "j", "ada").state == "failed"
    job = found(services)
    assert (job.state, job.error["code"], job.progress) == ("failed", "ValueError", {})
    assert "failed for good" in caplog.text
    assert told not in caplog.text + str(job.error)
    assert services.jobs.list_open() == ((), None)
    assert run(services, "j", "ada") is None

    broken = False
    events(services).clear()
    assert retry(services, "j", "ada").state == "waiting"
    assert events(services) == [{"jobId": "j", "owner": "ada", "correlationId": None}]
    assert retry(services, "j", "ada") is None
    assert run(services, "j", "ada").state == "finished"
    assert found(services).error is None


def test_a_job_whose_invocations_all_crash_ends_as_failed(services, bench, kind) -> None:
    def step(work: Work) -> bool:
        raise Crash

    kind(step)
    begin(services)
    for _ in range(9):
        with pytest.raises(Crash):
            run(services, "j", "ada")
        bench.clock.move(hours=1)
    assert run(services, "j", "ada").state == "failed"
    assert services.jobs.list_open() == ((), None)


def test_a_step_that_knows_better_ends_the_job_at_once(services, kind) -> None:
    def step(work: Work) -> bool:
        raise GivenUp(ConflictError("the id is taken", code="THREAD_EXISTS"))

    kind(step)
    begin(services)
    job = run(services, "j", "ada")
    assert (job.state, job.error) == ("failed", {"code": "THREAD_EXISTS", "message": "the id is taken"})


def test_a_job_that_waits_is_not_run_before_its_time(services, bench, kind) -> None:
    def step(work: Work) -> bool:
        if "waited" in work.cursor:
            return True
        work.cursor["waited"] = True
        work.wait_s = 3600
        return False

    kind(step)
    begin(services)
    events(services).clear()
    assert run(services, "j", "ada").state == "waiting"
    assert events(services) == []
    assert run(services, "j", "ada") is None
    bench.clock.move(hours=1)
    assert run(services, "j", "ada").state == "finished"


# -------------------------------------------------------------------------------------------------------- by the clock


def sweep(services: Services, name: str = "sweep-1") -> Any:
    events(services).clear()
    start(services, "sweep", {}, owner=None, job_id=name)
    events(services).clear()
    return run(services, name, None)


def test_the_sweep_starts_what_nobody_runs(services, bench, kind) -> None:
    kind(count_to(1, []))
    services.dispatcher.busy = True
    for name in ("lost", "waits", "gone"):
        start(services, "work", {}, owner="ada", job_id=name)
    services.dispatcher.busy = False
    waiting = services.jobs.take("waits", owner="ada", holder="x", lease_s=60)
    from dataclasses import replace
    from datetime import timedelta

    services.jobs.save(replace(waiting, state="waiting", not_before=bench.clock.time + timedelta(hours=2)))
    bench.dynamodb.delete_item(TableName=bench.names.runs, Key={"pk": {"S": "R#ada"}, "sk": {"S": "J#gone"}})

    done = sweep(services)
    assert (done.state, done.progress) == ("finished", {"jobs": 1})
    assert [(event["jobId"], event["owner"]) for event in events(services)] == [
        ("lost", "ada"),
        ("expiry-2026-01-01", None),
    ]
    assert sorted(name for name, _ in services.jobs.list_open()[0]) == ["expiry-2026-01-01", "lost", "waits"]
    sweep(services, "sweep-2")
    assert [event["jobId"] for event in events(services)] == ["expiry-2026-01-01", "lost"]


def test_the_daily_round_purges_expired_and_deleted_threads_in_bounded_steps(services, bench, monkeypatch) -> None:
    monkeypatch.setattr("agent_memory.jobs.expiry.ROWS_A_STEP", 50)
    monkeypatch.setattr("agent_memory.jobs.expiry.THREADS_A_STEP", 3)
    memory = bench.memory()
    for number in range(5):
        memory.save_messages(conversation(30, thread=f"t{number}"))
        bench.store.delete_thread("ada", f"t{number}")
    memory.save_messages(conversation(30, thread="due"))
    bench.store.update_thread("ada", "due", expires_at=bench.clock.time.replace(hour=1))
    memory.save_messages(conversation(3, thread="kept"))
    bench.clock.move(hours=2)
    sent: list[int] = []
    purge = bench.store.purge_thread

    def purged(*place: Any, limit: int | None = None) -> int:
        sent.append(purge(*place, limit=limit))
        return sent[-1]

    monkeypatch.setattr(bench.store, "purge_thread", purged)
    start(services, "expiry", {}, owner=None, job_id="e1")
    done = run(services, "e1", None)
    assert (done.state, done.progress) == ("finished", {"messages": 180, "threads": 6})
    assert max(sent) <= 50
    assert {row["pk"]["S"] for row in bench.rows("messages")} == {"R#ada#kept"}
    assert len([row for row in bench.rows("threads") if row["sk"]["S"].startswith("T#")]) == 7

    bench.clock.move(days=1)
    start(services, "expiry", {}, owner=None, job_id="e2")
    run(services, "e2", None)
    assert [row["sk"]["S"] for row in bench.rows("threads") if row["sk"]["S"].startswith("T#")] == ["T#kept"]
