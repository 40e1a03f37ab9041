"""Records that were kept because they failed, applied by one command."""

import json

import pytest

from agent_memory import runtime
from agent_memory.aws.stream import read_kept
from agent_memory.errors import ModelError, StorageError
from agent_memory.jobs import replay
from agent_memory.local.hashing import HashingEmbedder
from agent_memory.local.index import EmbeddedIndex
from tests.support.indexing import Indexing


class Moody(HashingEmbedder):
    """Refuses texts with a word, for good or for a while."""

    def __init__(self):
        super().__init__()
        self.refuses, self.retryable = None, False

    def embed_passages(self, texts):
        if self.refuses and any(self.refuses in text for text in texts):
            raise ModelError("refused", retryable=self.retryable)
        return super().embed_passages(texts)


@pytest.fixture
def world():
    made = Indexing(EmbeddedIndex(":memory:", "hashing", 256), Moody())
    yield made
    made.close()


def given_up(world, event, name="2026-11-30T08.00.00-6f1c", *, text=True):
    """An object as Lambda writes it when it gives up a batch: what it knows of the call, and the event as text."""
    records = event["Records"]
    numbers = [record["dynamodb"]["SequenceNumber"] for record in records]
    content = {
        "requestContext": {
            "requestId": "316aa6d0-8154-4d22-9af7-85d5f4a6bc81",
            "functionArn": "arn:aws:lambda:us-east-1:123456789012:function:memory-indexer",
            "condition": "RetryAttemptsExhausted",
            "approximateInvokeCount": 8,
        },
        "responseContext": {"statusCode": 200, "executedVersion": "$LATEST", "functionError": "Unhandled"},
        "version": "1.0",
        "timestamp": "2026-11-30T08:00:00.000Z",
        "DDBStreamBatchInfo": {
            "shardId": "shardId-00000001573689847184-864758bb",
            "startSequenceNumber": numbers[0],
            "endSequenceNumber": numbers[-1],
            "approximateArrivalOfFirstRecord": "2026-11-29T08:00:00Z",
            "approximateArrivalOfLastRecord": "2026-11-29T08:00:01Z",
            "batchSize": len(records),
            "streamArn": "arn:aws:dynamodb:us-east-1:123456789012:table/messages/stream/2026-11-01T00:00:00.000",
        },
        "payload": json.dumps(event) if text else event,
    }
    key = f"aws/lambda/9a1b-mapping/shardId-00000001573689847184-864758bb/2026/11/30/{name}"
    world.blobs.put(key, json.dumps(content).encode())
    return key


def unanswered(world):
    """The events in the stream, handed to a function that fails them all and is given up."""
    lost = []

    def lose(event):
        lost.append(event)
        return {"batchItemFailures": []}

    own, world.change = world.change, lose
    world.deliver()
    world.change = own
    return lost


def test_what_the_embedder_refused_is_applied_once_it_takes_it(world):
    world.embedder.refuses = "poison"
    refused, kept = world.save("poison ivy", "green tea")
    world.deliver()
    assert [entry[2] for entry in world.indexed()] == [kept]
    (key,) = world.keys("indexer/refused/")

    job = world.job("replay")
    assert (job.state, job.progress["kept"], job.progress["failed"]) == ("finished", 1, 1)
    assert world.keys("indexer/refused/") == [key]

    world.embedder.refuses = None
    job = world.job("replay")
    assert (job.state, job.progress) == ("finished", {"records": 1, "removed": 1})
    assert world.keys("indexer/") == []
    assert world.indexed() == world.live(("r", "t"))
    assert refused in {entry[2] for entry in world.indexed()}


@pytest.mark.parametrize("text", [True, False])
def test_what_lambda_gave_up_is_applied_and_removed(world, text):
    world.save("green tea", "black coffee")
    for number, event in enumerate(unanswered(world)):
        given_up(world, event, f"batch-{number}", text=text)
    assert world.indexed() == []
    assert world.job("replay").state == "finished"
    assert world.indexed() == world.live(("r", "t"))
    assert world.keys("aws/lambda/") == []


def test_old_records_bring_back_nothing_that_changed_meanwhile(world):
    first, second, third = world.save("green tea", "black coffee", "mint")
    events = unanswered(world)
    world.edit(second, "espresso")
    world.remove(first)
    world.deliver()
    for number, event in enumerate(events):
        given_up(world, event, f"batch-{number}")
    world.job("replay")
    assert [(entry[2], entry[4]) for entry in world.indexed()] == [(second, 2), (third, 1)]
    assert world.indexed() == world.live(("r", "t"))


def test_what_fails_again_stays_and_holds_up_nothing(world):
    keys = []
    for text in ("green tea", "poison", "mint"):
        world.save(text)
        keys.append(given_up(world, unanswered(world)[0], text))
    world.embedder.refuses, world.embedder.retryable = "poison", True
    job = world.job("replay")
    assert job.state == "finished"
    assert (job.progress["removed"], job.progress["kept"]) == (2, 1)
    assert world.keys("aws/lambda/") == [keys[1]]
    assert len(world.indexed()) == 2


def test_an_object_that_is_something_else_is_left_where_it_is(world):
    world.blobs.put("aws/lambda/note.txt", b"hello")
    world.blobs.put("indexer/refused/2026/01/01/1.json", b'{"a": 1}')
    job = world.job("replay")
    assert (job.state, job.progress) == ("finished", {"unreadable": 2})
    assert len(world.keys("")) == 2


def test_more_objects_than_a_step_takes_and_a_crash_between_two_steps(world, monkeypatch):
    monkeypatch.setattr(replay, "OBJECTS", 2)
    for number in range(7):
        world.save(f"text {number}")
        given_up(world, unanswered(world)[0], f"{number}")
    own, steps = replay.step, []

    def crash(work):
        done = own(work)
        steps.append(done)
        if len(steps) in (1, 3):
            raise StorageError("the invocation ended here")
        return done

    monkeypatch.setattr(replay, "step", crash)
    with pytest.raises(StorageError):
        world.job("replay")
    with pytest.raises(StorageError):
        world.resume()
    assert world.resume().state == "finished"
    assert world.keys("aws/lambda/") == []
    assert world.indexed() == world.live(("r", "t"))


def test_files_of_removed_messages_are_followed_up_too_also_where_recall_is_off(world):
    body = "x" * 400_000
    world.save(body)
    unanswered(world)
    (stored,) = world.keys("o/")
    row = world.dynamodb.scan(TableName=world.names.messages)["Items"][0]
    world.dynamodb.delete_item(TableName=world.names.messages, Key={"pk": row["pk"], "sk": row["sk"]})
    given_up(world, unanswered(world)[0])
    assert world.keys("o/") == [stored]
    runtime.deployment().__dict__.update(index=None, embedder=None)
    assert world.job("replay").state == "finished"
    assert world.keys("") == []


def test_without_a_bucket_it_says_what_is_missing(world):
    runtime.deployment().__dict__.update(blobs=None)
    job = world.job("replay")
    assert job.state == "failed"
    assert "ATTACHMENTS_BUCKET" in job.error["message"]


@pytest.mark.parametrize(
    "data", [b"", b"[1]", b"{}", b'{"payload": "x"}', b'{"payload": {"Records": 1}}', b'[{"a": 1}]']
)
def test_objects_of_another_shape_are_told(data):
    with pytest.raises(StorageError, match="kept stream records"):
        read_kept(data)
