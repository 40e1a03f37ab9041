"""What every MessageStore does: turns, threads, messages and working memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from agent_memory import clock
from agent_memory.errors import (
    AccessDeniedError,
    ConflictError,
    InvalidInputError,
    StorageError,
    TooLargeError,
    UnavailableError,
)
from agent_memory.messages.message import message_from_json, message_to_json
from agent_memory.ports import (
    MessageQuery,
    MessageRef,
    MessageStore,
    Thread,
    ThreadQuery,
    TurnCommit,
)
from tests.contract.conftest import World

ALL = MessageQuery(per_page=None)
ODD_IDS = ("a#b", "*", "what?", "$HOME", "{x}", "a b", "~h", "🙂", "R#r#t", "x" * 512, "#" * 512, "é" * 256)


def parallel(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run calls in threads that start together; errors come back as results."""
    barrier = threading.Barrier(len(calls))

    def run(call: Callable[[], Any]) -> Any:
        barrier.wait()
        try:
            return call()
        except Exception as error:
            return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def tool_message(world: World, id: str, state: str, **invocation: Any) -> Any:
    return message_from_json(
        {
            "id": id,
            "role": "assistant",
            "createdAt": clock.to_iso(world.clock()),
            "content": {
                "format": 2,
                "parts": [
                    {"type": "text", "text": "looking"},
                    {
                        "type": "tool-invocation",
                        "toolInvocation": {
                            "state": state,
                            "toolCallId": "c1",
                            "toolName": "weather",
                            "args": {"city": "Oslo"},
                            **invocation,
                        },
                    },
                ],
            },
        }
    )


def test_the_store_has_every_method_of_the_port(world: World) -> None:
    assert isinstance(world.store, MessageStore)


# ------------------------------------------------------------------------------------------------------------- turns


def test_a_first_turn_makes_the_thread_and_keeps_both_messages(world: World) -> None:
    assert world.store.begin_turn("r", "t", world.turn("k")).header is None

    done = world.commit(
        None,
        world.message("u1"),
        world.message("a1", role="assistant"),
        title="Hello",
        metadata={"stage": "a"},
        turn=world.turn("k", "finished", answer_id="a1", user_ids=("u1",)),
    )

    assert [(m.id, m.seq, m.version) for m in done.appended] == [("u1", 1, 1), ("a1", 2, 1)]
    header = world.store.get_thread("r", "t")
    assert header == replace(done.header, turns=header.turns if header else ())
    assert (header.thread.title, header.title_source, header.thread.metadata) == ("Hello", "given", {"stage": "a"})
    assert (header.message_count, header.first_seq, header.next_seq) == (2, 1, 3)
    assert header.turns[0].answer_id == "a1"
    assert world.ids() == ["u1", "a1"]


def test_a_turn_key_that_runs_or_has_finished_is_a_repeat_and_changes_nothing(world: World) -> None:
    world.commit(None, world.message("u0"))
    first = world.store.begin_turn("r", "t", world.turn("k", run="one"))
    assert first.repeat is None

    running = world.store.begin_turn("r", "t", world.turn("k", run="two"))
    assert running.repeat is not None
    assert (running.repeat.run_id, running.repeat.state) == ("one", "running")

    world.commit(first.header, world.message("u1"), turn=world.turn("k", "finished", run="one", answer_id="a1"))
    finished = world.store.begin_turn("r", "t", world.turn("k", run="three"))
    assert finished.repeat is not None
    assert (finished.repeat.run_id, finished.repeat.state, finished.repeat.answer_id) == ("one", "finished", "a1")


def test_a_failed_or_dead_turn_is_replaced_and_told(world: World) -> None:
    header = world.commit(None, world.message("u0")).header
    world.store.begin_turn("r", "t", world.turn("failing", run="one"))
    world.store.fail_turn(header, world.turn("failing", "failed", run="one", user_ids=("u1",)))
    again = world.store.begin_turn("r", "t", world.turn("failing", run="two"))
    assert again.repeat is not None
    assert (again.repeat.state, again.repeat.user_ids) == ("failed", ("u1",))
    assert again.header is not None

    world.store.begin_turn("r", "t", world.turn("dead", run="one"))
    world.clock.advance(seconds=61)
    dead = world.store.begin_turn("r", "t", world.turn("dead", run="two"))
    assert dead.repeat is not None
    assert dead.repeat.run_id == "one"
    runs = {turn.key: turn.run_id for turn in world.store.get_thread("r", "t").turns}  # type: ignore[union-attr]
    assert runs == {"failing": "two", "dead": "two"}


