"""A memory over the real store, with DynamoDB and S3 emulated in this process."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

from agent_memory.aws.dynamodb import DynamoMessageStore
from agent_memory.memory import Memory
from agent_memory.messages import Message
from tests.support import tables
from tests.support.vectors import ListIndex, WordEmbedder, index_thread

START = datetime(2025, 3, 1, 10, tzinfo=UTC)


class Clock:
    """The clock of the store and of the memory: stands still until it is told to move."""

    def __init__(self) -> None:
        self.time = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.time

    def move(self, **by: float) -> None:
        self.time += timedelta(**by)


@dataclass
class Bench:
    """The store and what is around it."""

    store: DynamoMessageStore
    names: tables.Names
    dynamodb: Any
    clock: Clock
    index: ListIndex
    embedder: WordEmbedder

    def memory(self, **options: Any) -> Memory:
        return Memory(storage=self.store, vector=self.index, embedder=self.embedder, **options)

    def index_thread(self, resource_id: str, thread_id: str) -> None:
        index_thread(self.store, self.index, self.embedder, resource_id, thread_id)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """All raw items of a table."""
        return list(self.dynamodb.scan(TableName=getattr(self.names, table))["Items"])


@functools.cache
def _client() -> Any:
    # moto answers any client that was made after it was imported, as long as its mock is on; making one takes long
    import boto3

    return boto3.client("dynamodb", region_name="eu-west-1", aws_access_key_id="test", aws_secret_access_key="test")


@contextmanager
def bench(*, claims: bool = True) -> Iterator[Bench]:
    """A fresh set of tables."""
    from moto import mock_aws

    clock = Clock()
    with mock_aws(), patch("agent_memory.clock.now", clock):
        dynamodb = _client()
        names = tables.create(dynamodb)
        store = DynamoMessageStore(
            dynamodb,
            threads_table=names.threads,
            messages_table=names.messages,
            claims_table=names.claims if claims else None,
            clock=clock,
        )
        yield Bench(store, names, dynamodb, clock, ListIndex(), WordEmbedder())


def message(
    id: str,
    text: str = "",
    *,
    role: Any = "user",
    thread: str = "t1",
    owner: str = "ada",
    minute: int = 0,
    **content: Any,
) -> Message:
    """A message that is dated `minute` minutes after the tests' start."""
    made = Message.text_message(
        role, text or id, id=id, thread_id=thread, resource_id=owner, created_at=START + timedelta(minutes=minute)
    )
    return made.with_content(**content) if content else made


def conversation(count: int, *, thread: str = "t1", owner: str = "ada", prefix: str = "m") -> list[Message]:
    """`count` messages a minute apart, m01, m02…, user and assistant in turn."""
    return [
        message(
            f"{prefix}{n:02d}",
            f"text {n}",
            role="user" if n % 2 else "assistant",
            thread=thread,
            owner=owner,
            minute=n,
        )
        for n in range(1, count + 1)
    ]


def ids(messages: Any) -> list[str]:
    return [item.id for item in messages]
