import itertools

import pytest

from agent_memory.aws.stream import read_change
from agent_memory.errors import ModelError, UnavailableError
from agent_memory.local.hashing import HashingEmbedder
from agent_memory.local.index import EmbeddedIndex
from agent_memory.messages import Message
from agent_memory.ports import IndexQuery
from agent_memory.recall.indexer import Indexer
from agent_memory.recall.targets import targets_of


class Rows:
    """The two reads of a message store that the indexer makes."""

    def __init__(self):
        self.rows = {}
        self.broken = False

    def put(self, seq, message_id, text, *, role="user", version=1, thread="t", owner="r"):
        self.rows[owner, thread, seq] = Message.text_message(
            role, text, id=message_id, thread_id=thread, resource_id=owner, seq=seq, version=version
        )

    def get_messages(self, resource_id, keys, *, consistent=True):
        if self.broken:
            raise UnavailableError("busy")
        return tuple(row for key in keys if (row := self.rows.get((resource_id, *key))))

    def find(self, resource_id, thread_id, message_ids):
        return {
            row.id: seq
            for (owner, thread, seq), row in self.rows.items()
            if (owner, thread) == (resource_id, thread_id) and row.id in message_ids
        }


class Picky(HashingEmbedder):
    """Counts what it embeds and refuses what a test says."""

    def __init__(self):
        super().__init__()
        self.texts = []
        self.error = None
        self.refuses = None

    def embed_passages(self, texts):
        self.texts += texts
        if self.error or (self.refuses and any(self.refuses in text for text in texts)):
            raise self.error or ModelError("refused", code="MODEL_REQUEST_REFUSED")
        return super().embed_passages(texts)


numbers = itertools.count(1)


def record(seq, new=None, old=None, *, stamp="hashing-256", thread="t", owner="r"):
    """A stream record as Lambda hands it over."""

    def image(message_id):
        item = {"pk": {"S": f"R#{owner}#{thread}"}, "sk": {"N": str(seq)}, "mid": {"S": message_id}}
        return item | ({"index": {"S": stamp}} if stamp else {})

    data = {
        "Keys": {"pk": {"S": f"R#{owner}#{thread}"}, "sk": {"N": str(seq)}},
        "SequenceNumber": f"{next(numbers):020d}",
        "ApproximateCreationDateTime": 1_700_000_000.0,
    }
    if new:
        data["NewImage"] = image(new)
    if old:
        data["OldImage"] = image(old)
    return {"dynamodb": data}


class World:
    def __init__(self, keep=None):
        self.store, self.embedder = Rows(), Picky()
        self.index = EmbeddedIndex(":memory:", "hashing", 256)
        self.index.ensure()
        self.keep = keep

    def apply(self, *records):
        indexer = Indexer(self.store, targets_of(self.index, self.embedder), keep=self.keep)
        return indexer.apply([read_change(item) for item in records])

    def found(self, text="tea"):
        hits = self.index.search(IndexQuery("r", 10, vector=self.embedder.embed_query(text), threshold=0.1))
        return [(hit.message_id, hit.seq) for hit in hits]


@pytest.fixture
def world():
    return World()


def test_a_new_row_is_indexed_and_a_removed_one_deleted(world):
    world.store.put(1, "a", "I like green tea")
    result = world.apply(record(1, new="a"))
    assert (result.written, result.failed) == (1, [])
    assert result.lag_s > 0
    assert world.found() == [("a", 1)]
    world.store.rows.clear()
    assert world.apply(record(1, old="a")).deleted == 1
    assert world.found() == []


def test_rows_without_this_index_as_their_stamp_are_left_alone(world):
    world.store.put(1, "a", "tea")
    world.store.put(2, "b", "tea")
    result = world.apply(record(1, new="a", stamp=None), record(2, new="b", stamp="other-8"))
    assert (result.written, result.skipped) == (0, 2)
    assert world.embedder.texts == []


def test_records_that_come_twice_late_or_out_of_order_end_at_what_the_table_holds(world):
    world.store.put(1, "a", "green tea, edited", version=2)
    insert, edit, removal = record(1, new="a"), record(1, new="a", old="a"), record(2, old="b")
    for batch in ([edit, insert], [insert, insert, removal], [removal, edit]):
        assert world.apply(*batch).failed == []
    assert world.found() == [("a", 1)]
    assert set(world.embedder.texts) == {"green tea, edited"}


def test_a_message_that_an_import_moved_keeps_its_entry_in_either_order_of_records(world):
    world.store.put(1, "a", "green tea")
    world.apply(record(1, new="a"))
    world.store.put(1, "early", "something older")
    world.store.put(2, "a", "green tea")
    moved, replaced = record(2, new="a"), record(1, new="early", old="a")
    for batch in ([moved, replaced], [replaced, moved], [moved], [replaced]):
        world.apply(*batch)
        assert ("a", 2) in world.found()


