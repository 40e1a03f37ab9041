"""What the page on memory processors promises about storage, counted in the raw tables of the emulator."""

from __future__ import annotations

import base64

import pytest

from agent_memory.agent.agent import Agent
from agent_memory.agent.result import MemoryArgs
from agent_memory.agent.services import Services
from agent_memory.aws.dynamodb import DynamoMessageStore
from agent_memory.local.hashing import HashingEmbedder
from agent_memory.local.index import EmbeddedIndex
from agent_memory.memory import Memory
from agent_memory.processors import AttachmentUploader, MessageHistory, TokenLimiter
from tests.support import tables
from tests.support.emulator import shared_emulator
from tests.support.fake_blobs import FakeBlobs
from tests.support.models import FakeModel, say

ARGS = MemoryArgs("t1", "ada")
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 2_000


@pytest.fixture
def dynamodb():
    return shared_emulator().client("dynamodb")


@pytest.fixture
def names(dynamodb):
    return tables.create(dynamodb)


@pytest.fixture
def store(dynamodb, names):
    return DynamoMessageStore(
        dynamodb, threads_table=names.threads, messages_table=names.messages, claims_table=names.claims, blobs=None
    )


@pytest.fixture
def counts(dynamodb, names):
    """How many items each table holds."""

    def count():
        return {
            name: dynamodb.scan(TableName=getattr(names, name), Select="COUNT", ConsistentRead=True)["Count"]
            for name in ("messages", "threads", "claims")
        }

    return count


@pytest.fixture
def items(dynamodb, names):
    def read():
        return dynamodb.scan(TableName=names.messages, ConsistentRead=True)["Items"]

    return read


NOTHING = {"messages": 0, "threads": 0, "claims": 0}


class ContentBlocker:
    id = "content-blocker"

    async def process_output_result(self, ctx):
        if any("inappropriate" in message.text for message in ctx.messages):
            ctx.abort("Content blocked by guardrail")
        return ctx.messages


class InputValidator:
    id = "input-validator"

    async def process_input(self, ctx):
        asked = next(message for message in reversed(ctx.messages) if message.role == "user")
        if "invalid" in asked.text:
            ctx.abort("Invalid input detected")
        return ctx.messages


def agent_of(store, model, *, memory=None, **fields):
    agent = Agent(
        "safe-agent",
        name="safe-agent",
        instructions="You are a helpful assistant",
        model=model,
        memory=Memory(storage=store, **{"last_messages": 10, **(memory or {})}),
        **fields,
    )
    return agent.bind(Services(store=store))


def test_an_output_guardrail_that_aborts_leaves_no_item_in_any_table(store, counts):
    agent = agent_of(
        store, FakeModel(say("inappropriate words"), say("kind words")), output_processors=[ContentBlocker()]
    )
    result = agent.generate("Hello", memory=ARGS)
    assert result.tripwire.reason == "Content blocked by guardrail"
    assert counts() == NOTHING
    agent.generate("Hello", memory=ARGS)
    assert counts()["messages"] == 2


def test_an_input_guardrail_that_aborts_leaves_no_item_and_calls_no_model(store, counts):
    model = FakeModel(say("hi"))
    agent = agent_of(store, model, input_processors=[InputValidator()])
    assert agent.generate("an invalid question", memory=ARGS).tripwire.reason == "Invalid input detected"
    assert counts() == NOTHING
    assert model.requests == []


def test_an_abort_in_a_known_thread_changes_no_item(store, items, dynamodb, names):
    model = FakeModel(say("hi"), say("inappropriate words"))
    agent = agent_of(store, model, input_processors=[InputValidator()], output_processors=[ContentBlocker()])
    agent.generate("Hello", memory=ARGS)
    before, header = items(), store.get_thread("ada", "t1")
    assert agent.generate("tell me", memory=ARGS).tripwire is not None
    assert agent.generate("invalid", memory=ARGS).tripwire is not None
    assert items() == before
    after = store.get_thread("ada", "t1")
    assert (after.thread, after.next_seq) == (header.thread, header.next_seq)


def test_last_messages_loads_ten_and_a_custom_history_of_twenty_takes_its_place(store, items):
    model = FakeModel(say("answer"))
    agent = agent_of(store, model)
    for n in range(12):
        agent.generate(f"question {n}", memory=ARGS)
    assert len(model.prompt()) == 11
    custom = agent_of(
        store,
        model,
        input_processors=[MessageHistory(storage=store, last_messages=20), TokenLimiter({"limit": 4000})],
    )
    custom.generate("now?", memory=ARGS)
    assert len(model.prompt()) == 21
    assert len(items()) == 26


def test_semantic_recall_stamps_new_rows_for_the_index_and_working_memory_is_shown(store, items):
    embedder = HashingEmbedder()
    index = EmbeddedIndex(":memory:", embedder.id, embedder.dimension)
    index.ensure()
    recalls = Memory(storage=store, vector=index, embedder=embedder, semantic_recall={"enabled": True})
    agent = Agent("semantic-agent", model=FakeModel(say("noted")), memory=recalls).bind(Services(store=store))
    agent.generate("my cat is Pebble", memory=ARGS)
    assert {item["index"]["S"] for item in items()} == {index.id}
    index.close()

    store.put_working_memory("ada", None, "# User\n- Name: Mira", expected_version=0)
    model = FakeModel(say("hello Mira"))
    agent_of(store, model, memory={"working_memory": {"enabled": True}}).generate("hi", memory=ARGS)
    assert "- Name: Mira" in model.system()


def test_an_attachment_over_the_item_limit_is_uploaded_and_its_reference_stored(store, items):
    blobs = FakeBlobs()
    url = "data:image/png;base64," + base64.b64encode(PNG).decode()
    assert len(url) > 400_000
    message = {
        "role": "user",
        "content": "what is it?",
        "experimental_attachments": [{"url": url, "contentType": "image/png", "name": "dot.png"}],
    }

    class SupportUploader(AttachmentUploader):
        def upload(self, data, content_type):
            blobs.put("support/1", data, content_type)
            return "https://files.example/support/1"

    agent = agent_of(store, FakeModel(say("a dot")), input_processors=[SupportUploader()])
    agent.generate([message], memory=ARGS)
    assert blobs.objects["support/1"] == PNG
    assert "https://files.example/support/1" in str(items())
    assert max(len(str(item)) for item in items()) < 2_000

    built_in = agent_of(store, FakeModel(say("a dot")), input_processors=[AttachmentUploader(blobs=blobs)])
    built_in.generate([message], memory=MemoryArgs("t2", "ada"))
    assert PNG in [data for key, data in blobs.objects.items() if key != "support/1"]
    assert "attachment://" in str(items())
    assert "base64" not in str(items())
