"""Clones of threads."""

from __future__ import annotations

from typing import Any

import pytest

from agent_memory.errors import AccessDeniedError, ConflictError, InvalidInputError, NotFoundError
from agent_memory.memory import Memory
from tests.support.memories import Bench, conversation, ids, message


def test_a_clone_has_new_ids_and_the_same_dates_and_order(memory: Memory) -> None:
    memory.create_thread("ada", thread_id="t1", title="Trip", metadata={"stage": "a"})
    memory.save_messages(conversation(5))

    thread, cloned, id_map = (clone := memory.clone_thread("t1")).thread, clone.cloned_messages, clone.message_id_map

    copied = memory.recall(thread.id).messages
    source = memory.recall("t1").messages
    assert [m.text for m in copied] == [m.text for m in source]
    assert [m.created_at for m in copied] == [m.created_at for m in source]
    assert ids(copied) == ids(cloned) == [id_map[m.id] for m in source]
    assert not set(ids(copied)) & set(ids(source))
    assert {m.thread_id for m in copied} == {thread.id}
    assert (thread.title, thread.resource_id) == ("Clone of Trip", "ada")
    assert thread.metadata is not None
    assert set(thread.metadata) == {"clone"}


def test_where_a_clone_came_from(memory: Memory) -> None:
    memory.save_messages(conversation(3))
    first = memory.clone_thread("t1", title="Branched conversation", metadata={"why": "test"}).thread
    second = memory.clone_thread(first.id, new_thread_id="c2").thread
    origin = memory.get_thread("t1")

    clone = memory.get_clone_metadata(first)
    assert clone is not None
    assert (clone.source_thread_id, clone.last_message_id) == ("t1", "m03")
    assert clone.cloned_at == first.created_at
    assert first.metadata is not None
    assert first.metadata["why"] == "test"
    assert memory.is_clone(first)
    assert not memory.is_clone(origin)  # type: ignore[arg-type]
    assert memory.get_source_thread(first.id) == origin
    assert memory.get_source_thread("t1") is None
    assert ids(memory.list_clones("t1")) == [first.id]
    assert ids(memory.get_clone_history("c2")) == ["t1", first.id, "c2"]
    memory.delete_thread("t1")
    assert memory.get_source_thread(first.id) is None
    assert ids(memory.get_clone_history("c2")) == [first.id, "c2"]
    assert second.id == "c2"


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        (None, ["text 1", "text 2", "text 3", "text 4", "text 5"]),
        ({"messageLimit": 2}, ["text 4", "text 5"]),
        ({"messageLimit": 0}, ["text 1", "text 2", "text 3", "text 4", "text 5"]),
        ({"messageFilter": {"messageIds": ["m01", "m04", "nobody"]}}, ["text 1", "text 4"]),
        (
            {"messageFilter": {"startDate": "2025-03-01T10:02:00Z", "endDate": "2025-03-01T10:04:00Z"}},
            ["text 2", "text 3", "text 4"],
        ),
        (
            {"message_filter": {"end_date": "2025-03-01T10:04:00Z"}, "message_limit": 1},
            ["text 4"],
        ),
        ({"messageFilter": {"messageIds": []}}, []),
    ],
)
def test_a_clone_may_take_some_messages(memory: Memory, options: Any, kept: list[str]) -> None:
    memory.save_messages(conversation(5))

    clone = memory.clone_thread("t1", options=options)

    assert [m.text for m in memory.recall(clone.thread.id).messages] == kept
    assert len(clone.message_id_map) == len(kept)


def test_a_clone_has_the_working_memory_of_its_source_case_54(bench: Bench) -> None:
    memory = bench.memory(working_memory={"scope": "thread"})
    memory.create_thread("ada", thread_id="t1")
    memory.update_working_memory("plan A", thread_id="t1")

    clone = memory.clone_thread("t1").thread
    assert memory.get_working_memory(thread_id=clone.id) == "plan A"
    memory.update_working_memory("plan B", thread_id=clone.id)
    assert memory.get_working_memory(thread_id="t1") == "plan A"
    assert memory.get_working_memory(thread_id=clone.id) == "plan B"


def test_a_clone_for_another_owner_takes_no_memory_of_the_source_owner_case_54(bench: Bench) -> None:
    memory = bench.memory(working_memory=True)
    memory.save_messages(conversation(2))
    memory.update_working_memory("ada likes tea", resource_id="ada")
    memory.update_working_memory("bob likes coffee", resource_id="bob")

    clone = memory.clone_thread("t1", resource_id="bob").thread

    assert clone.resource_id == "bob"
    assert {m.resource_id for m in memory.recall(clone.id).messages} == {"bob"}
    assert memory.get_working_memory(resource_id="bob") == "bob likes coffee"
    assert memory.get_working_memory(resource_id="ada") == "ada likes tea"
    assert memory.get_source_thread(clone.id) is None


def test_a_source_that_is_missing_or_foreign_and_a_taken_id_are_refused(memory: Memory) -> None:
    memory.save_messages(conversation(2))
    memory.create_thread("ada", thread_id="taken")

    with pytest.raises(NotFoundError, match="Source thread with id nowhere not found"):
        memory.clone_thread("nowhere")
    with pytest.raises(AccessDeniedError):
        memory.clone_thread("t1", source_resource_id="bob")
    with pytest.raises((ConflictError, AccessDeniedError)):
        memory.clone_thread("t1", new_thread_id="taken")
    with pytest.raises(InvalidInputError):
        memory.clone_thread("t1", options={"messageLimit": "2"})
    assert memory.list_threads("ada").total == 2


def test_an_untitled_source_gives_an_untitled_clone(memory: Memory) -> None:
    memory.save_messages([message("m1")])

    assert memory.clone_thread("t1").thread.title == ""
