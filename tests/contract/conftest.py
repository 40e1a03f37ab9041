"""The services that every storage contract runs on."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from botocore.config import Config

from agent_memory.aws.dynamodb import DynamoMessageStore, DynamoRunStore
from agent_memory.aws.meter import Meter
from agent_memory.aws.s3 import S3BlobStore
from agent_memory.messages import Message
from agent_memory.ports import ThreadHeader, TurnCommit, TurnRecord
from tests.support import tables
from tests.support.clocks import FakeClock
from tests.support.emulator import shared_emulator
from tests.support.faults import Faults

_CONFIG = Config(retries={"total_max_attempts": 1}, max_pool_connections=40)
_S3_CONFIG = _CONFIG.merge(Config(signature_version="s3v4"))


@dataclass
class World:
    """One set of empty tables and a bucket, and a store on them."""

    kind: str
    dynamodb: Any
    s3: Any
    names: tables.Names
    clock: FakeClock = field(default_factory=FakeClock)
    waits: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.faults = Faults(self.dynamodb)
        self.meter = Meter()
        self.meter.attach(self.dynamodb)
        self.meter.attach(self.s3)
        self.blobs = S3BlobStore(self.s3, self.names.bucket)
        self.store = self.make_store()
        self._ids = itertools.count(1)

    def make_store(self, **options: Any) -> DynamoMessageStore:
        """A store on the same tables; a second one stands for another process."""
        given = {
            "threads_table": self.names.threads,
            "messages_table": self.names.messages,
            "claims_table": self.names.claims,
            "blobs": self.blobs,
            "clock": self.clock,
            "sleep": self.waits.append,
        }
        return DynamoMessageStore(self.dynamodb, **{**given, **options})

    def make_runs(self, **options: Any) -> DynamoRunStore:
        """A run store."""
        given = {
            "runs_table": self.names.runs,
            "claims_table": self.names.claims,
            "blobs": self.blobs,
            "clock": self.clock,
            "sleep": self.waits.append,
        }
        return DynamoRunStore(self.dynamodb, **{**given, **options})

    def skip_on_moto(self, fault: str) -> None:
        """Skip a test because of a known fault of moto."""
        if self.kind == "moto":
            pytest.skip(f"moto: {fault}")

    def message(self, id: str, text: str = "", *, role: str = "user", **fields: Any) -> Message:
        """A message of now."""
        return Message.text_message(role, text or f"text of {id}", id=id, **{"created_at": self.clock(), **fields})  # type: ignore[arg-type]

    def turn(self, key: str, state: str = "running", *, run: str | None = None, **fields: Any) -> TurnRecord:
        """A turn record that began now and is dead in a minute."""
        return TurnRecord(
            key=key,
            state=state,  # type: ignore[arg-type]
            run_id=run or f"run-{key}",
            started_at=self.clock.ms,
            deadline=self.clock.ms + 60_000,
            **fields,
        )

    def commit(self, header: ThreadHeader | None, *messages: Message, thread: str = "t", **fields: Any) -> Any:
        """Commit messages to a thread of resource ``r``."""
        return self.store.commit(
            TurnCommit(thread, fields.pop("resource_id", "r"), header, appended=messages, **fields)
        )

    def ids(self, thread: str = "t", resource: str = "r") -> list[str]:
        """Ids of the messages that a thread shows, oldest first."""
        from agent_memory.ports import MessageQuery

        header = self.store.get_thread(resource, thread)
        if header is None:
            return []
        return [m.id for m in self.store.list_messages(header, MessageQuery(per_page=None)).messages]

    def scan(self, table: str) -> list[dict[str, Any]]:
        """All raw items of a table."""
        pages = self.dynamodb.get_paginator("scan").paginate(TableName=table, ConsistentRead=True)
        return [item for page in pages for item in page["Items"]]

    def objects(self) -> list[str]:
        """Keys of all objects in the bucket."""
        return [entry["Key"] for entry in self.s3.list_objects_v2(Bucket=self.names.bucket).get("Contents", [])]


@functools.cache
def _session() -> Any:
    """One session for all worlds: it reads the service descriptions once, and each client has hooks of its own."""
    import boto3
    import moto  # it hooks into sessions that are made after its import

    assert moto.__version__
    return boto3.session.Session(aws_access_key_id="test", aws_secret_access_key="test", region_name="us-east-1")


def _world(kind: str, endpoint: str | None) -> World:
    dynamodb = _session().client("dynamodb", config=_CONFIG, endpoint_url=endpoint)
    s3 = _session().client("s3", config=_S3_CONFIG, endpoint_url=endpoint)
    return World(kind, dynamodb, s3, tables.create(dynamodb, s3))


@pytest.fixture(params=["emulator", "moto"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """A fresh world on each service."""
    if request.param == "emulator":
        yield _world("emulator", shared_emulator().endpoint)
        return
    from moto import mock_aws

    with mock_aws():
        yield _world("moto", None)
