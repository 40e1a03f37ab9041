"""What the indexer does for files, beside the index and without one."""

import importlib.util
import json
from pathlib import Path

import pytest

from agent_memory import runtime
from agent_memory.errors import ModelError, NotFoundError, StorageError, UnavailableError
from agent_memory.local.hashing import HashingEmbedder
from agent_memory.local.index import EmbeddedIndex
from agent_memory.messages import Message
from agent_memory.ports import FileUse
from agent_memory.settings import Settings

APP = Path(__file__).resolve().parents[2] / "functions" / "indexer" / "app.py"
NAME = "a" * 64


class Rows:
    """Message m1, which refers to nothing any more."""

    def get_messages(self, resource_id, keys, *, consistent=True):
        return (Message.text_message("user", "tea", id="m1", thread_id="t", resource_id="r", seq=1, version=2),)

    def find(self, resource_id, thread_id, message_ids):
        return {"m1": 1}

    def references(self, resource_id, thread_id, message_ids):
        return {}


class Files:
    def __init__(self):
        self.error, self.released = None, []

    def uses(self, resource_id, uses):
        if self.error is not None:
            raise self.error
        return {use: "token" for use in uses if use not in self.released}

    def release(self, resource_id, use, token):
        self.released.append(use)
        return True


class Blobs:
    def __init__(self):
        self.kept, self.deleted, self.error = {}, [], None

    def put(self, key, data, content_type=None):
        if self.error is not None:
            raise self.error
        self.kept[key] = data

    def delete(self, keys):
        self.deleted += keys

    def get(self, key, *, max_bytes=None):
        raise NotFoundError(key)


class Embedder(HashingEmbedder):
    calls, error = 0, None

    def embed_passages(self, texts):
        if self.error is not None:
            raise self.error
        self.calls += 1
        return super().embed_passages(texts)


def record(number="1", **images):
    key = {"pk": {"S": "R#r#t"}, "sk": {"N": "1"}}
    row = {**key, "mid": {"S": "m1"}, "index": {"S": "hashing-256"}}
    old = {**row, "files": {"L": [{"S": NAME}]}, "body": {"S": "o/r/overflow/t/x"}}
    given = {"OldImage": old, "NewImage": row, **images}
    return {"dynamodb": {"Keys": key, "SequenceNumber": number, **{k: v for k, v in given.items() if v is not None}}}


class World:
    def __init__(self, handler, *, search):
        made = runtime.Deployment(Settings())
        self.handler, self.files, self.blobs, self.embedder = handler, Files(), Blobs(), Embedder()
        index = EmbeddedIndex(":memory:", "hashing", 256) if search else None
        vars(made).update(
            store=Rows(),
            files=self.files,
            blobs=self.blobs,
            embedder=self.embedder if search else None,
            index=index,
            next_index=None,
            next_embedder=None,
        )
        runtime.configure(made)

    def send(self, *records):
        answer = self.handler({"Records": list(records)}, None)
        return [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]


@pytest.fixture
def handler():
    spec = importlib.util.spec_from_file_location("indexer_app", APP)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module.handler
    runtime.configure(None)


@pytest.mark.parametrize("search", [True, False], ids=["with an index", "without one"])
def test_what_a_message_lost_is_let_go_of(handler, search):
    world = World(handler, search=search)
    assert world.send(record()) == []
    assert world.files.released == [FileUse(NAME, "t", "m1")]
    assert world.blobs.deleted == ["o/r/overflow/t/x"]
    assert world.embedder.calls == int(search)


def test_records_without_files_ask_nothing_of_files(handler):
    world = World(handler, search=False)
    world.files.error = AssertionError("asked")
    plain = record(OldImage=None)
    assert world.send(plain) == []


def test_a_busy_table_of_files_repeats_the_files_and_embeds_nothing_twice(handler):
    world = World(handler, search=True)
    world.files.error = UnavailableError("busy")
    assert world.send(record()) == ["1"]
    assert world.send(record()) == ["1"]
    assert world.embedder.calls == 1
    world.files.error = None
    assert world.send(record()) == []
    assert (world.embedder.calls, len(world.files.released)) == (1, 1)
    assert world.send(record()) == [], "a replay of the same record is indexed again"
    assert world.embedder.calls == 2


def test_a_busy_embedder_repeats_the_index_and_finds_the_files_done(handler):
    world = World(handler, search=True)
    world.embedder.error = ModelError("throttled", retryable=True)
    assert world.send(record()) == ["1"]
    assert world.send(record()) == ["1"]
    assert len(world.files.released) == 1


def test_what_no_repeat_mends_is_kept_and_does_not_hold_up_the_index(handler):
    world = World(handler, search=True)
    world.files.error = StorageError("no permission")
    assert world.send(record("1"), record("2")) == []
    ((key, data),) = world.blobs.kept.items()
    assert key.startswith("indexer/refused/")
    assert [kept["dynamodb"]["SequenceNumber"] for kept in json.loads(data)] == ["1", "2"]
    world.blobs.error = UnavailableError("busy")
    assert world.send(record("1"), record("2")) == ["1", "2"]
