"""Stream records are handed over by the rules of an event source mapping."""

from __future__ import annotations

import time
import uuid

import pytest

from infra.local.background import DeadLetters
from infra.local.streams import Checkpoints, StreamFeeder
from infra.local.template import StreamMapping
from tests.support.emulator import shared_emulator


@pytest.fixture
def table():
    """A fresh table with a stream: its name and the stream's ARN."""

    name = f"stream-{uuid.uuid4().hex[:8]}"
    dynamodb = shared_emulator().client("dynamodb")
    dynamodb.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    )
    return name, dynamodb.describe_table(TableName=name)["Table"]["LatestStreamArn"]


def put(table, *names):
    dynamodb = shared_emulator().client("dynamodb")
    for name in names:
        dynamodb.put_item(TableName=table[0], Item={"pk": {"S": name}})


class Indexer:
    """Keeps the keys of each batch; answers by the keys it is told to fail."""

    def __init__(self, *, raises=(), reports=()):
        self.raises = raises
        self.reports = reports
        self.batches: list[list[str]] = []
        self.events: list[dict] = []

    def __call__(self, name, event):
        keys = [record["dynamodb"]["Keys"]["pk"]["S"] for record in event["Records"]]
        self.batches.append(keys)
        self.events.append(event)
        if any(key in self.raises for key in keys):
            raise ValueError("poison")
        failed = [
            {"itemIdentifier": record["dynamodb"]["SequenceNumber"]}
            for record, key in zip(event["Records"], keys, strict=True)
            if key in self.reports
        ]
        return {"batchItemFailures": failed}


def feeder(table, function, checkpoints=None, dead=None, **rules):
    mapping = StreamMapping(
        "IndexerFunction",
        "MessagesTable",
        **{"batch_size": 10, "window_s": 0, "retries": 2, "bisect": False, "partial": True, **rules},
    )
    client = shared_emulator().client("dynamodbstreams")
    return StreamFeeder(
        client, table[1], mapping, function, checkpoints or Checkpoints(None), dead or DeadLetters(None)
    )


def drain(feeding):
    while feeding.poll():
        pass


def test_records_arrive_in_order_and_in_lambdas_form(table):
    put(table, "a", "b")
    indexer = Indexer()
    drain(feeder(table, indexer))

    assert indexer.batches == [["a", "b"]]
    record = indexer.events[0]["Records"][0]
    assert record["eventSource"] == "aws:dynamodb"
    assert record["eventName"] == "INSERT"
    assert record["eventSourceARN"] == table[1]
    assert record["dynamodb"]["NewImage"] == {"pk": {"S": "a"}}
    assert isinstance(record["dynamodb"]["ApproximateCreationDateTime"], float)


def test_reading_goes_on_after_the_checkpoint(table, tmp_path):
    put(table, "a")
    drain(feeder(table, Indexer(), Checkpoints(tmp_path / "stream.json")))
    put(table, "b")
    again = Indexer()
    drain(feeder(table, again, Checkpoints(tmp_path / "stream.json")))

    assert again.batches == [["b"]]


def test_a_checkpoint_that_the_stream_does_not_know_starts_at_the_oldest_record(table, tmp_path):
    put(table, "a")
    checkpoints = Checkpoints(tmp_path / "stream.json")
    client = shared_emulator().client("dynamodbstreams")
    shard = client.describe_stream(StreamArn=table[1])["StreamDescription"]["Shards"][0]["ShardId"]
    checkpoints.put(shard, "1" * 30)
    indexer = Indexer()
    drain(feeder(table, indexer, checkpoints))

    assert indexer.batches == [["a"]]


def test_a_partial_answer_moves_on_to_the_first_failed_record(table):
    put(table, "a", "b", "c")
    indexer = Indexer(reports={"b"})
    dead = DeadLetters(None)
    drain(feeder(table, indexer, dead=dead))

    assert indexer.batches == [["a", "b", "c"], ["b", "c"], ["b", "c"]]
    assert [record["dynamodb"]["Keys"]["pk"]["S"] for record in dead.written[0]["payload"]] == ["b", "c"]


def test_without_partial_answers_a_report_of_failures_is_ignored_as_on_aws(table):
    put(table, "a")
    indexer = Indexer(reports={"a"})
    drain(feeder(table, indexer, partial=False))

    assert indexer.batches == [["a"]]


def test_halving_isolates_a_poisoned_record_and_the_stream_goes_on(table):
    put(table, "a", "b", "bad", "d")
    indexer = Indexer(raises={"bad"})
    dead = DeadLetters(None)
    feeding = feeder(table, indexer, dead=dead, bisect=True, retries=3)
    drain(feeding)
    put(table, "e")
    drain(feeding)

    done = [key for batch in indexer.batches if "bad" not in batch for key in batch]
    assert done == ["a", "b", "d", "e"]
    assert [record["dynamodb"]["Keys"]["pk"]["S"] for letter in dead.written for record in letter["payload"]] == ["bad"]


def test_stopping_hands_over_what_is_in_the_stream(table):
    indexer = Indexer()
    feeding = feeder(table, indexer)
    feeding.start()
    put(table, "a", "b", "c")
    feeding.stop()

    assert [key for batch in indexer.batches for key in batch] == ["a", "b", "c"]


def test_records_that_fail_while_the_stack_stops_come_again_after_the_start(table, tmp_path):
    put(table, "a", "b", "c")
    broken = Indexer(raises=("a", "b", "c"))
    before = feeder(table, broken, Checkpoints(tmp_path / "stream.json"))
    before.start()
    while not broken.batches:
        time.sleep(0.01)
    put(table, "d")
    before.stop()
    assert [file.name for file in tmp_path.iterdir() if file.suffix == ".left"] == ["stream.left"]

    whole = Indexer()
    after = feeder(table, whole, Checkpoints(tmp_path / "stream.json"))
    after.start()
    after.stop()
    handed_over = {key for batch in whole.batches for key in batch}
    assert handed_over >= {"a", "b", "c"}
    assert "d" in handed_over | set(broken.batches[-1])
    assert not (tmp_path / "stream.left").exists()
