"""Clones and transfers of long threads, with crashes, late calls and a source that changes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from agent_memory import clock
from agent_memory._json import loads
from agent_memory.agent.services import Services
from agent_memory.aws.dynamodb import DynamoMessageStore, DynamoRunStore, copies, copy_pieces
from agent_memory.aws.dynamodb.jobs import DynamoJobStore
from agent_memory.errors import AccessDeniedError, ConflictError, InvalidInputError, NotFoundError, UnavailableError
from agent_memory.ids import derived_id
from agent_memory.jobs.runner import retry, run, start
from agent_memory.memory import Memory
from agent_memory.ports import MessageQuery, SuspendedRun, ThreadCopy, TurnCommit, TurnRecord
from agent_memory.ports.copies import CopyChoice, choice_from_json, choice_to_json
from agent_memory.ports.records import DateRange
from tests.jobs.test_runner import Crash, Janitor
from tests.support import tables
from tests.support.emulator import shared_emulator
from tests.support.memories import START, Bench, conversation, ids, message
from tests.support.memories import bench as make_bench


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Everything in small: a piece has 20 rows, a clone begins with 10, and more than 30 messages are left to a job."""
    monkeypatch.setattr(copy_pieces, "ROWS", 20)
    monkeypatch.setattr(copies, "_NEWEST", 10)
    monkeypatch.setattr("agent_memory.memory.clone.COPIED_AT_ONCE", 30)
    monkeypatch.setattr("agent_memory.memory.threads.COPIED_AT_ONCE", 30)
    with make_bench() as made:
        yield made


@pytest.fixture
def services(bench: Bench) -> Services:
    jobs = DynamoJobStore(bench.dynamodb, runs_table=bench.names.runs, clock=bench.clock)
    runs = DynamoRunStore(bench.dynamodb, runs_table=bench.names.runs, clock=bench.clock)
    return Services(store=bench.store, runs=runs, jobs=jobs, dispatcher=Janitor())


@pytest.fixture
def memory(services: Services) -> Memory:
    made = Memory(working_memory={"scope": "thread"})
    made.bind(services)
    return made


def texts(memory: Memory, thread: str, owner: str = "ada") -> list[str]:
    found = memory.recall(thread, resource_id=owner, per_page=False)
    return [m.text for m in found.messages]


def rows_of(bench: Bench, thread: str, owner: str = "ada") -> list[dict[str, Any]]:
    return [row for row in bench.rows("messages") if row["pk"]["S"] == f"R#{owner}#{thread}"]


def finish(services: Services, job_id: str, owner: str | None = "ada") -> Any:
    return run(services, job_id, owner)


class CrashAt:
    """Ends the process at the nth call of a method of the store, before or after it did its work."""

    def __init__(self, store: Any, monkeypatch: pytest.MonkeyPatch, name: str, nth: int, *, after: bool) -> None:
        self.left = nth
        call = getattr(store, name)

        def crashing(*given: Any, **named: Any) -> Any:
            self.left -= 1
            if self.left == 0 and not after:
                raise Crash
            answer = call(*given, **named)
            if self.left == 0:
                raise Crash
            return answer

        monkeypatch.setattr(store, name, crashing)


# ----------------------------------------------------------------------------------------------------------- clones


