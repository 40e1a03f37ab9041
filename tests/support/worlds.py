"""Two owners side by side on the emulator, and everything that is stored, so that tests can see what a call changed."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from agent_memory import clock
from agent_memory.attachments import SCHEME, owner_prefix, reference_to
from agent_memory.jobs.kinds import KINDS
from agent_memory.ports.jobs import Job
from tests.support import tables
from tests.support.emulator import shared_emulator
from tests.support.http_app import Answer, App, serve

TABLES = ("threads", "messages", "runs", "claims")
AGENT = "conformance"
WORD = "rhubarb"  # that everybody's messages hold, so that a search for it would find them


class EmulatorTables:
    """What `serve` takes: clients, and tables of their own on the emulator."""

    def __init__(self) -> None:
        emulator = shared_emulator()
        self.dynamodb, self.s3 = emulator.client("dynamodb"), emulator.client("s3")
        self.names = tables.create(self.dynamodb, self.s3)

    def empty(self) -> None:
        restore(self, {})

    def dump(self) -> dict[tuple[str, str], str]:
        """Every item and object: table or bucket and key, to its content."""
        found = {}
        for table in TABLES:
            for page in self.dynamodb.get_paginator("scan").paginate(TableName=getattr(self.names, table)):
                for item in page["Items"]:
                    key = {name: item[name] for name in ("pk", "sk") if name in item}
                    found[table, json.dumps(key)] = json.dumps(item, sort_keys=True, default=_bytes)
        for page in self.s3.get_paginator("list_objects_v2").paginate(Bucket=self.names.bucket):
            for item in page.get("Contents", ()):
                found["bucket", item["Key"]] = item["ETag"]
        return found


def restore(
    shared: EmulatorTables, before: Mapping[tuple[str, str], str], now: Mapping[tuple[str, str], str] | None = None
) -> None:
    """Put back what `dump` saw. Objects are only removed: no test overwrites one."""
    if now is None:
        now = shared.dump()
    for place in now.keys() | before.keys():
        if now.get(place) == before.get(place):
            continue
        table, key = place
        if table == "bucket":
            assert place not in before, f"{key} was changed or removed"
            shared.s3.delete_object(Bucket=shared.names.bucket, Key=key)
        elif place in before:
            shared.dynamodb.put_item(
                TableName=getattr(shared.names, table), Item=json.loads(before[place], object_hook=_items)
            )
        else:
            shared.dynamodb.delete_item(TableName=getattr(shared.names, table), Key=json.loads(key))


def _bytes(value: Any) -> Any:
    return {"bytes": value.hex()}


def _items(value: dict[str, Any]) -> Any:
    return bytes.fromhex(value["bytes"]) if value.keys() == {"bytes"} else value


@dataclass
class Owner:
    """What one owner has. `secret` is a word that stands in all of it and nowhere else."""

    name: str
    ids: dict[str, str] = field(default_factory=dict)

    @property
    def secret(self) -> str:
        return f"{self.name}s-secret-words"


@dataclass
class World:
    """The application, ada and bob, and what is stored."""

    app: App
    shared: EmulatorTables
    owners: dict[str, Owner]
    before: dict[tuple[str, str], str]
    seen: dict[tuple[str, str], str] | None = None  # since the last call

    def now(self) -> dict[tuple[str, str], str]:
        """Everything that is stored."""
        if self.seen is None:
            self.seen = self.shared.dump()
        return self.seen

    def call(self, request: Mapping[str, Any]) -> Answer:
        """Call as ada (or as a trusted server) with little time left, so that streams without an end have one."""
        self.seen = None
        query = {key: value for key, value in request["query"].items() if value is not None}
        from tests.support.http_app import event

        app = self.app
        signed_in = {"exp": str(clock.now_ms() // 1000 + 60), **app.authorizer} if app.authorizer else {}
        given = event(request["method"], request["path"], query=query, body=request["body"], authorizer=signed_in)
        return app.handle(given, Hurry())

    def changes(self) -> dict[tuple[str, str], tuple[str | None, str | None]]:
        """What differs from the beginning, and what it was and is."""
        now = self.now()
        return {
            place: (self.before.get(place), now.get(place))
            for place in self.before.keys() | now.keys()
            if self.before.get(place) != now.get(place)
        }

    def reset(self) -> None:
        if self.now() != self.before:
            restore(self.shared, self.before, self.now())
        self.seen = self.before


class Hurry:
    """Lambda's context with 10.5 seconds left: half a second for streams that only end with the function."""

    aws_request_id = "request-1"

    def get_remaining_time_in_millis(self) -> int:
        return 10_500


