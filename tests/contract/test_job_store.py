"""The contract of `JobStore`."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from agent_memory import clock
from agent_memory._json import freeze
from agent_memory.aws.dynamodb.jobs import DynamoJobStore
from agent_memory.errors import ConflictError
from agent_memory.ports import Job, JobStore
from agent_memory.ports.jobs import FINISHED_LIFETIME_S
from tests.contract.conftest import World
from tests.contract.test_message_store import parallel


def make_store(world: World, **options: Any) -> DynamoJobStore:
    given = {"runs_table": world.names.runs, "clock": world.clock, "sleep": world.waits.append}
    return DynamoJobStore(world.dynamodb, **{**given, **options})


def make_job(world: World, id: str = "j1", owner: str | None = "r", **fields: Any) -> Job:
    given: dict[str, Any] = {"kind": "purge", "params": freeze({"threadId": "t"}), "correlation_id": "req-1"}
    return Job(id=id, owner=owner, created_at=world.clock(), updated_at=world.clock(), **{**given, **fields})


def requests(world: World, call: Any) -> int:
    with world.meter.measure() as cost:
        call()
    return cost.requests


@pytest.mark.parametrize("owner", ["r", None, "é#*?${}~", "x" * 512])
def test_a_job_is_kept_and_read_again_by_its_owner_alone(world: World, owner: str | None) -> None:
    jobs = make_store(world)
    assert isinstance(jobs, JobStore)
    made = make_job(world, "j 1/ü", owner)
    assert requests(world, lambda: jobs.create(made)) == 1

    assert jobs.get("j 1/ü", owner=owner) == made
    assert jobs.owner_of("j 1/ü") == owner
    assert jobs.list_open()[0] == (("j 1/ü", owner),)
    assert jobs.list_jobs(owner) == (made,)
    for stranger in {"s", None, "r"} - {owner}:
        assert jobs.get("j 1/ü", owner=stranger) is None
        assert jobs.take("j 1/ü", owner=stranger, holder="h", lease_s=60) is None
        assert jobs.list_jobs(stranger) == ()
    assert jobs.get("other", owner=owner) is None
    assert jobs.owner_of("other") is None


def test_a_cursor_of_a_very_large_export_fits_into_its_row(world: World) -> None:
    jobs = make_store(world)
    jobs.create(make_job(world))
    taken = jobs.take("j1", owner="r", holder="h", lease_s=60)
    assert taken is not None
    cursor = {
        "entries": [{"name": f"messages-{n:05}.jsonl", "bytes": n * 7919, "crc": n * 104_729} for n in range(20_000)]
    }
    assert len(json.dumps(cursor)) > 1_000_000
    assert jobs.save(replace(taken, cursor=freeze(cursor), progress=freeze({"messages": 1})))
    kept = jobs.get("j1", owner="r")
    assert kept is not None
    assert (kept.cursor, kept.progress) == (cursor, {"messages": 1})


def test_an_id_is_given_once(world: World) -> None:
    jobs = make_store(world)
    first = jobs.create(make_job(world))
    assert jobs.create(make_job(world, kind="sweep")) == first
    with pytest.raises(ConflictError):
        jobs.create(make_job(world, owner="other"))
    assert jobs.owner_of("j1") == "r"
    assert jobs.get("j1", owner="other") is None


def test_a_job_belongs_to_one_invocation_until_its_lease_runs_out(world: World) -> None:
    jobs = make_store(world)
    jobs.create(make_job(world))
    taken = jobs.take("j1", owner="r", holder="a", lease_s=60)
    assert taken is not None
    assert (taken.state, taken.holder, taken.tries, taken.params) == ("running", "a", 1, {"threadId": "t"})
    assert jobs.take("j1", owner="r", holder="b", lease_s=60) is None
    world.clock.advance(seconds=59)
    assert jobs.save(taken, lease_s=60)
    world.clock.advance(seconds=59)
    assert jobs.take("j1", owner="r", holder="b", lease_s=60) is None

    world.clock.advance(seconds=1)
    other = jobs.take("j1", owner="r", holder="b", lease_s=60)
    assert other is not None
    assert other.tries == 2
    assert not jobs.save(taken)
    assert jobs.save(other)
    assert not jobs.save(taken)


def test_of_two_invocations_at_once_one_gets_the_job(world: World) -> None:
    world.skip_on_moto("it is not isolated between threads")
    jobs = make_store(world)
    jobs.create(make_job(world))
    took = parallel([lambda n=n: jobs.take("j1", owner="r", holder=f"h{n}", lease_s=60) for n in range(8)])
    assert len([job for job in took if job is not None]) == 1


def test_what_is_kept_comes_back_and_a_job_given_back_can_be_taken_at_once(world: World) -> None:
    jobs = make_store(world)
    jobs.create(make_job(world))
    taken = jobs.take("j1", owner="r", holder="a", lease_s=60)
    assert taken is not None
    cursor = freeze({"at": {"pk": {"S": "x"}}, "dead": [["a", "b"]], "n": 1.5, "none": None})
    changed = _with(taken, state="waiting", cursor=cursor, progress=freeze({"messages": 3}), tries=0)
    assert requests(world, lambda: jobs.save(changed)) == 1

    again = jobs.take("j1", owner="r", holder="b", lease_s=60)
    assert again is not None
    assert (again.cursor, again.progress, again.tries, again.result) == (cursor, {"messages": 3}, 1, None)


def test_a_job_is_not_taken_before_its_time(world: World) -> None:
    jobs = make_store(world)
    jobs.create(make_job(world))
    taken = jobs.take("j1", owner="r", holder="a", lease_s=60)
    assert taken is not None
    due = clock.from_ms(world.clock.ms + 600_000)
    jobs.save(_with(taken, state="waiting", not_before=due))
    assert jobs.take("j1", owner="r", holder="b", lease_s=60) is None
    assert jobs.get("j1", owner="r").not_before == due  # type: ignore[union-attr]
    world.clock.advance(minutes=10)
    assert jobs.take("j1", owner="r", holder="b", lease_s=60) is not None


def test_a_save_whose_answer_was_lost_succeeds(world: World) -> None:
    jobs = make_store(world)
    jobs.create(make_job(world))
    taken = jobs.take("j1", owner="r", holder="a", lease_s=60)
    assert taken is not None
    world.faults.lose_answer("UpdateItem")
    assert jobs.save(_with(taken, state="waiting"))
    assert jobs.get("j1", owner="r").state == "waiting"  # type: ignore[union-attr]


@pytest.mark.parametrize("owner", ["r", None])
@pytest.mark.parametrize("state", ["finished", "failed"])
def test_an_ended_job_is_open_no_more_and_readable_for_a_month(world: World, owner: str | None, state: str) -> None:
    jobs = make_store(world)
    jobs.create(make_job(world, owner=owner))
    taken = jobs.take("j1", owner=owner, holder="a", lease_s=60)
    assert taken is not None
    error = freeze({"code": "X", "message": "y"}) if state == "failed" else None
    ended = _with(taken, state=state, result=freeze({"n": 1}), error=error)
    assert requests(world, lambda: jobs.save(ended)) == 1

    assert jobs.list_open() == ((), None)
    assert jobs.take("j1", owner=owner, holder="b", lease_s=60) is None
    found = jobs.get("j1", owner=owner)
    assert found is not None
    assert (found.state, found.result, found.error, found.ended) == (state, {"n": 1}, error, True)
    assert {int(item["ttl"]["N"]) for item in world.scan(world.names.runs)} == {
        world.clock.ms // 1000 + FINISHED_LIFETIME_S
    }
    world.clock.advance(seconds=FINISHED_LIFETIME_S)
    assert jobs.get("j1", owner=owner) is None
    assert jobs.list_jobs(owner) == ()
    assert jobs.create(make_job(world, owner=owner, kind="sweep")).kind == "sweep"
    assert jobs.get("j1", owner=owner).kind == "sweep"  # type: ignore[union-attr]


def test_a_failed_job_can_be_opened_again_and_no_other(world: World) -> None:
    jobs = make_store(world)
    for name, state in (("bad", "failed"), ("good", "finished"), ("open", "waiting")):
        jobs.create(make_job(world, name))
        taken = jobs.take(name, owner="r", holder="a", lease_s=60)
        assert taken is not None
        jobs.save(_with(taken, state=state, cursor=freeze({"at": 7}), tries=9))
    assert jobs.reopen("good", owner="r") is None
    assert jobs.reopen("open", owner="r") is None
    assert jobs.reopen("bad", owner="s") is None
    assert jobs.reopen("nobody", owner="r") is None

    again = jobs.reopen("bad", owner="r")
    assert again is not None
    assert (again.state, again.tries, again.cursor) == ("waiting", 0, {"at": 7})
    assert sorted(found for found, _ in jobs.list_open()[0]) == ["bad", "open"]
    world.clock.advance(seconds=FINISHED_LIFETIME_S + 1)
    assert jobs.take("bad", owner="r", holder="b", lease_s=60) is not None
    assert jobs.owner_of("bad") == "r"


def test_open_jobs_come_in_pages_and_a_deleted_one_leaves_nothing(world: World) -> None:
    jobs = make_store(world)
    for number in range(5):
        jobs.create(make_job(world, f"j{number}", None if number % 2 else f"r{number}"))
    found: list[Any] = []
    cursor = None
    while True:
        page, cursor = jobs.list_open(limit=2, cursor=cursor)
        found += page
        if cursor is None:
            break
    assert found == [("j0", "r0"), ("j1", None), ("j2", "r2"), ("j3", None), ("j4", "r4")]
    for job_id, owner in found:
        assert requests(world, lambda job_id=job_id, owner=owner: jobs.delete(job_id, owner=owner)) == 1
    assert world.scan(world.names.runs) == []


def test_the_newest_job_of_an_owner_comes_first(world: World) -> None:
    jobs = make_store(world)
    for number in range(3):
        jobs.create(make_job(world, f"j{number}"))
        world.clock.advance(seconds=1)
    assert [job.id for job in jobs.list_jobs("r")] == ["j2", "j1", "j0"]


def _with(job: Job, **fields: Any) -> Job:
    from dataclasses import replace

    return replace(job, **fields)
