import importlib.util
import json
from pathlib import Path

import pytest

from agent_memory import runtime
from agent_memory.errors import ModelError
from agent_memory.local.hashing import HashingEmbedder
from agent_memory.local.index import EmbeddedIndex
from agent_memory.messages import Message
from agent_memory.ports import IndexQuery
from agent_memory.settings import Settings
from tests.support.operator_log import on_lambda

APP = Path(__file__).resolve().parents[2] / "functions" / "indexer" / "app.py"


class Rows:
    def __init__(self, *rows):
        self.rows = rows

    def get_messages(self, resource_id, keys, *, consistent=True):
        return tuple(row for row in self.rows if (row.thread_id, row.seq) in keys)

    def find(self, resource_id, thread_id, message_ids):
        return {row.id: row.seq for row in self.rows if row.id in message_ids}


class Blobs:
    def __init__(self):
        self.kept = {}

    def put(self, key, data, content_type=None):
        self.kept[key] = data


class Refusing(HashingEmbedder):
    """Refuses one text for good, and another until it is told otherwise."""

    busy = True

    def embed_passages(self, texts):
        if any("poison" in text for text in texts):
            raise ModelError("refused", code="MODEL_REQUEST_REFUSED")
        if self.busy and any("later" in text for text in texts):
            raise ModelError("throttled", retryable=True)
        return super().embed_passages(texts)


def record(number, message_id):
    key = {"pk": {"S": "R#r#t"}, "sk": {"N": str(number)}}
    image = {**key, "mid": {"S": message_id}, "index": {"S": "hashing-256"}}
    return {"dynamodb": {"Keys": key, "NewImage": image, "SequenceNumber": str(number)}}


def row(seq, text):
    return Message.text_message("user", text, id=f"m{seq}", thread_id="t", resource_id="r", seq=seq, version=1)


@pytest.fixture
def handler():
    spec = importlib.util.spec_from_file_location("indexer_app", APP)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module.handler
    runtime.configure(None)


def deploy(*rows, embedder=None):
    made = runtime.Deployment(Settings())
    made.__dict__.update(
        store=Rows(*rows),
        embedder=embedder or HashingEmbedder(),
        index=EmbeddedIndex(":memory:", "hashing", 256),
        blobs=Blobs(),
    )
    runtime.configure(made)
    return made


def test_records_reach_the_index_and_the_metrics_hold_no_text(handler):
    made = deploy(row(1, "green tea"), row(2, "red wine"))
    with on_lambda("indexer") as log:
        assert handler({"Records": [record(1, "m1"), record(2, "m2")]}, None) == {"batchItemFailures": []}
    query = IndexQuery("r", 1, vector=made.embedder.embed_query("tea"))
    assert [hit.message_id for hit in made.index.search(query)] == ["m1"]
    assert log.metrics == {"ColdStarts": 1, "IndexLag": 0, "IndexedMessages": 2}
    assert log.of("a batch was indexed")[0]["IndexFailures"] == 0
    assert "tea" not in log.text


def test_a_record_that_may_pass_later_is_answered_and_one_that_never_will_is_kept_whole(handler):
    embedder = Refusing()
    made = deploy(row(1, "poison"), embedder=embedder)
    assert handler({"Records": [record(1, "m1")]}, None) == {"batchItemFailures": []}
    ((key, data),) = made.blobs.kept.items()
    assert key.startswith("indexer/refused/")
    assert json.loads(data) == [record(1, "m1")]
    deploy(row(2, "later"), embedder=embedder)
    event = {"Records": [record(2, "m2")]}
    assert handler(event, None) == {"batchItemFailures": [{"itemIdentifier": "2"}]}
    embedder.busy = False
    assert handler(event, None) == {"batchItemFailures": []}


def test_without_an_embedder_there_is_nothing_to_do(handler):
    runtime.configure(runtime.Deployment(Settings()))
    assert handler({"Records": [record(1, "m1")]}, None) == {"batchItemFailures": []}


def test_records_of_other_items_are_passed_over(handler):
    deploy()
    other = {"dynamodb": {"Keys": {"pk": {"S": "R#r"}, "sk": {"S": "R"}}, "NewImage": {}, "SequenceNumber": "5"}}
    assert handler({"Records": [other]}, None) == {"batchItemFailures": []}
