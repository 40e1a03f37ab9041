"""Two owners side by side on the emulator, and everything that is stored, so that tests can see what a call changed."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from botocore.httpsession import URLLib3Session

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


READS = {"Scan", "Query", "GetItem", "BatchGetItem", "TransactGetItems"}


class EmulatorTables:
    """What `serve` takes: clients, and tables of their own on the emulator."""

    def __init__(self) -> None:
        emulator = shared_emulator()
        self.dynamodb, self.s3 = emulator.client("dynamodb"), emulator.client("s3")
        self.names = tables.create(self.dynamodb, self.s3)
        self._is_watched = False
        self.forget()

    def empty(self) -> None:
        restore(self, {})

    def forget(self) -> None:
        """Read everything again at the next `dump`."""
        self._content: dict[str, dict[tuple[str, str], str]] = {}
        self._written = {*TABLES, "bucket"}

    def dump(self) -> dict[tuple[str, str], str]:
        """Every item and object: table or bucket and key, to its content.

        While it is `watched`, only what a request may have written since the last time is read again.
        """
        if not self._is_watched:
            self.forget()
        written, self._written = self._written, set()
        for place in written:
            self._content[place] = self._objects() if place == "bucket" else self._items(place)
        return {key: value for part in self._content.values() for key, value in part.items()}

    def _items(self, table: str) -> dict[tuple[str, str], str]:
        found = {}
        for page in self.dynamodb.get_paginator("scan").paginate(TableName=getattr(self.names, table)):
            for item in page["Items"]:
                key = {name: item[name] for name in ("pk", "sk") if name in item}
                found[table, json.dumps(key)] = json.dumps(item, sort_keys=True, default=_bytes)
        return found

    def _objects(self) -> dict[tuple[str, str], str]:
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=self.names.bucket)
        return {("bucket", item["Key"]): item["ETag"] for page in pages for item in page.get("Contents", ())}

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note which tables are named in requests that do not just read, whichever client of this process sends them."""
        send = URLLib3Session.send

        def noted(session: URLLib3Session, request: Any) -> Any:
            places = self._places(request)
            self._written |= places
            try:
                return send(session, request)
            finally:
                self._written |= places

        with patch.object(URLLib3Session, "send", noted):
            self.forget()
            self._is_watched = True
            try:
                yield
            finally:
                self._is_watched = False

    def _places(self, request: Any) -> set[str]:
        """What a request may write."""
        target = request.headers.get("X-Amz-Target", "")
        target = target.decode() if isinstance(target, bytes) else target
        if not target:
            return set() if request.method in ("GET", "HEAD") else {"bucket"}
        if target.rpartition(".")[2] in READS:
            return set()
        named = {table for table in TABLES if getattr(self.names, table).encode() in request.body}
        return named or set(TABLES)


def restore(
    shared: EmulatorTables, before: Mapping[tuple[str, str], str], now: Mapping[tuple[str, str], str] | None = None
) -> None:
    """Put back what `dump` saw. Objects are only removed: no test overwrites one."""
    if now is None:
        now = shared.dump()
    writes = []
    for place in now.keys() | before.keys():
        if now.get(place) == before.get(place):
            continue
        table, key = place
        if table == "bucket":
            assert place not in before, f"{key} was changed or removed"
            shared.s3.delete_object(Bucket=shared.names.bucket, Key=key)
        elif place in before:
            item = json.loads(before[place], object_hook=_items)
            writes.append((getattr(shared.names, table), {"PutRequest": {"Item": item}}))
        else:
            writes.append((getattr(shared.names, table), {"DeleteRequest": {"Key": json.loads(key)}}))
    for start in range(0, len(writes), 25):
        given: dict[str, list[Any]] = {}
        for name, write in writes[start : start + 25]:
            given.setdefault(name, []).append(write)
        assert not shared.dynamodb.batch_write_item(RequestItems=given).get("UnprocessedItems")


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

    def call(self, request: Mapping[str, Any]) -> Answer:
        """Call as ada (or as a trusted server) with little time left, so that streams without an end have one."""
        query = {key: value for key, value in request["query"].items() if value is not None}
        from tests.support.http_app import event

        app = self.app
        signed_in = {"exp": str(clock.now_ms() // 1000 + 60), **app.authorizer} if app.authorizer else {}
        given = event(request["method"], request["path"], query=query, body=request["body"], authorizer=signed_in)
        return app.handle(given, Hurry())

    def changes(self) -> dict[tuple[str, str], tuple[str | None, str | None]]:
        """What differs from the beginning, and what it was and is."""
        now = self.shared.dump()
        return {
            place: (self.before.get(place), now.get(place))
            for place in self.before.keys() | now.keys()
            if self.before.get(place) != now.get(place)
        }

    def reset(self) -> None:
        now = self.shared.dump()
        if now != self.before:
            restore(self.shared, self.before, now)


class Hurry:
    """Lambda's context with 10.5 seconds left: half a second for streams that only end with the function."""

    aws_request_id = "request-1"

    def get_remaining_time_in_millis(self) -> int:
        return 10_500


@contextmanager
def world(shared: EmulatorTables, auth_mode: str) -> Iterator[World]:
    """Ada and bob with one of everything, then ada calls."""
    # An erasure would take what the other calls need; those of tests/jobs are real.
    erase = patch.dict(KINDS, erase=f"{__name__}:erase_nothing")
    with erase, shared.watched(), serve(shared, auth_mode=auth_mode) as app:
        owners = {name: Owner(name) for name in ("ada", "bob")}
        for owner in owners.values():
            app.authorizer = {"resourceId": owner.name} if auth_mode == "jwt" else {}
            _fill(app, owner)
        app.authorizer = {"resourceId": "ada"} if auth_mode == "jwt" else {}
        shared.forget()  # an upload went past the clients
        before = shared.dump()
        yield World(app, shared, owners, before)
        shared.forget()
        assert shared.dump() == before, "something was written past what is watched"


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
