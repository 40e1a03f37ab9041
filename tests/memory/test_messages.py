"""Saving, changing and deleting messages through the Memory facade."""

from __future__ import annotations

from typing import Any

import pytest

from agent_memory.errors import AccessDeniedError, ConflictError, InvalidInputError, NotFoundError
from agent_memory.memory import Memory
from agent_memory.messages import Message
from tests.support.memories import Bench, conversation, ids, message


def test_saving_creates_the_thread_and_keeps_the_order_sent(memory: Memory) -> None:
    stored = memory.save_messages(
        [
            {"role": "user", "content": "one"},
            {"id": "", "role": "assistant", "content": "two"},
            {"id": "m3", "role": "user", "content": {"format": 2, "parts": [{"type": "text", "text": "three"}]}},
        ],
        thread_id="t1",
        resource_id="ada",
    )

    found = memory.recall("t1").messages
    assert [m.text for m in found] == ["one", "two", "three"]
    assert ids(found) == ids(stored)
    assert len(set(ids(stored))) == 3
    assert stored[2].id == "m3"
    assert memory.get_thread("t1").title == ""  # type: ignore[union-attr]


def test_a_known_id_is_replaced_in_place(memory: Memory) -> None:
    memory.save_messages(conversation(3))
    memory.save_messages([message("m02", "changed", role="assistant", minute=2)])

    assert [m.text for m in memory.recall("t1").messages] == ["text 1", "changed", "text 3"]


def test_of_an_id_given_twice_the_last_copy_counts_case_31(memory: Memory) -> None:
    stored = memory.save_messages([message("m1", "first"), message("m1", "second")])

    assert [m.text for m in stored] == ["second"]
    assert [m.text for m in memory.recall("t1").messages] == ["second"]
    assert memory.delete_messages(["m1", "m1"], resource_id="ada") == 1


def test_system_messages_and_traces_of_working_memory_are_left_out(memory: Memory) -> None:
    call = {
        "type": "tool-invocation",
        "toolInvocation": {
            "state": "result",
            "toolCallId": "c",
            "toolName": "updateWorkingMemory",
            "args": {},
            "result": 1,
        },
    }
    stored = memory.save_messages(
        [
            {"id": "s", "role": "system", "content": "be kind"},
            {"id": "w", "role": "assistant", "content": {"format": 2, "parts": [call]}},
            {"id": "a", "role": "assistant", "content": "hi <working_memory>x</working_memory>"},
        ],
        thread_id="t1",
        resource_id="ada",
    )

    assert [(m.id, m.text) for m in stored] == [("a", "hi")]


def test_application_metadata_comes_back_and_is_filterable_case_57(memory: Memory) -> None:
    own = {"clientMsg": "c-77", "lang": "nb"}
    memory.save_messages(
        [
            {
                "id": "u1",
                "role": "user",
                "content": {"format": 2, "parts": [{"type": "text", "text": "hei"}], "metadata": own},
            },
            {"id": "a1", "role": "assistant", "content": "hei hei"},
        ],
        thread_id="t1",
        resource_id="ada",
    )

    first, answer = memory.recall("t1").messages
    assert first.metadata == own
    assert answer.metadata == {}
    assert ids(memory.recall("t1", filter={"metadata": {"lang": "nb"}}).messages) == ["u1"]


def test_numbers_keep_their_type_and_match_case_33(memory: Memory) -> None:
    own = {"priority": 2, "score": 0.1, "ok": True, "none": None}
    memory.save_messages([message("m1", metadata=own), message("m2")])

    stored = memory.recall("t1").messages[0].metadata
    assert stored == own
    assert [type(stored[key]) for key in ("priority", "score", "ok")] == [int, float, bool]
    for key, value in own.items():
        assert ids(memory.recall("t1", filter={"metadata": {key: value}}).messages) == ["m1"]
    assert memory.recall("t1", filter={"metadata": {"ok": 1}}).messages == ()
    assert memory.recall("t1", filter={"metadata": {"missing": None}}).messages == ()


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"role": "user", "content": "x", "threadId": "", "resourceId": "ada"}, "messages.0.threadId"),
        ({"role": "user", "content": "x", "threadId": "t9"}, "messages.0.resourceId"),
        ({"role": "user", "content": "x", "resourceId": "ada"}, "messages.0.threadId"),
        ({"role": "user", "content": "x", "threadId": "t9", "resourceId": "*"}, "messages.0.resourceId"),
        ({"role": "boss", "content": "x", "threadId": "t9", "resourceId": "ada"}, "messages.0.role"),
        ({"id": 5, "role": "user", "content": "x", "threadId": "t9", "resourceId": "ada"}, "messages.0.id"),
        ("hello", "messages.0"),
    ],
)
def test_a_malformed_message_is_named_and_nothing_is_written(bench: Bench, given: Any, field: str) -> None:
    memory = bench.memory()
    with pytest.raises(InvalidInputError) as caught:
        memory.save_messages([given, message("m1")])

    assert caught.value.field.startswith(field.rsplit(".", 1)[0])
    assert bench.rows("messages") == []


def test_a_thread_of_somebody_else_takes_no_messages(bench: Bench) -> None:
    memory = bench.memory()
    memory.save_messages(conversation(2))

    with pytest.raises(AccessDeniedError):
        memory.save_messages([message("x", owner="bob")])
    with pytest.raises(InvalidInputError, match="one resource"):
        memory.save_messages([message("x", thread="t2"), message("y", thread="t2", owner="bob")])
    assert len(bench.rows("messages")) == 2


