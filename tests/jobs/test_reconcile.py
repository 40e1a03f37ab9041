"""The daily comparison of the index with the table."""

import time
from datetime import timedelta

import pytest

from agent_memory import clock, runtime
from agent_memory.agent.services import Services
from agent_memory.errors import ModelError
from agent_memory.jobs import reconcile
from agent_memory.jobs.runner import Work
from agent_memory.local.hashing import HashingEmbedder
from agent_memory.messages import Message
from agent_memory.ports import Job, Thread
from agent_memory.recall.indexing import index_messages
from tests.support.indexing import Indexing, at, opened

LONG_AGO = at("2024-01-01T00:00:00Z")


class Counting(HashingEmbedder):
    def __init__(self):
        super().__init__()
        self.texts = []
        self.refuses = None
        self.error = None

    def embed_passages(self, texts):
        self.texts += texts
        if self.error is not None:
            raise self.error
        if self.refuses and any(self.refuses in text for text in texts):
            raise ModelError("refused", code="MODEL_REQUEST_REFUSED")
        return super().embed_passages(texts)


@pytest.fixture(params=["embedded", "domain", "collection", pytest.param("node", marks=[pytest.mark.opensearch])])
def world(request, monkeypatch):
    monkeypatch.setattr(reconcile, "PAGE", 3)
    monkeypatch.setattr(reconcile, "YOUNG", reconcile.YOUNG * 0)
    embedder = Counting()
    with opened(request.param, embedder) as (index, settle):
        made = Indexing(index, embedder, settle=settle)
        yield made
        made.close()


def put(world, seq, message_id, text, *, version=1, thread="t", owner="r", embedder=None):
    """A document that the indexer never wrote."""
    row = Message.text_message("user", text, id=message_id, created_at=LONG_AGO)
    row = row.replace(thread_id=thread, resource_id=owner, seq=seq, version=version)
    index_messages(world.index, embedder or HashingEmbedder(), [row])
    world.settle()


def test_what_never_reached_the_index_is_added_and_what_is_there_is_not_embedded_again(world):
    world.save("green tea", "black coffee", "red wine", "mint")
    world.deliver()
    missing = world.save("oolong", "espresso", thread="u") + world.save("champagne", owner="s", thread="v")
    world.save("no stamp", stamp=None)
    world.save("elsewhere", stamp="other-8")
    world.save("rules", role="system")
    world.embedder.texts.clear()

    job = world.job("reconcile")
    assert (job.state, job.progress["written"], job.progress.get("deleted", 0)) == ("finished", 3, 0)
    assert sorted(world.embedder.texts) == ["champagne", "espresso", "oolong"]
    assert [entry[2] for entry in world.indexed()] == ["m1", "m2", "m3", "m4", *missing]


def test_documents_without_a_live_row_go_and_no_others(world):
    kept = world.save("green tea", "black coffee")
    world.deliver()
    put(world, 7, "never was", "tea")
    put(world, 1, "other thread", "tea", thread="nowhere")
    put(world, 1, "other owner", "tea", owner="nobody")
    world.save("gone soon", thread="deleted")
    world.save("gone too", thread="emptied")
    world.deliver()
    world.store.delete_thread("r", "deleted")
    world.store.clear_thread("r", "emptied")

    job = world.job("reconcile")
    assert (job.state, job.progress["deleted"]) == ("finished", 5)
    assert [entry[2] for entry in world.indexed()] == kept
    assert dict(job.cursor) == {}  # nothing that names a message is kept


def test_what_expired_counts_as_gone(world):
    world.save("green tea", thread="t")
    (kept,) = world.save("black coffee", thread="u")
    world.deliver()
    world.store.update_thread("r", "t", expires_at=clock.now() + timedelta(seconds=0.3))
    time.sleep(0.4)
    assert world.job("reconcile").progress["deleted"] == 1
    assert [entry[2] for entry in world.indexed()] == [kept]


