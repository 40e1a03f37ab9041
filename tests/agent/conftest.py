"""A real store on the emulator for the agent's tests."""

from __future__ import annotations

import pytest

from agent_memory.agent.agent import Agent
from agent_memory.agent.result import MemoryArgs, RunOptions
from agent_memory.agent.services import Services
from agent_memory.aws.dynamodb import DynamoMessageStore
from agent_memory.memory import Memory
from tests.support import tables
from tests.support.emulator import shared_emulator


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
def make_agent(store):
    def make(model, *, services=None, memory=None, **more):
        options = {"last_messages": 10, **(memory or {})}
        agent = Agent("helper", model=model, memory=Memory(storage=store, **options), **more)
        return agent.bind(services or Services(store=store))

    return make


class Chat:
    """One thread as a test talks to it."""

    def __init__(self, agent, store, dynamodb, names, thread="t1", resource="ada"):
        self.agent, self.store, self.dynamodb, self.names = agent, store, dynamodb, names
        self.thread, self.resource = thread, resource

    def send(self, messages, *, title=None, metadata=None, memory=None, **options):
        args = MemoryArgs(self.thread, self.resource, title=title, metadata=metadata, options=memory)
        return self.agent.generate(messages, memory=args, options=RunOptions(**options))

    def stream(self, messages, *, memory=None, **options):
        args = MemoryArgs(self.thread, self.resource, options=memory)
        return self.agent.stream(messages, memory=args, options=RunOptions(**options))

    def rows(self):
        """Stored messages, read through the store."""
        from agent_memory.ports import MessageQuery

        header = self.store.get_thread(self.resource, self.thread)
        return [] if header is None else list(self.store.list_messages(header, MessageQuery(per_page=None)).messages)

    def raw_count(self):
        """Items in the message table, counted without our own API."""
        return self.dynamodb.scan(TableName=self.names.messages, Select="COUNT", ConsistentRead=True)["Count"]

    def said(self):
        """Role and text of the stored messages."""
        return [(row.role, row.text) for row in self.rows()]


@pytest.fixture
def chat(make_agent, store, dynamodb, names):
    def make(model, **more):
        return Chat(make_agent(model, **more), store, dynamodb, names)

    return make