def test_a_long_clone_is_hidden_until_its_job_has_finished(services: Services, memory: Memory, bench: Bench) -> None:
    memory.create_thread("ada", thread_id="t1", title="Trip")
    memory.save_messages(conversation(75))
    memory.update_working_memory("plan A", thread_id="t1")
    before = memory.list_threads("ada").threads

    begun = memory.clone_thread("t1", new_thread_id="c1", metadata={"why": "test"})

    assert (begun.cloned_messages, begun.message_id_map) == ((), {})
    assert begun.thread.title == "Clone of Trip"
    assert begun.thread.metadata == {
        "why": "test",
        "clone": {"sourceThreadId": "t1", "clonedAt": clock.to_iso(bench.clock.time), "lastMessageId": "m75"},
    }
    job = services.jobs.get(begun.job_id, owner="ada")  # type: ignore[union-attr, arg-type]
    assert job is not None
    assert (job.kind, job.state) == ("clone", "waiting")

    def look() -> None:
        assert memory.get_thread("c1") is None
        assert memory.list_threads("ada").threads == before
        with pytest.raises(NotFoundError):
            memory.recall("c1", resource_id="ada")
        with pytest.raises(ConflictError, match="being built"):
            bench.store.begin_turn("ada", "c1", TurnRecord("k", "running", "r", 0, 0))
        with pytest.raises(ConflictError):
            memory.clone_thread("t1", new_thread_id="c1")

    look()
    seen: list[int] = []
    copy = bench.store.copy_rows

    def copied(*given: Any, **named: Any) -> Any:
        seen.append(1)
        look()
        return copy(*given, **named)

    bench.store.copy_rows = copied  # type: ignore[method-assign]
    done = finish(services, begun.job_id or "")

    assert (done.state, done.result) == ("finished", {"threadId": "c1", "resourceId": "ada", "messages": 75})
    assert done.progress == {"messages": 75}
    assert len(seen) == 4  # 65 rows left, 20 a step
    assert memory.get_thread("c1") == begun.thread
    clone, source = (memory.recall(t, per_page=False).messages for t in ("c1", "t1"))
    assert [(m.text, m.created_at, m.role) for m in clone] == [(m.text, m.created_at, m.role) for m in source]
    assert len(set(ids(clone))) == 75
    assert not set(ids(clone)) & set(ids(source))
    assert memory.get_working_memory(thread_id="c1") == "plan A"
    header = bench.store.get_thread("ada", "c1")
    assert header is not None
    assert (header.message_count, header.next_seq - header.first_seq, header.in_date_order) == (75, 75, True)
    assert memory.list_threads("ada").total == 2
    memory.save_messages([message("next", thread="c1", minute=500)])
    assert texts(memory, "c1")[-1] == "next"


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(("name", "nth"), [("copy_rows", 1), ("copy_rows", 3), ("finish_clone", 1), ("keep_copy", 4)])
def test_a_clone_goes_on_after_a_crash_and_writes_every_row_once(
    services: Services, memory: Memory, bench: Bench, monkeypatch: pytest.MonkeyPatch, name: str, nth: int, after: bool
) -> None:
    memory.save_messages(conversation(75))
    begun = memory.clone_thread("t1", new_thread_id="c1")
    with monkeypatch.context() as once:
        CrashAt(bench.store, once, name, nth, after=after)
        with pytest.raises(Crash):
            finish(services, begun.job_id or "")
    assert (memory.get_thread("c1") is None) is not (name == "finish_clone" and after)
    bench.clock.move(seconds=60)

    done = finish(services, begun.job_id or "")

    assert (done.state, done.result["messages"]) == ("finished", 75)
    assert texts(memory, "c1") == [f"text {n}" for n in range(1, 76)]
    assert len(rows_of(bench, "c1")) == 75
    assert bench.store.get_thread("ada", "c1").message_count == 75  # type: ignore[union-attr]
    assert services.jobs.list_open() == ((), None)  # type: ignore[union-attr]