def test_dropping_a_turn_record_and_failing_one_leave_updated_at_alone_case_55(world: World) -> None:
    header = world.commit(None, world.message("u0")).header
    world.store.begin_turn("r", "t", world.turn("k"))
    world.clock.advance(hours=1)
    world.store.fail_turn(header, world.turn("k"))
    after = world.store.get_thread("r", "t")
    assert after is not None
    assert after.turns == ()
    assert after.thread.updated_at == header.thread.updated_at


def test_beginning_a_turn_without_a_record_only_reads(world: World) -> None:
    header = world.commit(None, world.message("u0")).header
    world.faults.clear()
    assert world.store.begin_turn("r", "t", None).header == header
    assert world.faults.operations() == ["GetItem"]
    assert world.store.begin_turn("r", "none", None).header is None


def test_the_second_of_two_runs_of_one_turn_is_told_of_the_first(world: World) -> None:
    header = world.commit(None, world.message("u0")).header
    world.commit(header, world.message("u1"), turn=world.turn("k", "finished", run="one", answer_id="a1"))
    late = world.commit(header, world.message("u1"), world.message("a2"), turn=world.turn("k", "finished", run="two"))
    assert late.repeat is not None
    assert late.repeat.run_id == "one"
    assert late.appended == ()
    assert world.ids() == ["u0", "u1"]


def test_a_message_that_another_turn_stored_first_is_not_written_again(world: World) -> None:
    header = world.commit(None, world.message("u0")).header
    world.commit(header, world.message("u1", "first"), turn=world.turn("one", "finished"))
    done = world.commit(header, world.message("u1", "second"), world.message("u2"), turn=world.turn("two", "finished"))
    assert [m.id for m in done.appended] == ["u2"]
    assert [m.text for m in world.store.latest("r", "t", 5)][1] == "first"
    assert world.ids() == ["u0", "u1", "u2"]


def test_the_header_does_not_grow_with_turns_case_25(world: World) -> None:
    header = world.commit(None, world.message("u0")).header
    sizes = []
    for number in range(8):
        world.clock.advance(seconds=1)
        key = f"turn-{number:02d}"
        header = world.store.begin_turn("r", "t", world.turn(key)).header
        assert header is not None
        header = world.commit(header, world.message(f"u{number:02d}x"), turn=world.turn(key, "finished")).header
        sizes.append(len(str(world.scan(world.names.threads))))
    assert sizes[-1] - sizes[4] < 20
    assert [turn.key for turn in header.turns] == ["turn-05", "turn-06", "turn-07"]


def test_dates_of_a_turn_never_go_back_and_never_pass_the_clock_case_16(world: World) -> None:
    world.store.save_messages("r", "t", [world.message(f"m{n:03d}") for n in range(90)])
    world.clock.advance(milliseconds=10)
    header = world.store.get_thread("r", "t")
    done = world.commit(header, world.message("u-new"), world.message("a-new", role="assistant"))
    assert {m.created_at for m in done.appended} == {world.clock()}
    assert [m.id for m in world.store.latest("r", "t", 3)] == ["m089", "u-new", "a-new"]

    early = replace(world.message("late-clock"), created_at=clock.parse("2020-01-01"))
    stored = world.commit(done.header, early).appended[0]
    assert stored.created_at == world.clock()


def test_messages_of_one_instant_keep_the_order_they_were_saved_in_case_15(world: World) -> None:
    world.store.save_messages("r", "t", [world.message(id) for id in ("z", "m", "b")])
    header = world.store.get_thread("r", "t")
    assert header is not None
    assert world.ids() == ["z", "m", "b"]
    descending = world.store.list_messages(header, MessageQuery(per_page=2))
    assert [m.id for m in descending.messages] == ["m", "b"]
    ascending = world.store.list_messages(header, MessageQuery(per_page=2, newest_first=False))
    assert [m.id for m in ascending.messages] == ["z", "m"]
    assert [m.id for m in world.store.latest("r", "t", 2)] == ["m", "b"]


