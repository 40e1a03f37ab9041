"""Puts back what an export holds: threads row by row, each hidden until it is whole, and working memory with its versions."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final, get_args

from agent_memory import clock
from agent_memory._json import dumps, freeze
from agent_memory.attachments import names_in
from agent_memory.errors import AccessDeniedError, ConflictError, InvalidInputError
from agent_memory.file_copies import copy_files
from agent_memory.ids import check_id, derived_id
from agent_memory.jobs import archive
from agent_memory.jobs import import_parts as parts
from agent_memory.jobs.adapters import blobs_of, portable_of, store_of
from agent_memory.messages import Message
from agent_memory.messages.message import message_from_json
from agent_memory.ports import Thread, ThreadUsage, TitleSource
from agent_memory.ports.portable import ThreadRestore, WorkingMemoryHistory, WorkingMemoryVersion

if TYPE_CHECKING:
    from agent_memory.jobs.runner import Work

RESTORE_ROWS: Final = 200
RESTORE_BYTES: Final = 4 * 1024 * 1024
STEP_BUDGET_S: Final = 10.0
BUILDING_WAIT_S: Final = 900.0  # after it a thread that a crashed invocation has begun counts as given up


class _Position:
    """Where a walk over the files of one kind is: number of the file, number of the row in it."""

    def __init__(self, opened: archive.ZipOfBlob, kind: str, at: list[int]) -> None:
        self._zip = opened
        self._names = opened.names(kind)
        self.at = at
        self._loaded: tuple[int, list[Any]] | None = None

    def peek(self) -> Any:
        """The next row; None behind the last."""
        while self.at[0] < len(self._names):
            if self._loaded is None or self._loaded[0] != self.at[0]:
                self._loaded = (self.at[0], self._zip.rows(self._names[self.at[0]]))
            if self.at[1] < len(self._loaded[1]):
                return self._loaded[1][self.at[1]]
            self.at[:] = [self.at[0] + 1, 0]
        return None

    def next(self) -> None:
        """Go on behind the row that `peek` shows."""
        self.at[1] += 1

    def is_long(self, thread_id: str, rows: int) -> bool:
        """Whether the thread of the next row has more than so many rows, or goes on in the next file."""
        if self.peek() is None or self._loaded is None:
            return False
        ahead = self._loaded[1][self.at[1] : self.at[1] + rows + 1]
        own = [row for row in ahead if isinstance(row, dict) and row.get("threadId") == thread_id]
        return len(own) > rows or (len(own) == len(ahead) <= rows and self.at[0] + 1 < len(self._names))

    def place(self) -> str:
        """How a report names the row that `peek` shows."""
        return f"{self._names[self.at[0]]}:{self.at[1] + 1}"


def restore(work: Work) -> bool:
    """Some threads with their messages: each thread of the one list takes the messages that follow in the other."""
    cursor = work.cursor
    opened = archive.ZipOfBlob(blobs_of(work.services), work.params["key"])
    threads = _Position(opened, "threads", cursor.setdefault("threads", [0, 0]))
    messages = _Position(opened, "messages", cursor.setdefault("messages", [0, 0]))
    end = time.monotonic() + STEP_BUDGET_S
    while time.monotonic() < end:
        current = cursor.get("thread")
        if current is None:
            row = threads.peek()
            if row is None:
                return _leftovers(work, messages)
            if not _begin(work, row, threads.place(), list(messages.at)):
                return False
            threads.next()
            current = cursor["thread"]
            if current["restore"] is not None and messages.is_long(current["source"], RESTORE_ROWS):
                return False  # kept before its rows are written, so that they can go on where they were
            continue
        try:
            if _some_messages(work, messages, current):
                continue
            _finish(work, current)
        except ConflictError as error:
            if error.code != "BUILD_LOST":
                raise
            # It waited for too long and was given up; the same again from its first row.
            cursor["messages"] = current["began"]
            cursor["thread"] = None
            threads.at[1] -= 1
            return False
        cursor["thread"] = None
    return False


def _begin(work: Work, row: Any, place: str, at: list[int]) -> bool:
    """Take the id of the next thread. False where somebody else is building it."""
    store, owner, cursor = portable_of(work.services), parts.owner_of(work), work.cursor
    source = row.get("id") if isinstance(row, dict) else None
    cursor["thread"] = current = {"row": row, "source": source, "id": None, "restore": None, "began": at}
    try:
        thread = _thread(row, owner)
    except InvalidInputError as error:
        parts.report_row(work, place, row, error.code, error.field, error.detail)
        return True
    ids = [thread.id]
    if cursor.get("sourceResource") != owner:
        ids.append(derived_id(f"import#{owner}", thread.id))
    for thread_id in ids:
        if store_of(work.services).owner_of(thread_id) not in (None, owner):
            continue
        if cursor.get("waited"):
            # What was begun and given up goes first, rows included.
            store_of(work.services).purge_thread(owner, thread_id)
        try:
            restore = store.begin_restore(replace(thread, id=thread_id), title_source=_title_source(row))
        except InvalidInputError as error:
            parts.report_row(work, place, row, error.code, error.field, error.detail)
            return True
        except ConflictError as error:
            if error.code == "THREAD_BEING_BUILT":
                # By an invocation of this job that crashed, or by somebody else.
                work.wait_s = BUILDING_WAIT_S
                cursor["thread"], cursor["waited"] = None, True
                return False
            if error.code != "THREAD_EXISTS":
                raise
            current["id"] = thread_id
            work.count("knownThreads")
            return True
        current |= {"id": thread_id, "restore": asdict(restore)}
        cursor.pop("waited", None)
        return True
    parts.report_row(work, place, row, "ACCESS_DENIED", "id", "expected a thread of this resource, found another's")
    return True


def _some_messages(work: Work, messages: _Position, current: dict[str, Any]) -> bool:
    """Write the next messages of the thread; False where they are all written."""
    owner, services = parts.owner_of(work), work.services
    batch: list[Message] = []
    places: dict[str, str] = {}
    seen, size = 0, 0
    while len(batch) < RESTORE_ROWS and size < RESTORE_BYTES:
        row = messages.peek()
        if not isinstance(row, dict) or row.get("threadId") != current["source"]:
            break
        seen += 1
        size += len(dumps(row))
        message = _message(work, messages.place(), row, current, owner)
        if message is not None:
            batch.append(message)
            places[message.id] = messages.place()
        messages.next()
    work.count("rows", seen)
    if not batch:
        return seen > 0
    _keep_files(work, batch)
    if current["restore"] is None:
        for message, (code, field, expected) in parts.save(work, current["id"], batch, lambda _message: 1):
            parts.report_row(work, places[message.id], {"id": message.id}, code, field, expected)
        return True
    restore = ThreadRestore(**current["restore"])
    restore = portable_of(services).restore_rows(restore, batch, index=parts.index_of(services))
    current["restore"] = asdict(restore)
    work.count("stored", len(batch))
    return True


def _message(work: Work, place: str, row: Any, current: Mapping[str, Any], owner: str) -> Message | None:
    """A message of an export under its owner and thread; None where it was reported, or has expired."""
    if current["id"] is None:
        parts.report_row(
            work, place, row, "THREAD_REFUSED", "threadId", "expected a thread that was taken, found one that was not"
        )
        return None
    try:
        message = message_from_json(row, "row")
    except InvalidInputError as error:
        parts.report_row(work, place, row, "INVALID_ROW", error.field.removeprefix("row."), error.detail)
        return None
    if message.expires_at is not None and message.expires_at <= clock.now():
        work.count("expired")
        return None
    moved = current["id"] != current["source"]
    return message.replace(
        id=derived_id(f"import#{owner}", message.id) if moved else message.id,
        thread_id=current["id"],
        resource_id=owner,
    )


def _keep_files(work: Work, messages: Sequence[Message]) -> None:
    """Have the files that messages refer to kept until the messages are stored; another owner's are copied."""
    services, owner, source = work.services, parts.owner_of(work), work.cursor.get("filesOf")
    names = list(dict.fromkeys(name for message in messages for name in names_in(message)))
    if not names:
        return
    if source is not None and source != owner:
        work.count("copiedFiles", copy_files(services.blobs, messages, source, owner, files=services.files))
    elif services.files is not None:
        services.files.hold(owner, names)