def test_what_is_removed_between_two_tries_of_a_step_is_not_counted(
    services: Services, memory: Memory, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.save_messages(conversation(75))
    begun = memory.clone_thread("t1", new_thread_id="c1")
    with monkeypatch.context() as once:
        CrashAt(bench.store, once, "copy_rows", 1, after=True)
        with pytest.raises(Crash):
            finish(services, begun.job_id or "")
    memory.delete_messages(["m60", "m02"], resource_id="ada")
    bench.clock.move(seconds=60)
    finish(services, begun.job_id or "")
    assert texts(memory, "c1") == [f"text {n}" for n in range(1, 76) if n not in (2, 60)]
    assert (len(rows_of(bench, "c1")), bench.store.get_thread("ada", "c1").message_count) == (73, 73)  # type: ignore[union-attr]


def test_a_clone_shows_its_source_as_it_was_when_it_was_begun(services: Services, memory: Memory, bench: Bench) -> None:
    memory.save_messages(conversation(75))
    begun = memory.clone_thread("t1", new_thread_id="c1")
    memory.save_messages([message("later", minute=200), message("between", minute=74), message("also", minute=70)])
    assert texts(memory, "t1")[-8:] == [
        "also",
        "text 71",
        "text 72",
        "text 73",
        "text 74",
        "between",
        "text 75",
        "later",
    ]
    memory.update_messages([{"id": "m75", "content": "changed"}], thread_id="t1")
    finish(services, begun.job_id or "")
    assert texts(memory, "c1") == [f"text {n}" for n in range(1, 76)]


def test_an_import_while_a_clone_begins_is_in_it_whole_or_not_at_all(
    services: Services, memory: Memory, bench: Bench
) -> None:
    memory.save_messages(conversation(75))
    chosen = bench.store._live_header
    calls = []

    def header(*place: Any) -> Any:
        calls.append(place)
        if len(calls) == 2:
            bench.memory().save_messages([message("between", minute=74)])
        return chosen(*place)

    bench.store._live_header = header  # type: ignore[method-assign]
    begun = memory.clone_thread("t1", new_thread_id="c1")
    finish(services, begun.job_id or "")
    assert texts(memory, "c1") == texts(memory, "t1")
    assert len(texts(memory, "c1")) == 76


@pytest.mark.parametrize("how", ["deleted", "emptied"])
def test_a_clone_whose_source_goes_is_given_up_and_leaves_nothing(
    services: Services, memory: Memory, bench: Bench, how: str
) -> None:
    memory.save_messages(conversation(75))
    begun = memory.clone_thread("t1", new_thread_id="c1")
    if how == "deleted":
        bench.memory().delete_thread("t1")
    else:
        memory.delete_messages(thread_id="t1")

    failed = finish(services, begun.job_id or "")

    assert (failed.state, failed.error["code"]) == ("failed", "SOURCE_GONE")
    assert memory.get_thread("c1") is None
    assert bench.store.dead_threads()[0][0] == ("ada", "c1")
    bench.store.purge_thread("ada", "c1")
    assert rows_of(bench, "c1") == []
    assert memory.create_thread("ada", thread_id="c1").id == "c1"


def test_a_clone_that_fails_nine_times_keeps_its_place_for_a_retry(
    services: Services, memory: Memory, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.save_messages(conversation(75))
    begun = memory.clone_thread("t1", new_thread_id="c1")
    with monkeypatch.context() as broken:

        def busy(*_: Any, **__: Any) -> Any:
            raise UnavailableError("storage is busy")

        broken.setattr(bench.store, "copy_rows", busy)
        for _ in range(8):
            with pytest.raises(UnavailableError):
                finish(services, begun.job_id or "")
            bench.clock.move(minutes=11)
        assert finish(services, begun.job_id or "").state == "failed"
    with pytest.raises(ConflictError, match="being built"):
        memory.create_thread("ada", thread_id="c1")
    assert retry(services, begun.job_id or "", "ada") is not None
    assert finish(services, begun.job_id or "").state == "finished"
    assert len(texts(memory, "c1")) == 75


def test_a_clone_that_was_given_up_meanwhile_begins_anew(services: Services, memory: Memory, bench: Bench) -> None:
    memory.create_thread("ada", thread_id="t1", title="Trip")
    memory.save_messages(conversation(75))
    begun = memory.clone_thread("t1", new_thread_id="c1", metadata={"why": "test"})
    bench.clock.move(hours=3)
    bench.store.purge_thread("ada", "c1")
    memory.save_messages([message("later", minute=200)])

    done = finish(services, begun.job_id or "")

    assert (done.state, done.result["messages"]) == ("finished", 76)
    clone = memory.get_thread("c1")
    assert clone is not None
    assert (clone.title, clone.created_at) == ("Clone of Trip", begun.thread.created_at)
    assert clone.metadata["why"] == "test"  # type: ignore[index]
    assert clone.metadata["clone"]["lastMessageId"] == "later"  # type: ignore[index]
    bench.store.purge_thread("ada", "c1")
    assert len(rows_of(bench, "c1")) == 76


def test_a_clone_whose_id_somebody_took_after_it_was_given_up_fails(
    services: Services, memory: Memory, bench: Bench
) -> None:
    memory.save_messages(conversation(75))
    begun = memory.clone_thread("t1", new_thread_id="c1")
    bench.clock.move(hours=3)
    memory.save_messages([message("mine", thread="c1")])
    failed = finish(services, begun.job_id or "")
    assert (failed.state, failed.error["code"]) == ("failed", "THREAD_EXISTS")
    assert texts(memory, "c1") == ["mine"]


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"messageLimit": 40}, range(61, 101)),
        ({"messageLimit": 31, "messageFilter": {"endDate": "2025-03-01T11:20:00Z"}}, range(50, 81)),
        (
            {"messageFilter": {"startDate": "2025-03-01T10:02:00Z", "endDate": "2025-03-01T11:20:00Z"}},
            range(2, 81),
        ),
        ({"messageLimit": 3}, range(98, 101)),
        ({"messageFilter": {"messageIds": ["m01", "m55", "m99", "m100", "nobody"]}}, (1, 55, 99, 100)),
        ({"messageLimit": 2, "messageFilter": {"messageIds": ["m01", "m55", "m99"]}}, (55, 99)),
    ],
)
@pytest.mark.parametrize("in_order", [True, False])
def test_a_long_thread_is_cloned_in_part(
    services: Services, memory: Memory, bench: Bench, options: Any, kept: Any, in_order: bool
) -> None:
    memory.save_messages(conversation(100))
    if not in_order:
        moved = message("m50", "text 50", minute=50, role="assistant").replace(created_at=START + timedelta(minutes=49))
        memory.save_messages([moved])
        memory.save_messages([message("m50", "text 50", minute=50, role="assistant")])
        assert not bench.store.get_thread("ada", "t1").in_date_order  # type: ignore[union-attr]
    begun = memory.clone_thread("t1", new_thread_id="c1", options=options)
    if begun.job_id is not None:
        assert finish(services, begun.job_id).state == "finished"
    else:
        assert len(begun.cloned_messages) == len(begun.message_id_map) == len(kept)
    assert texts(memory, "c1") == [f"text {n}" for n in kept]
    header = bench.store.get_thread("ada", "c1")
    assert header is not None
    assert header.message_count == len(kept)
    assert header.thread.metadata["clone"]["lastMessageId"] == f"m{kept[-1]:02d}"  # type: ignore[index]
    memory.save_messages([message("next", thread="c1", minute=500)])
    assert texts(memory, "c1")[-2:] == [f"text {kept[-1]}", "next"]