def test_an_outcome_is_stored_with_the_turn_and_the_rest_of_the_row_stays_case_41(world: World) -> None:
    header = world.commit(None, world.message("u1"), tool_message(world, "a1", "call")).header
    flag = {"S": "keep"}
    key = {"pk": {"S": "R#r#t"}, "sk": {"N": "2"}}
    world.dynamodb.update_item(
        TableName=world.names.messages,
        Key=key,
        UpdateExpression="SET appFlag = :f",
        ExpressionAttributeValues={":f": flag},
    )
    world.dynamodb.update_item(
        TableName=world.names.threads,
        Key={"pk": {"S": "R#r"}, "sk": {"S": "T#t"}},
        UpdateExpression="SET appFlag = :f",
        ExpressionAttributeValues={":f": flag},
    )
    stored = world.store.latest("r", "t", 1)[0]
    outcome = tool_message(world, "a1", "result", result={"temp": 3})
    done = world.commit(header, world.message("a2", role="assistant"), updated=(stored.with_parts(outcome.parts),))
    assert done.updated[0].version == 2
    world.store.update_thread("r", "t", title="x", metadata={"a": 1})
    world.store.set_generated_title("r", "t", "y")
    world.store.put_working_memory("r", "t", "likes tea", expected_version=0)
    world.store.update_message("r", "t", "a1", lambda m: m.with_metadata(seen=True))
    early = world.message("before", created_at=clock.parse("2020-01-01"))
    world.store.save_messages("r", "t", [early])

    rows = {item["mid"]["S"]: item for item in world.scan(world.names.messages)}
    assert rows["a1"]["appFlag"] == flag
    headers = [item for item in world.scan(world.names.threads) if item["sk"]["S"] == "T#t"]
    assert headers[0]["appFlag"] == flag
    invocation = world.store.list_messages(world.store.get_thread("r", "t"), ALL).messages[2].parts[1].invocation  # type: ignore
    assert (invocation.state, invocation.result, invocation.args) == ("result", {"temp": 3}, {"city": "Oslo"})


def test_where_the_row_changed_meanwhile_only_outcomes_that_advance_are_applied(world: World) -> None:
    header = world.commit(None, world.message("u1"), tool_message(world, "a1", "call")).header
    stale = world.store.latest("r", "t", 1)[0]
    world.store.update_message("r", "t", "a1", lambda m: m.with_metadata(by="somebody"))

    result = tool_message(world, "a1", "result", result=1)
    done = world.commit(header, world.message("u2"), updated=(stale.with_parts((*result.parts, *result.parts[:1])),))
    stored = world.store.get_messages("r", [("t", 2)])[0]
    assert stored.metadata == {"by": "somebody"}
    assert (len(stored.parts), stored.parts[1].invocation.state) == (2, "result")  # type: ignore[union-attr]

    other = tool_message(world, "a1", "result", result=2)
    world.commit(done.header, world.message("u3"), updated=(stale.with_parts(other.parts),))
    assert world.store.get_messages("r", [("t", 2)])[0].parts[1].invocation.result == 1  # type: ignore[union-attr]
    assert world.ids() == ["u1", "a1", "u2", "u3"]


def test_a_regenerate_removes_the_old_answer_in_the_same_commit(world: World) -> None:
    header = world.commit(None, world.message("u1"), world.message("a1", role="assistant")).header
    old = world.store.latest("r", "t", 1)[0]
    done = world.commit(header, world.message("a2", role="assistant"), removed=(old,))
    assert world.ids() == ["u1", "a2"]
    assert done.header.message_count == 2
    again = world.commit(done.header, world.message("a3", role="assistant"), removed=(old,))
    assert world.ids() == ["u1", "a2", "a3"]
    assert again.header.message_count == 3


def answered(world: World) -> Any:
    """A question with its answer; the header and the answer."""
    header = world.commit(None, world.message("u1"), world.message("a1", role="assistant")).header
    return header, world.store.latest("r", "t", 1)[0]


def test_of_regenerates_that_were_prepared_together_one_answer_remains(world: World) -> None:
    header, old = answered(world)
    for name in ("a2", "a3", "a4"):
        done = world.commit(header, world.message(name, role="assistant"), removed=(old,), regenerates="u1")
        assert world.ids() == ["u1", name]
        assert done.header.message_count == 2


def test_a_regenerate_leaves_what_follows_the_next_question(world: World) -> None:
    header, old = answered(world)
    world.commit(header, world.message("u2"), world.message("b1", role="assistant"))
    world.commit(header, world.message("a2", role="assistant"), removed=(old,), regenerates="u1")
    assert world.ids() == ["u1", "u2", "b1", "a2"]


def test_a_regenerate_that_came_to_no_answer_leaves_that_of_another(world: World) -> None:
    header, old = answered(world)
    world.commit(header, world.message("a2", role="assistant"), removed=(old,), regenerates="u1")
    world.commit(header, removed=(old,), regenerates="u1", turn=world.turn("k", "failed"))
    assert world.ids() == ["u1", "a2"]


def test_of_regenerates_of_a_question_that_was_not_stored_one_answer_remains(world: World) -> None:
    for name in ("a1", "a2"):
        world.commit(None, world.message("u1"), world.message(name, role="assistant"), regenerates="u1")
    assert world.ids() == ["u1", "a2"]