def _finish(work: Work, current: Mapping[str, Any]) -> None:
    """Show a thread that was put back."""
    if current["restore"] is None:
        return
    store, row = portable_of(work.services), current["row"]
    restore = ThreadRestore(**current["restore"])
    thread = _thread(row, parts.owner_of(work))
    try:
        store.finish_restore(
            restore,
            replace(thread, id=current["id"]),
            title_source=_title_source(row),
        )
    except AccessDeniedError:
        store.abandon_restore(restore)
        parts.report_row(
            work, "threads", row, "ACCESS_DENIED", "id", "expected a thread of this resource, found another's"
        )
        return
    work.count("threads")


def _leftovers(work: Work, messages: _Position) -> bool:
    """Messages behind the last thread: none, unless somebody has changed the file."""
    while (row := messages.peek()) is not None:
        work.count("rows")
        parts.report_row(
            work, messages.place(), row, "THREAD_UNKNOWN", "threadId", "expected a thread that the export has"
        )
        messages.next()
    work.cursor["phase"] = "memory"
    return False


def restore_memory(work: Work) -> bool:
    """The working memories of one file. A working memory may go on in the next file, so all of it is gathered first."""
    cursor, owner = work.cursor, parts.owner_of(work)
    opened = archive.ZipOfBlob(blobs_of(work.services), work.params["key"])
    position = _Position(opened, "working-memory", cursor.setdefault("memories", [0, 0]))
    end = time.monotonic() + STEP_BUDGET_S
    while (row := position.peek()) is not None:
        place, thread_id = position.place(), row.get("threadId")
        versions = []
        while (row := position.peek()) is not None and row.get("threadId") == thread_id:
            versions.append(row)
            position.next()
        _one_memory(work, place, owner, thread_id, versions)
        if time.monotonic() > end:
            return False
    cursor["phase"] = "report"
    return False