def test_an_edit_to_an_empty_text_removes_the_entry(world):
    world.store.put(1, "a", "tea")
    world.apply(record(1, new="a"))
    world.store.put(1, "a", "  ", version=2)
    world.apply(record(1, new="a", old="a"))
    assert world.found() == []


def test_case_82_each_message_of_a_batch_is_embedded_once_and_those_without_text_not_at_all(world):
    world.store.put(1, "a", "tea")
    world.store.put(2, "s", "rules", role="system")
    world.store.put(3, "e", "")
    world.apply(*[record(seq, new=name) for seq, name in ((1, "a"), (1, "a"), (2, "s"), (3, "e"))])
    assert world.embedder.texts == ["tea"]


def test_an_embedder_that_is_down_gives_all_records_back_and_a_repeat_mends_it(world):
    world.store.put(1, "a", "tea")
    world.store.put(2, "b", "more tea")
    batch = [record(1, new="a"), record(2, new="b")]
    world.embedder.error = ModelError("throttled", retryable=True)
    assert world.apply(*batch).failed == [item["dynamodb"]["SequenceNumber"] for item in batch]
    world.embedder.error = None
    assert world.apply(*batch).failed == []
    assert len(world.found()) == 2


def test_a_store_that_is_down_gives_the_records_back(world):
    world.store.put(1, "a", "tea")
    world.store.broken = True
    assert len(world.apply(record(1, new="a")).failed) == 1


def test_one_refused_message_is_kept_and_holds_up_nothing():
    kept = []
    world = World(keep=kept.extend)
    world.embedder.refuses = "poison"
    for seq, text in enumerate(("tea", "poison", "herbal tea"), 1):
        world.store.put(seq, f"m{seq}", text)
    batch = [record(seq, new=f"m{seq}") for seq in (1, 2, 3)]
    result = world.apply(*batch)
    assert (result.written, result.failed) == (2, [])
    assert result.refused == kept == [batch[1]["dynamodb"]["SequenceNumber"]]


def test_a_refused_message_among_many_is_found_by_halves():
    kept = []
    world = World(keep=kept.extend)
    world.embedder.refuses = "poison"
    for seq in range(1, 65):
        world.store.put(seq, f"m{seq}", "poison" if seq == 40 else f"tea {seq}")
    result = world.apply(*[record(seq, new=f"m{seq}") for seq in range(1, 65)])
    assert (result.written, len(kept), result.codes) == (63, 1, {"MODEL_REQUEST_REFUSED"})
    assert len(world.embedder.texts) < 200, "and not each message once more for the one"


@pytest.mark.parametrize("code", ["MODEL_ACCESS_DENIED", "MODEL_NOT_FOUND", "EMBEDDING_INVALID"])
def test_an_embedder_that_refuses_all_is_asked_once_and_the_stream_waits(code):
    kept = []
    world = World(keep=kept.extend)
    for seq in range(1, 21):
        world.store.put(seq, f"m{seq}", f"tea {seq}")
    batch = [record(seq, new=f"m{seq}") for seq in range(1, 21)]
    world.embedder.error = ModelError("no", code=code)
    result = world.apply(*batch)
    assert (len(result.failed), kept, result.codes) == (20, [], {code})
    assert len(world.embedder.texts) == 20
    world.embedder.error = None
    assert world.apply(*batch).written == 20


def test_an_embedder_that_goes_away_between_two_calls_of_a_batch_loses_nothing(world):
    for seq in range(1, 101):
        world.store.put(seq, f"m{seq}", f"tea {seq}")
    batch = [record(seq, new=f"m{seq}") for seq in range(1, 101)]
    own, calls = world.embedder.embed_passages, []

    def once(texts):
        calls.append(len(texts))
        if len(calls) == 2:
            raise ModelError("throttled", retryable=True)
        return own(texts)

    world.embedder.embed_passages = once
    assert len(world.apply(*batch).failed) == 100
    result = world.apply(*batch)
    assert (result.written, result.failed, calls) == (100, [], [64, 36, 64, 36])


def test_without_a_place_to_keep_it_a_refused_message_fails_alone(world):
    world.embedder.refuses = "poison"
    world.store.put(1, "a", "poison")
    world.store.put(2, "b", "tea")
    batch = [record(1, new="a"), record(2, new="b")]
    assert world.apply(*batch).failed == [batch[0]["dynamodb"]["SequenceNumber"]]
    assert world.found() == [("b", 2)]


def test_ids_with_special_characters_are_read_from_the_key():
    change = read_change(record(7, new="m", owner="a~hb", thread="t~ax"))
    assert (change.resource_id, change.thread_id, change.seq) == ("a#b", "t*x", 7)
    assert read_change({"dynamodb": {"Keys": {"pk": {"S": "R#r"}, "sk": {"S": "R"}}, "NewImage": {}}}) is None
