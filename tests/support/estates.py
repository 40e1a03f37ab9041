"""Everything a resource can have in every store of a deployment, and a look at all that is stored."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_memory import clock
from agent_memory._json import dumps, freeze
from agent_memory.agent.services import Services
from agent_memory.attachments import owner_prefix, reference_to
from agent_memory.aws.dynamodb import DynamoMessageStore, DynamoRunStore, keys
from agent_memory.aws.dynamodb.files import DynamoFileStore
from agent_memory.aws.dynamodb.jobs import DynamoJobStore
from agent_memory.aws.s3 import S3BlobStore
from agent_memory.local.index import EmbeddedIndex
from agent_memory.local.signing import FileSigner
from agent_memory.messages import Message
from agent_memory.messages.message import message_from_json
from agent_memory.ports import MessageQuery, SuspendedRun, Thread
from agent_memory.ports.archive import BlobVersion
from agent_memory.ports.files import FileRecord
from agent_memory.ports.jobs import Job
from agent_memory.recall.indexing import index_messages
from tests.support import tables
from tests.support.clocks import FakeClock
from tests.support.vectors import DIMENSION, WordEmbedder

LARGE = 310_000  # bytes of a message that is kept in the bucket
TABLES = ("threads", "messages", "runs", "claims")


class Crash(BaseException):
    """The process ends here."""


@dataclass
class Estate:
    """A deployment on real stores, whose clock a test moves, and which can be made to crash."""

    dynamodb: Any
    s3: Any
    folder: Path
    clock: FakeClock
    names: tables.Names = field(init=False)
    services: Services = field(init=False)
    calls: int = 0
    crash_at: int | None = None

    def __post_init__(self) -> None:
        self.names = tables.create(self.dynamodb, self.s3)
        for client in (self.dynamodb, self.s3):
            service = client.meta.service_model.service_id.hyphenize()
            client.meta.events.register_last(f"after-call.{service}.*", self._count)
        names = self.names
        blobs = S3BlobStore(self.s3, names.bucket)
        at = {"clock": self.clock, "sleep": lambda _: None}
        self.services = Services(
            store=DynamoMessageStore(
                self.dynamodb,
                threads_table=names.threads,
                messages_table=names.messages,
                claims_table=names.claims,
                runs_table=names.runs,
                blobs=blobs,
                **at,
            ),
            runs=DynamoRunStore(self.dynamodb, runs_table=names.runs, claims_table=names.claims, blobs=blobs, **at),
            jobs=DynamoJobStore(self.dynamodb, runs_table=names.runs, **at),
            files=DynamoFileStore(self.dynamodb, runs_table=names.runs, threads_table=names.threads, **at),
            blobs=blobs,
            index=EmbeddedIndex(":memory:", "words", DIMENSION),
            embedder=WordEmbedder(),
            signer=FileSigner(self.folder / "receipt.key"),
        )

    def _count(self, **_: Any) -> None:
        self.calls += 1
        if self.crash_at is not None and self.calls >= self.crash_at:
            raise Crash

    def message(self, id: str, text: str, **fields: Any) -> Message:
        return Message.text_message("user", text, id=id, created_at=self.clock(), **fields)

    # -- what is stored

    def items(self) -> dict[str, str]:
        """Every item of every table, as JSON by table and key."""
        found = {}
        for table in TABLES:
            pages = self.dynamodb.get_paginator("scan").paginate(
                TableName=getattr(self.names, table), ConsistentRead=True
            )
            for page in pages:
                for item in page["Items"]:
                    key = json.dumps([table, item["pk"], item.get("sk")])
                    found[key] = json.dumps(item, sort_keys=True, ensure_ascii=False)
        return found

    def objects(self) -> dict[str, bytes]:
        """Every version of every object, by key and version."""
        found = {}
        for version in self._versions():
            data = b"" if version.marker else self.services.blobs.get_version(version)
            found[f"{version.key} {version.version}"] = data
        return found | dict.fromkeys(self._unfinished(), b"")

    def object_names(self) -> list[str]:
        """The keys of `objects`, without reading their bytes."""
        return [f"{version.key} {version.version}" for version in self._versions()] + self._unfinished()

    def _unfinished(self) -> list[str]:
        uploads = self.s3.list_multipart_uploads(Bucket=self.names.bucket).get("Uploads", [])
        return [f"{upload['Key']} (unfinished)" for upload in uploads]

    def _versions(self) -> list[BlobVersion]:
        versions, cursor = [], None
        while True:
            page, cursor = self.services.blobs.list_versions("", cursor=cursor)
            versions += page
            if cursor is None:
                return versions

    def entries(self) -> list[str]:
        """What the index holds."""
        page = self.services.index.scan(None, 1_000)
        return [f"{entry.resource_id} {entry.thread_id} {entry.message_id}" for entry in page.entries]

    def everything(self) -> list[str]:
        """All of it as texts, keys included."""
        found = [key + text for key, text in self.items().items()]
        found += [key + data.decode("utf-8", "replace") for key, data in self.objects().items()]
        return found + self.entries()

    def of(self, owner: str) -> dict[str, Any]:
        """What lies under an owner's keys."""
        pks = (f'"{keys.owner_pk(owner)}"', f'"{keys.messages_prefix(owner)}')
        claimed = json.dumps({"S": owner}, ensure_ascii=False)
        return {
            "items": {k: v for k, v in self.items().items() if any(pk in k for pk in pks) or claimed in v},
            "objects": {k: v for k, v in self.objects().items() if k.startswith(owner_prefix(owner))},
            "entries": [entry for entry in self.entries() if entry.startswith(f"{owner} ")],
        }

    # -- filling

    def fill(self, owner: str, *, threads: int = 2, other: str | None = None) -> None:
        """Give an owner one of everything. `other` is somebody whose rows name the owner too."""
        store, runs, jobs, files = (getattr(self.services, name) for name in ("store", "runs", "jobs", "files"))
        blobs, embedder = self.services.blobs, self.services.embedder
        place = keys.turn_slot(owner)
        now = self.clock()
        for number in range(threads):
            thread = f"t{number}-{place}"
            store.create_thread(Thread(thread, owner, now, now, "About me", freeze({"who": owner})))
            data = f"picture of {owner}".encode()
            reference = reference_to(data)
            name = reference.removeprefix("attachment://")
            files.expect(owner, [FileRecord(name=name, media_type="image/png", size=len(data))])
            blobs.put(f"{owner_prefix(owner)}files/{name}", data, "image/png")
            picture = message_from_json(
                {
                    "id": "m-file",
                    "role": "user",
                    "content": {"format": 2, "parts": [{"type": "file", "data": reference, "mimeType": "image/png"}]},
                    "createdAt": clock.to_iso(now),
                }
            )
            said = [self.message(f"m{n}", f"I am {owner}, {n}") for n in range(3)]
            large = [self.message("m-large", f"{owner} " + "x" * LARGE)] if number == 0 else []
            saved = store.save_messages(owner, thread, [*said, picture, *large], index=self.services.index.id)
            index_messages(self.services.index, embedder, saved)
        gone = f"gone-{place}"
        store.create_thread(Thread(gone, owner, now, now))
        store.save_messages(owner, gone, [self.message("m0", owner)])
        store.delete_thread(owner, gone)
        for where in (None, f"t0-{place}"):
            for text in ("likes tea", f"name: {owner}"):
                store.put_working_memory(owner, where, text, expected_version=None)
        run = f"run-{place}"
        runs.suspend(SuspendedRun(run, "assistant", owner, f"t0-{place}", now, (), {"said": owner}))
        runs.append_chunk(owner, f"t0-{place}", run, 1, ["data: {}"])
        runs.set_active(owner, f"t0-{place}", run, agent_id="assistant", expires_at=self.clock.ms + 60_000)
        answer = {"status": 200, "headers": {}, "body": dumps({"thread": {"resourceId": owner, "title": "Me"}})}
        for key_owner in (owner, None):
            runs.remember(key_owner, f"key-{place}", "hash", None, run_id="call")
            runs.remember(key_owner, f"key-{place}", "hash", answer, run_id="call")
        large_answer = {**answer, "body": answer["body"] + "y" * LARGE}
        runs.remember(None, f"large-{place}", "hash", None, run_id="call")
        runs.remember(None, f"large-{place}", "hash", large_answer, run_id="call")
        jobs.create(Job(id=f"job-{place}", kind="purge", owner=owner, created_at=now, updated_at=now))
        if other is not None:
            job = Job(
                id=f"moved-{place}",
                kind="transfer",
                owner=other,
                params=freeze({"newResourceId": owner}),
                created_at=now,
                updated_at=now,
            )
            jobs.create(job)
            taken = jobs.take(job.id, owner=other, holder="h", lease_s=1.0)
            assert jobs.save(_ended(taken))
        blobs.put(f"{owner_prefix(owner)}exports/job-1.zip", b"zip", "application/zip")
        upload = f"{owner_prefix(owner)}files/upload-{place}"
        blobs.upload_piece(upload, blobs.begin_upload(upload, "video/mp4"), 1, b"part")

    def keep_batches(self, *owners: str) -> None:
        """Put batches into the bucket that could not be indexed, each with a record of every owner."""
        records = [_record(owner) for owner in owners]
        blobs = self.services.blobs
        blobs.put("indexer/refused/2036/03/04/1.json", dumps(records).encode(), "application/json")
        envelope = {"requestContext": {"condition": "RetryAttemptsExhausted"}, "payload": {"Records": records}}
        blobs.put("aws/lambda/e1/fn/2036/03/04/a", dumps(envelope).encode())
        places = {"places": [[owner, "t", "m"] for owner in owners]}
        blobs.put("indexer/again/1-x.json", dumps(places).encode(), "application/json")
        blobs.put("aws/lambda/e1/fn/2036/03/04/b", dumps({"payload": dumps({"Records": records})}).encode())

    def read(self, owner: str, thread: str) -> tuple[Message, ...]:
        header = self.services.store.get_thread(owner, thread)
        assert header is not None
        return self.services.store.list_messages(header, MessageQuery(per_page=None)).messages


def _ended(job: Any) -> Any:
    from dataclasses import replace

    return replace(job, state="finished", result=freeze({"done": True}))


def _record(owner: str) -> dict[str, Any]:
    key = {"pk": {"S": keys.messages_pk(owner, "t")}, "sk": {"N": "1"}}
    return {
        "eventName": "INSERT",
        "dynamodb": {"Keys": key, "NewImage": {**key, "content": {"S": f"I am {owner}"}}, "SequenceNumber": "1"},
    }


Filled = Callable[..., Estate]
