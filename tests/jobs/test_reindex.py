"""A new index beside the searched one: for another embedder, or made again for the same one."""

import contextlib
import random
import uuid

import pytest

from agent_memory import Memory, clock, runtime
from agent_memory.aws.opensearch import OpenSearchIndex, connect
from agent_memory.errors import ModelError, StorageError, UnavailableError
from agent_memory.jobs import reindex
from agent_memory.local.hashing import HashingEmbedder
from agent_memory.local.index import EmbeddedIndex, file_of
from agent_memory.messages import Message
from agent_memory.ports import Thread
from agent_memory.recall.naming import name_of
from tests.support.indexing import Indexing
from tests.support.opensearch_fake import OpenSearchFake
from tests.support.opensearch_node import node_url

THREADS = [("r", "t0"), ("r", "t1"), ("s", "t2")]


class Fresh(HashingEmbedder):
    """Another embedder: another id and dimension, and vectors that have nothing to do with the first one's."""

    id = "fresh"

    def __init__(self):
        super().__init__(48)
        self.texts = []
        self.error = None

    def embed_passages(self, texts):
        if self.error is not None:
            raise self.error
        self.texts += [text for text in texts if text != "word"]  # the job's own, which it begins with
        return super().embed_passages([text[::-1] for text in texts])

    def embed_query(self, text):
        return super().embed_query(text[::-1])


class World(Indexing):
    """A deployment with one embedder, another one to change to, and time that passes when a test says so."""

    def __init__(self, kind, folder, monkeypatch):
        self.fake = OpenSearchFake(serverless=kind == "collection") if kind in ("domain", "collection") else None
        self.client = connect(node_url(), timeout_s=30) if kind == "node" else self.fake and connect(self.fake.url)
        self.prefix = f"t-{uuid.uuid4().hex[:12]}"
        self.folder = folder
        moved = [0]
        own = clock.now_ms
        monkeypatch.setattr(clock, "now_ms", lambda: own() + moved[0])
        self.moved = moved
        self.fresh = Fresh()
        embedder = HashingEmbedder()
        super().__init__(self.open(embedder), embedder, settle=self.show)
        self.next_index = self.open(self.fresh)

    def open(self, embedder):
        """A handle of a process that starts now on an embedder's index."""
        if self.client is None:
            path = file_of(self.folder / "index.sqlite", name_of(embedder.id, embedder.dimension))
            return EmbeddedIndex(path, embedder.id, embedder.dimension)
        options = {"engine": "lucene"} if self.fake is None else {"serverless": self.fake.serverless}
        return OpenSearchIndex(
            self.client, embedder.id, embedder.dimension, prefix=self.prefix, sleep=lambda _: None, **options
        )

    def show(self):
        """Let everything written so far be found."""
        if self.fake is not None:
            self.fake.settle()
        elif self.client is not None:
            self.client.indices.refresh(index=f"{self.prefix}*")

    def announce(self):
        """Deploy with the next embedder named."""
        self.deploy(next_index=self.next_index, next_embedder=self.fresh)

    def change_over(self):
        """Deploy with the next embedder in use; all processes start anew."""
        self.deploy(index=self.open(self.fresh), embedder=self.fresh)

    def finish(self):
        """Let the job go on to its end, whatever it waits for."""
        job = runtime.services().jobs.get(self.job_id, owner=None)
        while not job.ended:
            self.settle()
            self.moved[0] += 200_000
            with contextlib.suppress(StorageError):  # what a test makes a step raise
                self.resume()
            job = runtime.services().jobs.get(self.job_id, owner=None)
        return job

    def close(self):
        super().close()
        if self.fake is not None:
            self.fake.close()
        elif self.client is not None:
            self.client.indices.delete(index=f"{self.prefix}*", ignore=[404])


@pytest.fixture(params=["embedded", "domain", "collection", pytest.param("node", marks=[pytest.mark.opensearch])])
def world(request, tmp_path, monkeypatch):
    monkeypatch.setattr(reindex, "PAGE", 3)
    made = World(request.param, tmp_path, monkeypatch)
    yield made
    made.close()


def whole(world, index=None):
    """Index and table agree about everything that is live."""
    assert world.indexed(index) == world.live(*THREADS)


def talk(world, count=9):
    for number in range(count):
        owner, thread = THREADS[number % 3]
        world.save(f"text {number}", owner=owner, thread=thread)
    world.deliver()


