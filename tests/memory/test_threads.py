"""Threads through the Memory facade, on the DynamoDB store."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent_memory.agent.services import Services
from agent_memory.aws.dynamodb.jobs import DynamoJobStore
from agent_memory.errors import AccessDeniedError, InvalidInputError, NotFoundError
from agent_memory.jobs.runner import run
from agent_memory.memory import Memory
from tests.support.memories import Bench, bench, conversation, ids, message


def test_a_thread_is_created_once_and_found_again(memory: Memory) -> None:
    made = memory.create_thread("ada", thread_id="t1", title="Tax 2024", metadata={"stage": "a"})
    again = memory.create_thread("ada", thread_id="t1", title="Other", metadata={"stage": "b"})

    assert made.title == "Tax 2024"
    assert again == made
    assert memory.get_thread("t1") == made
    assert memory.get_thread_by_id("t1", resource_id="ada") == made
    assert memory.get_thread("nowhere") is None
    assert memory.create_thread("ada").id != made.id


def test_a_thread_of_another_owner_is_refused(memory: Memory) -> None:
    memory.create_thread("ada", thread_id="t1")

    assert memory.get_thread("t1", resource_id="bob") is None
    with pytest.raises(AccessDeniedError):
        memory.create_thread("bob", thread_id="t1")
    with pytest.raises(AccessDeniedError):
        memory.update_thread("t1", title="mine", resource_id="bob")
    with pytest.raises(AccessDeniedError):
        memory.delete_thread("t1", resource_id="bob")
    with pytest.raises(AccessDeniedError):
        memory.transfer_thread("t1", "bob", resource_id="bob")
    assert memory.get_thread("t1", resource_id="ada") is not None


@pytest.mark.parametrize("owner", ["", None, "*", "   ", 3])
def test_an_owner_that_names_nobody_is_an_error_case_80(memory: Memory, owner: Any) -> None:
    memory.create_thread("ada", thread_id="t1")
    calls = (
        lambda: memory.create_thread(owner),
        lambda: memory.get_thread("t1", resource_id=owner),
        lambda: memory.list_threads(owner),
        lambda: memory.list_threads(filter={"resourceId": owner}),
        lambda: memory.update_thread("t1", title="x", resource_id=owner),
        lambda: memory.delete_thread("t1", resource_id=owner),
        lambda: memory.recall("t1", resource_id=owner),
        lambda: memory.clone_thread("t1", source_resource_id=owner),
        lambda: memory.delete_messages(["m1"], resource_id=owner),
        lambda: memory.search("pin", owner),
    )

    for call in calls:
        with pytest.raises(InvalidInputError):
            call()


def test_saving_a_thread_again_updates_it_case_36(memory: Memory) -> None:
    made = memory.create_thread("ada", thread_id="t1", title="A", metadata={"a": 1})

    memory.save_thread(memory.create_thread("ada", thread_id="t1"))
    changed = memory.save_thread(replace(made, title="B", metadata={"b": 2}))

    fresh = memory.get_thread("t1")
    assert fresh is not None
    assert (fresh.title, fresh.metadata) == ("B", {"b": 2})
    assert changed.created_at == made.created_at == fresh.created_at


def test_of_two_creators_the_second_finds_the_thread_or_is_refused_case_36(memory: Memory) -> None:
    first = memory.create_thread("ada", thread_id="t1")

    assert memory.create_thread("ada", thread_id="t1") == first
    with pytest.raises(AccessDeniedError):
        memory.create_thread("bob", thread_id="t1")
    assert memory.list_threads("ada").total == 1
    assert memory.list_threads("bob").total == 0


def test_metadata_is_merged_unless_it_shall_be_replaced(memory: Memory) -> None:
    memory.create_thread("ada", thread_id="t1", title="A", metadata={"a": 1, "b": 1})

    merged = memory.update_thread("t1", metadata={"b": 2})
    assert merged.metadata == {"a": 1, "b": 2}
    assert merged.title == "A"
    replaced = memory.update_thread("t1", metadata={"c": 3}, replace_metadata=True)
    assert replaced.metadata == {"c": 3}
    with pytest.raises(NotFoundError):
        memory.update_thread("nowhere", title="x")


def test_pages_of_threads(bench: Bench) -> None:
    memory = bench.memory()
    for number in range(7):
        bench.clock.move(minutes=1)
        memory.create_thread("ada", thread_id=f"t{number}", metadata={"odd": bool(number % 2)})
    memory.create_thread("bob", thread_id="b")

    first = memory.list_threads("ada", per_page=3)
    last = memory.list_threads("ada", page=2, per_page=3)
    every = memory.list_threads(filter={"resourceId": "ada"}, per_page=False)
    odd = memory.list_threads(
        filter={"resourceId": "ada", "metadata": {"odd": True}}, order_by={"field": "createdAt", "direction": "ASC"}
    )

    assert (ids(first.threads), first.total, first.has_more) == (["t6", "t5", "t4"], 7, True)
    assert (ids(last.threads), last.total, last.has_more) == (["t0"], 7, False)
    assert (len(every.threads), every.per_page, every.has_more) == (7, False, False)
    assert ids(odd.threads) == ["t1", "t3", "t5"]
    assert memory.list_threads("nobody").threads == ()
    none = memory.list_threads("ada", per_page=0)
    assert (none.threads, none.total, none.has_more) == ((), 7, True)
    beyond = memory.list_threads("ada", page=9, per_page=3)
    assert (beyond.threads, beyond.has_more) == ((), False)


def test_cursors_walk_all_threads_once(bench: Bench) -> None:
    memory = bench.memory()
    for number in range(5):
        bench.clock.move(minutes=1)
        memory.create_thread("ada", thread_id=f"t{number}")

    seen: list[str] = []
    page = memory.list_threads("ada", per_page=2)
    while True:
        seen += ids(page.threads)
        if page.next_cursor is None:
            break
        memory.create_thread("ada", thread_id=f"late{len(seen)}")
        page = memory.list_threads("ada", per_page=2, cursor=page.next_cursor)

    assert [thread for thread in seen if not thread.startswith("late")] == ["t4", "t3", "t2", "t1", "t0"]
    assert len(seen) == len(set(seen))


@pytest.mark.parametrize(
    "wrong",
    [
        {"page": -1},
        {"per_page": -1},
        {"per_page": 1.5},
        {"per_page": True},
        {"per_page": False, "page": 1},
        {"page": 2**50, "per_page": 100},
        {"order_by": {"field": "title"}},
        {"order_by": {"direction": "UP"}},
        {"filter": {"metadata": {"__proto__": 1}}},
        {"filter": {"metadata": {"a-b": 1}}},
        {"filter": {"metadata": {"é": 1}}},
        {"filter": {"metadata": []}},
        {"filter": {"resourceId": "bob"}},
    ],
)
def test_a_wrong_question_about_threads_is_refused(memory: Memory, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        memory.list_threads("ada", **wrong)


def test_the_thread_that_was_written_to_comes_first_case_55(bench: Bench) -> None:
    memory = bench.memory()
    memory.create_thread("ada", thread_id="A")
    bench.clock.move(minutes=1)
    memory.create_thread("ada", thread_id="B")
    created = memory.get_thread("A").created_at  # type: ignore[union-attr]

    def order() -> list[str]:
        return ids(memory.list_threads("ada", order_by={"field": "updatedAt", "direction": "DESC"}).threads)

    assert order() == ["B", "A"]
    bench.clock.move(hours=1)
    memory.save_messages([message("m1", thread="A")])
    assert order() == ["A", "B"]
    bench.clock.move(hours=1)
    memory.update_thread("B", title="new")
    assert order() == ["B", "A"]
    bench.clock.move(hours=1)
    memory.update_thread("A", metadata={"a": 1})
    assert order() == ["A", "B"]
    memory.save_messages([message("m2", thread="B")])
    bench.clock.move(hours=1)
    memory.delete_messages(["m1"], resource_id="ada")
    assert order() == ["A", "B"]
    bench.clock.move(hours=1)
    assert bench.store.set_generated_title("ada", "A", "made")
    fresh = memory.get_thread("A")
    assert fresh is not None
    assert fresh.updated_at == bench.clock.time
    assert fresh.created_at == created


def test_a_deleted_thread_is_gone_with_its_rows_case_22(bench: Bench) -> None:
    memory = bench.memory(working_memory={"scope": "thread"})
    memory.save_messages(conversation(30))
    memory.update_working_memory("plan A", thread_id="t1")

    assert memory.delete_thread("t1", resource_id="ada") is True

    assert memory.get_thread("t1") is None
    assert memory.recall("t1").messages == ()
    assert memory.list_threads("ada").total == 0
    assert bench.rows("messages") == []
    assert memory.delete_thread("t1") is False
    again = memory.create_thread("ada", thread_id="t1")
    assert memory.recall("t1").messages == ()
    assert memory.get_working_memory(thread_id=again.id) is None


def test_a_long_deleted_thread_is_left_to_the_janitor(bench: Bench) -> None:
    events: list[tuple[str, Any]] = []

    class Janitor:
        def dispatch(self, target: str, event: Any) -> None:
            events.append((target, event))

    jobs = DynamoJobStore(bench.dynamodb, runs_table=bench.names.runs)
    services = Services(store=bench.store, jobs=jobs, dispatcher=Janitor())
    memory = Memory()
    memory.bind(services)
    memory.save_messages(conversation(200))
    memory.delete_thread("t1")
    assert (events, bench.rows("messages")) == ([], [])
    memory.save_messages(conversation(201))

    memory.delete_thread("t1")

    assert memory.recall("t1").messages == ()
    (target, event) = events.pop()
    assert (target, event["owner"]) == ("janitor", "ada")
    assert len(bench.rows("messages")) == 201
    done = run(services, event["jobId"], "ada")
    assert done is not None
    assert (done.kind, done.state, done.progress) == ("purge", "finished", {"messages": 201})
    assert bench.rows("messages") == []


def test_transfer_moves_everything_and_keeps_dates(bench: Bench) -> None:
    memory = bench.memory(working_memory={"scope": "thread"})
    made = memory.create_thread("ada", thread_id="t1", title="Trip")
    memory.save_messages(conversation(3))
    memory.update_working_memory("plan A", thread_id="t1")

    moved = memory.transfer_thread("t1", "bob", resource_id="ada").thread

    assert (moved.resource_id, moved.title, moved.created_at) == ("bob", "Trip", made.created_at)
    assert ids(memory.recall("t1").messages) == ["m01", "m02", "m03"]
    assert memory.get_working_memory(thread_id="t1") == "plan A"
    with pytest.raises(AccessDeniedError):
        memory.recall("t1", resource_id="ada")
    assert memory.list_threads("ada").total == 0


def test_without_claims_a_thread_is_named_with_its_owner() -> None:
    with bench(claims=False) as made:
        memory = made.memory()
        memory.create_thread("ada", thread_id="t1", title="hers")
        memory.create_thread("bob", thread_id="t1", title="his")

        assert memory.get_thread("t1", resource_id="ada").title == "hers"  # type: ignore[union-attr]
        assert memory.get_thread("t1", resource_id="bob").title == "his"  # type: ignore[union-attr]
        with pytest.raises(NotFoundError, match="name its resource_id"):
            memory.update_thread("t1", title="whose")