def test_too_many_ids_are_refused(memory: Memory) -> None:
    memory.save_messages(conversation(3))
    with pytest.raises(InvalidInputError, match="at most 1000 ids"):
        memory.clone_thread("t1", options={"messageFilter": {"messageIds": [f"m{n}" for n in range(1_001)]}})


def test_a_clone_between_two_owners_is_the_deployments_job(services: Services, memory: Memory, bench: Bench) -> None:
    memory.save_messages(conversation(75))
    memory.save_messages([message("x", thread="taken", owner="carl")])
    with pytest.raises(AccessDeniedError):
        memory.clone_thread("t1", new_thread_id="taken", resource_id="bob")
    begun = memory.clone_thread("t1", new_thread_id="c1", resource_id="bob")
    for owner in ("ada", "bob"):
        assert services.jobs.get(begun.job_id, owner=owner) is None  # type: ignore[union-attr, arg-type]
    assert finish(services, begun.job_id or "", None).state == "finished"
    assert texts(memory, "c1", "bob") == [f"text {n}" for n in range(1, 76)]
    assert {m.resource_id for m in memory.recall("c1", per_page=False).messages} == {"bob"}


def test_without_a_janitor_a_long_clone_is_made_in_the_call(services: Services, memory: Memory) -> None:
    memory.save_messages(conversation(75))
    services.dispatcher = None
    begun = memory.clone_thread("t1", new_thread_id="c1")
    assert services.jobs.get(begun.job_id, owner="ada").state == "finished"  # type: ignore[union-attr, arg-type]
    assert len(texts(memory, "c1")) == 75


