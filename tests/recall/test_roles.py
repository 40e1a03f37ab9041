"""The roles of the indexer and the janitor allow what their code asks for, and the indexer may not change what it only reads."""

import json

import pytest

from agent_memory.aws.opensearch import OpenSearchIndex, connect
from agent_memory.errors import ModelError
from agent_memory.local.hashing import HashingEmbedder
from tests.support.indexing import Indexing
from tests.support.opensearch_fake import OpenSearchFake
from tests.support.roles import Asked, allows


class Refusing(HashingEmbedder):
    poison = "poison"

    def embed_passages(self, texts):
        if any(self.poison in text for text in texts):
            raise ModelError("refused", code="MODEL_REQUEST_REFUSED")
        return super().embed_passages(texts)


@pytest.fixture(params=["domain", "collection"])
def world(request):
    fake = OpenSearchFake(serverless=request.param == "collection")
    index = OpenSearchIndex(
        connect(fake.url), "hashing", 256, serverless=fake.serverless, alias="vectors", sleep=lambda _: None
    )
    made = Indexing(index, Refusing(), settle=fake.settle)
    made.fake = fake
    yield made
    made.close()
    fake.close()


def observed(world, act):
    """What `act` asks for."""
    asked = Asked(world.names)
    hooks = []
    for client in (world.dynamodb, world.s3):
        asked.attach(client)
        hooks.append((client, f"provide-client-params.{client.meta.service_model.service_name}.*", asked._note))
    before = len(world.fake.requests)
    act()
    for client, event, hook in hooks:
        client.meta.events.unregister(event, hook)
    asked.note_search(world.fake.requests[before:])
    return asked


def test_the_indexers_role_allows_all_that_the_indexer_does(world):
    first, second = world.save("green tea", "x" * 400_000)
    world.save("poison", thread="u")
    world.edit(first, "black coffee")
    world.remove(second)
    asked = observed(world, world.deliver)
    early = {action for action, _, _ in asked.found}
    assert {"dynamodb:BatchGetItem", "dynamodb:Query", "s3:PutObject", "es:ESHttpPost", "es:ESHttpPut"} <= early
    assert any("indexer/refused/" in resource for _, resource, _ in asked.found)
    assert any("indexer/again/" in resource for _, resource, _ in asked.found) == world.fake.serverless
    assert asked.refused("IndexerRole") == []


def test_the_janitors_role_allows_all_that_the_jobs_of_the_index_do(world):
    world.save("green tea", "poison")
    world.deliver()
    world.blobs.put("aws/lambda/a", json.dumps({"payload": {"Records": []}}).encode())
    world.embedder.poison = "nothing"

    def work():
        for kind in ("replay", "reconcile", "again", "reindex"):
            world.job(kind)
        world.job("drop-index", index="former")

    asked = observed(world, work)
    actions = {action for action, _, _ in asked.found}
    assert {"dynamodb:Scan", "s3:ListBucket", "s3:GetObject", "s3:DeleteObject", "es:ESHttpPut"} <= actions
    assert "es:ESHttpDelete" in actions or world.fake.serverless  # there the switch waits until all is visible
    assert asked.refused("JanitorRole") == []


@pytest.mark.parametrize(
    ("action", "resource"),
    [
        ("dynamodb:PutItem", "MessagesTable.Arn"),
        ("dynamodb:DeleteItem", "ThreadsTable.Arn"),
        ("dynamodb:Scan", "MessagesTable.Arn"),
        ("dynamodb:GetItem", "ClaimsTable.Arn"),
        ("s3:PutObject", "AttachmentsBucket.Arn/o/r/files/a"),
        ("s3:DeleteObject", "AttachmentsBucket.Arn/o/r/files/a"),
    ],
)
def test_the_indexer_may_not_change_what_it_only_reads(action, resource):
    assert not allows("IndexerRole", action, resource)
