"""Pages, saves, changes and deletions of messages in every MessageStore."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest

from agent_memory import clock
from agent_memory.aws.dynamodb import keys
from agent_memory.aws.dynamodb.values import to_item
from agent_memory.errors import ConflictError, InvalidInputError, NotFoundError, UnavailableError
from agent_memory.messages import TextPart
from agent_memory.ports import (
    DateRange,
    MessageQuery,
    MessageRef,
    Thread,
    ThreadCopy,
    ThreadHeader,
    ThreadQuery,
    TurnCommit,
    live,
)
from tests.contract.conftest import World

ALL = MessageQuery(per_page=None)
SLOW = "it takes seconds for every hundred rows, and the emulator covers this"


def fill(world: World, count: int, *, text: str = "", thread: str = "t", **fields: Any) -> ThreadHeader:
    """Messages m01… of one second after another."""
    messages = [
        world.message(f"m{n:02d}", text, created_at=world.clock() + timedelta(seconds=n), **fields)
        for n in range(1, count + 1)
    ]
    world.clock.advance(seconds=count)
    for start in range(0, count, 90):
        world.store.save_messages("r", thread, messages[start : start + 90])
    return header(world, thread)


def header(world: World, thread: str = "t") -> ThreadHeader:
    found = world.store.get_thread("r", thread)
    assert found is not None
    return found


def names(numbers: Any) -> list[str]:
    return [f"m{n:02d}" for n in numbers]


def listed(world: World, **query: Any) -> list[str]:
    return [m.id for m in world.store.list_messages(header(world), MessageQuery(**query)).messages]


# ------------------------------------------------------------------------------------------------------------- pages


def test_numbered_pages_hold_each_message_once_case_19(world: World) -> None:
    thread = fill(world, 25)
    assert [m.id for m in world.store.latest("r", "t", 10)] == names(range(16, 26))
    assert [m.id for m in world.store.latest("r", "t", 3, before_seq=10)] == names(range(7, 10))
    assert world.store.latest("r", "t", 0) == ()
    for newest_first, windows in (
        (True, [range(21, 26), range(16, 21), range(11, 16), range(6, 11), range(1, 6)]),
        (False, [range(1, 6), range(6, 11), range(11, 16), range(16, 21), range(21, 26)]),
    ):
        for number, window in enumerate(windows):
            page = world.store.list_messages(thread, MessageQuery(page=number, per_page=5, newest_first=newest_first))
            assert [m.id for m in page.messages] == names(window)
            assert (page.total, page.has_more) == (25, number < 4)
            assert (page.next_cursor is None) == (number == 4)
    past = world.store.list_messages(thread, MessageQuery(page=5, per_page=5))
    assert (past.messages, past.total, past.has_more) == ((), 25, False)
    none = world.store.list_messages(thread, MessageQuery(per_page=0))
    assert (none.messages, none.total, none.has_more) == ((), 25, True)
    uncounted = world.store.list_messages(thread, MessageQuery(per_page=5, include_total=False))
    assert (uncounted.total, uncounted.has_more) == (None, True)


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("newest_first", [True, False])
def test_cursors_walk_each_message_once_while_others_arrive(world: World, newest_first: bool, gaps: bool) -> None:
    fill(world, 12)
    if gaps:
        world.store.delete_messages("r", [MessageRef("r", "t", f"m{n:02d}", n) for n in (2, 5, 6, 11)])
    expected = [n for n in range(1, 13) if not (gaps and n in (2, 5, 6, 11))]
    walked: list[str] = []
    cursor = None
    for step in range(20):
        page = world.store.list_messages(
            header(world), MessageQuery(per_page=3, newest_first=newest_first, cursor=cursor)
        )
        ids = [m.id for m in page.messages]
        walked = ids + walked if newest_first else walked + ids
        assert page.total == len(expected) + step
        assert page.has_more == (page.next_cursor is not None)
        cursor = page.next_cursor
        if cursor is None:
            break
        world.commit(header(world), world.message(f"new{step}"))
    assert [id for id in walked if id.startswith("m")] == names(expected)
    assert len(walked) == len(set(walked))


def test_a_cursor_fits_its_own_direction_only(world: World) -> None:
    thread = fill(world, 5)
    cursor = world.store.list_messages(thread, MessageQuery(per_page=2)).next_cursor
    for bad in (cursor, "x", "", "WyJtIl0"):
        with pytest.raises(InvalidInputError, match="cursor"):
            world.store.list_messages(thread, MessageQuery(per_page=2, newest_first=bad != cursor, cursor=bad))


def test_pages_past_a_megabyte_are_whole_case_22(world: World) -> None:
    thread = fill(world, 40, text="x" * 60_000)
    assert len(world.store.list_messages(thread, ALL).messages) == 40
    page = world.store.list_messages(thread, MessageQuery(page=1, per_page=30))
    assert ([m.id for m in page.messages], page.has_more) == (names(range(1, 11)), False)
    assert [m.id for m in world.store.latest("r", "t", 35)] == names(range(6, 41))
    cut = world.store.list_messages(thread, MessageQuery(per_page=None, max_bytes=200_000))
    assert ([m.id for m in cut.messages], cut.has_more, cut.total) == (names(range(38, 41)), True, 40)
    rest = world.store.list_messages(thread, MessageQuery(per_page=None, cursor=cut.next_cursor))
    assert [m.id for m in rest.messages] == names(range(1, 38))
    world.store.build_thread(Thread("c", "r", world.clock(), world.clock()), rest.messages + cut.messages)
    assert len(world.ids("c")) == 40


def test_a_filter_that_empties_pages_does_not_end_the_walk_case_24(world: World) -> None:
    world.skip_on_moto(SLOW)
    messages = [world.message(f"m{n}") for n in range(1, 301)]
    for n in (5, 290):
        messages[n - 1] = messages[n - 1].with_metadata(category="billing", null=None, n=1)
    world.store.save_messages("r", "t", messages)
    thread = header(world)
    wanted = {"category": "billing"}
    pages = [world.store.list_messages(thread, MessageQuery(page=n, per_page=1, metadata=wanted)) for n in range(3)]
    assert [[m.id for m in page.messages] for page in pages] == [["m290"], ["m5"], []]
    assert [(page.total, page.has_more) for page in pages] == [(2, True), (2, False), (2, False)]
    second = world.store.list_messages(thread, MessageQuery(per_page=1, metadata=wanted, cursor=pages[0].next_cursor))
    assert ([m.id for m in second.messages], second.total, second.has_more) == (["m5"], 2, False)
    uncounted = world.store.list_messages(thread, MessageQuery(per_page=2, metadata=wanted, include_total=False))
    assert ([m.id for m in uncounted.messages], uncounted.has_more) == (["m5", "m290"], False)
    for other in ({"category": "billing", "n": 2}, {"category": None}, {"n": True}, {"none": None}):
        assert world.store.list_messages(thread, MessageQuery(metadata=other)).total == 0


@pytest.mark.parametrize("gaps", [False, True])
def test_date_ranges_hold_both_ends_unless_exclusive(world: World, gaps: bool) -> None:
    start = world.clock()
    fill(world, 20)
    if gaps:
        world.store.delete_messages("r", [MessageRef("r", "t", f"m{n:02d}", n) for n in (5, 10, 11)])
    gone = {5, 10, 11} if gaps else set()

    def at(n: int) -> Any:
        return start + timedelta(seconds=n)

    for dates, window in (
        (DateRange(at(5), at(10)), range(5, 11)),
        (DateRange(at(5), at(10), start_exclusive=True), range(6, 11)),
        (DateRange(at(5), at(10), end_exclusive=True), range(5, 10)),
        (DateRange(at(5), at(5)), range(5, 6)),
        (DateRange(at(5), None), range(5, 21)),
        (DateRange(None, at(3)), range(1, 4)),
        (DateRange(at(99), None), range(0)),
        (DateRange(None, at(-1)), range(0)),
        (DateRange(at(8), at(2)), range(0)),
        (DateRange(), range(1, 21)),
    ):
        expected = names(n for n in window if n not in gone)
        page = world.store.list_messages(header(world), MessageQuery(per_page=None, date_range=dates))
        assert [m.id for m in page.messages] == expected
        assert page.total == len(expected)
        first = world.store.list_messages(header(world), MessageQuery(per_page=2, date_range=dates))
        assert [m.id for m in first.messages] == expected[-2:]
        assert (first.total, first.has_more) == (len(expected), len(expected) > 2)


def test_date_ranges_hold_where_an_import_broke_the_order_of_dates(world: World) -> None:
    start = world.clock()
    thread = fill(world, 6)
    assert thread.in_date_order
    moved = world.message("m06", created_at=start + timedelta(seconds=2))
    world.store.save_messages("r", "t", [moved])
    assert not header(world).in_date_order
    dates = DateRange(start + timedelta(seconds=2), start + timedelta(seconds=3))
    assert listed(world, date_range=dates) == ["m02", "m03", "m06"]


def test_expired_messages_are_invisible_when_due(world: World) -> None:
    world.clock.advance(milliseconds=-world.clock.ms % 1000)
    due = clock.from_ms(world.clock.ms + 60_000)
    first = world.commit(None, world.message("m1"), world.message("m2")).header
    thread = world.commit(first, world.message("x1"), world.message("x2"), expires_at=due).header
    assert thread.rows_expire
    assert listed(world) == ["m1", "m2", "x1", "x2"]
    world.clock.advance(seconds=60)
    assert listed(world) == ["m1", "m2"]
    page = world.store.list_messages(header(world), MessageQuery(per_page=1))
    assert ([m.id for m in page.messages], page.total, page.has_more) == (["m2"], 2, True)
    assert world.store.latest("r", "t", 4)[-1].id == "m2"
    assert world.store.get_messages("r", [("t", 3)]) == ()
    with pytest.raises(NotFoundError):
        world.store.update_message("r", "t", "x1", lambda m: m)
    again = world.commit(header(world), world.message("x1", "again"))
    assert [m.id for m in again.appended] == ["x1"]
    assert listed(world) == ["m1", "m2", "x1"]


def test_rows_of_an_earlier_life_are_told_apart_by_live(world: World) -> None:
    old = fill(world, 2)
    world.store.clear_thread("r", "t")
    world.commit(header(world), world.message("new"))
    rows = world.store.latest("r", "t", 5)
    assert [m.id for m in rows] == ["m01", "m02", "new"]
    assert [m.id for m in live(header(world), rows)] == ["new"]
    assert [m.id for m in live(old, rows)] == ["m01", "m02"]
    assert live(None, rows) == ()


# ------------------------------------------------------------------------------------------------------------- saves


def test_a_save_makes_the_thread_and_replaces_known_ids_in_place(world: World) -> None:
    first = world.store.save_messages("r", "t", [world.message("m1"), world.message("m2")], index="ix")
    assert [(m.id, m.seq, m.version) for m in first] == [("m1", 1, 1), ("m2", 2, 1)]
    thread = header(world)
    assert (thread.thread.title, thread.title_source) == ("", "none")
    second = world.store.save_messages("r", "t", [world.message("m3"), world.message("m1", "changed")])
    assert [(m.id, m.seq, m.version) for m in second] == [("m3", 3, 1), ("m1", 1, 2)]
    rows = world.store.list_messages(header(world), ALL).messages
    assert [(m.id, m.text) for m in rows] == [("m1", "changed"), ("m2", "text of m2"), ("m3", "text of m3")]
    stamps = {item["mid"]["S"]: item.get("index", {}).get("S") for item in world.scan(world.names.messages)}
    assert stamps == {"m1": "ix", "m2": "ix", "m3": None}
    world.faults.clear()
    assert world.store.save_messages("r", "t", rows) == rows
    assert "TransactWriteItems" not in world.faults.operations()
    assert world.store.save_messages("r", "t", []) == ()


def test_an_import_before_stored_messages_is_put_in_its_place(world: World) -> None:
    start = world.clock()
    fill(world, 6)

    def at(id: str, seconds: float) -> Any:
        return world.message(id, created_at=start + timedelta(seconds=seconds))

    saved = world.store.save_messages("r", "t", [at("end", 9), at("mid", 4), at("early", -5), at("between", 4.5)])
    expected = ["early", "m01", "m02", "m03", "m04", "mid", "between", "m05", "m06", "end"]
    assert world.ids() == expected
    assert {m.id: m.seq for m in saved} == {"early": 1, "mid": 6, "between": 7, "end": 10}
    assert world.store.find("r", "t", expected) == {id: n for n, id in enumerate(expected, 1)}
    after = header(world)
    assert (after.message_count, after.next_seq, after.in_date_order) == (10, 11, True)
    assert world.store.delete_messages("r", [MessageRef("r", "t", "m05", 5)]) == 1
    assert "m05" not in world.ids()
    world.store.save_messages("r", "t", [at("again", 3.5), replace(at("m06", 6), type="changed")])
    assert world.ids() == ["early", "m01", "m02", "m03", "again", "m04", "mid", "between", "m06", "end"]
    assert [m.type for m in world.store.list_messages(header(world), ALL).messages][8] == "changed"


def test_an_import_that_would_renumber_too_much_is_refused_and_changes_nothing(world: World) -> None:
    world.skip_on_moto(SLOW)
    start = world.clock()
    fill(world, 120)
    with pytest.raises(ConflictError, match="new thread"):
        world.store.save_messages("r", "t", [world.message("early", created_at=start)])
    assert len(world.ids()) == 120
    near = world.message("near", created_at=start + timedelta(seconds=60, milliseconds=1))
    world.store.save_messages("r", "t", [near])
    assert world.ids()[60] == "near"


def test_an_import_beside_a_running_turn_keeps_both(world: World) -> None:
    start = world.clock()
    thread = fill(world, 3)
    other = world.make_store()
    world.faults.before(
        "TransactWriteItems",
        lambda: other.commit(TurnCommit("t", "r", thread, appended=(world.message("turn"),))),
    )
    world.store.save_messages("r", "t", [world.message("early", created_at=start)])
    assert world.ids() == ["early", "m01", "m02", "m03", "turn"]


@pytest.mark.parametrize("new", [True, False])
def test_a_save_over_one_transaction_is_shown_when_all_of_it_is_there(world: World, new: bool) -> None:
    world.skip_on_moto(SLOW)
    if not new:
        fill(world, 2)
    seen: list[Any] = []
    messages = [world.message(f"x{n:03d}") for n in range(250)]

    def look() -> None:
        seen.append([] if new and world.store.get_thread("r", "t") is None else world.ids())

    world.faults.before("TransactWriteItems", look, times=4)
    world.store.save_messages("r", "t", messages)
    assert all(ids == ([] if new else ["m01", "m02"]) for ids in seen)
    assert len(seen) == 4
    assert world.ids() == ([] if new else ["m01", "m02"]) + [m.id for m in messages]
    after = header(world)
    assert after.next_seq == after.message_count + 1 == (251 if new else 253)
    assert world.store.list_threads("r", ThreadQuery()).total == 1
    world.commit(after, world.message("next"))
    assert world.ids()[-1] == "next"


def test_a_large_save_that_is_tried_again_keeps_the_bodies_that_it_has_stored(world: World) -> None:
    world.skip_on_moto(SLOW)
    fill(world, 120)
    other = world.make_store()
    parts = iter(range(100))

    def another_writer() -> None:
        if next(parts) == 1:  # the first part is stored by now
            other.commit(TurnCommit("t", "r", other.get_thread("r", "t"), appended=(world.message("turn"),)))

    stored = world.store.list_messages(header(world), ALL).messages
    large = "y" * 350_000
    changed = [replace(m, role="assistant") for m in stored[1:]]
    world.faults.before("TransactWriteItems", another_writer, times=2)
    world.store.save_messages("r", "t", [stored[0].with_content(parts=(TextPart(large),)), *changed])
    rows = world.store.list_messages(header(world), ALL).messages
    assert [m.id for m in rows] == [*names(range(1, 121)), "turn"]
    assert rows[0].parts == (TextPart(large),)
    assert {m.role for m in rows[1:-1]} == {"assistant"}


@pytest.mark.parametrize("new", [True, False], ids=["new", "known"])
@pytest.mark.parametrize("turn", [True, False], ids=["turn", "save"])
def test_a_large_write_that_finds_a_row_in_its_way_keeps_its_bodies(world: World, new: bool, turn: bool) -> None:
    world.skip_on_moto(SLOW)
    if not new:
        fill(world, 2)
    # Of a writer that died long ago.
    left = {"pk": keys.messages_pk("r", "t"), "sk": 140, "v": 1, "mid": "left"}
    world.dynamodb.put_item(TableName=world.names.messages, Item=to_item(left))
    large = world.message("x000", "y" * 350_000)
    messages = [large, *(world.message(f"x{n:03d}") for n in range(1, 150))]
    if turn:
        world.commit(None if new else header(world), *messages)
    else:
        world.store.save_messages("r", "t", messages)
    rows = world.store.list_messages(header(world), ALL).messages
    assert [m.id for m in rows][-150:] == [m.id for m in messages]
    assert rows[-150].text == large.text
    while world.store.purge_thread("r", "t"):
        pass
    assert world.store.list_messages(header(world), ALL).messages == rows


def test_a_large_message_that_is_changed_while_it_is_copied_lets_the_copy_be_tried_again(world: World) -> None:
    world.store.save_messages("r", "t", [world.message("m1", "y" * 350_000)])
    copy, read, other = world.store.begin_transfer("r", "t", "s"), world.blobs.get, [world.make_store()]

    def late(key: str) -> bytes:
        while other:
            other.pop().update_message("r", "t", "m1", lambda m: m.with_content(parts=(TextPart("z" * 350_000),)))
        return read(key)

    with patch.object(world.blobs, "get", late), pytest.raises(UnavailableError, match="try again"):
        world.store.copy_rows(copy)
    moved = world.store.finish_transfer(world.store.copy_rows(copy))
    while isinstance(moved, ThreadCopy):
        moved = world.store.finish_transfer(world.store.copy_rows(world.store.keep_copy(moved)))
    thread = world.store.get_thread("s", "t")
    assert thread is not None
    assert [m.text for m in world.store.list_messages(thread, ALL).messages] == ["z" * 350_000]


def test_a_turn_over_four_megabytes_is_stored_whole(world: World) -> None:
    thread = fill(world, 1)
    messages = [world.message(f"x{n:02d}", "y" * 250_000) for n in range(20)]
    done = world.commit(thread, *messages, turn=world.turn("k", "finished"), metadata={"a": 1})
    assert len(done.appended) == 20
    assert world.ids() == ["m01", *(m.id for m in messages)]
    after = header(world)
    assert (after.turns[0].key, after.thread.metadata, after.message_count) == ("k", {"a": 1}, 21)


def test_a_large_save_that_fails_half_way_leaves_the_thread_as_it_was(world: World) -> None:
    world.skip_on_moto(SLOW)
    fill(world, 2)
    failing = iter(range(100))

    def fail() -> None:
        if next(failing) == 2:
            world.faults.throttle("TransactWriteItems", 8)

    world.faults.before("TransactWriteItems", fail, times=3)
    with pytest.raises(UnavailableError):
        world.store.save_messages("r", "t", [world.message(f"x{n:03d}") for n in range(250)])
    world.faults.clear()
    assert world.ids() == ["m01", "m02"]
    assert len(world.scan(world.names.messages)) == 2
    world.commit(header(world), world.message("next"))
    assert world.ids() == ["m01", "m02", "next"]


def test_rows_of_a_writer_that_died_half_way_are_cleared_by_the_next_one(world: World) -> None:
    world.skip_on_moto(SLOW)
    fill(world, 2)
    dying = world.make_store()
    dying._give_up_hold = lambda *_: None  # type: ignore[method-assign]
    sent = iter(range(100))

    def fail() -> None:
        if next(sent) == 2:
            world.faults.throttle("TransactWriteItems", 8)

    world.faults.before("TransactWriteItems", fail, times=3)
    with pytest.raises(UnavailableError):
        dying.save_messages("r", "t", [world.message(f"x{n:03d}") for n in range(250)])
    world.faults.clear()
    assert len(world.scan(world.names.messages)) > 2
    assert world.ids() == ["m01", "m02"]
    with pytest.raises(UnavailableError):
        world.commit(header(world), world.message("next"))
    world.clock.advance(minutes=2)
    world.commit(header(world), world.message("next"))
    assert world.ids() == ["m01", "m02", "next"]
    assert len(world.scan(world.names.messages)) == 3


# --------------------------------------------------------------------------------------------------- change and delete


def test_a_change_is_applied_to_the_row_as_it_is(world: World) -> None:
    fill(world, 2)
    other = world.make_store()
    world.faults.before(
        "TransactWriteItems", lambda: other.update_message("r", "t", "m01", lambda m: m.with_metadata(a=1))
    )
    changed = world.store.update_message("r", "t", "m01", lambda m: m.with_metadata(b=2))
    assert (changed.metadata, changed.version) == ({"a": 1, "b": 2}, 3)
    assert world.store.get_messages("r", [("t", 1)]) == (changed,)
    with pytest.raises(NotFoundError, match="m09"):
        world.store.update_message("r", "t", "m09", lambda m: m)
    with pytest.raises(NotFoundError):
        world.store.update_message("r", "none", "m01", lambda m: m)
    with pytest.raises(InvalidInputError):
        world.store.update_message("r", "t", "m01", lambda m: m.replace(id="m02"))


def test_deleted_messages_are_counted_once(world: World) -> None:
    fill(world, 5)
    refs = [MessageRef("r", "t", "m02", 2), MessageRef("r", "t", "m04", 4), MessageRef("r", "t", "nope", 3)]
    refs += [MessageRef("r", "none", "m01", 1), MessageRef("r", "t", "m05", 1)]
    assert world.store.delete_messages("r", refs) == 3
    assert world.store.delete_messages("r", refs) == 0
    assert world.ids() == names([1, 3])
    assert header(world).message_count == 2
    page = world.store.list_messages(header(world), MessageQuery(page=1, per_page=1))
    assert ([m.id for m in page.messages], page.total, page.has_more) == (["m01"], 2, False)
    assert world.store.delete_messages("r", []) == 0


def test_many_messages_are_deleted_in_several_transactions(world: World) -> None:
    world.skip_on_moto(SLOW)
    fill(world, 120)
    assert world.store.delete_messages("r", [MessageRef("r", "t", f"m{n:02d}", n) for n in range(1, 111)]) == 110
    assert len(world.ids()) == 10
    assert header(world).message_count == 10


def test_a_delete_beside_a_running_turn_keeps_the_turn_and_the_count(world: World) -> None:
    thread = fill(world, 3)
    world.store.delete_messages("r", [MessageRef("r", "t", "m02", 2)])
    world.commit(thread, world.message("new"))
    assert world.ids() == ["m01", "m03", "new"]
    assert header(world).message_count == 3


def test_bare_ids_are_found_in_every_thread_of_their_owner_and_no_other(world: World) -> None:
    for owner, thread in (("r", "a"), ("r", "b"), ("r2", "c")):
        world.store.commit(TurnCommit(thread, owner, None, appended=(world.message("same"), world.message(thread))))
    found = world.store.locate("r", ["same", "a", "c", "none", "same"])
    assert {(ref.thread_id, ref.message_id, ref.seq) for ref in found} == {
        ("a", "same", 1),
        ("b", "same", 1),
        ("a", "a", 2),
    }


# ------------------------------------------------------------------------------------------------- requests and reads


def test_every_read_that_a_turn_builds_on_is_strongly_consistent_case_35(world: World) -> None:
    thread = fill(world, 3)
    world.faults.clear()
    store = world.store
    store.begin_turn("r", "t", None)
    store.latest("r", "t", 3)
    store.find("r", "t", ["m01"])
    store.get_messages("r", [("t", 1)])
    store.get_working_memory("r", None)
    store.get_thread("r", "t")
    store.owner_of("t")
    store.list_messages(thread, MessageQuery())
    store.list_threads("r", ThreadQuery())
    for operation, params in world.faults.sent:
        if operation == "BatchGetItem":
            assert all(wanted["ConsistentRead"] is True for wanted in params["RequestItems"].values())
        else:
            assert params["ConsistentRead"] is True, operation
        assert params.get("IndexName") in (None, "by_mid", "by_created")


def test_each_path_keeps_to_its_number_of_requests(world: World) -> None:
    thread = fill(world, 30)
    store = world.store
    counts = {
        "begin": lambda: store.begin_turn("r", "t", world.turn("k")),
        "latest": lambda: store.latest("r", "t", 10),
        "find": lambda: store.find("r", "t", ["m01", "m02"]),
        "get": lambda: store.get_messages("r", [("t", n) for n in range(1, 31)]),
        "commit": lambda: world.commit(
            thread, world.message("u"), world.message("a"), turn=world.turn("k", "finished")
        ),
        "thread": lambda: store.get_thread("r", "t"),
        "page": lambda: store.list_messages(thread, MessageQuery(page=2, per_page=5)),
        "threads": lambda: store.list_threads("r", ThreadQuery()),
        "title": lambda: store.update_thread("r", "t", title="x"),
        "clear": lambda: store.clear_thread("r", "t"),
        "new": lambda: store.commit(TurnCommit("new", "r", None, appended=(world.message("m"),))),
        "memory": lambda: store.put_working_memory("r", None, "x", expected_version=0),
        "delete": lambda: store.delete_thread("r", "t"),
        "clone 50": lambda: store.build_thread(
            Thread("c", "r", world.clock(), world.clock()), [world.message(f"c{n}") for n in range(50)]
        ),
    }
    found = {}
    for name, call in counts.items():
        with world.meter.measure() as cost:
            call()
        found[name] = cost.requests
    assert found == {
        "begin": 1,
        "latest": 1,
        "find": 2,
        "get": 1,
        "commit": 1,
        "thread": 1,
        "page": 1,
        "threads": 2,
        "title": 1,
        "clear": 1,
        "new": 1,
        "memory": 1,
        "delete": 2,
        "clone 50": 4,
    }


def test_a_clone_of_a_thousand_messages_keeps_to_fifty_requests(world: World) -> None:
    world.skip_on_moto(SLOW)
    with world.meter.measure() as cost:
        world.store.build_thread(
            Thread("c", "r", world.clock(), world.clock()), [world.message(f"m{n}") for n in range(1000)]
        )
        rows = world.store.list_messages(header(world, "c"), ALL).messages
    assert len(rows) == 1000
    assert cost.requests <= 50


def test_a_walk_over_all_rows_shows_each_with_its_place_version_and_stamp(world: World) -> None:
    places = [("r", "t"), ("a#b", "t*x"), ("ä" * 256, "x" * 512)]
    for owner, thread in places:
        world.commit(None, *(world.message(f"m{n}") for n in range(3)), resource_id=owner, thread=thread, index="i-8")
    world.commit(None, world.message("plain"), thread="u", expires_at=world.clock() + timedelta(hours=1))
    world.store.update_message("r", "t", "m1", lambda old: old.with_parts(world.message("x", "edited").parts))

    found, cursor, pages = [], None, 0
    while True:
        rows, cursor = world.store.scan_messages(limit=4, cursor=cursor, consistent=True)
        found += rows
        pages += 1
        if cursor is None:
            break
        cursor = json.loads(json.dumps(cursor))
    assert pages == 3
    assert sorted((r.resource_id, r.thread_id, r.message_id, r.seq, r.version, r.index) for r in found) == sorted(
        [(o, t, f"m{n}", n + 1, 2 if (t, n) == ("t", 1) else 1, "i-8") for o, t in places for n in range(3)]
        + [("r", "u", "plain", 1, 1, None)]
    )
    assert {(row.role, row.created_at) for row in found} == {("user", world.clock())}

    world.clock.advance(hours=2)
    assert "plain" not in [row.message_id for row in world.store.scan_messages()[0]]