def test_clones_keep_what_rows_hold_besides_messages(services: Services, memory: Memory, bench: Bench) -> None:
    due = bench.clock.time + timedelta(days=3)
    bench.store.commit(
        TurnCommit("t1", "ada", None, appended=tuple(conversation(40)), index="other-index", expires_at=due)
    )
    bench.store.update_thread("ada", "t1", expires_at=bench.clock.time + timedelta(days=9))
    key = {"pk": {"S": "R#ada#t1"}, "sk": {"N": "7"}}
    bench.dynamodb.update_item(
        TableName=bench.names.messages,
        Key=key,
        UpdateExpression="SET appFlag = :f",
        ExpressionAttributeValues={":f": {"S": "keep"}},
    )
    begun = memory.clone_thread("t1", new_thread_id="c1")
    finish(services, begun.job_id or "")
    rows = rows_of(bench, "c1")
    assert {int(row["ttl"]["N"]) for row in rows} == {clock.to_ms(due) // 1000}
    assert [row["appFlag"]["S"] for row in rows if "appFlag" in row] == ["keep"]
    assert all("index" not in row for row in rows)  # this memory has no recall
    header = bench.store.get_thread("ada", "c1")
    assert header is not None
    assert header.rows_expire
    assert header.thread.expires_at == bench.clock.time + timedelta(days=9)
    bench.clock.move(days=3)
    assert texts(memory, "c1") == texts(memory, "t1") == []


# --------------------------------------------------------------------------------------------------------- transfers


def test_a_long_transfer_leaves_the_thread_where_it_is_until_it_is_moved(
    services: Services, memory: Memory, bench: Bench
) -> None:
    memory.create_thread("ada", thread_id="t1", title="Trip")
    memory.save_messages(conversation(75))
    memory.update_working_memory("plan A", thread_id="t1")
    made = memory.get_thread("t1")
    services.runs.suspend(  # type: ignore[union-attr]
        SuspendedRun("run-1", "helper", "ada", "t1", bench.clock.time, ({"toolCallId": "c"},), {"text": "hers"})
    )
    begun = memory.transfer_thread("t1", "bob")
    assert begun.thread == made
    assert begun.job_id is not None
    job_id = begun.job_id
    for owner in ("ada", "bob"):
        assert services.jobs.get(job_id, owner=owner) is None  # type: ignore[union-attr]
    seen: list[int] = []
    copy = bench.store.copy_rows

    def copied(*given: Any, **named: Any) -> Any:
        seen.append(len(texts(memory, "t1")))
        assert memory.list_threads("bob").total == 0
        assert bench.store.get_thread("bob", "t1") is None
        if len(seen) == 2:
            memory.save_messages([message("late", minute=300)])
            memory.update_messages([{"id": "m75", "content": "changed"}], thread_id="t1")
            memory.delete_messages(["m02"], resource_id="ada")
            memory.save_messages([message("between", minute=70)])
            memory.update_thread("t1", title="Winter trip")
        return copy(*given, **named)

    bench.store.copy_rows = copied  # type: ignore[method-assign]
    expected = []
    done = finish(services, job_id, None)

    assert (done.state, done.result) == ("finished", {"threadId": "t1", "resourceId": "bob", "messages": 76})
    expected = [f"text {n}" for n in range(1, 76) if n != 2]
    expected[expected.index("text 75")] = "changed"
    expected.insert(expected.index("text 70") + 1, "between")
    assert texts(memory, "t1", "bob") == [*expected, "late"]
    moved = memory.get_thread("t1")
    assert moved is not None
    assert (moved.resource_id, moved.title, moved.created_at) == ("bob", "Winter trip", made.created_at)  # type: ignore[union-attr]
    assert memory.get_working_memory(thread_id="t1") == "plan A"
    assert ids(memory.recall("t1", per_page=False).messages)[:2] == ["m01", "m03"]
    # The old owner has nothing of it any more.
    assert rows_of(bench, "t1") == []
    assert len(rows_of(bench, "t1", "bob")) == 76
    assert memory.list_threads("ada").total == 0
    assert bench.store.get_thread("ada", "t1") is None
    assert bench.store.get_working_memory("ada", "t1") is None
    assert services.runs.list_suspended("ada") == ()  # type: ignore[union-attr]
    with pytest.raises(AccessDeniedError):
        memory.recall("t1", resource_id="ada")
    header = bench.store.get_thread("bob", "t1")
    assert header is not None
    assert header.message_count == 76


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    ("name", "nth"), [("copy_rows", 2), ("finish_transfer", 1), ("keep_copy", 3), ("purge_thread", 1)]
)
def test_a_transfer_goes_on_after_a_crash_and_loses_nothing(
    services: Services, memory: Memory, bench: Bench, monkeypatch: pytest.MonkeyPatch, name: str, nth: int, after: bool
) -> None:
    memory.save_messages(conversation(75))
    job_id = memory.transfer_thread("t1", "bob").job_id or ""
    with monkeypatch.context() as once:
        CrashAt(bench.store, once, name, nth, after=after)
        with pytest.raises(Crash):
            finish(services, job_id, None)
    owners = [owner for owner in ("ada", "bob") if bench.store.get_thread(owner, "t1") is not None]
    assert len(owners) == 1
    assert len(texts(memory, "t1", owners[0])) == 75
    bench.clock.move(seconds=60)
    assert finish(services, job_id, None).state == "finished"
    assert texts(memory, "t1", "bob") == [f"text {n}" for n in range(1, 76)]
    assert (len(rows_of(bench, "t1")), len(rows_of(bench, "t1", "bob"))) == (0, 75)
    assert memory.list_threads("bob").total == 1
    assert memory.list_threads("ada").total == 0


