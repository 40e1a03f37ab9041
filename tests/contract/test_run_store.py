"""What every RunStore does."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from agent_memory.errors import TooLargeError, UnavailableError
from agent_memory.ports import RunStore, SuspendedRun
from tests.contract.conftest import World


def suspended(world: World, run_id: str = "run", owner: str | None = "r", **fields: Any) -> SuspendedRun:
    given: dict[str, Any] = {
        "agent_id": "agent",
        "thread_id": "t",
        "suspended_at": world.clock(),
        "tool_calls": ({"toolCallId": "c1", "args": {"a": 1.5}},),
        "state": {"messages": [{"x": None}], "n": 1},
    }
    return SuspendedRun(run_id=run_id, resource_id=owner, **{**given, **fields})


def test_the_store_has_every_method_of_the_port(world: World) -> None:
    assert isinstance(world.make_runs(), RunStore)


@pytest.mark.parametrize("owner", ["r", None])
def test_a_suspended_run_comes_back_to_its_owner_only(world: World, owner: str | None) -> None:
    runs = world.make_runs()
    run = suspended(world, "run#1*", owner)
    runs.suspend(run)
    assert runs.find_suspended("run#1*", owner=owner) == run
    assert runs.find_suspended("run#1*", owner="other") is None
    assert runs.find_suspended("other", owner=owner) is None
    runs.finish_suspended(run)
    assert runs.find_suspended("run#1*", owner=owner) is None


def test_a_run_is_found_without_its_owner_only_where_callers_are_trusted(world: World) -> None:
    trusted, others = world.make_runs(), world.make_runs(claims_table=None)
    run = suspended(world)
    trusted.suspend(run)
    assert trusted.find_suspended("run", owner=None) == run
    assert others.find_suspended("run", owner=None) is None
    trusted.finish_suspended(run)
    assert trusted.find_suspended("run", owner=None) is None
    assert world.scan(world.names.runs) == []


def test_each_call_is_decided_once(world: World) -> None:
    runs = world.make_runs()
    run = suspended(world)
    runs.suspend(run)
    first = runs.decide(run, "c1", {"approved": True})
    assert first is not None
    assert first.state["decisions"] == {"c1": {"approved": True}}
    assert runs.decide(run, "c1", {"approved": False}) is None
    second = runs.decide(run, "c2#", {"approved": False})
    assert second is not None
    assert second.state["decisions"] == {"c1": {"approved": True}, "c2#": {"approved": False}}
    assert runs.find_suspended("run", owner="r") == second
    runs.finish_suspended(run)
    assert runs.decide(run, "c3", {}) is None


def test_a_decision_whose_answer_was_lost_is_recorded_once(world: World) -> None:
    runs = world.make_runs()
    run = suspended(world)
    runs.suspend(run)
    world.faults.lose_answer("UpdateItem")
    decided = runs.decide(run, "c1", {"approved": True})
    assert decided is not None
    assert decided.state["decisions"] == {"c1": {"approved": True}}


def test_suspended_runs_are_listed_newest_first_for_a_week(world: World) -> None:
    runs = world.make_runs()
    for n in range(3):
        runs.suspend(suspended(world, f"run{n}", thread_id=f"t{n % 2}"))
        world.clock.advance(seconds=1)
    runs.suspend(suspended(world, "theirs", "r2"))
    assert [run.run_id for run in runs.list_suspended("r")] == ["run2", "run1", "run0"]
    assert [run.run_id for run in runs.list_suspended("r", thread_id="t0")] == ["run2", "run0"]
    world.clock.advance(days=7, seconds=-2)
    assert [run.run_id for run in runs.list_suspended("r")] == ["run2"]
    world.clock.advance(seconds=2)
    assert runs.list_suspended("r") == ()
    assert runs.find_suspended("run2", owner="r") is None


def test_a_state_over_an_items_size_is_kept_apart_and_removed_with_its_run(world: World) -> None:
    runs = world.make_runs()
    run = suspended(world, state={"text": "é" * 250_000})
    runs.suspend(run)
    assert runs.find_suspended("run", owner="r") == run
    assert [key.split("/")[:2] for key in world.objects()] == [["o", "r"]]
    runs.finish_suspended(run)
    assert world.objects() == []
    with pytest.raises(TooLargeError):
        world.make_runs(blobs=None).suspend(run)


def test_chunks_come_back_in_order_after_a_number(world: World) -> None:
    runs = world.make_runs()
    for n in (0, 1, 2, 10, 11):
        runs.append_chunk("r", "t", "run", n, [f"data: {n}", "é"])
    runs.append_chunk("r", "t", "other", 1, ["no"])
    runs.append_chunk("r2", "t", "run", 1, ["no"])
    assert [n for n, _ in runs.read_chunks("r", "t", "run", -1)] == [0, 1, 2, 10, 11]
    assert runs.read_chunks("r", "t", "run", 10) == ((11, ("data: 11", "é")),)
    world.clock.advance(hours=1)
    assert runs.read_chunks("r", "t", "run", -1) == ()


def test_the_active_run_can_be_asked_to_stop(world: World) -> None:
    runs = world.make_runs()
    assert runs.get_active("r", "t") is None
    assert not runs.request_abort("r", "t", None)
    runs.set_active("r", "t", "one", agent_id="a", expires_at=world.clock.ms + 60_000)
    assert runs.get_active("r", "t") == {"run_id": "one", "agent_id": "a", "abort": False, "waiting": 0}
    assert not runs.request_abort("r", "t", "other")
    assert runs.request_abort("r", "t", "one")
    assert runs.get_active("r", "t") == {"run_id": "one", "agent_id": "a", "abort": True, "waiting": 0}
    runs.set_active("r", "t", "two", agent_id="a", expires_at=world.clock.ms + 60_000)
    assert runs.get_active("r", "t") == {"run_id": "two", "agent_id": "a", "abort": False, "waiting": 0}
    runs.clear_active("r", "t", "one")
    assert runs.request_abort("r", "t", None)
    world.clock.advance(seconds=60)
    assert runs.get_active("r", "t") is None
    assert not runs.request_abort("r", "t", None)
    runs.clear_active("r", "t", "two")
    assert world.scan(world.names.runs) == []


def active(world: World, run_id: str = "one") -> RunStore:
    runs = world.make_runs()
    runs.set_active("r", "t", run_id, agent_id="a", expires_at=world.clock.ms + 60_000)
    return runs


def hand_in(runs: RunStore, name: str, *, run_id: str = "one", agent_id: str = "a", at: int = 1, size: int = 1) -> bool:
    message = {"id": name, "role": "user", "content": "é" * size}
    return runs.hand_in("r", "t", run_id, message, agent_id=agent_id, at=at)


def test_messages_are_handed_to_the_running_run_of_that_agent_only(world: World) -> None:
    runs = world.make_runs()
    assert not hand_in(runs, "m1")
    active(world)
    assert not hand_in(runs, "m1", run_id="two")
    assert not hand_in(runs, "m1", agent_id="b")
    assert hand_in(runs, "m1")
    found = runs.get_active("r", "t")
    assert found is not None
    assert found["waiting"] == 1
    assert runs.take_in("r", "t", "two") == ()
    world.clock.advance(seconds=60)
    assert not hand_in(runs, "m2")


def test_messages_are_taken_once_and_in_order(world: World) -> None:
    runs = active(world)
    assert runs.take_in("r", "t", "one") == ()
    for name, at in (("m#1*", 3), ("m2", 1), ("m3", 2), ("m2", 1)):
        assert hand_in(runs, name, at=at)
    assert [message["id"] for message in runs.take_in("r", "t", "one")] == ["m2", "m3", "m#1*"]
    assert runs.take_in("r", "t", "one") == ()
    assert hand_in(runs, "m4")
    assert runs.take_in("r", "t", "one") == ({"id": "m4", "role": "user", "content": "é"},)


def test_a_message_is_taken_by_the_run_or_back_by_its_sender(world: World) -> None:
    runs = active(world)
    hand_in(runs, "m1")
    hand_in(runs, "m2")
    assert not runs.hand_back("r", "t", "two", "m1")
    assert runs.hand_back("r", "t", "one", "m1")
    assert not runs.hand_back("r", "t", "one", "m1")
    assert [message["id"] for message in runs.take_in("r", "t", "one")] == ["m2"]
    assert not runs.hand_back("r", "t", "one", "m2")


def test_a_run_holds_five_messages_of_60_kb_at_most(world: World) -> None:
    runs = active(world)
    assert not hand_in(runs, "large", size=30_000)
    for n in range(5):
        assert hand_in(runs, f"m{n}", size=29_900)
    assert not hand_in(runs, "m5")
    assert hand_in(runs, "m4"), "again the same is the same"
    assert len(runs.take_in("r", "t", "one")) == 5


def test_a_run_that_takes_a_threads_place_does_not_find_messages_of_another(world: World) -> None:
    runs = active(world)
    hand_in(runs, "m1")
    active(world, "two")
    assert runs.take_in("r", "t", "two") == ()
    hand_in(runs, "m2", run_id="two")
    runs.clear_active("r", "t", "two")
    assert not hand_in(runs, "m3", run_id="two")
    active(world, "two")
    assert runs.take_in("r", "t", "two") == ()


@pytest.mark.parametrize("call", ["hand_in", "take_in", "hand_back"])
def test_a_message_whose_write_lost_its_answer_is_never_given_to_both(world: World, call: str) -> None:
    runs = active(world)
    if call != "hand_in":
        hand_in(runs, "m1")
    world.faults.lose_answer("UpdateItem")
    if call == "hand_in":
        assert hand_in(runs, "m1")
        assert len(runs.take_in("r", "t", "one")) == 1
        return
    taken = runs.take_in("r", "t", "one") if call == "take_in" else ()
    back = runs.hand_back("r", "t", "one", "m1")
    assert (taken, back) == ((), False), "it counts as taken: the sender looks for it in the thread"


@pytest.mark.parametrize("owner", ["r", None])
def test_an_idempotency_key_is_claimed_once_and_answers_for_a_day(world: World, owner: str | None) -> None:
    runs = world.make_runs()
    assert runs.remember(owner, "key#", "h1", None, run_id="one") is None
    running = runs.remember(owner, "key#", "h2", None, run_id="two")
    assert running is not None
    assert (running["hash"], running["result"]) == ("h1", None)
    assert runs.remember("other", "key#", "h", None, run_id="three") is None
    assert runs.remember(owner, "key#", "h1", {"text": "x" * 400_000}, run_id="one") is None
    world.clock.advance(hours=23)
    done = runs.remember(owner, "key#", "h1", None, run_id="four")
    assert done is not None
    assert done["result"] == {"text": "x" * 400_000}
    world.clock.advance(hours=1)
    assert runs.remember(owner, "key#", "h1", None, run_id="five") is None


def test_a_claim_whose_call_failed_or_died_can_be_taken_again(world: World) -> None:
    runs = world.make_runs()
    runs.remember("r", "k", "h", None, run_id="one")
    runs.forget("r", "k")
    assert runs.remember("r", "k", "h", None, run_id="two") is None
    world.clock.advance(minutes=15)
    assert runs.remember("r", "k", "h", None, run_id="three") is None
    world.faults.lose_answer("PutItem")
    assert runs.remember("r", "k2", "h", None, run_id="four") is None


def test_throttling_for_ever_is_unavailable_case_37(world: World) -> None:
    world.faults.throttle("TransactWriteItems")
    with pytest.raises(UnavailableError):
        world.make_runs().suspend(suspended(world, suspended_at=world.clock() - timedelta(seconds=1)))