def _one_memory(work: Work, place: str, owner: str, thread_id: str | None, rows: Sequence[Mapping[str, Any]]) -> None:
    try:
        versions = tuple(
            WorkingMemoryVersion(int(row["version"]), row["text"], clock.parse(row["updatedAt"])) for row in rows
        )
    except (KeyError, TypeError, ValueError):
        parts.report_row(
            work, place, {"id": None, "threadId": thread_id}, "INVALID_ROW", "", "expected version, text and updatedAt"
        )
        return
    place_of = thread_id
    store = portable_of(work.services)
    if thread_id is not None and work.cursor.get("sourceResource") != owner:
        derived = derived_id(f"import#{owner}", thread_id)
        if store_of(work.services).get_thread(owner, derived) is not None:
            place_of = derived
    if store.restore_working_memory(owner, WorkingMemoryHistory(place_of, versions)):
        work.count("workingMemories")
    else:
        parts.report_row(
            work,
            place,
            {"id": None, "threadId": thread_id},
            "WORKING_MEMORY_EXISTS",
            "threadId",
            "expected no working memory, or the same; the one that is there was kept",
        )


def _thread(row: Any, owner: str) -> Thread:
    """A thread from its row. Raises InvalidInputError."""
    if not isinstance(row, dict):
        raise InvalidInputError("row", f"expected an object, found {type(row).__name__}", code="INVALID_ROW")
    metadata, usage, expires_at = row.get("metadata"), row.get("usage"), row.get("expiresAt")
    try:
        return Thread(
            id=check_id("id", row.get("id")),
            resource_id=owner,
            created_at=clock.parse(row["createdAt"]),
            updated_at=clock.parse(row["updatedAt"]),
            title=str(row.get("title") or ""),
            metadata=None if metadata is None else freeze(dict(metadata)),
            expires_at=None if expires_at is None else clock.parse(expires_at),
            usage=None
            if usage is None
            else ThreadUsage(usage["inputTokens"], usage["outputTokens"], usage["embeddingTokens"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(
            "createdAt", "expected a thread with createdAt and updatedAt", code="INVALID_ROW"
        ) from error


def _title_source(row: Mapping[str, Any]) -> TitleSource:
    found: Any = row.get("titleSource")
    known: TitleSource = found if found in get_args(TitleSource) else "given"
    return known