def test_a_thread_that_was_emptied_while_it_is_moved_arrives_empty(
    services: Services, memory: Memory, bench: Bench
) -> None:
    memory.save_messages(conversation(75))
    job_id = memory.transfer_thread("t1", "bob").job_id or ""
    bench.store.clear_thread("ada", "t1")
    memory.save_messages([message("new", minute=300)])
    assert finish(services, job_id, None).state == "finished"
    assert texts(memory, "t1", "bob") == ["new"]
    assert len(rows_of(bench, "t1", "bob")) == 1


def test_a_transfer_of_a_thread_that_never_rests_is_given_up(services: Services, memory: Memory, bench: Bench) -> None:
    memory.save_messages(conversation(75))
    job_id = memory.transfer_thread("t1", "bob").job_id or ""
    count = 0
    finish_transfer = bench.store.finish_transfer

    def busy(*given: Any, **named: Any) -> Any:
        nonlocal count
        count += 1
        memory.update_messages([{"id": "m01", "content": f"changed {count}"}], thread_id="t1")
        return finish_transfer(*given, **named)

    bench.store.finish_transfer = busy  # type: ignore[method-assign]
    failed = finish(services, job_id, None)
    assert (failed.state, failed.error["code"]) == ("failed", "THREAD_BUSY")
    assert texts(memory, "t1")[:2] == [f"changed {count}", "text 2"]
    assert bench.store.get_thread("bob", "t1") is None
    bench.store.purge_thread("bob", "t1")
    assert rows_of(bench, "t1", "bob") == []

    bench.store.finish_transfer = finish_transfer  # type: ignore[method-assign]
    assert retry(services, job_id, None) is not None
    assert finish(services, job_id, None).state == "finished"
    assert texts(memory, "t1", "bob")[:2] == [f"changed {count}", "text 2"]
    assert len(rows_of(bench, "t1", "bob")) == 75


def test_what_is_added_in_the_last_moment_is_moved_without_another_look(
    services: Services, memory: Memory, bench: Bench
) -> None:
    memory.save_messages(conversation(75))
    job_id = memory.transfer_thread("t1", "bob").job_id or ""
    publish, looks, late = bench.store._publish, [0], list[str]()
    copy_rows = bench.store.copy_rows

    def shown(*given: Any, **named: Any) -> None:
        if len(late) < 3:
            late.append(f"late{len(late)}")
            memory.save_messages([message(late[-1], minute=300 + len(late))])
        publish(*given, **named)

    def looked(*given: Any, **named: Any) -> Any:
        looks[0] += 1
        return copy_rows(*given, **named)

    bench.store._publish = shown  # type: ignore[method-assign]
    bench.store.copy_rows = looked  # type: ignore[method-assign]
    done = finish(services, job_id, None)
    assert (done.state, len(late)) == ("finished", 3)
    assert texts(memory, "t1", "bob")[-4:] == ["text 75", "late0", "late1", "late2"]
    assert looks[0] == 4 + 3  # a look at everything, 20 rows at a time, and one for each message that came late
    assert len(rows_of(bench, "t1", "bob")) == bench.store.get_thread("bob", "t1").message_count == 78  # type: ignore[union-attr]


def test_a_transfer_of_a_thread_that_is_deleted_meanwhile_is_given_up(
    services: Services, memory: Memory, bench: Bench
) -> None:
    memory.save_messages(conversation(75))
    job_id = memory.transfer_thread("t1", "bob").job_id or ""
    bench.store.delete_thread("ada", "t1")
    failed = finish(services, job_id, None)
    assert (failed.state, failed.error["code"]) == ("failed", "THREAD_DELETED")
    assert bench.store.get_thread("bob", "t1") is None


def test_a_transfer_onto_a_taken_id_is_refused_at_once() -> None:
    with make_bench(claims=False) as made:
        jobs = DynamoJobStore(made.dynamodb, runs_table=made.names.runs, clock=made.clock)
        memory = Memory()
        memory.bind(Services(store=made.store, jobs=jobs, dispatcher=Janitor()))
        for owner in ("ada", "bob"):
            memory.save_messages(conversation(40, owner=owner))
        with pytest.raises(ConflictError, match="already exists"):
            memory.transfer_thread("t1", "bob", resource_id="ada")
        assert jobs.list_open() == ((), None)