def test_a_change_of_the_embedder_loses_nothing_and_recall_goes_on_meanwhile(world):
    talk(world)
    world.announce()
    world.job("reindex")
    job = world.finish()
    assert (job.state, job.result) == ("finished", {"index": world.next_index.id})
    assert sorted(world.fresh.texts) == sorted(f"text {number}" for number in range(9))
    whole(world)
    whole(world, world.next_index)

    # Between the end of the job and the change of the setting both are kept.
    world.save("in between", owner="r", thread="t0")
    world.deliver()
    whole(world)
    whole(world, world.next_index)

    former = world.index.id
    world.change_over()
    (new,) = world.save("with the new one", owner="r", thread="t1")
    old_edit, old_gone = world.live(("r", "t0"))[0][2], world.live(("r", "t0"))[1][2]
    world.edit(old_edit, "changed long after", thread="t0")
    world.remove(old_gone, thread="t0")
    world.deliver()
    whole(world)
    assert new in {entry[2] for entry in world.indexed()}
    memory = Memory(storage=world.store, vector=world.index, embedder=world.embedder, semantic_recall=True)
    found = memory.recall("t0", resource_id="r", vector_search_string="changed long after")
    assert old_edit in [message.id for message in found.messages]

    assert world.job("drop-index", index=former).result == {"removed": True}
    assert world.job("drop-index", index=former).result == {"removed": False}
    whole(world)
    assert world.job("reconcile").progress.get("written", 0) == 0


def test_what_changes_while_the_index_is_built_is_right_in_both_whatever_the_order(world, monkeypatch):
    talk(world, 12)
    world.announce()
    own, seeded = reindex.step, random.Random(8)

    def step(work):
        done = own(work)
        for _ in range(seeded.randrange(3)):
            change(world, seeded)
        if seeded.random() < 0.7:
            world.deliver()
        return done

    monkeypatch.setattr(reindex, "step", step)
    world.job("reindex")
    world.finish()
    world.deliver()
    monkeypatch.setattr(reindex, "step", own)
    second_look(world)
    assert {row[2] for row in world.live(*THREADS)} >= {"m13"}
    for index in (world.index, world.next_index):
        assert newest(world, index) == world.live(*THREADS)


def change(world, seeded):
    owner, thread = seeded.choice(THREADS)
    live = world.live((owner, thread))
    kind = seeded.choice(["save", "edit", "remove"]) if live else "save"
    if kind == "save":
        world.save(f"new {seeded.random()}", owner=owner, thread=thread)
    elif kind == "edit":
        world.edit(seeded.choice(live)[2], f"edited {seeded.random()}", owner=owner, thread=thread)
    else:
        world.remove(seeded.choice(live)[2], owner=owner, thread=thread)


def second_look(world):
    world.settle()
    world.moved[0] += 200_000
    world.job("again")


def newest(world, index):
    """As `indexed`; doubles of a collection, which the daily reconcile removes, are let pass."""
    world.settle()
    page = index.scan(None, 1_000)
    return sorted((e.resource_id, e.thread_id, e.message_id, e.seq, e.version) for e in page.entries)


@pytest.mark.parametrize("at", range(6))
def test_it_goes_on_after_a_crash_at_any_step(world, monkeypatch, at):
    talk(world)
    world.announce()
    own, steps = reindex.step, []

    def step(work):
        done = own(work)
        steps.append(done)
        if len(steps) - 1 == at:
            world.settle()
            raise StorageError("the invocation ended before the step was kept")
        return done

    monkeypatch.setattr(reindex, "step", step)
    try:
        world.job("reindex")
    except StorageError:
        world.save("meanwhile", owner="s", thread="t2")
        world.deliver()
    assert world.finish().state == "finished"
    assert len(steps) > 4
    whole(world)
    whole(world, world.next_index)
    assert len(world.fresh.texts) == len(set(world.fresh.texts))  # nothing was embedded twice
    world.change_over()
    whole(world)


def test_a_copy_that_is_shown_after_the_walk_has_passed_it_is_in_the_new_index(world):
    talk(world, 3)
    header = world.store._reserve(Thread("clone", "s", clock.now(), clock.now()), rows=1)
    row = Message.text_message("user", "a copy", id="copy", created_at=clock.now())
    world.put_row("s", "clone", header.first_seq, row)
    world.deliver()  # its record has come by before the new index is begun
    world.announce()
    world.job("reindex")
    world.finish()
    world.store._publish_or_explain(header)
    world.deliver()
    assert ("s", "clone", "copy", 1, 1) in world.indexed()
    assert world.indexed(world.next_index) == world.indexed() == sorted(world.live(*THREADS, ("s", "clone")))


def test_an_index_is_made_again_for_the_same_embedder_without_a_change_of_settings(world):
    talk(world)
    job = world.job("reindex")
    job = world.finish()
    assert (job.state, job.progress["written"]) == ("finished", 9)
    whole(world)
    world.save("after it", owner="r", thread="t0")
    world.remove("m1", owner="r", thread="t0")
    world.deliver()
    whole(world)
    if world.fake is not None:
        assert list(world.fake.indexes) == [f"{world.index.id}.2"]


def test_an_embedder_changed_without_it_is_made_up_for_by_naming_the_former_index(world):
    talk(world)
    former = world.index.id
    world.change_over()
    world.save("with the new one", owner="r", thread="t0")
    world.deliver()
    assert len(world.indexed()) == 1
    world.job("reindex", stamps=[former])
    assert world.finish().state == "finished"
    whole(world)
    assert len(world.indexed()) == 10
    world.remove("m1", owner="r", thread="t0")
    world.deliver()
    whole(world)