def test_a_regenerate_whose_write_lost_its_answer_keeps_its_own(world: World) -> None:
    header, old = answered(world)
    world.faults.lose_answer("TransactWriteItems")
    world.commit(header, world.message("a2", role="assistant"), removed=(old,), regenerates="u1")
    assert world.ids() == ["u1", "a2"]
    assert world.store.get_thread("r", "t").message_count == 2  # type: ignore[union-attr]


@pytest.mark.parametrize("lost", [False, True])
def test_a_new_answer_may_carry_the_id_of_the_one_it_replaces(world: World, lost: bool) -> None:
    first = world.turn("k", "finished", answer_id="a1")
    header = world.commit(None, world.message("u1"), world.message("a1", "old", role="assistant"), turn=first).header
    old = world.store.latest("r", "t", 1)[0]
    if lost:
        world.faults.lose_answer("TransactWriteItems")
    done = world.commit(
        header,
        world.message("a1", "new", role="assistant"),
        removed=(old,),
        updated=(old,),
        turn=world.turn("k2", "finished", answer_id="a1"),
    )
    assert [(m.id, m.text) for m in done.appended] == [("a1", "new")]
    assert [m.text for m in world.store.latest("r", "t", 5)] == ["text of u1", "new"]
    assert world.store.get_thread("r", "t").message_count == 2  # type: ignore[union-attr]


def test_one_message_twice_in_a_commit_is_stored_once_and_the_last_wins_case_31(world: World) -> None:
    world.commit(None, world.message("m1", "one"), world.message("m2"), world.message("m1", "two"))
    assert [(m.id, m.text) for m in world.store.latest("r", "t", 5)] == [("m1", "two"), ("m2", "text of m2")]
    world.store.save_messages("r", "s", [world.message("m1", "one"), world.message("m1", "two")])
    assert [m.text for m in world.store.latest("r", "s", 5)] == ["two"]
    ref = MessageRef("r", "t", "m1", 1)
    assert world.store.delete_messages("r", [ref, ref]) == 1


# ---------------------------------------------------------------------------------------------------------- conflicts


def test_twenty_parallel_saves_all_survive_case_29(world: World) -> None:
    world.skip_on_moto("its transactions are not isolated from each other between threads")
    import time

    stores = [world.make_store(sleep=time.sleep) for _ in range(20)]
    header = world.commit(None, world.message("u0")).header

    def commit(n: int) -> Any:
        return stores[n].commit(TurnCommit("t", "r", header, appended=(world.message(f"m{n}"),)))

    results = parallel([lambda n=n: commit(n) for n in range(20)])
    assert not [result for result in results if isinstance(result, Exception)]
    assert sorted(world.ids()) == sorted(["u0", *(f"m{n}" for n in range(20))])
    assert sorted(int(item["sk"]["N"]) for item in world.scan(world.names.messages)) == list(range(1, 22))


def test_parallel_first_commits_make_one_thread_that_holds_all(world: World) -> None:
    world.skip_on_moto("its transactions are not isolated from each other between threads")
    import time

    stores = [world.make_store(sleep=time.sleep) for _ in range(6)]
    results = parallel(
        [lambda n=n: stores[n].commit(TurnCommit("t", "r", None, appended=(world.message(f"m{n}"),))) for n in range(6)]
    )
    assert not [result for result in results if isinstance(result, Exception)]
    assert sorted(world.ids()) == [f"m{n}" for n in range(6)]
    assert world.store.list_threads("r", ThreadQuery()).total == 1


def test_parallel_metadata_merges_of_different_keys_all_survive_case_29(world: World) -> None:
    world.skip_on_moto("its conditional updates are not isolated from each other between threads")
    import time

    store = world.make_store(sleep=time.sleep)
    world.commit(None, world.message("u0"))
    results = parallel([lambda n=n: store.update_thread("r", "t", metadata={f"k{n}": n}) for n in range(20)])
    assert not [result for result in results if isinstance(result, Exception)]
    assert world.store.get_thread("r", "t").thread.metadata == {f"k{n}": n for n in range(20)}  # type: ignore[union-attr]


def test_a_commit_takes_new_numbers_when_another_was_first(world: World) -> None:
    header = world.commit(None, world.message("u0")).header
    other = world.make_store()
    world.faults.before(
        "TransactWriteItems",
        lambda: other.commit(TurnCommit("t", "r", header, appended=(world.message("other"),))),
    )
    done = world.commit(header, world.message("mine"))
    assert [(m.id, m.seq) for m in done.appended] == [("mine", 3)]
    assert world.ids() == ["u0", "other", "mine"]


