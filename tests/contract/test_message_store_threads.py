"""Threads and working memory of every MessageStore."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from agent_memory import clock
from agent_memory._json import freeze
from agent_memory.aws.dynamodb import keys
from agent_memory.errors import ConflictError, InvalidInputError, NotFoundError, UnavailableError
from agent_memory.ports import MessageQuery, MessageRef, Thread, ThreadQuery, TurnCommit
from tests.contract.conftest import World


def thread(world: World, id: str = "t", resource: str = "r", **fields: Any) -> Thread:
    return Thread(id, resource, world.clock(), world.clock(), **fields)


def parallel(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    barrier = threading.Barrier(len(calls))

    def run(call: Callable[[], Any]) -> Any:
        barrier.wait()
        try:
            return call()
        except Exception as error:
            return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


# ------------------------------------------------------------------------------------------------- creation and change


def test_creating_an_id_again_returns_the_thread_unchanged_case_36(world: World) -> None:
    first = world.store.create_thread(thread(world, title="One", metadata=freeze({"a": 1})))
    world.clock.advance(hours=1)
    again = world.store.create_thread(thread(world, title="Two"))
    assert again == first
    assert world.store.list_threads("r", ThreadQuery()).total == 1


def test_two_creators_at_once_make_one_thread_case_36(world: World) -> None:
    world.skip_on_moto("its transactions are not isolated from each other between threads")
    import time

    store = world.make_store(sleep=time.sleep)
    results = parallel([lambda n=n: store.create_thread(thread(world, title=str(n))) for n in range(4)])
    assert len({result.incarnation for result in results}) == 1
    assert world.store.list_threads("r", ThreadQuery()).total == 1


def test_a_created_thread_takes_its_first_turn(world: World) -> None:
    header = world.store.create_thread(thread(world))
    assert header.title_source == "none"
    start = world.store.begin_turn("r", "t", world.turn("k"))
    assert start.header is not None
    world.commit(start.header, world.message("u1"), title="ignored")
    after = world.store.get_thread("r", "t")
    assert after is not None
    assert (after.thread.title, after.message_count) == ("", 1)


def test_an_update_changes_the_given_fields_only(world: World) -> None:
    world.store.create_thread(thread(world, title="One", metadata=freeze({"a": 1, "b": 1})))
    world.clock.advance(hours=1)
    changed = world.store.update_thread("r", "t", metadata={"b": 2})
    assert (changed.title, changed.metadata, changed.updated_at) == ("One", {"a": 1, "b": 2}, world.clock())
    assert changed.created_at < changed.updated_at
    changed = world.store.update_thread("r", "t", metadata={"c": 3}, replace_metadata=True)
    assert changed.metadata == {"c": 3}
    changed = world.store.update_thread("r", "t", title="")
    assert (changed.title, changed.metadata) == ("", {"c": 3})
    assert world.store.get_thread("r", "t").thread == changed  # type: ignore[union-attr]


def test_what_is_not_there_cannot_be_changed(world: World) -> None:
    for change in ({"title": "x"}, {"metadata": {"a": 1}}, {"expires_at": world.clock()}):
        with pytest.raises(NotFoundError, match="No thread found with id t"):
            world.store.update_thread("r", "t", **change)  # type: ignore[arg-type]
    with pytest.raises(NotFoundError):
        world.store.clear_thread("r", "t")
    with pytest.raises(NotFoundError):
        world.store.transfer_thread("r", "t", "r2")
    assert world.scan(world.names.threads) == []


def test_metadata_and_titles_over_their_limit_are_refused(world: World) -> None:
    world.store.create_thread(thread(world))
    with pytest.raises(InvalidInputError, match="metadata"):
        world.store.update_thread("r", "t", metadata={"a": "é" * keys.MAX_METADATA_BYTES})
    with pytest.raises(InvalidInputError, match="title"):
        world.store.update_thread("r", "t", title="é" * keys.MAX_TITLE_BYTES)
    with pytest.raises(InvalidInputError):
        world.commit(world.store.get_thread("r", "t"), world.message("m"), metadata={"a": "x" * 20_000})
    assert world.ids() == []


def test_a_generated_title_never_overwrites_a_persons_case_43_46(world: World) -> None:
    assert not world.store.set_generated_title("r", "t", "Trip")
    assert world.scan(world.names.threads) == []

    world.store.create_thread(thread(world))
    world.store.update_thread("r", "t", metadata={"stage": "b"})
    world.clock.advance(minutes=1)
    world.faults.clear()
    assert world.store.set_generated_title("r", "t", "Trip")
    assert world.faults.operations() == ["UpdateItem"]
    header = world.store.get_thread("r", "t")
    assert header is not None
    assert (header.thread.title, header.title_source, header.thread.metadata) == ("Trip", "generated", {"stage": "b"})
    assert header.thread.updated_at == world.clock()
    assert not world.store.set_generated_title("r", "t", "Again")

    world.store.update_thread("r", "t", title="")
    assert not world.store.set_generated_title("r", "t", "Trip")
    world.store.update_thread("r", "t", title="Tax 2024")
    assert not world.store.set_generated_title("r", "t", "Trip")
    assert world.store.get_thread("r", "t").thread.title == "Tax 2024"  # type: ignore[union-attr]


# ------------------------------------------------------------------------------------------------------------- lists


def test_lists_are_ordered_by_creation_or_by_activity_case_55(world: World) -> None:
    for id in ("A", "B"):
        world.store.create_thread(thread(world, id))
        world.clock.advance(seconds=1)
    world.clock.advance(hours=1)
    created = world.store.get_thread("r", "A").thread.created_at  # type: ignore[union-attr]

    def listed(order: Any, newest_first: bool = True) -> list[str]:
        page = world.store.list_threads("r", ThreadQuery(order_by=order, newest_first=newest_first))
        return [t.id for t in page.threads]

    header = world.commit(world.store.get_thread("r", "A"), world.message("m1"), world.message("m2"), thread="A").header
    assert listed("updatedAt") == ["A", "B"]
    assert listed("createdAt") == ["B", "A"]
    assert listed("createdAt", newest_first=False) == ["A", "B"]

    moves = [
        lambda: world.store.set_generated_title("r", "B", "x"),
        lambda: world.store.update_thread("r", "A", metadata={"a": 1}),
        lambda: world.commit(world.store.get_thread("r", "B"), world.message("b1"), thread="B"),
        lambda: world.store.delete_messages("r", [MessageRef("r", "A", "m1", 1)]),
        lambda: world.store.save_messages("r", "B", [world.message("b1", "changed")]),
        lambda: world.store.update_message("r", "A", "m2", lambda m: m.with_metadata(a=1)),
        lambda: world.store.clear_thread("r", "B"),
    ]
    for number, move in enumerate(moves):
        world.clock.advance(seconds=1)
        move()
        assert listed("updatedAt")[0] == "BA"[number % 2], number
    world.clock.advance(seconds=1)
    world.store.begin_turn("r", "A", world.turn("blocked"))
    world.store.fail_turn(header, world.turn("blocked"))
    assert listed("updatedAt") == ["B", "A"]
    assert world.store.get_thread("r", "A").thread.created_at == created  # type: ignore[union-attr]


@pytest.mark.parametrize("newest_first", [True, False])
def test_pages_and_cursors_walk_every_thread_once(world: World, newest_first: bool) -> None:
    for n in range(7):
        if n % 2:
            world.clock.advance(seconds=1)
        world.store.create_thread(thread(world, f"t{n}", metadata=freeze({"even": n % 2 == 0})))
    for metadata in (None, {"even": True}):
        expected = 7 if metadata is None else 4
        walked: list[str] = []
        cursor = None
        while True:
            page = world.store.list_threads(
                "r", ThreadQuery(per_page=3, cursor=cursor, metadata=metadata, newest_first=newest_first)
            )
            walked += [t.id for t in page.threads]
            assert page.total == expected
            assert page.has_more == (page.next_cursor is not None)
            cursor = page.next_cursor
            if cursor is None:
                break
        assert len(walked) == len(set(walked)) == expected
        numbered = [
            t.id
            for n in range(4)
            for t in world.store.list_threads(
                "r", ThreadQuery(page=n, per_page=3, metadata=metadata, newest_first=newest_first)
            ).threads
        ]
        assert numbered == walked
    exact = world.store.list_threads("r", ThreadQuery(per_page=7))
    assert (len(exact.threads), exact.has_more) == (7, False)
    assert len(world.store.list_threads("r", ThreadQuery(per_page=None)).threads) == 7
    none = world.store.list_threads("r", ThreadQuery(per_page=0))
    assert (none.threads, none.total, none.has_more) == ((), 7, True)
    past = world.store.list_threads("r", ThreadQuery(page=9, per_page=3))
    assert (past.threads, past.total, past.has_more) == ((), 7, False)


def test_thread_metadata_filters_compare_whole_json_values(world: World) -> None:
    world.store.create_thread(thread(world, "a", metadata=freeze({"tags": {"x": [1, 2]}, "n": 1, "null": None})))
    world.store.create_thread(thread(world, "b", metadata=freeze({"tags": {"x": [1]}, "n": True})))
    world.store.create_thread(thread(world, "c"))

    def found(**wanted: Any) -> list[str]:
        return [t.id for t in world.store.list_threads("r", ThreadQuery(metadata=wanted)).threads]

    assert found(tags={"x": [1, 2]}) == ["a"]
    assert found(n=1) == ["a"]
    assert found(n=1.0) == ["a"]
    assert found(n=True) == ["b"]
    assert found(null=None) == ["a"]
    assert found(none=None) == []


@pytest.mark.parametrize("cursor", ["", "x", "bm90IG1pbmU", "WyJtIiw1LHRydWVd"])
def test_a_cursor_of_another_list_is_refused(world: World, cursor: str) -> None:
    world.store.create_thread(thread(world))
    with pytest.raises(InvalidInputError, match="cursor"):
        world.store.list_threads("r", ThreadQuery(cursor=cursor))


# ------------------------------------------------------------------------------------------------ deletion and expiry


def test_a_deleted_thread_is_gone_at_once_and_its_id_starts_empty(world: World) -> None:
    world.commit(None, world.message("m1"), world.message("m2"), title="Old", metadata={"a": 1})
    world.store.put_working_memory("r", "t", "secret", expected_version=0)
    assert world.store.delete_thread("r", "t")
    assert not world.store.delete_thread("r", "t")

    assert world.store.get_thread("r", "t") is None
    assert world.store.begin_turn("r", "t", world.turn("k")).header is None
    assert world.store.list_threads("r", ThreadQuery()).threads == ()
    assert world.store.list_threads("r", ThreadQuery()).total == 0
    assert world.store.locate("r", ["m1"]) == ()
    assert world.store.get_working_memory("r", "t") is None

    world.commit(None, world.message("m1", "new"))
    assert world.ids() == ["m1"]
    header = world.store.get_thread("r", "t")
    assert header is not None
    assert (header.thread.title, header.thread.metadata, header.first_seq) == ("", None, 3)
    page = world.store.list_messages(header, MessageQuery())
    assert ([m.text for m in page.messages], page.total, page.has_more) == (["new"], 1, False)
    assert [ref.seq for ref in world.store.locate("r", ["m1"])] == [3]
    assert world.store.purge_thread("r", "t") == 2
    assert world.store.purge_thread("r", "t") == 0
    assert world.ids() == ["m1"]
    world.store.put_working_memory("r", "t", "fresh", expected_version=0)
    assert [record.text for record in world.store.working_memory_history("r", "t")] == ["fresh"]


def test_a_purge_leaves_nothing_of_a_deleted_thread_a_day_later(world: World) -> None:
    world.commit(None, *(world.message(f"m{n}") for n in range(40)))
    world.store.put_working_memory("r", "t", "x", expected_version=0)
    world.store.delete_thread("r", "t")
    assert world.store.dead_threads()[0] == (("r", "t"),)
    assert world.store.purge_thread("r", "t") == 40
    assert world.scan(world.names.messages) == []
    world.clock.advance(days=1, seconds=1)
    assert world.store.purge_thread("r", "t") == 0
    assert {item["sk"]["S"] for item in world.scan(world.names.threads)} == {"R"}
    assert world.store.dead_threads()[0] == ()
    assert world.scan(world.names.claims) == []


def test_a_cleared_thread_is_empty_at_once_and_goes_on_case_22(world: World) -> None:
    world.commit(None, *(world.message(f"m{n}", "x" * 60_000) for n in range(25)))
    assert world.store.clear_thread("r", "t") == 25
    assert world.ids() == []
    assert world.store.delete_messages("r", [MessageRef("r", "t", "m3", 4)]) == 0
    with pytest.raises(NotFoundError):
        world.store.update_message("r", "t", "m3", lambda m: m)
    world.commit(world.store.get_thread("r", "t"), world.message("m3", "again"))
    assert world.ids() == ["m3"]
    assert world.store.purge_thread("r", "t") == 25
    assert len(world.scan(world.names.messages)) == 1


def test_an_expired_thread_is_invisible_when_due(world: World) -> None:
    world.commit(None, world.message("m1"))
    world.commit(None, world.message("m1"), thread="other")
    world.store.put_working_memory("r", "t", "old", expected_version=0)
    due = clock.from_ms(world.clock.ms + 60_000)
    assert world.store.update_thread("r", "t", expires_at=due).expires_at == due
    assert world.store.list_threads("r", ThreadQuery()).total == 2
    header = world.store.get_thread("r", "t")

    world.clock.advance(minutes=1)
    assert world.store.get_thread("r", "t") is None
    page = world.store.list_threads("r", ThreadQuery(per_page=1, order_by="updatedAt"))
    assert ([t.id for t in page.threads], page.total, page.has_more) == (["other"], 1, False)
    assert world.store.begin_turn("r", "t", world.turn("k")).header is None
    with pytest.raises(ConflictError):
        world.commit(header, world.message("late"))
    with pytest.raises(NotFoundError):
        world.store.update_thread("r", "t", title="x")
    assert not world.store.set_generated_title("r", "t", "x")
    assert world.store.dead_threads()[0] == (("r", "t"),)

    world.commit(None, world.message("m2"))
    assert world.ids() == ["m2"]
    assert world.store.get_working_memory("r", "t") is None
    assert world.store.list_threads("r", ThreadQuery()).total == 2


def test_the_sweep_turns_an_expired_thread_into_a_tombstone(world: World) -> None:
    world.commit(None, world.message("m1"))
    world.store.update_thread("r", "t", expires_at=clock.from_ms(world.clock.ms + 1000))
    world.clock.advance(seconds=2)
    assert world.store.purge_thread("r", "t") == 1
    assert world.store.owner_of("t") is None
    world.clock.advance(days=2)
    world.store.purge_thread("r", "t")
    assert [item["threads"]["N"] for item in world.scan(world.names.threads)] == ["0"]


# ----------------------------------------------------------------------------------------------------- build, transfer


def test_a_built_thread_is_hidden_until_its_last_row_is_written(world: World) -> None:
    messages = [world.message(f"m{n:03d}") for n in range(60)]
    seen: list[Any] = []

    def look() -> None:
        seen.append(world.store.get_thread("r", "clone"))
        for call in (
            lambda: world.store.build_thread(thread(world, "clone"), []),
            lambda: world.store.begin_turn("r", "clone", world.turn("k")),
            lambda: world.store.create_thread(thread(world, "clone")),
            lambda: world.commit(None, world.message("x"), thread="clone"),
            lambda: world.store.save_messages("r", "clone", [world.message("x")]),
        ):
            with pytest.raises(ConflictError):
                call()
        seen.append(world.store.list_threads("r", ThreadQuery()).total)

    world.faults.before("BatchWriteItem", look)
    header = world.store.build_thread(thread(world, "clone", title="Copy"), messages, index="ix")
    assert seen == [None, 0]
    assert world.ids("clone") == [m.id for m in messages]
    assert world.store.get_thread("r", "clone") == header
    assert header.title_source == "given"
    assert world.store.list_threads("r", ThreadQuery()).total == 1
    assert {item["index"]["S"] for item in world.scan(world.names.messages)} == {"ix"}
    with pytest.raises(ConflictError, match="already exists"):
        world.store.build_thread(thread(world, "clone"), [])
    world.commit(header, world.message("next"), thread="clone")
    assert world.ids("clone")[-1] == "next"


def test_a_build_that_fails_leaves_an_id_that_can_be_used(world: World) -> None:
    world.faults.throttle("BatchWriteItem")
    with pytest.raises(UnavailableError):
        world.store.build_thread(thread(world, "clone"), [world.message("m1")])
    world.faults.clear()
    assert world.store.get_thread("r", "clone") is None
    assert world.store.dead_threads()[0] == (("r", "clone"),)
    world.store.build_thread(thread(world, "clone"), [world.message("m2")])
    assert world.ids("clone") == ["m2"]


def test_a_build_that_was_given_up_can_be_taken_over_after_its_time(world: World) -> None:
    world.faults.throttle("BatchWriteItem")
    world.faults.throttle("UpdateItem")
    with pytest.raises(UnavailableError):
        world.store.build_thread(thread(world, "clone"), [world.message("m1"), world.message("m2")])
    world.faults.clear()
    with pytest.raises(ConflictError):
        world.commit(None, world.message("m3"), thread="clone")
    world.clock.advance(minutes=16)
    world.commit(None, world.message("m3"), thread="clone")
    assert world.ids("clone") == ["m3"]
    assert world.store.list_threads("r", ThreadQuery()).total == 1


def test_a_transfer_moves_everything_and_keeps_dates_and_unknown_attributes(world: World) -> None:
    header = world.commit(None, world.message("m1"), world.message("m2"), title="T", metadata={"a": 1}).header
    world.store.put_working_memory("r", "t", "plan A", expected_version=0)
    world.store.put_working_memory("r", "t", "plan B", expected_version=1)
    world.store.put_working_memory("r2", None, "theirs", expected_version=0)
    world.dynamodb.update_item(
        TableName=world.names.messages,
        Key={"pk": {"S": "R#r#t"}, "sk": {"N": "1"}},
        UpdateExpression="SET appFlag = :f",
        ExpressionAttributeValues={":f": {"S": "keep"}},
    )
    world.store.delete_messages("r", [MessageRef("r", "t", "m2", 2)])
    before = world.store.get_thread("r", "t")
    world.clock.advance(days=1)

    moved = world.store.transfer_thread("r", "t", "r2")
    assert before is not None
    assert (moved.resource_id, moved.created_at, moved.title) == ("r2", header.thread.created_at, "T")
    assert moved.updated_at == before.thread.updated_at
    assert world.store.get_thread("r", "t") is None
    assert world.store.list_threads("r", ThreadQuery()).total == 0
    assert world.store.list_threads("r2", ThreadQuery()).total == 1
    assert world.store.owner_of("t") == "r2"
    assert world.ids("t", "r2") == ["m1"]
    assert [item["appFlag"]["S"] for item in world.scan(world.names.messages) if item["pk"]["S"] == "R#r2#t"] == [
        "keep"
    ]
    assert world.store.get_working_memory("r2", "t").text == "plan B"  # type: ignore[union-attr]
    assert [r.text for r in world.store.working_memory_history("r2", "t")] == ["plan B", "plan A"]
    assert world.store.get_working_memory("r", "t") is None
    assert world.store.get_working_memory("r2", None).text == "theirs"  # type: ignore[union-attr]
    with pytest.raises(ConflictError):
        world.commit(before, world.message("late"))


def test_a_transfer_takes_along_what_is_written_meanwhile(world: World) -> None:
    header = world.commit(None, world.message("m1")).header
    other = world.make_store()
    world.faults.before(
        "BatchWriteItem", lambda: other.commit(TurnCommit("t", "r", header, appended=(world.message("m2"),)))
    )
    world.store.transfer_thread("r", "t", "r2")
    assert world.ids("t", "r2") == ["m1", "m2"]
    assert world.store.list_threads("r2", ThreadQuery()).total == 1


def test_a_transfer_onto_a_taken_id_is_refused_and_changes_nothing(world: World) -> None:
    store = world.make_store(claims_table=None)
    for owner in ("r", "r2"):
        store.commit(TurnCommit("t", owner, None, appended=(world.message(f"of-{owner}"),)))
    with pytest.raises(ConflictError):
        store.transfer_thread("r", "t", "r2")
    assert world.ids("t", "r") == ["of-r"]
    assert world.ids("t", "r2") == ["of-r2"]


# ------------------------------------------------------------------------------------------------------ working memory


def test_working_memory_is_written_under_its_version(world: World) -> None:
    store = world.store
    assert store.get_working_memory("r", None) is None
    first = store.put_working_memory("r", None, "likes tea", expected_version=0)
    assert (first.text, first.version, first.updated_at) == ("likes tea", 1, world.clock())
    with pytest.raises(ConflictError):
        store.put_working_memory("r", None, "x", expected_version=0)
    assert store.put_working_memory("r", None, "likes coffee", expected_version=None).version == 2
    with pytest.raises(ConflictError):
        store.delete_working_memory("r", None, expected_version=1)
    assert store.get_working_memory("r", None) == store.working_memory_history("r", None)[0]

    store.delete_working_memory("r", None, expected_version=2)
    assert store.get_working_memory("r", None) is None
    store.delete_working_memory("r", None, expected_version=None)
    assert store.put_working_memory("r", None, "new", expected_version=3).version == 4
    assert [(r.version, r.text) for r in store.working_memory_history("r", None)] == [
        (4, "new"),
        (3, ""),
        (2, "likes coffee"),
        (1, "likes tea"),
    ]


def test_working_memory_of_thread_resource_and_owner_are_apart_case_54(world: World) -> None:
    places: list[tuple[str, str | None]] = [("r", None), ("r", "t"), ("r", "0000000001"), ("r2", None), ("r2", "t")]
    for owner, place in places:
        world.store.put_working_memory(owner, place, f"{owner} {place}", expected_version=0)
    for owner, place in places:
        assert [r.text for r in world.store.working_memory_history(owner, place)] == [f"{owner} {place}"]


def test_the_last_twenty_versions_are_kept(world: World) -> None:
    for version in range(25):
        world.store.put_working_memory("r", "t", f"v{version + 1}", expected_version=version)
    history = world.store.working_memory_history("r", "t")
    assert [r.version for r in history] == list(range(25, 5, -1))
    assert len(world.scan(world.names.threads)) == 21


def test_parallel_updates_of_working_memory_conflict_visibly_case_29(world: World) -> None:
    world.skip_on_moto("its transactions are not isolated from each other between threads")
    import time

    store = world.make_store(sleep=time.sleep)
    store.put_working_memory("r", None, "start", expected_version=0)
    results = parallel(
        [lambda n=n: store.put_working_memory("r", None, f"w{n}", expected_version=1) for n in range(20)]
    )
    won = [result for result in results if not isinstance(result, Exception)]
    assert len(won) == 1
    assert all(isinstance(r, ConflictError | UnavailableError) for r in results if isinstance(r, Exception))
    assert store.get_working_memory("r", None) == won[0]


def test_a_write_whose_answer_was_lost_is_no_conflict(world: World) -> None:
    world.skip_on_moto("it ignores the token that tells a repeated transaction")
    world.faults.lose_answer("TransactWriteItems")
    assert world.store.put_working_memory("r", None, "x", expected_version=0).version == 1
    assert len(world.store.working_memory_history("r", None)) == 1


def test_working_memory_over_its_limit_is_refused(world: World) -> None:
    with pytest.raises(InvalidInputError):
        world.store.put_working_memory("r", None, "x" * 300_001, expected_version=0)
