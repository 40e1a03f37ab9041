"""The indexer on the real stream of the messages table: whatever happens to a message reaches the index."""

import pytest

from agent_memory.clock import now
from agent_memory.local.hashing import HashingEmbedder
from agent_memory.messages import Message
from agent_memory.ports import Thread
from tests.support.indexing import Indexing, at, opened

EMBEDDER = HashingEmbedder()


@pytest.fixture(params=["embedded", "domain", "collection", pytest.param("node", marks=[pytest.mark.opensearch])])
def world(request):
    with opened(request.param, EMBEDDER) as (index, settle):
        made = Indexing(index, EMBEDDER, settle=settle)
        yield made
        made.close()


def test_what_is_saved_edited_and_deleted_reaches_the_index(world):
    first, second, third = world.save("green tea", "black coffee", "red wine")
    world.deliver()
    assert world.indexed() == world.live(("r", "t"))
    assert len(world.indexed()) == 3

    world.edit(second, "white chocolate")
    world.remove(first)
    world.deliver()
    assert [entry[2:] for entry in world.indexed()] == [(second, 2, 2), (third, 3, 1)]
    assert world.indexed() == world.live(("r", "t"))
    assert all(answer == {"batchItemFailures": []} for answer in world.answers)


def test_rows_without_a_stamp_and_messages_without_a_text_stay_out(world):
    world.save("not recalled", stamp=None)
    world.save("of another index", stamp="other-8")
    world.save("   ", "rules for the model", role="system")
    kept = world.save("green tea")
    world.deliver()
    assert [entry[2] for entry in world.indexed()] == kept


def test_a_thread_that_is_emptied_or_deleted_is_gone_from_the_index_after_its_purge(world):
    world.save("green tea", "black coffee", thread="t")
    world.save("red wine", thread="u")
    world.deliver()
    world.store.clear_thread("r", "t")
    (later,) = world.save("mint", thread="t")
    world.store.delete_thread("r", "u")
    world.store.purge_thread("r", "t")
    world.store.purge_thread("r", "u")
    world.deliver()
    assert [entry[1:3] for entry in world.indexed()] == [("t", later)]
    assert world.indexed() == world.live(("r", "t"), ("r", "u"))


def test_a_clone_has_vectors_of_its_own(world):
    world.save("green tea", "black coffee")
    rows = world.store.latest("r", "t", 10)
    copies = [row.replace(id=f"copy of {row.id}", seq=None, version=None) for row in rows]
    world.store.build_thread(Thread("clone", "r", now(), now()), copies, index=world.index.id)
    world.deliver()
    assert world.indexed() == world.live(("r", "t"), ("r", "clone"))
    assert len(world.indexed()) == 4


def test_a_thread_that_changes_hands_is_found_by_its_new_owner_alone(world):
    world.save("green tea", "black coffee")
    world.deliver()
    world.store.transfer_thread("r", "t", "s")
    world.store.purge_thread("r", "t")
    world.deliver()
    assert {entry[0] for entry in world.indexed()} == {"s"}
    assert world.indexed() == world.live(("r", "t"), ("s", "t"))


def test_messages_that_an_import_moves_are_found_at_their_new_numbers(world):
    world.save("green tea", "black coffee")
    world.deliver()
    early = Message.text_message("user", "long ago", id="early", created_at=at("2001-01-01T00:00:00Z"))
    world.store.save_messages("r", "t", [early], index=world.index.id)
    world.deliver()
    assert world.indexed() == world.live(("r", "t"))
    assert {entry[2]: entry[3] for entry in world.indexed()} == {"early": 1, "m1": 2, "m2": 3}


def test_what_expires_leaves_the_index_with_the_record_of_its_removal(world):
    _gone, kept = world.save("green tea", "black coffee")
    world.deliver()
    world.dynamodb.delete_item(TableName=world.names.messages, Key={"pk": {"S": "R#r#t"}, "sk": {"N": "1"}})
    own = world.change

    def by_the_service(event):
        # The emulator removes expired items without a record; the service's own names it as the one who removed.
        for record in event["Records"]:
            record["userIdentity"] = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}
        return own(event)

    world.change = by_the_service
    world.deliver()
    assert [entry[2] for entry in world.indexed()] == [kept]
    assert world.events[-1]["Records"][0]["eventName"] == "REMOVE"


def test_ids_too_long_for_a_key_are_found_under_their_own_names(world):
    owner, thread = "ä" * 256, "x#y*" * 120
    world.save("green tea", owner=owner, thread=thread)
    world.deliver()
    assert [entry[:2] for entry in world.indexed()] == [(owner, thread)]
    world.remove("m1", owner=owner, thread=thread)
    world.deliver()
    assert world.indexed() == []


def test_a_record_that_fails_for_a_while_is_answered_and_comes_again(world):
    world.save("green tea")
    (second,) = world.save("black coffee")
    own, tries = world.embedder.embed_passages, []

    class Busy(HashingEmbedder):
        def embed_passages(self, texts):
            tries.append(texts)
            if len(tries) == 1:
                from agent_memory.errors import ModelError

                raise ModelError("throttled", retryable=True)
            return own(texts)

    world.deploy(embedder=Busy())
    world.deliver()
    assert [len(answer["batchItemFailures"]) for answer in world.answers] == [2, 0]
    assert world.indexed() == world.live(("r", "t"))
    assert second in {entry[2] for entry in world.indexed()}