def test_a_document_of_another_version_or_place_is_written_again(world):
    first, second = world.save("green tea", "black coffee")
    world.edit(first, "white tea")
    world.deliver()
    put(world, 2, second, "black coffee", version=1)
    world.edit(second, "black coffee with sugar")  # and its record is lost
    job = world.job("reconcile")
    assert job.progress["written"] >= 1
    world.settle()
    world.job("reconcile")  # a collection does not show at once what was written, and may hold it twice until then
    assert world.indexed() == world.live(("r", "t"))
    world.embedder.texts.clear()
    assert world.job("reconcile").progress.get("written", 0) == 0
    assert world.embedder.texts == []


def test_what_a_clone_or_an_import_has_written_before_it_is_shown_stays(world):
    world.save("green tea")
    world.deliver()
    # A building header, and the row it will show.
    header = world.store._reserve(Thread("clone", "r", LONG_AGO, LONG_AGO), rows=1)
    row = Message.text_message("user", "a copy", id="copy", created_at=LONG_AGO)
    world.put_row("r", "clone", header.first_seq, row)
    world.deliver()
    coming = Message.text_message("user", "an import under way", id="coming", created_at=LONG_AGO)
    world.put_row("r", "t", 2, coming)
    world.deliver()

    assert world.job("reconcile").progress.get("deleted", 0) == 0
    assert {entry[2] for entry in world.indexed()} == {"m1", "copy", "coming"}
    world.store._abandon(header)


def test_it_goes_on_after_a_crash_at_any_step_without_embedding_twice(world):
    for n in range(8):
        world.save(f"text {n}", thread=f"t{n % 3}")
    for n in range(4):
        put(world, n + 1, f"dead {n}", "tea", thread="nowhere")
    services = runtime.services()
    work, steps, done = _work(services), 0, False
    while not done:
        before = dict(work.cursor)
        reconcile.step(work)
        # What the step came to is lost: the next invocation repeats it from the cursor that was kept.
        world.settle()
        work = _work(services, before)
        done = reconcile.step(work)
        steps += 1
    assert steps >= 4
    assert sorted(world.embedder.texts) == sorted(f"text {n}" for n in range(8))
    assert world.indexed() == world.live(*[("r", f"t{n}") for n in range(3)])


def _work(services: Services, cursor=None) -> Work:
    job = Job(id="j", kind="reconcile", owner=None, created_at=clock.now(), updated_at=clock.now())
    return Work(services, job, cursor=dict(cursor or {}))


def test_messages_of_the_last_minutes_are_left_to_the_indexer(world, monkeypatch):
    monkeypatch.undo()
    world.save("just said")
    assert world.job("reconcile").progress.get("written", 0) == 0


def test_an_embedder_that_is_away_stops_it_where_it_is_and_a_refused_message_does_not(world):
    world.save("green tea", "poison", "black coffee")
    world.embedder.error = ModelError("throttled", retryable=True)
    with pytest.raises(ModelError):
        world.job("reconcile")
    assert world.indexed() == []
    world.embedder.error, world.embedder.refuses = None, "poison"
    job = world.job("reconcile")
    assert (job.state, job.progress["written"], job.progress["refused"]) == ("finished", 2, 1)


def test_without_recall_there_is_nothing_to_do():
    assert reconcile.step(_work(Services())) is True


def test_a_row_that_is_deleted_while_it_is_embedded_leaves_no_document(world, monkeypatch):
    (gone,) = world.save("green tea")

    class Slow(HashingEmbedder):
        def embed_passages(self, texts):
            if world.store.find("r", "t", [gone]):
                world.remove(gone)
            return super().embed_passages(texts)

    world.deploy(embedder=Slow())
    world.job("reconcile")
    world.settle()
    later = clock.now_ms() + 100_000
    monkeypatch.setattr(clock, "now_ms", lambda: later)
    world.job("again")
    assert world.indexed() == []
