"""A message store in memory that keeps the promises of its port, and counts what it is asked.

It has one table's worth of threads. Deleting a thread hides its rows as the real stores do: they stay readable by number
until `purge_thread`, under the incarnation that wrote them.
"""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from agent_memory import clock
from agent_memory._json import freeze
from agent_memory.errors import AccessDeniedError, ConflictError, NotFoundError
from agent_memory.messages import Message, ToolPart
from agent_memory.ports import (
    Committed,
    MessageRef,
    MessageRow,
    Thread,
    ThreadHeader,
    ThreadUsage,
    TurnCommit,
    TurnRecord,
    TurnStart,
    WorkingMemoryRecord,
)

KEPT_TURNS = 3
KEPT_VERSIONS = 20


def _sum(before: ThreadUsage | None, added: ThreadUsage | None) -> ThreadUsage | None:
    if added in (None, ThreadUsage()):
        return before
    return added if before is None else before + added


class FakeStore:
    """Threads, messages and working memory of resources, in memory.

    Attributes:
        calls: How often each method was called; `find` counts one request per id.
        fail: Errors to raise, by method name; a list is used up one call at a time.
        stamps: The vector index each row was stamped with, by (resource, thread, message id).
    """

    def __init__(self, *, unique_threads: bool = True) -> None:
        self._lock = threading.RLock()
        self._unique = unique_threads
        self._headers: dict[tuple[str, str], ThreadHeader] = {}
        self._ends: dict[tuple[str, str], int] = {}
        self._rows: dict[tuple[str, str], dict[int, Message]] = {}
        self._memory: dict[tuple[str, str | None], list[WorkingMemoryRecord]] = {}
        self.calls: Counter[str] = Counter()
        self.fail: dict[str, Any] = {}
        self.stamps: dict[tuple[str, str, str], str | None] = {}
        self.expiries: dict[tuple[str, str, str], datetime | None] = {}

    def _called(self, name: str, requests: int = 1) -> None:
        self.calls[name] += requests
        error = self.fail.get(name)
        if isinstance(error, list):
            error = error.pop(0) if error else None
        if error is not None:
            raise error

    # -- what tests look at

    def rows(self, thread_id: str, resource_id: str = "ada") -> tuple[Message, ...]:
        """The rows that a thread shows."""
        header = self._headers.get((resource_id, thread_id))
        if header is None:
            return ()
        rows = self._rows.get((resource_id, thread_id), {})
        return tuple(rows[seq] for seq in sorted(rows) if header.first_seq <= seq < header.next_seq)

    # -- turns

    def begin_turn(self, resource_id: str, thread_id: str, turn: TurnRecord | None) -> TurnStart:
        with self._lock:
            self._called("begin_turn")
            header = self._headers.get((resource_id, thread_id))
            if header is None or turn is None:
                return TurnStart(header)
            earlier = next((t for t in header.turns if t.key == turn.key), None)
            dead = earlier is not None and (
                earlier.state == "failed" or (earlier.state == "running" and earlier.deadline <= clock.now_ms())
            )
            if earlier is None or dead:
                header = self._headers[(resource_id, thread_id)] = _with_turn(header, turn)
            return TurnStart(header, earlier)

    def latest(
        self, resource_id: str, thread_id: str, limit: int, *, before_seq: int | None = None
    ) -> tuple[Message, ...]:
        with self._lock:
            self._called("latest")
            rows = self._rows.get((resource_id, thread_id), {})
            seqs = [seq for seq in sorted(rows) if before_seq is None or seq < before_seq]
            return tuple(rows[seq] for seq in seqs[max(0, len(seqs) - limit) :])

    def find(self, resource_id: str, thread_id: str, message_ids: Sequence[str]) -> Mapping[str, int]:
        with self._lock:
            self._called("find", len(message_ids))
            rows = self._rows.get((resource_id, thread_id), {})
            return {row.id: seq for seq, row in sorted(rows.items()) if row.id in message_ids}

    def get_messages(
        self,
        resource_id: str,
        keys: Sequence[tuple[str, int]],
        *,
        consistent: bool = True,
        live_only: bool = False,
    ) -> tuple[Message, ...]:
        with self._lock:
            self._called("get_messages")
            found = []
            for thread_id, seq in dict.fromkeys(keys):
                header = self._headers.get((resource_id, thread_id))
                if live_only and (header is None or not header.first_seq <= seq < header.next_seq):
                    continue
                row = self._rows.get((resource_id, thread_id), {}).get(seq)
                if row is not None:
                    found.append(row)
            return tuple(found)

    def scan_messages(
        self, *, limit: int = 500, cursor: Any = None, consistent: bool = False
    ) -> tuple[tuple[MessageRow, ...], Any]:
        with self._lock:
            self._called("scan_messages")
            rows = [(*place, seq) for place, held in sorted(self._rows.items()) for seq in sorted(held)]
            rest = [row for row in rows if cursor is None or row > tuple(cursor)]
            found = []
            for owner, thread, seq in rest[:limit]:
                row = self._rows[owner, thread][seq]
                stamp = self.stamps.get((owner, thread, row.id))
                found.append(MessageRow(owner, thread, row.id, seq, row.version or 1, row.role, row.created_at, stamp))
            return tuple(found), list(rest[limit - 1]) if len(rest) > limit else None

    def commit(self, commit: TurnCommit) -> Committed:
        with self._lock:
            self._called("commit")
            place = (commit.resource_id, commit.thread_id)
            if self.owner_of(commit.thread_id) not in (None, commit.resource_id):
                raise AccessDeniedError(f"thread {commit.thread_id}: expected one of this resource, found another's")
            header = self._headers.get(place)
            if commit.header is not None and (header is None or header.incarnation != commit.header.incarnation):
                raise ConflictError(f"thread {commit.thread_id} was deleted meanwhile")
            if header is not None and commit.turn is not None:
                done = next((t for t in header.turns if t.key == commit.turn.key and t.state == "finished"), None)
                if done is not None and done.run_id != commit.turn.run_id:
                    return Committed(header, repeat=done)
            now = clock.now()
            if header is None:
                header = self._create(
                    Thread(commit.thread_id, commit.resource_id, now, now, commit.title or ""),
                    "given" if commit.title else "none",
                )
            rows = self._rows.setdefault(place, {})
            stored = {row.id: seq for seq, row in rows.items() if header.first_seq <= seq < header.next_seq}
            appended = []
            for message in {m.id: m for m in commit.appended}.values():
                if message.id in stored:
                    continue
                made = message.replace(
                    seq=header.next_seq + len(appended),
                    version=1,
                    thread_id=commit.thread_id,
                    resource_id=commit.resource_id,
                )
                rows[made.seq] = made
                self.stamps[(*place, made.id)] = commit.index
                self.expiries[(*place, made.id)] = commit.expires_at
                appended.append(made)
            updated = [made for message in commit.updated if (made := self._update(rows, message)) is not None]
            removed = 0
            answers = self._answers(rows, stored, commit) if header is not commit.header else []
            for message in {m.id: m for m in (*commit.removed, *answers)}.values():
                if message.id in stored:
                    del rows[stored[message.id]]
                    removed += 1
            metadata = {**(header.thread.metadata or {}), **(commit.metadata or {})}
            thread = replace(
                header.thread,
                updated_at=now,
                metadata=freeze(metadata) if metadata else None,
                usage=_sum(header.thread.usage, commit.usage),
            )
            header = replace(
                header,
                thread=thread,
                next_seq=header.next_seq + len(appended),
                message_count=header.message_count + len(appended) - removed,
                last_created_at=appended[-1].created_at if appended else header.last_created_at,
            )
            if commit.turn is not None:
                header = _with_turn(header, commit.turn)
            self._headers[place] = header
            return Committed(header, tuple(appended), tuple(updated))

    @staticmethod
    def _answers(rows: dict[int, Message], stored: dict[str, int], commit: TurnCommit) -> list[Message]:
        """Answers behind the question of a regenerate that were there before this commit."""
        found: list[Message] = []
        question = stored.get(commit.regenerates or "")
        if question is None or not any(m.role == "assistant" for m in commit.appended):
            return found
        going = {m.id for m in commit.removed}
        for seq in sorted(seq for seq in stored.values() if seq > question and seq in rows):
            if rows[seq].id not in going and rows[seq].role != "assistant":
                break
            found.append(rows[seq])
        return [m for m in found if m.role == "assistant"]

    def _update(self, rows: dict[int, Message], message: Message) -> Message | None:
        current = rows.get(message.seq or 0)
        if current is None or current.id != message.id:
            return None
        if current.version != message.version:
            newer = {p.invocation.tool_call_id: p for p in message.parts if isinstance(p, ToolPart)}
            parts = [
                newer[p.invocation.tool_call_id]
                if isinstance(p, ToolPart)
                and p.invocation.tool_call_id in newer
                and p.invocation.advanced_by(newer[p.invocation.tool_call_id].invocation)
                else p
                for p in current.parts
            ]
            message = current.with_parts(parts)
        made = message.replace(version=(current.version or 1) + 1)
        rows[made.seq or 0] = made
        return made

    def fail_turn(self, header: ThreadHeader, turn: TurnRecord) -> None:
        with self._lock:
            self._called("fail_turn")
            place = (header.thread.resource_id, header.thread.id)
            current = self._headers.get(place)
            if current is None:
                return
            kept = tuple(t for t in current.turns if t.key != turn.key)
            if turn.state != "running":
                kept = (*kept, turn)
            self._headers[place] = replace(current, turns=kept)

    # -- threads

    def get_thread(self, resource_id: str, thread_id: str) -> ThreadHeader | None:
        with self._lock:
            self._called("get_thread")
            return self._headers.get((resource_id, thread_id))

    def owner_of(self, thread_id: str) -> str | None:
        if not self._unique:
            return None
        return next((resource for resource, thread in self._headers if thread == thread_id), None)

    def create_thread(self, thread: Thread, *, title_source: str = "given") -> ThreadHeader:
        with self._lock:
            self._called("create_thread")
            if self.owner_of(thread.id) not in (None, thread.resource_id):
                raise AccessDeniedError(f"thread {thread.id}: expected one of this resource, found another's")
            return self._headers.get((thread.resource_id, thread.id)) or self._create(thread, title_source)

    def _create(self, thread: Thread, title_source: Any) -> ThreadHeader:
        place = (thread.resource_id, thread.id)
        first = self._ends.get(place, 1)
        header = ThreadHeader(thread, first, first, 0, uuid.uuid4().hex, title_source)
        self._headers[place] = header
        return header

    def delete_thread(self, resource_id: str, thread_id: str) -> bool:
        with self._lock:
            self._called("delete_thread")
            header = self._headers.pop((resource_id, thread_id), None)
            if header is not None:
                self._ends[(resource_id, thread_id)] = header.next_seq
            return header is not None

    def purge_thread(self, resource_id: str, thread_id: str, *, limit: int | None = None) -> int:
        with self._lock:
            place = (resource_id, thread_id)
            rows = self._rows.get(place, {})
            header = self._headers.get(place)
            dead = [seq for seq in rows if header is None or seq < header.first_seq][:limit]
            for seq in dead:
                del rows[seq]
            return len(dead)

    # -- messages

    def save_messages(
        self,
        resource_id: str,
        thread_id: str,
        messages: Sequence[Message],
        *,
        index: str | None = None,
        expires_at: datetime | None = None,
    ) -> tuple[Message, ...]:
        with self._lock:
            header = self._headers.get((resource_id, thread_id))
            known = {row.id: row for row in self.rows(thread_id, resource_id)}
            new = tuple(m for m in messages if m.id not in known)
            changed = tuple(
                m.replace(seq=known[m.id].seq, version=known[m.id].version) for m in messages if m.id in known
            )
            done = self.commit(
                TurnCommit(
                    thread_id,
                    resource_id,
                    header,
                    appended=new,
                    updated=changed,
                    index=index,
                    expires_at=expires_at,
                )
            )
            return (*done.appended, *done.updated)

    def update_message(
        self, resource_id: str, thread_id: str, message_id: str, change: Callable[[Message], Message]
    ) -> Message:
        with self._lock:
            rows = self._rows.get((resource_id, thread_id), {})
            for seq, row in rows.items():
                if row.id == message_id:
                    rows[seq] = change(row).replace(seq=seq, version=(row.version or 1) + 1)
                    return rows[seq]
            raise NotFoundError(f"no message {message_id}")

    def delete_messages(self, resource_id: str, refs: Sequence[MessageRef]) -> int:
        with self._lock:
            deleted = 0
            for ref in refs:
                rows = self._rows.get((resource_id, ref.thread_id), {})
                row = rows.get(ref.seq)
                if row is not None and row.id == ref.message_id:
                    del rows[ref.seq]
                    deleted += 1
                    place = (resource_id, ref.thread_id)
                    header = self._headers[place]
                    self._headers[place] = replace(header, message_count=header.message_count - 1)
            return deleted

    # -- working memory

    def get_working_memory(self, resource_id: str, thread_id: str | None) -> WorkingMemoryRecord | None:
        with self._lock:
            self._called("get_working_memory")
            versions = self._memory.get((resource_id, thread_id))
            return versions[-1] if versions and versions[-1].text else None

    def put_working_memory(
        self, resource_id: str, thread_id: str | None, text: str, *, expected_version: int | None
    ) -> WorkingMemoryRecord:
        with self._lock:
            self._called("put_working_memory")
            versions = self._memory.setdefault((resource_id, thread_id), [])
            current = versions[-1] if versions else None
            number = current.version if current is not None else 0
            if expected_version is not None and expected_version != number:
                raise ConflictError(f"working memory has version {number}; expected {expected_version}")
            record = WorkingMemoryRecord(text, number + 1, clock.now())
            versions.append(record)
            del versions[:-KEPT_VERSIONS]
            return record

    def delete_working_memory(self, resource_id: str, thread_id: str | None, *, expected_version: int | None) -> None:
        if self.get_working_memory(resource_id, thread_id) is not None:
            self.put_working_memory(resource_id, thread_id, "", expected_version=expected_version)

    def working_memory_history(self, resource_id: str, thread_id: str | None) -> tuple[WorkingMemoryRecord, ...]:
        return tuple(reversed(self._memory.get((resource_id, thread_id), [])))


def _with_turn(header: ThreadHeader, turn: TurnRecord) -> ThreadHeader:
    kept = tuple(t for t in header.turns if t.key != turn.key)
    return replace(header, turns=(*kept, turn)[-KEPT_TURNS:])