def test_a_rename_beside_a_running_turn_neither_conflicts_nor_is_undone(world: World) -> None:
    header = world.commit(None, world.message("u0")).header
    world.store.update_thread("r", "t", title="Tax 2024", metadata={"stage": "b"})
    world.faults.clear()
    done = world.commit(header, world.message("u1"), turn=world.turn("k", "finished"))
    assert world.faults.operations() == ["TransactWriteItems"]
    after = world.store.get_thread("r", "t")
    assert after is not None
    assert (after.thread.title, after.thread.metadata, after.title_source) == ("Tax 2024", {"stage": "b"}, "person")
    assert done.header.next_seq == after.next_seq


def test_metadata_of_a_commit_is_merged_over_a_change_made_meanwhile(world: World) -> None:
    header = world.commit(None, world.message("u0"), metadata={"a": 1, "b": 1}).header
    world.store.update_thread("r", "t", metadata={"b": 2})
    world.commit(header, world.message("u1"), metadata={"c": 3})
    assert world.store.get_thread("r", "t").thread.metadata == {"a": 1, "b": 2, "c": 3}  # type: ignore[union-attr]


def test_a_thread_deleted_beside_a_running_turn_stays_deleted(world: World) -> None:
    header = world.commit(None, world.message("u0")).header
    assert world.store.delete_thread("r", "t")
    with pytest.raises(ConflictError, match="deleted"):
        world.commit(header, world.message("u1"))
    assert world.store.get_thread("r", "t") is None

    world.commit(None, world.message("u2"))
    with pytest.raises(ConflictError, match="deleted"):
        world.commit(header, world.message("u3"))
    assert world.ids() == ["u2"]


def test_a_clear_beside_a_running_turn_keeps_the_turn_and_the_count(world: World) -> None:
    header = world.commit(None, world.message("u0"), world.message("a0", role="assistant")).header
    old = world.store.latest("r", "t", 1)[0]
    assert world.store.clear_thread("r", "t") == 2
    done = world.commit(header, world.message("u1"), removed=(old,))
    assert world.ids() == ["u1"]
    assert done.header.message_count == world.store.get_thread("r", "t").message_count == 1  # type: ignore[union-attr]


@pytest.mark.parametrize("times", [1, 2, 5])
def test_throttling_and_conflicts_that_pass_are_mended_by_trying_again_case_37(world: World, times: int) -> None:
    header = world.commit(None, world.message("u0")).header
    world.faults.throttle("TransactWriteItems", times)
    header = world.commit(header, world.message("u1")).header
    world.faults.conflict(times)
    world.commit(header, world.message("u2"))
    world.faults.throttle("Query", times)
    world.faults.throttle("UpdateItem", times)
    assert world.store.begin_turn("r", "t", world.turn("k")).repeat is None
    assert [m.id for m in world.store.latest("r", "t", 9)] == ["u0", "u1", "u2"]
    assert len(world.waits) == 4 * times


@pytest.mark.parametrize("code", ["ProvisionedThroughputExceededException", "InternalServerError"])
def test_throttling_for_ever_is_unavailable_and_nothing_is_half_saved_case_37(world: World, code: str) -> None:
    header = world.commit(None, world.message("u0")).header
    world.faults.refuse("TransactWriteItems", code)
    with pytest.raises(UnavailableError) as caught:
        world.commit(header, world.message("u1"), world.message("a1"))
    assert caught.value.status == 503
    assert caught.value.retry_after_s > 0
    world.faults.clear()
    assert world.ids() == ["u0"]
    assert len(world.scan(world.names.messages)) == 1


def test_conflicts_for_ever_are_unavailable_and_nothing_is_half_saved(world: World) -> None:
    header = world.commit(None, world.message("u0")).header
    world.faults.conflict()
    with pytest.raises(UnavailableError):
        world.commit(header, world.message("u1"))
    world.faults.clear()
    assert world.ids() == ["u0"]


@pytest.mark.parametrize("new", [True, False])
def test_a_commit_whose_answer_was_lost_is_applied_once(world: World, new: bool) -> None:
    header = None if new else world.commit(None, world.message("u0")).header
    world.faults.lose_answer("TransactWriteItems")
    done = world.commit(
        header, world.message("u1"), world.message("a1"), turn=world.turn("k", "finished"), metadata={"a": 1}
    )
    assert [m.id for m in done.appended] == ["u1", "a1"]
    assert world.ids() == ([] if new else ["u0"]) + ["u1", "a1"]
    header = world.store.get_thread("r", "t")
    assert header is not None
    assert (header.message_count, header.thread.metadata) == (2 if new else 3, {"a": 1})
    assert world.store.list_threads("r", ThreadQuery()).total == 1