# ------------------------------------------------------------------------------------------------------------ cursors


def test_a_copy_comes_back_from_json_as_it_was() -> None:
    dates = DateRange(START, START + timedelta(hours=1), start_exclusive=True)
    for choice in (
        CopyChoice(),
        CopyChoice(dates=dates, limit=3),
        CopyChoice(ids=frozenset({"b", "a"})),
        CopyChoice(DateRange(end=START)),
    ):
        assert choice_from_json(choice_to_json(choice)) == choice
        copy = ThreadCopy(
            source_resource="r",
            source_thread="t",
            source_incarnation="i",
            source_first=1,
            revision=3,
            resource_id="s",
            thread_id="u",
            incarnation="j",
            first_seq=5,
            low=1,
            high=9,
            at=4,
            seed="x",
            choice=choice,
            oldest=12,
        )
        assert ThreadCopy.from_json(loads(_dumped(copy.to_json()))) == copy
        assert not copy.all_read
        assert replace(copy, at=1).all_read


def _dumped(content: Any) -> str:
    from agent_memory._json import dumps

    return dumps(content)


def test_ids_are_derived_from_both_of_seed_and_id() -> None:
    made = {derived_id(seed, id) for seed in ("a", "ab", "") for id in ("bc", "c", "")}
    assert len(made) == 9
    assert derived_id("a", "bc") == derived_id("a", "bc")


def test_a_clone_for_an_owner_who_is_being_erased_is_given_up(services: Services, memory: Memory, bench: Bench) -> None:
    memory.save_messages(conversation(75))
    begun = memory.clone_thread("t1", new_thread_id="c1")
    bench.dynamodb.update_item(
        TableName=bench.names.threads,
        Key={"pk": {"S": "R#ada"}, "sk": {"S": "R"}},
        UpdateExpression="SET locked = :l",
        ExpressionAttributeValues={":l": {"BOOL": True}},
    )
    failed = finish(services, begun.job_id or "")
    assert (failed.state, failed.error["code"]) == ("failed", "RESOURCE_LOCKED")
    assert bench.store.get_thread("ada", "c1") is None
    bench.store.purge_thread("ada", "c1")
    assert rows_of(bench, "c1") == []


def test_what_was_answered_as_stored_while_a_thread_is_moved_arrives_and_nothing_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(copy_pieces, "ROWS", 40)
    client = shared_emulator().client("dynamodb")
    names = tables.create(client)

    def make_store() -> DynamoMessageStore:
        return DynamoMessageStore(
            client, threads_table=names.threads, messages_table=names.messages, claims_table=names.claims
        )

    store = make_store()
    store.save_messages("ada", "t1", conversation(200))
    services = Services(
        store=store,
        jobs=DynamoJobStore(client, runs_table=names.runs),
        dispatcher=Janitor(),  # type: ignore[arg-type]
    )
    copy = store.begin_transfer("ada", "t1", "bob")
    start(services, "transfer", {"copy": copy.to_json()}, owner=None, job_id="move")
    stored: list[str] = []
    refused: list[Exception] = []
    begun, moved = threading.Event(), threading.Event()

    def write(name: str) -> None:
        own, number = make_store(), 0
        while not moved.is_set():
            number += 1
            id = f"{name}-{number}"
            try:
                header = own.get_thread("ada", "t1")
                if header is None:
                    return
                own.commit(TurnCommit("t1", "ada", header, appended=(message(id, minute=300 + number),)))
                stored.append(id)
            except Exception as error:
                refused.append(error)
            begun.set()
            if number >= 6:
                time.sleep(0.5)  # rests in between, as people do

    with ThreadPoolExecutor(3) as pool:
        writers = [pool.submit(write, name) for name in ("a", "b")]
        begun.wait(10)
        job = run(services, "move", None)
        moved.set()
        for writer in writers:
            writer.result()
    assert job is not None
    owner = "bob" if job.state == "finished" else "ada"
    header = store.get_thread(owner, "t1")
    assert header is not None
    found = ids(store.list_messages(header, MessageQuery(per_page=None)).messages)
    assert sorted(found) == sorted({*ids(conversation(200)), *stored})
    assert header.message_count == len(found)
    assert len(stored) >= 5
    assert all(isinstance(error, ConflictError | AccessDeniedError) for error in refused)
    assert (job.state, job.error) == ("finished", None)
