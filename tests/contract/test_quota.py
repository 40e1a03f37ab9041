"""Quotas of a resource, on every service that keeps them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from agent_memory.agent.agent import Agent
from agent_memory.agent.result import MemoryArgs, RunOptions
from agent_memory.agent.services import Services
from agent_memory.aws.dynamodb import keys
from agent_memory.aws.dynamodb.quota import DynamoQuota
from agent_memory.aws.dynamodb.values import size_of
from agent_memory.errors import ModelError, QuotaError, UnavailableError
from agent_memory.memory import Memory
from agent_memory.ports import Quota
from agent_memory.runtime import Deployment
from agent_memory.settings import Settings
from agent_memory.titles import generate_title
from tests.contract.conftest import World
from tests.support.models import FakeModel, say
from tests.support.operator_log import on_lambda


def quota(world: World, turns: int = 0, tokens: int = 0) -> DynamoQuota:
    return DynamoQuota(
        world.dynamodb,
        runs_table=world.names.runs,
        turns_per_minute=turns,
        tokens_per_day=tokens,
        clock=world.clock,
        sleep=world.waits.append,
    )


def passes(made: DynamoQuota, owner: str = "r") -> bool:
    try:
        made.admit(owner)
    except QuotaError:
        return False
    return True


def chat(world: World, model: FakeModel, made: Quota | None, **options: Any) -> Agent:
    memory = Memory(storage=world.store, last_messages=5, **options)
    return Agent("helper", model=model, memory=memory).bind(
        Services(store=world.store, quota=made, runs=world.make_runs(), meter=world.meter)
    )


def test_a_minute_takes_its_turns_and_the_next_one_begins_anew(world: World) -> None:
    made = quota(world, turns=3)
    assert isinstance(made, Quota)
    assert [passes(made) for _ in range(5)] == [True, True, True, False, False]
    assert world.faults.operations() == ["UpdateItem"] * 5
    with pytest.raises(QuotaError) as refused:
        made.admit("r")
    assert (refused.value.status, refused.value.code) == (429, "QUOTA_EXCEEDED")
    assert refused.value.retry_after_s == 53  # of 05:06:07.089
    assert passes(made, "another")
    world.clock.advance(seconds=53)
    assert passes(made)


def test_exactly_so_many_turns_pass_under_concurrency(world: World) -> None:
    world.skip_on_moto("its conditional updates are not isolated from each other between threads")
    made = quota(world, turns=20, tokens=1_000_000)
    with ThreadPoolExecutor(16) as pool:
        passed = list(pool.map(lambda n: passes(made, f"r{n % 2}"), range(120)))
    assert [sum(passed[0::2]), sum(passed[1::2])] == [20, 20]


def test_tokens_of_a_day_are_summed_until_they_are_used_up(world: World) -> None:
    made = quota(world, tokens=100)
    made.admit("r")
    made.spend("r", 99)
    made.admit("r")
    made.spend("r", 50)  # the turn that passes the limit ends as it likes
    with pytest.raises(QuotaError) as refused:
        made.admit("r")
    assert refused.value.retry_after_s == 18 * 3600 + 53 * 60 + 53
    assert passes(made, "another")
    world.clock.advance(hours=19)
    made.admit("r")


def test_only_tokens_that_are_limited_are_counted(world: World) -> None:
    quota(world, turns=3).spend("r", 10)
    quota(world, tokens=3).spend("r", 0)
    assert world.faults.operations() == []
    assert world.scan(world.names.runs) == []


def test_counting_tokens_never_fails_a_turn(world: World) -> None:
    made = quota(world, tokens=100)
    world.faults.throttle("UpdateItem")
    made.spend("r", 10)
    with pytest.raises(UnavailableError):
        made.admit("r")


def test_the_item_of_a_day_stays_small_and_ends(world: World) -> None:
    made = quota(world, turns=1_000, tokens=10**9)
    for minutes in [1] * 90 + [31] * 36:
        world.clock.advance(minutes=minutes)
        made.admit("r")
        made.spend("r", 12_345)
    items = world.scan(world.names.runs)
    assert 1 < len(items) <= 3
    for item in items:
        assert item["pk"]["S"] == keys.owner_pk("r")
        assert item["sk"]["S"].startswith("Q#2036")
        assert size_of(item) < 1_024
        assert int(item["ttl"]["N"]) > world.clock.ms // 1000


def test_a_turn_over_its_quota_is_refused_before_anything_is_read_or_written(world: World) -> None:
    model = FakeModel(say("hello there"))
    agent = chat(world, model, quota(world, turns=1))
    agent.generate("one", memory=MemoryArgs("t", "r"))
    before, rows = len(model.requests), world.scan(world.names.threads)
    world.faults.clear()
    with on_lambda() as log, pytest.raises(QuotaError):
        agent.stream("two", memory=MemoryArgs("t", "r"))
    assert world.faults.operations() == ["UpdateItem"]
    assert world.scan(world.names.threads) == rows
    assert len(model.requests) == before
    assert log.metrics == {"QuotaRefusals": 1}
    agent.generate("three", memory=MemoryArgs("t2", "another"))


def test_off_it_costs_no_request(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_memory.aws.clients.client", lambda _service: world.dynamodb)
    agent = chat(world, FakeModel(say("hello")), None)
    agent.generate("one", memory=MemoryArgs("t", "r"))
    without = agent.generate("two", memory=MemoryArgs("t", "r")).notes["cost"]
    agent.bind(Services(store=world.store, quota=quota(world, turns=9), meter=world.meter))
    limited = agent.generate("three", memory=MemoryArgs("t", "r")).notes["cost"]
    assert limited["requests"] == without["requests"] + 1
    assert Deployment(Settings(runs_table="t")).quota is None
    assert isinstance(Deployment(Settings(runs_table="t", quota_tokens_per_day=1)).quota, DynamoQuota)


def test_tokens_of_failed_and_stopped_turns_and_titles_count_too(world: World) -> None:
    made = quota(world, tokens=10_000)
    model = FakeModel(say("one two"), ModelError("down"), say("a title"))
    agent = chat(world, model, made, generate_title=True)
    agent.generate("hi", memory=MemoryArgs("t", "r"))
    with pytest.raises(ModelError):
        agent.generate("again", memory=MemoryArgs("t", "r"))
    event = {"agentId": "helper", "resourceId": "r", "threadId": "t"}
    assert generate_title(world.store, agent, event) == "a title"
    (item,) = [item for item in world.scan(world.names.runs) if item["sk"]["S"].startswith("Q#")]
    assert item["tokens"] == {"N": "24"}


def test_a_turn_that_was_admitted_before_and_one_that_goes_on_are_not_counted_again(world: World) -> None:
    made = quota(world, turns=1)
    agent = chat(world, FakeModel(say("hello")), made)
    agent.generate("one", memory=MemoryArgs("t", "r"))
    agent.generate("two", memory=MemoryArgs("t", "r"), options=RunOptions(admitted=True))
    with pytest.raises(QuotaError):
        agent.generate("three", options=RunOptions(quota_owner="r"))
    agent.generate("four")  # nobody's: a trusted caller without memory