def test_a_turn_registered_by_a_call_whose_answer_was_lost_is_no_repeat(world: World) -> None:
    world.commit(None, world.message("u0"))
    world.faults.lose_answer("UpdateItem")
    start = world.store.begin_turn("r", "t", world.turn("k"))
    assert start.repeat is None
    assert start.header is not None


def test_an_error_that_no_retry_mends_is_told_once_with_its_cause(world: World) -> None:
    world.faults.refuse("GetItem", "ResourceNotFoundException")
    with pytest.raises(StorageError) as caught:
        world.store.get_thread("r", "t")
    assert caught.value.__cause__ is not None
    assert world.waits == []
    world.faults.refuse("Query", "ValidationException", Error={"Code": "ValidationException", "Message": "bad"})
    with pytest.raises(StorageError):
        world.store.latest("r", "t", 1)


def test_unprocessed_keys_and_items_are_followed_to_their_end(world: World) -> None:
    world.commit(None, *(world.message(f"m{n}") for n in range(5)))
    keys = [{"pk": {"S": "R#r#t"}, "sk": {"N": str(n)}} for n in range(1, 6)]
    world.faults.answer(
        "BatchGetItem",
        {
            "Responses": {world.names.messages: []},
            "UnprocessedKeys": {world.names.messages: {"Keys": keys, "ConsistentRead": True}},
        },
    )
    found = world.store.get_messages("r", [("t", n) for n in (5, 3, 1, 2, 4, 9)])
    assert [m.seq for m in found] == [5, 3, 1, 2, 4]

    world.store.clear_thread("r", "t")
    requests = [{"DeleteRequest": {"Key": key}} for key in keys]
    world.faults.answer("BatchWriteItem", {"UnprocessedItems": {world.names.messages: requests}})
    assert world.store.purge_thread("r", "t") == 5
    assert world.scan(world.names.messages) == []

    world.faults.answer(
        "BatchGetItem",
        {"Responses": {}, "UnprocessedKeys": {world.names.messages: {"Keys": keys}}},
        times=float("inf"),
    )
    with pytest.raises(UnavailableError):
        world.store.get_messages("r", [("t", 1)])


def test_empty_pages_are_walked_past_until_the_key_is_absent_or_empty_case_24(world: World) -> None:
    world.commit(None, world.message("m1"))
    row = world.scan(world.names.messages)[0]
    key = {"pk": row["pk"], "sk": row["sk"]}
    for last in ({}, {"LastEvaluatedKey": {}}):
        world.faults.answer("Query", {"Items": [], "Count": 0, "LastEvaluatedKey": key})
        world.faults.answer("Query", {"Items": [row], "Count": 1, **last})
        assert [m.id for m in world.store.latest("r", "t", 5)] == ["m1"]
        assert world.faults.operations().count("Query") == 2
        world.faults.clear()


# ------------------------------------------------------------------------------------------------------ what is stored


def test_every_json_value_comes_back_as_it_went_in_case_33(world: World) -> None:
    result = {"temp": 21.5, "n": 3, "big": 12345678901234567890, "tiny": 1e-7, "ok": True, "none": None, "list": []}
    raw = {
        "id": "a1",
        "role": "assistant",
        "createdAt": "2025-05-05T05:05:05.678Z",
        "type": "v2",
        "custom": {"deep": [1, 2.0, None]},
        "content": {
            "format": 2,
            "parts": [
                {"type": "step-start"},
                {"type": "text", "text": "", "providerMetadata": {"p": "x"}},
                {"type": "text", "text": "é🙂\u0000\n"},
                {"type": "brand-new", "anything": [1, {"a": None}]},
                {
                    "type": "tool-invocation",
                    "toolInvocation": {
                        "state": "result",
                        "toolCallId": "c",
                        "toolName": "n",
                        "args": {},
                        "result": result,
                    },
                },
            ],
            "content": "something else",
            "metadata": {"priority": 2, "score": 0.1, "empty": {}, "null": None},
            "experimental_attachments": [{"url": "https://x/y", "contentType": "image/png", "size": 3}],
            "annotations": [{"a": 1}],
        },
    }
    message = message_from_json(raw)
    world.store.save_messages("r", "t", [message])
    stored = world.store.latest("r", "t", 1)[0]
    expected = {**raw, "threadId": "t", "resourceId": "r"}
    assert message_to_json(stored) == expected
    found = stored.parts[4].invocation.result  # type: ignore[union-attr]
    assert {key: type(value) for key, value in found.items()} | {"list": list} == {
        key: type(value) for key, value in result.items()
    }
    header = world.store.get_thread("r", "t")
    assert header is not None
    for wanted, hits in (({"priority": 2}, 1), ({"score": 0.1}, 1), ({"priority": True}, 0), ({"null": None}, 1)):
        assert world.store.list_messages(header, MessageQuery(metadata=wanted)).total == hits


