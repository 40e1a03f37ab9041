"""What expires is invisible to every reader at the moment it is due, before any store has removed it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from agent_memory import clock
from agent_memory.agent.agent import Agent
from agent_memory.agent.result import MemoryArgs
from agent_memory.agent.services import Services
from agent_memory.aws.dynamodb import DynamoMessageStore
from agent_memory.aws.dynamodb.jobs import DynamoJobStore
from agent_memory.errors import InvalidInputError, NotFoundError
from agent_memory.jobs.runner import run, start
from agent_memory.memory import Memory
from tests.jobs.test_runner import Janitor
from tests.support.memories import Bench, conversation, ids, message
from tests.support.models import FakeModel, say


def in_days(bench: Bench, days: float) -> datetime:
    return bench.clock.time + timedelta(days=days)


def shown(memory: Memory, thread: str = "t1", owner: str = "ada") -> dict[str, Any]:
    """What each reader shows of the messages of a thread."""
    found: dict[str, Any] = {}
    found["list"] = ids(memory.list_threads(owner).threads)
    found["thread"] = memory.get_thread(thread, resource_id=owner) is not None
    try:
        found["recall"] = ids(memory.recall(thread, resource_id=owner).messages)
        found["hits"] = ids(memory.recall(thread, resource_id=owner, vector_search_string="zebra", per_page=0).messages)
    except NotFoundError:
        found["recall"] = found["hits"] = None
    found["search"] = sorted(result.message.id for result in memory.search("zebra", owner))
    model = FakeModel(say("ok"))
    agent = Agent("helper", model=model, memory=memory)
    agent.bind(Services(store=memory.storage, index=memory.vector, embedder=memory.embedder))
    options = {"read_only": True}
    agent.generate("zebra?", memory=MemoryArgs(thread, owner, options=options))
    found["prompt"] = sorted({f"m{n:02d}" for n in range(1, 10) if f"zebra number {n}." in str(model.requests[0])})
    return found


@pytest.fixture
def zebras(bench: Bench) -> Memory:
    """A thread of three messages about zebras in the index, of which each expires at another time."""
    memory = bench.memory(
        last_messages=2,
        semantic_recall={"top_k": 5, "message_range": 0, "scope": "resource"},
        working_memory={"scope": "thread"},
    )
    days: dict[int, float | None] = {1: 1, 2: 5, 3: None}
    memory.save_messages(
        [
            message(f"m{n:02d}", f"zebra number {n}.", minute=n).replace(
                expires_at=None if left is None else in_days(bench, left)
            )
            for n, left in days.items()
        ]
    )
    memory.save_messages([message("other", "a quiet day", thread="t2")])
    bench.index_thread("ada", "t1")
    return memory


def test_a_message_is_gone_for_every_reader_when_it_is_due_wish_7(bench: Bench, zebras: Memory) -> None:
    everything = {"list": ["t2", "t1"], "thread": True}
    bench.clock.move(days=1, seconds=-1)
    three = ["m01", "m02", "m03"]
    assert shown(zebras) == {**everything, "recall": three, "hits": three, "search": three, "prompt": three}
    bench.clock.move(seconds=1)
    two = ["m02", "m03"]
    assert shown(zebras) == {**everything, "recall": two, "hits": two, "search": two, "prompt": two}
    bench.clock.move(days=4)
    one = ["m03"]
    assert shown(zebras) == {**everything, "recall": one, "hits": one, "search": one, "prompt": one}
    assert zebras.recall("t1").total == 1
    # Nothing has been removed so far: neither rows nor vectors.
    assert len([row for row in bench.rows("messages") if row["pk"]["S"] == "R#ada#t1"]) == 3
    assert len(bench.index.rows) == 3


def test_a_thread_is_gone_for_every_reader_when_it_is_due_wish_7(bench: Bench, zebras: Memory) -> None:
    zebras.update_working_memory("likes zebra number 3.", thread_id="t1")
    zebras.update_thread("t1", expires_at=in_days(bench, 2))
    bench.clock.move(days=2, seconds=-1)
    assert shown(zebras)["search"] == ["m02", "m03"]
    bench.clock.move(seconds=1)
    assert shown(zebras) == {"list": ["t2"], "thread": False, "recall": None, "hits": None, "search": [], "prompt": []}
    with pytest.raises(NotFoundError):
        zebras.get_working_memory(thread_id="t1", resource_id="ada")
    with pytest.raises(NotFoundError):
        zebras.clone_thread("t1", source_resource_id="ada")
    with pytest.raises(NotFoundError):
        zebras.update_thread("t1", title="x", resource_id="ada")
    assert zebras.delete_thread("t1", resource_id="ada") is False
    assert zebras.list_threads("ada").total == 1

    again = zebras.create_thread("ada", thread_id="t1")
    assert again.expires_at is None
    assert zebras.recall("t1").messages == ()
    assert zebras.get_working_memory(thread_id="t1") is None
    assert shown(zebras)["search"] == []


def test_what_expired_is_removed_by_the_daily_round(bench: Bench, zebras: Memory) -> None:
    jobs = DynamoJobStore(bench.dynamodb, runs_table=bench.names.runs, clock=bench.clock)
    services = Services(store=bench.store, jobs=jobs, dispatcher=Janitor())
    zebras.update_working_memory("plan A", thread_id="t1")
    zebras.update_thread("t1", expires_at=in_days(bench, 2))
    bench.clock.move(days=2)
    for day in (1, 2):
        start(services, "expiry", {}, owner=None, job_id=f"day-{day}")
        run(services, f"day-{day}", None)
        bench.clock.move(days=1)
    assert {row["pk"]["S"] for row in bench.rows("messages")} == {"R#ada#t2"}
    assert sorted(row["sk"]["S"] for row in bench.rows("threads")) == ["R", "T#t2"]
    assert [row["pk"]["S"] for row in bench.rows("claims")] == ["T#t2"]


def test_turns_and_saves_of_an_agent_expire_after_its_days(bench: Bench) -> None:
    memory = bench.memory(expire_days=2)
    agent = Agent("helper", model=FakeModel(say("ok")), memory=memory)
    agent.bind(Services(store=bench.store, index=bench.index, embedder=bench.embedder))
    agent.generate("hello", memory=MemoryArgs("t1", "ada"))
    memory.save_messages([message("saved", minute=1).replace(created_at=bench.clock.time)])
    memory.save_messages([message("kept", thread="t2")], expires_at=in_days(bench, 9))
    memory.save_messages([message("longer", thread="t2").replace(expires_at=in_days(bench, 5))])
    memory.save_messages([message("called", thread="t2")], thread_config={"expire_days": 1})
    assert len(memory.recall("t1").messages) == 3
    bench.clock.move(days=1)
    assert ids(memory.recall("t2").messages) == ["kept", "longer"]
    bench.clock.move(days=1)
    assert memory.recall("t1").messages == ()
    bench.clock.move(days=3)
    assert ids(memory.recall("t2").messages) == ["kept"]


def test_a_deployments_retention_holds_for_all_threads_and_messages(bench: Bench) -> None:
    kept = DynamoMessageStore(
        bench.dynamodb,
        threads_table=bench.names.threads,
        messages_table=bench.names.messages,
        claims_table=bench.names.claims,
        clock=bench.clock,
        retention_days=30,
    )
    memory = Memory(storage=kept, expire_days=365)
    memory.create_thread("ada", thread_id="t0", title="never written to")
    memory.save_messages(conversation(3))
    bench.clock.move(days=29)
    memory.save_messages([message("m04").replace(created_at=bench.clock.time)])
    assert [thread.id for thread in memory.list_threads("ada").threads] == ["t1", "t0"]
    bench.clock.move(days=1)
    assert ids(memory.list_threads("ada").threads) == ["t1"]
    assert ids(memory.recall("t1").messages) == ["m04"]
    clone = memory.clone_thread("t1").thread
    assert clone.expires_at == in_days(bench, 30)
    bench.clock.move(days=29)
    assert memory.get_thread("t1") is None
    assert memory.recall(clone.id).messages == ()  # a copy of a message goes when the message does


@pytest.mark.parametrize("wrong", ["soon", 7.5j, datetime(2020, 1, 1)])
def test_a_time_that_is_over_or_none_is_refused_and_nothing_is_written(
    bench: Bench, memory: Memory, wrong: Any
) -> None:
    memory.create_thread("ada", thread_id="t1")
    before = bench.rows("threads")
    for call in (
        lambda: memory.create_thread("ada", thread_id="t2", expires_at=wrong),
        lambda: memory.update_thread("t1", expires_at=wrong),
        lambda: memory.save_messages([message("m1")], expires_at=wrong),
        lambda: memory.save_messages([message("m1").replace(expires_at=wrong)]),
    ):
        with pytest.raises(InvalidInputError, match=r"expires_?[aA]t"):
            call()
    assert (bench.rows("threads"), bench.rows("messages")) == (before, [])


def test_a_time_can_be_taken_away(bench: Bench, memory: Memory) -> None:
    memory.create_thread("ada", thread_id="t1", expires_at=in_days(bench, 1))
    assert memory.update_thread("t1", title="x").expires_at == in_days(bench, 1)
    assert memory.update_thread("t1", expires_at=None).expires_at is None
    bench.clock.move(days=2)
    assert memory.get_thread("t1") is not None


def test_a_message_carries_its_time_on_the_wire(bench: Bench, memory: Memory) -> None:
    from agent_memory.messages.message import message_from_json, message_to_json

    due = in_days(bench, 3)
    (stored,) = memory.save_messages(
        [{"id": "m1", "role": "user", "content": "x", "expiresAt": clock.to_iso(due)}],
        thread_id="t1",
        resource_id="ada",
    )
    wire = message_to_json(stored)
    assert wire["expiresAt"] == clock.to_iso(due)
    assert message_from_json(wire).expires_at == due
    assert memory.save_messages([wire]) == (stored,)
    with pytest.raises(InvalidInputError, match="expiresAt"):
        message_from_json({**wire, "expiresAt": "soon"})
