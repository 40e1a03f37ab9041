"""Deletions on a serverless collection, which finds only what it was given a minute ago."""

import json

import pytest

from agent_memory import clock
from agent_memory.aws.opensearch import VISIBLE_AFTER_S, OpenSearchIndex, connect
from agent_memory.local.hashing import HashingEmbedder
from agent_memory.local.index import EmbeddedIndex
from agent_memory.ports import IndexQuery
from agent_memory.recall import later
from tests.support.fake_blobs import FakeBlobs
from tests.support.indexing import Indexing
from tests.support.opensearch_fake import REFRESH_S, OpenSearchFake


class World(Indexing):
    """On a collection whose clock and ours move together, and only when a test says so."""

    def __init__(self, monkeypatch):
        self.fake = OpenSearchFake(serverless=True)
        self._moved_ms = 0
        own = clock.now_ms
        monkeypatch.setattr(clock, "now_ms", lambda: own() + self._moved_ms)
        index = OpenSearchIndex(
            connect(self.fake.url), "hashing", 256, serverless=True, alias="vectors", sleep=lambda _: None
        )
        super().__init__(index, HashingEmbedder())

    def pass_s(self, seconds):
        self.fake.now += seconds
        self._moved_ms += int(seconds * 1000)

    def documents(self):
        return sorted(document["message"] for document in self.fake.documents())

    def close(self):
        super().close()
        self.fake.close()


@pytest.fixture
def world(monkeypatch):
    made = World(monkeypatch)
    yield made
    made.close()


def test_a_message_written_just_before_its_deletion_does_not_survive(world):
    (gone,) = world.save("green tea")
    (kept,) = world.save("black coffee")
    world.deliver()
    world.remove(gone)
    world.deliver()
    world.pass_s(REFRESH_S + 1)
    # The first deletion found nothing to delete, because nothing was visible.
    assert world.documents() == sorted([gone, kept])

    assert world.job("again").progress.get("looked_at", 0) == 0  # not due yet
    world.pass_s(VISIBLE_AFTER_S)
    job = world.job("again")
    assert (job.state, job.progress["looked_at"], job.progress["deleted"]) == ("finished", 1, 1)
    assert world.documents() == [kept]
    assert world.keys(later.PREFIX) == []


def test_a_whole_thread_of_fresh_messages_is_gone_after_the_second_look(world):
    world.save(*[f"text {n}" for n in range(30)])
    world.deliver()
    world.store.delete_thread("r", "t")
    world.store.purge_thread("r", "t")
    world.deliver()
    world.pass_s(VISIBLE_AFTER_S + 1)
    assert world.job("again").progress["deleted"] == 30
    assert world.documents() == []


def test_the_old_text_of_a_message_edited_at_once_does_not_stay_beside_the_new_one(world):
    (message,) = world.save("green tea")
    world.deliver()
    world.edit(message, "black coffee")
    world.deliver()
    world.pass_s(VISIBLE_AFTER_S + 1)
    assert world.documents() == [message, message]
    world.job("again")
    world.pass_s(REFRESH_S + 1)
    assert world.documents() == [message]
    (hit,) = world.index.search(IndexQuery("r", 3, vector=world.embedder.embed_query("green tea")))
    assert hit.version == 2


def test_a_message_that_came_back_under_its_id_is_not_deleted(world):
    (message,) = world.save("green tea")
    world.deliver()
    world.remove(message)
    world.deliver()
    row = world.store.latest("r", "t", 5)
    assert row == ()
    world.store.save_messages("r", "t", [_like(message, "green tea, again")], index=world.index.id)
    world.deliver()
    world.pass_s(VISIBLE_AFTER_S + 1)
    world.job("again")
    world.pass_s(REFRESH_S + 1)
    assert world.indexed() == world.live(("r", "t"))
    assert len(world.indexed()) == 1


def _like(message_id, text):
    from agent_memory.messages import Message

    return Message.text_message("user", text, id=message_id, created_at=clock.now())


def test_what_is_only_new_needs_no_second_look_and_what_is_kept_holds_ids_alone(world):
    (first,) = world.save("green tea")
    world.deliver()
    assert world.keys(later.PREFIX) == []
    world.remove(first)
    world.deliver()
    (key,) = world.keys(later.PREFIX)
    assert json.loads(world.blobs.get(key)) == {"places": [["r", "t", first]]}


def test_a_bucket_that_does_not_answer_gives_the_deletion_back_to_the_stream(world, monkeypatch):
    from agent_memory.errors import UnavailableError

    (first,) = world.save("green tea")
    world.deliver()
    world.remove(first)
    own, tries = world.blobs.put, []

    def put(*args):
        tries.append(args)
        if len(tries) == 1:
            raise UnavailableError("busy")
        return own(*args)

    monkeypatch.setattr(world.blobs, "put", put)
    world.deliver()
    assert [len(answer["batchItemFailures"]) for answer in world.answers[1:]] == [1, 0]
    assert len(world.keys(later.PREFIX)) == 1


def test_the_hourly_sweep_takes_it_up(world):
    (first,) = world.save("green tea")
    world.deliver()
    world.remove(first)
    world.deliver()
    world.pass_s(VISIBLE_AFTER_S + 1)
    job = world.job("sweep")
    assert job.state == "finished"
    assert world.documents() == []


def test_an_index_that_shows_at_once_what_is_written_needs_none_of_it():
    made = Indexing(EmbeddedIndex(":memory:", "hashing", 256), HashingEmbedder())
    try:
        (first,) = made.save("green tea")
        made.deliver()
        made.remove(first)
        made.deliver()
        assert made.indexed() == []
        assert made.keys("indexer/") == []
    finally:
        made.close()


def test_the_oldest_are_due_first_and_none_before_its_time(monkeypatch):
    blobs, now = FakeBlobs(), [1_000_000]
    monkeypatch.setattr(clock, "now_ms", lambda: now[0])
    later.put_off(blobs, [("r", "t", "b")], 90)
    now[0] -= 50_000
    later.put_off(blobs, [("r", "t", "a")], 90)
    assert later.due(blobs, limit=10) == ()
    now[0] += 91_000
    (key,) = later.due(blobs, limit=10)
    assert later.read(blobs, key) == [("r", "t", "a")]
    now[0] += 100_000
    assert [later.read(blobs, key)[0][2] for key in later.due(blobs, limit=10)] == ["a", "b"]