@pytest.mark.parametrize("text", [None, "", "same", "other"])
def test_text_that_parts_hold_is_stored_once_and_comes_back_case_33(world: World, text: str | None) -> None:
    message = world.message("m", "same").with_content(content=text)
    world.store.save_messages("r", "t", [message])
    assert world.store.latest("r", "t", 1)[0].content == message.content
    item = world.scan(world.names.messages)[0]
    assert str(item).count("same") == 1


def test_a_lone_surrogate_of_a_cut_off_emoji_survives(world: World) -> None:
    world.commit(None, world.message("m", "cut \ud83d"))
    assert world.store.latest("r", "t", 1)[0].text == "cut \ud83d"


def test_what_json_has_no_form_for_is_refused_and_nothing_is_saved(world: World) -> None:
    with pytest.raises(InvalidInputError):
        world.commit(None, world.message("m").with_metadata(score=float("nan")))
    assert world.store.get_thread("r", "t") is None


@pytest.mark.parametrize("size", [299_000, 310_000, 420_000, 2_000_000])
def test_a_message_of_any_size_comes_back_and_its_item_stays_small_case_26(world: World, size: int) -> None:
    if size == 299_000:
        world.skip_on_moto("it refuses items well below 400 KB")
    text = "é" * (size // 2)
    header = world.commit(None, world.message("u1"), world.message("big", text, role="assistant")).header
    assert world.store.latest("r", "t", 1)[0].text == text
    assert world.store.list_messages(header, ALL).messages[1].text == text
    assert len(world.objects()) == (size > 300_000)
    assert all(key.startswith("o/r/overflow/t/") for key in world.objects())

    changed = world.store.update_message("r", "t", "big", lambda m: m.with_metadata(a=1))
    assert world.store.get_messages("r", [("t", 2)])[0].metadata == {"a": 1}
    assert len(world.objects()) == (size > 300_000)
    world.store.update_message("r", "t", "big", lambda m: changed.replace(content=world.message("x", "short").content))
    assert world.objects() == []
    assert world.store.latest("r", "t", 1)[0].text == "short"


def test_overflow_bodies_follow_their_messages(world: World) -> None:
    big = "x" * 400_000
    world.commit(None, world.message("m1", big), world.message("m2", big))
    world.store.transfer_thread("r", "t", "r2")
    assert [key.split("/")[1] for key in world.objects()] == ["r", "r", "r2", "r2"]
    world.store.purge_thread("r", "t")
    assert [key.split("/")[1] for key in world.objects()] == ["r2", "r2"]
    assert [m.text for m in world.store.latest("r2", "t", 5)] == [big, big]
    assert world.store.delete_messages("r2", [MessageRef("r2", "t", "m1", 1)]) == 1
    assert len(world.objects()) == 1
    world.store.delete_thread("r2", "t")
    world.store.purge_thread("r2", "t")
    assert world.objects() == []


@pytest.mark.parametrize("change", ["edited", "made small", "deleted"])
def test_a_reader_whose_overflow_body_goes_meanwhile_reads_what_holds_now(world: World, change: str) -> None:
    big = "x" * 400_000
    header = world.commit(None, world.message("m1", big), world.message("m2", big), world.message("m3")).header

    def meanwhile() -> None:
        if change == "deleted":
            world.store.delete_messages("r", [MessageRef("r", "t", "m2", 2)])
            return
        text = "short" if change == "made small" else "y" * 400_000
        world.store.update_message("r", "t", "m2", lambda m: m.replace(content=world.message("x", text).content))

    class Slow:
        """Lets a change of the message happen between the reads of its row and of its body."""

        def get(self, key: str) -> bytes:
            with lock:
                if changes:
                    changes.pop()()
            return world.blobs.get(key)

    changes, lock = [meanwhile], threading.Lock()
    store = world.make_store(blobs=Slow())
    texts = [m.text[:5] for m in store.list_messages(header, ALL).messages]
    assert texts == ["xxxxx", *{"edited": ["yyyyy"], "made small": ["short"], "deleted": []}[change], "text "]


def test_a_refused_commit_leaves_no_overflow_body_behind(world: World) -> None:
    header = world.commit(None, world.message("u1")).header
    world.store.delete_thread("r", "t")
    with pytest.raises(ConflictError):
        world.commit(header, world.message("big", "x" * 400_000))
    assert world.objects() == []


def test_a_large_message_without_a_place_for_it_is_refused_by_name(world: World) -> None:
    store = world.make_store(blobs=None)
    with pytest.raises(TooLargeError, match="message big"):
        store.commit(TurnCommit("t", "r", None, appended=(world.message("big", "x" * 400_000),)))
    assert store.get_thread("r", "t") is None


@pytest.mark.parametrize("id", ODD_IDS, ids=lambda id: f"{id[:6]!a}")
def test_ids_of_any_characters_name_their_own_rows_only(world: World, id: str) -> None:
    store = world.store
    store.commit(TurnCommit(id, id, None, appended=(world.message(id), world.message("m2")), title="x"))
    header = store.get_thread(id, id)
    assert header is not None
    assert (header.thread.id, header.thread.resource_id) == (id, id)
    rows = store.list_messages(header, ALL).messages
    assert [(m.id, m.thread_id, m.resource_id) for m in rows] == [(id, id, id), ("m2", id, id)]
    assert store.find(id, id, [id, "m2", "none"]) == {id: 1, "m2": 2}
    assert store.locate(id, [id]) == (MessageRef(id, id, id, 1),)
    assert store.owner_of(id) == id
    assert [t.id for t in store.list_threads(id, ThreadQuery()).threads] == [id]
    store.put_working_memory(id, id, "x", expected_version=0)
    assert store.get_working_memory(id, id).text == "x"  # type: ignore[union-attr]
    for item in [*world.scan(world.names.threads), *world.scan(world.names.messages)]:
        inner = item["pk"]["S"].split("#")[1:]
        assert not any(character in part for part in inner for character in "#*?${}")
    assert store.delete_messages(id, [MessageRef(id, id, id, 1)]) == 1
    assert store.delete_thread(id, id)


def test_owners_that_differ_in_case_or_by_a_prefix_share_nothing_case_84(world: World) -> None:
    for owner in ("team-1", "TEAM-1", "team-1#t", "team-10", "team"):
        world.store.commit(TurnCommit(f"t of {owner}", owner, None, appended=(world.message("same-id", owner),)))
    for owner in ("team-1", "TEAM-1", "team-1#t", "team-10", "team"):
        assert [t.id for t in world.store.list_threads(owner, ThreadQuery()).threads] == [f"t of {owner}"]
        assert [ref.resource_id for ref in world.store.locate(owner, ["same-id"])] == [owner]
        foreign = "TEAM-1" if owner == "team-1" else "team-1"
        assert world.store.get_thread(owner, f"t of {foreign}") is None
        assert world.store.latest(owner, f"t of {foreign}", 5) == ()
        assert world.store.delete_messages(owner, [MessageRef(foreign, f"t of {foreign}", "same-id", 1)]) == 0
        assert world.store.delete_messages(owner, [MessageRef(owner, f"t of {foreign}", "same-id", 1)]) == 0
        assert not world.store.delete_thread(owner, f"t of {foreign}")


def test_a_claimed_thread_id_is_refused_to_others_and_free_after_its_deletion(world: World) -> None:
    world.commit(None, world.message("m"))
    with pytest.raises(AccessDeniedError):
        world.commit(None, world.message("m"), resource_id="other")
    with pytest.raises(AccessDeniedError):
        world.store.create_thread(Thread("t", "other", world.clock(), world.clock()))
    with pytest.raises(AccessDeniedError):
        world.store.save_messages("other", "t", [world.message("m")])
    assert world.store.get_thread("other", "t") is None
    assert world.store.list_threads("other", ThreadQuery()).total == 0
    world.store.delete_thread("r", "t")
    assert world.store.owner_of("t") is None
    world.commit(None, world.message("m"), resource_id="other")
    assert world.store.owner_of("t") == "other"


def test_without_claims_each_owner_has_ids_of_its_own(world: World) -> None:
    store = world.make_store(claims_table=None)
    for owner in ("a", "b"):
        store.commit(TurnCommit("t", owner, None, appended=(world.message("m", owner),)))
    assert [m.text for m in store.latest("b", "t", 5)] == ["b"]
    assert store.owner_of("t") is None


def test_an_item_of_a_later_schema_is_refused_by_name(world: World) -> None:
    world.commit(None, world.message("m"))
    world.dynamodb.update_item(
        TableName=world.names.threads,
        Key={"pk": {"S": "R#r"}, "sk": {"S": "T#t"}},
        UpdateExpression="SET v = :v",
        ExpressionAttributeValues={":v": {"N": "9"}},
    )
    with pytest.raises(StorageError, match="schema"):
        world.store.get_thread("r", "t")
