"""Expiry of threads and messages on the store: at a set time, or as the deployment's retention asks for."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from agent_memory import clock
from agent_memory.errors import NotFoundError
from agent_memory.ports import MessageRef, Thread, ThreadQuery, TurnCommit
from tests.contract.conftest import World

DAY = 86_400


@pytest.fixture
def kept(world: World) -> Any:
    """A store that keeps everything for ten days."""
    world.clock.advance(milliseconds=-world.clock.ms % 1000)
    return world.make_store(retention_days=10)


def in_days(world: World, days: float) -> datetime:
    return world.clock() + timedelta(days=days)


def rows(world: World) -> dict[str, int | None]:
    """When each row expires, in days from now."""
    found = {}
    for item in world.scan(world.names.messages):
        ttl = int(item["ttl"]["N"]) - world.clock.ms // 1000 if "ttl" in item else None
        found[item["mid"]["S"]] = None if ttl is None else round(ttl / DAY, 3)
    return found  # type: ignore[return-value]


def expiring(world: World) -> tuple[int, int]:
    """What the resource item says of its threads, and of those that expire."""
    item = next(item for item in world.scan(world.names.threads) if item["sk"]["S"] == "R")
    return int(item["threads"]["N"]), int(item.get("expiring", {"N": "0"})["N"])


def shown(store: Any, thread: str = "t") -> list[str]:
    from agent_memory.ports import MessageQuery

    header = store.get_thread("r", thread)
    return [] if header is None else [m.id for m in store.list_messages(header, MessageQuery(per_page=None)).messages]


def test_every_way_of_writing_keeps_within_the_retention(world: World, kept: Any) -> None:
    soon, late = in_days(world, 2), in_days(world, 99)
    first = kept.commit(
        TurnCommit("t", "r", None, appended=(world.message("turn"), world.message("own", expires_at=soon)))
    )
    kept.commit(TurnCommit("t", "r", first.header, appended=(world.message("late"),), expires_at=late))
    saved = kept.save_messages("r", "t", [world.message("saved"), world.message("short")], expires_at=in_days(world, 3))
    kept.save_messages("r", "new", [world.message("new"), world.message("new-own", expires_at=soon)])
    kept.build_thread(Thread("built", "r", world.clock(), world.clock()), [world.message("b1")])
    assert rows(world) == {
        "turn": 10,
        "own": 2,
        "late": 10,
        "saved": 3,
        "short": 3,
        "new": 10,
        "new-own": 2,
        "b1": 10,
    }
    assert [m.expires_at for m in saved] == [in_days(world, 3)] * 2
    assert first.appended[1].expires_at == soon
    for thread in ("t", "new", "built"):
        header = kept.get_thread("r", thread)
        assert (header.rows_expire, header.idle_s, header.thread.expires_at) == (True, 10 * DAY, in_days(world, 10))
    assert expiring(world) == (3, 3)


def test_without_retention_nothing_expires_by_itself(world: World) -> None:
    header = world.commit(None, world.message("m1")).header
    assert (header.rows_expire, header.idle_s, header.thread.expires_at) == (False, None, None)
    world.store.save_messages("r", "t", [world.message("m2")])
    assert rows(world) == {"m1": None, "m2": None}
    assert expiring(world) == (1, 0)


def test_a_thread_that_is_written_to_stays_and_one_that_rests_goes(world: World, kept: Any) -> None:
    for thread in ("busy", "idle"):
        kept.commit(TurnCommit(thread, "r", None, appended=(world.message(f"{thread}-1"),)))
    world.clock.advance(days=9)
    busy = kept.get_thread("r", "busy")
    after = kept.commit(TurnCommit("busy", "r", busy, appended=(world.message("busy-2"),))).header
    assert after.thread.expires_at == in_days(world, 10)
    assert kept.get_thread("r", "busy").thread == after.thread
    world.clock.advance(days=1)
    # The first messages are as old as the idle thread.
    assert (shown(kept, "busy"), shown(kept, "idle")) == (["busy-2"], [])
    assert [thread.id for thread in kept.list_threads("r", ThreadQuery()).threads] == ["busy"]
    assert kept.list_threads("r", ThreadQuery()).total == 1
    world.clock.advance(days=9)
    assert kept.get_thread("r", "busy") is None


def test_an_own_time_stands_and_can_be_taken_away(world: World, kept: Any) -> None:
    header = kept.commit(TurnCommit("t", "r", None, appended=(world.message("m1"),))).header
    soon = in_days(world, 2)
    assert kept.update_thread("r", "t", expires_at=soon).expires_at == soon
    # Also a commit that was prepared before somebody set it does not put it off.
    kept.commit(TurnCommit("t", "r", header, appended=(world.message("m2"),)))
    assert kept.get_thread("r", "t").thread.expires_at == soon
    assert rows(world) == {"m1": 10, "m2": 10}
    assert kept.update_thread("r", "t", title="x").expires_at == soon
    world.clock.advance(days=1)
    assert kept.update_thread("r", "t", forget_expiry=True).expires_at == in_days(world, 10)
    assert kept.get_thread("r", "t").idle_s == 10 * DAY
    assert expiring(world) == (1, 1)

    store = world.store
    assert store.update_thread("r", "t", expires_at=soon).expires_at == soon
    assert store.update_thread("r", "t", forget_expiry=True).expires_at is None
    assert store.get_thread("r", "t").idle_s is None  # type: ignore[union-attr]
    assert expiring(world) == (1, 0)
    assert store.update_thread("r", "t", forget_expiry=True).expires_at is None
    world.clock.advance(days=8.9)
    assert shown(store) == ["m1", "m2"]
    world.clock.advance(days=0.2)
    assert shown(store) == []
    assert store.get_thread("r", "t") is not None


def test_the_round_over_the_threads_brings_older_ones_in_line(world: World, kept: Any) -> None:
    plain = world.store
    for thread in ("old", "own", "fresh"):
        plain.commit(TurnCommit(thread, "r", None, appended=(world.message(thread),)))
    plain.update_thread("r", "own", expires_at=in_days(world, 99))
    world.clock.advance(days=8)
    plain.commit(TurnCommit("fresh", "r", plain.get_thread("r", "fresh"), appended=(world.message("more"),)))
    world.clock.advance(days=3)

    def sweep(store: Any) -> list[str]:
        found = sorted(thread for _, thread in store.dead_threads()[0])
        for thread in found:
            store.purge_thread("r", thread)
        return found

    assert sweep(plain) == []
    assert sweep(kept) == ["fresh", "old"]
    assert kept.get_thread("r", "fresh").thread.expires_at == in_days(world, 7)
    assert kept.get_thread("r", "own").thread.expires_at == in_days(world, 88)
    assert kept.get_thread("r", "old") is None
    assert expiring(world) == (2, 2)
    assert sorted(rows(world)) == ["fresh", "more", "own"]
    assert sweep(kept) == ["old"]  # its tombstone, for a day

    shorter = world.make_store(retention_days=5)
    assert sweep(shorter) == ["fresh", "old"]
    assert shorter.get_thread("r", "fresh").thread.expires_at == in_days(world, 2)
    assert sweep(plain) == ["fresh", "old"]
    assert plain.get_thread("r", "fresh").thread.expires_at is None  # type: ignore[union-attr]
    assert expiring(world) == (2, 1)


def test_a_replaced_message_expires_when_it_did_unless_it_names_another_time(world: World) -> None:
    world.clock.advance(milliseconds=-world.clock.ms % 1000)
    store = world.store
    soon, later = in_days(world, 2), in_days(world, 4)
    store.save_messages("r", "t", [world.message("m1", expires_at=soon), world.message("m2")])
    read = store.get_messages("r", [("t", 1), ("t", 2)])
    assert [m.expires_at for m in read] == [soon, None]
    world.faults.clear()
    assert store.save_messages("r", "t", read) == read
    assert "TransactWriteItems" not in world.faults.operations()

    changed = store.save_messages("r", "t", [world.message("m1", "other"), world.message("m2", expires_at=later)])
    assert [m.expires_at for m in changed] == [soon, later]
    assert rows(world) == {"m1": 2, "m2": 4}
    moved = replace(changed[1], created_at=world.clock() - timedelta(days=1))
    world.clock.advance(seconds=1)
    store.save_messages("r", "t", [world.message("m0", created_at=world.clock() - timedelta(seconds=2)), moved])
    assert rows(world)["m1"] == pytest.approx(2, abs=0.001)
    assert rows(world)["m2"] == pytest.approx(4, abs=0.001)
    store.update_message("r", "t", "m1", lambda m: m.with_metadata(rating=5))
    assert rows(world)["m1"] == pytest.approx(2, abs=0.001)
    world.clock.advance(days=2)
    assert "m1" not in shown(store)
    with pytest.raises(NotFoundError):
        store.update_message("r", "t", "m1", lambda m: m)


def test_building_in_place_of_an_expired_thread_counts_it_once(world: World) -> None:
    world.commit(None, world.message("m1"))
    world.store.update_thread("r", "t", expires_at=in_days(world, 1))
    world.clock.advance(days=2)
    world.store.build_thread(Thread("t", "r", world.clock(), world.clock()), [world.message("m2")])
    assert expiring(world) == (1, 0)
    assert shown(world.store) == ["m2"]
    world.store.delete_messages("r", [MessageRef("r", "t", "m2", 2)])
    assert world.store.list_threads("r", ThreadQuery()).total == 1


def test_a_thread_that_is_moved_keeps_its_times(world: World, kept: Any) -> None:
    kept.commit(TurnCommit("t", "r", None, appended=(world.message("m1", expires_at=in_days(world, 2)),)))
    before = kept.get_thread("r", "t")
    world.clock.advance(days=1)
    moved = kept.transfer_thread("r", "t", "s")
    assert moved.expires_at == before.thread.expires_at
    after = kept.get_thread("s", "t")
    assert (after.idle_s, after.rows_expire) == (before.idle_s, True)
    assert [m.expires_at for m in kept.latest("s", "t", 5)] == [in_days(world, 1)]


def test_a_repeated_commit_whose_answer_was_lost_is_recognised_under_retention(world: World, kept: Any) -> None:
    header = kept.commit(TurnCommit("t", "r", None, appended=(world.message("m1"),))).header
    other = world.make_store()

    def lose() -> None:
        # The first try goes through, its answer is lost, and the header moves on before the next one.
        other.commit(TurnCommit("t", "r", header, appended=(world.message("m3"),)))
        world.clock.advance(seconds=2)

    world.faults.before("TransactWriteItems", lose)
    done = kept.commit(TurnCommit("t", "r", header, appended=(world.message("m2"),)))
    assert [m.id for m in done.appended] == ["m2"]
    assert clock.to_ms(done.appended[0].expires_at) % 1000 == 0  # type: ignore[arg-type]
    assert kept.get_messages("r", [("t", done.appended[0].seq)]) == done.appended