@contextmanager
def world(shared: EmulatorTables, auth_mode: str) -> Iterator[World]:
    """Ada and bob with one of everything, then ada calls."""
    # An erasure would take what the other calls need; those of tests/jobs are real.
    with patch.dict(KINDS, erase=f"{__name__}:erase_nothing"), serve(shared, auth_mode=auth_mode) as app:
        owners = {name: Owner(name) for name in ("ada", "bob")}
        for owner in owners.values():
            app.authorizer = {"resourceId": owner.name} if auth_mode == "jwt" else {}
            _fill(app, owner)
        app.authorizer = {"resourceId": "ada"} if auth_mode == "jwt" else {}
        yield World(app, shared, owners, shared.dump())


def erase_nothing(work: Any) -> bool:
    return True


def _fill(app: App, owner: Owner) -> None:
    name, secret = owner.name, owner.secret
    thread, waiting = f"{name}-thread", f"{name}-waiting"
    for place in (thread, waiting):
        made = {"threadId": place, "resourceId": name, "title": secret, "metadata": {"note": secret}}
        _ok(app.post("/api/memory/threads", made, agentId=AGENT))
    reference = reference_to(secret.encode())
    assert app.deployment.blobs is not None
    app.deployment.blobs.put(
        f"{owner_prefix(name)}files/{reference.removeprefix(SCHEME)}", secret.encode(), "text/plain"
    )
    parts = [
        {"type": "text", "text": f"{secret} about {WORD}"},
        {"type": "file", "data": reference, "mimeType": "text/plain", "filename": f"{secret}.txt"},
    ]
    messages = [
        {
            "id": f"{name}-m{number}",
            "role": "user",
            "content": {"format": 2, "parts": parts, "metadata": {"note": secret}},
            "threadId": thread,
            "resourceId": name,
        }
        for number in (1, 2, 3)
    ]
    _ok(app.post("/api/memory/save-messages", {"messages": messages}, agentId=AGENT))
    text = {"workingMemory": f"# User\n- Name: {secret}\n", "resourceId": name}
    for agent in (AGENT, "conformance-thread"):
        _ok(app.post(f"/api/memory/threads/{thread}/working-memory", text, agentId=agent))
    asked = {
        "messages": f'tool delete_record {{"id":"{secret}"}}',
        "memory": {"thread": waiting, "resource": name},
    }
    run = _ok(app.post(f"/api/agents/{AGENT}/generate", asked)).json
    now = clock.now()
    jobs = app.deployment.jobs
    assert jobs is not None
    jobs.create(
        Job(id=f"{name}-job", kind="purge", owner=name, params={"note": secret}, created_at=now, updated_at=now)
    )
    query = {"agentId": AGENT, "resourceId": name, "perPage": 1}
    page = _ok(app.get(f"/api/memory/threads/{thread}/messages", **query)).json
    listed = _ok(app.get("/api/memory/threads", **query)).json
    app.indexed(name, thread)
    data = secret.encode()
    wanted = {"resourceId": name, "filename": f"{secret}.txt", "contentType": "text/plain", "size": len(data)}
    upload = _ok(app.post("/api/attachments", wanted)).json
    sent = urllib.request.Request(upload["url"], data, dict(upload["headers"]), method=upload["method"])
    urllib.request.urlopen(sent, timeout=10).close()
    owner.ids = {
        "thread": thread,
        "waiting": waiting,
        "resource": name,
        "message": f"{name}-m2",
        "run": run["runId"],
        "call": run["suspendPayload"]["toolCallId"],
        "job": f"{name}-job",
        "file": reference,
        "name": reference.removeprefix(SCHEME),
        "upload": upload["id"],
        "cursor": page["nextCursor"],
        "threads_cursor": listed["nextCursor"],
    }


def _ok(answer: Answer) -> Answer:
    assert answer.status == 200, answer.body
    return answer