def test_a_message_without_owner_goes_to_the_owner_of_its_thread(memory: Memory) -> None:
    memory.create_thread("ada", thread_id="t1")

    (stored,) = memory.save_messages([{"role": "user", "content": "hi"}], thread_id="t1")

    assert stored.resource_id == "ada"


def test_rows_are_stamped_with_the_index_only_where_recall_is_on(bench: Bench) -> None:
    bench.memory(semantic_recall=True).save_messages([message("m1")])
    bench.memory().save_messages([message("m2")])
    bench.memory().save_messages([message("m3")], thread_config={"semanticRecall": True})

    stamped = {row["mid"]["S"]: row.get("index", {}).get("S") for row in bench.rows("messages")}
    assert stamped == {"m1": bench.index.id, "m2": None, "m3": bench.index.id}


def test_a_change_merges_content_and_keeps_place_and_date(memory: Memory) -> None:
    memory.save_messages(conversation(3))
    before = memory.recall("t1").messages[1]

    (changed,) = memory.update_messages(
        [{"id": "m02", "content": {"metadata": {"flag": True}}}, {"id": "nobody", "content": "x"}], resource_id="ada"
    )
    memory.update_messages([{"id": "m02", "content": {"metadata": {"note": 1}}}], thread_id="t1")
    memory.update_messages([{"id": "m02", "content": "new text"}], thread_id="t1")

    after = memory.recall("t1").messages[1]
    assert changed.metadata == {"flag": True}
    assert after.metadata == {"flag": True, "note": 1}
    assert after.text == "new text"
    assert after.content.content == "new text"
    assert (after.id, after.created_at, after.seq) == (before.id, before.created_at, before.seq)
    assert (after.version or 0) > (before.version or 0)


@pytest.mark.parametrize(
    "change",
    [
        {"id": "m01", "threadId": "t2"},
        {"id": "m01", "role": "system"},
        {"id": "m01", "content": 5},
        {"content": "x"},
        "m01",
    ],
)
def test_a_wrong_change_is_refused(memory: Memory, change: Any) -> None:
    memory.save_messages(conversation(1))
    with pytest.raises((InvalidInputError, NotFoundError)):
        memory.update_messages([change], thread_id="t2" if isinstance(change, dict) and "threadId" in change else "t1")
    assert memory.recall("t1").messages[0].text == "text 1"


def test_a_bare_id_in_two_threads_is_ambiguous_for_a_change(memory: Memory) -> None:
    memory.save_messages([message("same"), message("same", thread="t2")])

    with pytest.raises(ConflictError, match="name thread_id"):
        memory.update_messages([{"id": "same", "content": "x"}], resource_id="ada")
    memory.update_messages([{"id": "same", "content": "x"}], thread_id="t2")
    assert [memory.recall(t).messages[0].text for t in ("t1", "t2")] == ["same", "x"]


def test_deleting_by_id_takes_every_form_and_skips_unknown_ids(memory: Memory) -> None:
    memory.save_messages(conversation(5))

    assert memory.delete_messages("m01", resource_id="ada") == 1
    assert memory.delete_messages({"id": "m02"}, thread_id="t1") == 1
    assert memory.delete_messages([{"id": "m03"}, "nobody"], resource_id="ada") == 1
    assert memory.delete_messages([], thread_id="t1") == 0
    result = memory.recall("t1")
    assert ids(result.messages) == ["m04", "m05"]
    assert result.total == 2


def test_deleting_all_of_a_thread_keeps_the_thread_case_22(bench: Bench) -> None:
    memory = bench.memory()
    memory.save_messages(conversation(40))

    assert memory.delete_messages(thread_id="t1") == 40

    assert memory.recall("t1").messages == ()
    assert memory.get_thread("t1") is not None
    assert bench.rows("messages") == []
    memory.save_messages([message("again", minute=99)])
    assert ids(memory.recall("t1").messages) == ["again"]


@pytest.mark.parametrize("wrong", [[""], [None], [{"name": "x"}], 5, [5]])
def test_deleting_what_is_no_id_is_refused(memory: Memory, wrong: Any) -> None:
    with pytest.raises(InvalidInputError):
        memory.delete_messages(wrong, resource_id="ada")


def test_deleting_needs_a_place_to_look_and_cannot_reach_others(memory: Memory) -> None:
    memory.save_messages(conversation(2))

    with pytest.raises(InvalidInputError):
        memory.delete_messages(["m01"])
    with pytest.raises(InvalidInputError):
        memory.delete_messages()
    with pytest.raises(AccessDeniedError):
        memory.delete_messages(thread_id="t1", resource_id="bob")
    assert memory.delete_messages(["m01"], resource_id="bob") == 0
    assert len(memory.recall("t1").messages) == 2


def test_messages_are_not_changed_by_saving(memory: Memory) -> None:
    given: Message = message("m1", "hi <working_memory>x</working_memory>")
    raw = {"role": "user", "content": "hi"}

    memory.save_messages([given])
    memory.save_messages([raw], thread_id="t1")

    assert given.text == "hi <working_memory>x</working_memory>"
    assert raw == {"role": "user", "content": "hi"}