def test_wish_8_after_an_outage_of_the_embedder_everything_is_recalled_again(world):
    """The stream gave its records up; the daily reconcile (or a replay of the kept ones) fills what is missing."""
    talk(world, 3)
    world.change = lambda _event: {"batchItemFailures": []}  # given up, and what was kept is lost too
    (lost,) = world.save("my bicycle is green", owner="r", thread="t0")
    world.edit("m1", "a bell for the bicycle", owner="r", thread="t0")
    world.remove("m2", owner="r", thread="t1")
    world.deliver()
    del world.change
    recall = {"top_k": 4, "message_range": 0, "scope": "resource"}
    memory = Memory(storage=world.store, vector=world.index, embedder=world.embedder, semantic_recall=recall)

    def recalled():
        found = memory.recall("t0", resource_id="r", vector_search_string="green bicycle")
        return {message.id: message.version for message in found.messages}

    assert lost not in recalled()
    world.moved[0] += 3_600_000
    assert world.job("reconcile").state == "finished"
    world.settle()
    assert recalled()[lost] == 1
    assert recalled()["m1"] == 2
    second_look(world)
    world.job("reconcile")
    whole(world)


def test_a_failing_next_embedder_holds_up_neither_stream_nor_recall_and_loses_nothing(world):
    talk(world, 3)
    world.announce()
    world.job("reindex")
    world.finish()
    world.fresh.error = ModelError("throttled", retryable=True)
    world.save("green tea", owner="r", thread="t0")
    world.remove("m2", owner="r", thread="t1")
    world.deliver()
    whole(world)
    assert all(answer == {"batchItemFailures": []} for answer in world.answers)
    assert len(world.keys("indexer/refused/")) == 1
    world.fresh.error = None
    assert world.job("replay").progress["removed"] == 1
    assert newest(world, world.next_index) == world.live(*THREADS)


def test_an_embedder_that_refuses_this_deployment_never_leaves_an_empty_index_in_place(world, monkeypatch):
    talk(world, 3)
    world.announce()
    world.fresh.error = ModelError("no such key", code="MODEL_ACCESS_DENIED", provider_status=401)
    job = world.job("reindex")
    assert (job.state, job.error["code"]) == ("failed", "MODEL_ACCESS_DENIED")
    world.fresh.error = None
    begin(world, monkeypatch)
    world.fresh.error = ModelError("no such key", code="MODEL_ACCESS_DENIED", provider_status=401)
    with pytest.raises(ModelError):
        world.resume()
    assert len(world.next_index.targets()) == 1, "it is still being built"
    world.fresh.error = None
    world.moved[0] += 3_600_000
    world.resume()
    assert world.finish().state == "finished"
    assert newest(world, world.next_index) == world.live(*THREADS)


def test_an_embedder_of_another_dimension_than_it_says_is_told_before_anything_is_built(world, monkeypatch):
    talk(world, 3)
    world.announce()
    monkeypatch.setattr(world.fresh, "embed_passages", lambda texts: [[1.0] * 64 for _ in texts])
    job = world.job("reindex")
    assert job.state == "failed" and "expected vectors of 48 dimensions of hashing, found 64" in job.error["message"]
    assert world.next_index.targets() == ()


def begin(world, monkeypatch):
    """Let a job run its first step alone."""
    own, steps = reindex.step, []

    def first_only(work):
        if steps:
            raise StorageError("the invocation ended here")
        steps.append(work)
        return own(work)

    monkeypatch.setattr(reindex, "step", first_only)
    with pytest.raises(StorageError):
        world.job("reindex")
    monkeypatch.setattr(reindex, "step", own)


def test_a_setting_that_is_changed_too_early_is_told_and_loses_nothing(world, monkeypatch):
    talk(world)
    world.announce()
    begin(world, monkeypatch)
    early = world.open(world.fresh)
    with pytest.raises(UnavailableError, match="being built"):
        early.ensure()
    assert world.finish().state == "finished"
    early.ensure()


def test_a_job_whose_embedder_is_not_configured_any_more_says_so(world, monkeypatch):
    talk(world)
    world.announce()
    begin(world, monkeypatch)
    world.deploy()
    job = world.resume()
    assert job.state == "failed"
    assert "NEXT_EMBEDDER" in job.error["message"]


def test_a_job_whose_index_is_gone_says_so(world, monkeypatch):
    talk(world)
    world.announce()
    begin(world, monkeypatch)
    assert world.index.drop(world.next_index.id)
    world.next_index = world.open(world.fresh)
    world.announce()
    job = world.resume()
    assert job.state == "failed"
    assert "start another job" in job.error["message"]


def test_the_indexes_in_use_cannot_be_dropped(world):
    talk(world, 1)
    world.announce()
    world.job("reindex")
    world.finish()
    for index in (world.index, world.next_index):
        job = world.job("drop-index", index=index.id)
        assert job.state == "failed"
        assert "not in use" in job.error["message"]
        whole(world, index)
