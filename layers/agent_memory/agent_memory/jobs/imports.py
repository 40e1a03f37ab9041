"""Imports what an export holds, or the histories of other systems, with a report that names every row that was not taken.

Good rows are stored and bad ones named. Nothing that is stored is overwritten: a message whose id is known in its thread,
a thread or a working memory that is there stays as it is. So a second import of the same file changes nothing.

An export is put back as it was: threads with their dates and titles, messages in their order, working memory with its
versions; each thread is hidden until it is whole. Under another owner than the export's, files are copied, and a thread
whose id is another's here gets another id, its messages too, always the same ones.

Rows of other systems are one JSON object a line (or an array of them): messages of this API and of Mastra (either format),
messages of the AI SDK, and OpenAI's chat messages. They name their thread (`threadId`), or the import does.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from agent_memory import clock
from agent_memory._json import dumps, freeze, loads
from agent_memory.attachments import key_of_name, name_of, names_in, owner_prefix
from agent_memory.errors import (
    AccessDeniedError,
    AgentMemoryError,
    ConfigurationError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
)
from agent_memory.file_copies import copy_files
from agent_memory.ids import check_id, derived_id
from agent_memory.jobs import archive
from agent_memory.jobs.export import LINK_S, file_key
from agent_memory.jobs.import_rows import BadRow, Target, follows, read_rows, refused
from agent_memory.messages import Message
from agent_memory.messages.message import message_from_json
from agent_memory.ports import Thread, ThreadUsage
from agent_memory.ports.archive import Archive
from agent_memory.ports.jobs import Job
from agent_memory.ports.portable import PortableStore, ThreadRestore, WorkingMemoryHistory, WorkingMemoryVersion

if TYPE_CHECKING:
    from agent_memory.agent.services import Services
    from agent_memory.jobs.runner import Work
    from agent_memory.ports import MessageStore

KIND: Final = "import"
READ_BYTES: Final = 4 * 1024 * 1024  # of lines that a step reads
MAX_ROW_BYTES: Final = 8 * 1024 * 1024
MAX_ARRAY_BYTES: Final = (
    32 * 1024 * 1024
)  # of a JSON array, which has to be read at once; a larger one is read as lines
ROWS_AT_ONCE: Final = 500
RESTORE_ROWS: Final = 200
STEP_BUDGET_S: Final = 10.0
MAX_REPORTED: Final = 10_000
SHOWN_ERRORS: Final = 100  # in the job itself
BUILDING_WAIT_S: Final = 900.0  # after it a thread that a crashed invocation has begun counts as given up


def import_resource(
    services: Services,
    resource_id: str,
    *,
    export: tuple[str, str] | None = None,
    attachment: str | None = None,
    messages: Sequence[Any] | None = None,
    thread_id: str | None = None,
    rows_of: str | None = None,
    job_id: str | None = None,
    correlation_id: str | None = None,
) -> Job:
    """Start an import into a resource, from one of three sources.

    Args:
        services: The deployment's adapters.
        resource_id: Whose the rows become.
        export: Resource and job id of an export of this deployment.
        attachment: Reference of a file that was uploaded for this resource: an export, JSON Lines, or a JSON array.
        messages: Rows themselves.
        thread_id: Thread of rows that name none.
        rows_of: Another resource that rows may say to be of.
        job_id, correlation_id: Id of the job, and of the request that asks for it.

    Returns:
        A job of the resource. Its result counts rows, and names the first that were not taken; `report_of` gives the rest.

    Raises:
        InvalidInputError: Not exactly one source.
        NotFoundError: No such file.
        AccessDeniedError: The thread is another resource's.
        ConflictError: The resource is being erased.
    """
    from agent_memory.ids import new_id
    from agent_memory.jobs.runner import start

    check_id("resourceId", resource_id)
    if thread_id is not None:
        check_id("threadId", thread_id)
    if sum(source is not None for source in (export, attachment, messages)) != 1:
        raise InvalidInputError("source", "expected one of export, attachment and messages")
    _check_open(services, resource_id)
    if thread_id is not None and _store(services).owner_of(thread_id) not in (None, resource_id):
        raise AccessDeniedError("Access denied: thread belongs to a different resource")
    blobs, job_id = _blobs(services), job_id or new_id("job-")
    if messages is not None:
        key = _rows_key(resource_id, job_id)
        try:
            blobs.put(key, archive.lines(messages), "application/jsonl")
        except (TypeError, ValueError) as error:
            raise InvalidInputError("messages", "expected JSON values, found one that JSON has no form for") from error
    elif export is not None:
        key = file_key(check_id("export.resourceId", export[0]), check_id("export.jobId", export[1]))
    else:
        name = name_of(attachment or "")
        if name is None:
            raise InvalidInputError("attachment", "expected a reference like attachment://…, found something else")
        key = key_of_name(name, resource_id)
    try:
        blobs.head(key)
    except NotFoundError as error:
        raise NotFoundError("expected a file to import, found none of that name", code="IMPORT_NOT_FOUND") from error
    params = {"key": key, "threadId": thread_id, "rowsOf": rows_of}
    return start(services, KIND, params, owner=resource_id, job_id=job_id, correlation_id=correlation_id)


def report_of(services: Services, job: Job) -> str | None:
    """An address of an import's report, JSON Lines, that works for an hour; None where every row was taken."""
    if job.kind != KIND or job.owner is None or job.result is None or not job.result.get("reported"):
        return None
    if services.blobs is None:
        return None
    return services.blobs.link(_report_key(job.owner, job.id), expires_in_s=LINK_S, filename=f"{job.id}.jsonl")


def step(work: Work) -> bool:
    """The job's owner is the resource. ``{"key", "threadId", "rowsOf"}``."""
    from agent_memory.jobs.runner import GivenUp

    phase = work.cursor.setdefault("phase", "open")
    try:
        return _PHASES[phase](work)
    except InvalidInputError as error:
        raise GivenUp(error) from error
    except ConflictError as error:
        if error.code == "RESOURCE_LOCKED":
            raise GivenUp(error) from error
        raise


# --------------------------------------------------------------------------------------------------------------- opening


def _open(work: Work) -> bool:
    """Find out what it is."""
    _check_open(work.services, _owner(work))
    blobs, key = _blobs(work.services), work.params["key"]
    try:
        first = blobs.get_range(key, 0, 64)
    except NotFoundError as error:
        raise InvalidInputError("source", "expected a file, found none", code="IMPORT_UNREADABLE") from error
    if first.startswith(b"PK"):
        opened = archive.ZipOfBlob(blobs, key)
        work.cursor |= {"phase": "threads", "source": opened.manifest.get("resourceId")}
        return False
    if first.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[") and blobs.head(key).size <= MAX_ARRAY_BYTES:
        # An array; or lines, of which the first one is an array and will be named.
        with contextlib.suppress(ValueError, RecursionError):
            rows = loads(blobs.get(key).decode("utf-8-sig"))
            work.cursor["key"] = _rows_key(_owner(work), work.job.id)
            blobs.put(work.cursor["key"], archive.lines(rows), "application/jsonl")
    work.cursor |= {"phase": "rows", "at": 0, "row": 0}
    return False


# ---------------------------------------------------------------------------------------------- rows of other systems


def _rows(work: Work) -> bool:
    """Some MB of lines."""
    cursor = work.cursor
    rows, length = _next_rows(work)
    if not rows:
        cursor["phase"] = "report"
        return False
    owner = _owner(work)
    read = read_rows(rows, Target(owner, work.params.get("threadId"), work.params.get("rowsOf")))
    work.count("rows", len(rows))
    work.count("ignored", read.ignored)
    bad = list(read.bad)
    for thread_id, messages in read.threads.items():
        kept = _dated(work, thread_id, messages, read.dated)
        rejected = _save(work, thread_id, kept, lambda message: len(read.rows_of[thread_id, message.id]))  # noqa: B023
        bad += [
            refused(row, message, code, field, expected)
            for message, (code, field, expected) in rejected
            for row in read.rows_of[thread_id, message.id]
        ]
    _report(work, sorted(bad, key=lambda row: row.row))
    cursor["at"] += length
    cursor["row"] += len(rows)
    return False


def _next_rows(work: Work) -> tuple[list[tuple[int, Any]], int]:
    """The next rows with their numbers, and how many bytes they take. A result stays with the call before it."""
    blobs, cursor = _blobs(work.services), work.cursor
    data = blobs.get_range(cursor.get("key") or work.params["key"], cursor["at"], MAX_ROW_BYTES + READ_BYTES)
    ended = len(data) < MAX_ROW_BYTES + READ_BYTES
    found: list[tuple[int, Any]] = []
    length = 0
    for line in data.splitlines(keepends=True):
        if not ended and not line.endswith((b"\n", b"\r")) and length + len(line) == len(data):
            if not found:
                raise InvalidInputError(
                    "source", f"expected rows of at most {MAX_ROW_BYTES} bytes", code="IMPORT_UNREADABLE"
                )
            break
        row = _parsed(line)
        full = len(found) >= ROWS_AT_ONCE or length >= READ_BYTES
        if full and not follows(row):
            break
        length += len(line)
        found.append((cursor["row"] + len(found) + 1, row))
    return found, length


def _parsed(line: bytes) -> Any:
    try:
        return loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        return error if isinstance(error, ValueError) else ValueError("nested too deeply")


def _dated(work: Work, thread_id: str, messages: Sequence[Message], dated: set[tuple[str, str]]) -> list[Message]:
    """Messages without a date get that of the one before them, so that they stay behind it."""
    header = _store(work.services).get_thread(_owner(work), thread_id)
    last = header.last_created_at if header is not None else None
    found = []
    for message in messages:
        if (thread_id, message.id) not in dated:
            message = message.replace(created_at=last or clock.now())
        last = message.created_at
        found.append(message)
    if header is None and found:
        dates = [message.created_at for message in found]
        thread = Thread(thread_id, _owner(work), min(dates), max(dates))
        with contextlib.suppress(AccessDeniedError):  # the save tells it of each row
            _store(work.services).create_thread(thread, title_source="none")
            work.count("threads")
    return found


Refusal = tuple[str, str, str]
"""Code, field, and what was expected."""


def _save(work: Work, thread_id: str, messages: Sequence[Message], weight: Any) -> list[tuple[Message, Refusal]]:
    """Store messages that the thread does not have; those that were refused, with the reason."""
    store, owner = _store(work.services), _owner(work)
    header = store.get_thread(owner, thread_id)
    known: Mapping[str, int] = {}
    if header is not None and header.message_count:
        found = store.find(owner, thread_id, [message.id for message in messages])
        known = {id: seq for id, seq in found.items() if header.first_seq <= seq < header.next_seq}
    work.count("known", sum(weight(message) for message in messages if message.id in known))
    fresh = [message for message in messages if message.id not in known]
    if not fresh:
        return []
    rejected: list[tuple[Message, Refusal]] = []

    def save(group: Sequence[Message]) -> None:
        try:
            with _keeper(work.services, owner) as keeper:
                store.save_messages(owner, thread_id, keeper.take(group), index=_index(work.services))
        except AgentMemoryError as error:
            reason = _refusal(error)
            if reason is None:
                raise
            if len(group) == 1 or isinstance(error, AccessDeniedError):
                rejected.extend((message, reason) for message in group)
                return
            # One of them is wrong: each by itself, in order of their dates.
            for message in sorted(group, key=lambda message: message.created_at):
                save([message])
            return
        work.count("stored", sum(weight(message) for message in group))

    save(fresh)
    return rejected


def _refusal(error: AgentMemoryError) -> Refusal | None:
    """Why a message itself was refused; None for what is not its fault."""
    if isinstance(error, InvalidInputError):
        return error.code, error.field, error.detail
    if isinstance(error, AccessDeniedError):
        return "ACCESS_DENIED", "threadId", "expected a thread of this resource, found another's"
    if error.code in ("IMPORT_TOO_FAR_BACK", "TOO_LARGE", "ATTACHMENT_TOO_LARGE", "ATTACHMENT_TYPE"):
        field = "createdAt" if error.code == "IMPORT_TOO_FAR_BACK" else "content"
        return error.code, field, error.message
    return None


# ------------------------------------------------------------------------------------------------------------ an export


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

    def place(self) -> str:
        """How a report names the row that `peek` shows."""
        return f"{self._names[self.at[0]]}:{self.at[1] + 1}"


def _restore(work: Work) -> bool:
    """Some threads with their messages: each thread of the one list takes the messages that follow in the other."""
    cursor = work.cursor
    opened = archive.ZipOfBlob(_blobs(work.services), work.params["key"])
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
            if cursor["thread"]["restore"] is not None:
                return False  # kept before anything is written that only this says how to find again
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
    store, owner, cursor = _portable(work.services), _owner(work), work.cursor
    cursor["thread"] = current = {"row": row, "source": None, "id": None, "restore": None, "began": at}
    try:
        thread = _thread(row, owner)
    except InvalidInputError as error:
        _report_row(work, place, row, error.code, error.field, error.detail)
        return True
    current["source"] = thread.id
    ids = [thread.id]
    if cursor.get("source") != owner:
        ids.append(derived_id(f"import#{owner}", thread.id))
    for thread_id in ids:
        if _store(work.services).owner_of(thread_id) not in (None, owner):
            continue
        try:
            restore = store.begin_restore(
                Thread(**{**_fields(thread), "id": thread_id}), title_source=row.get("titleSource", "given")
            )
        except ConflictError as error:
            if error.code == "THREAD_BEING_BUILT":
                work.wait_s = BUILDING_WAIT_S
                cursor["thread"] = None
                return False
            if error.code != "THREAD_EXISTS":
                raise
            current["id"] = thread_id
            work.count("knownThreads")
            return True
        current |= {"id": thread_id, "restore": asdict(restore)}
        return True
    _report_row(work, place, row, "ACCESS_DENIED", "id", "expected a thread of this resource, found another's")
    return True


def _some_messages(work: Work, messages: _Position, current: dict[str, Any]) -> bool:
    """Write the next messages of the thread; False where they are all written."""
    owner, services = _owner(work), work.services
    batch: list[Message] = []
    size = 0
    while len(batch) < RESTORE_ROWS and size < READ_BYTES:
        row = messages.peek()
        if not isinstance(row, dict) or row.get("threadId") != current["source"] or current["source"] is None:
            break
        work.count("rows")
        size += len(dumps(row))
        message = _message(work, messages.place(), row, current, owner)
        if message is not None:
            batch.append(message)
        messages.next()
    if not batch:
        return False
    _keep_files(work, batch)
    if current["restore"] is None:
        for message, (code, field, expected) in _save(work, current["id"], batch, lambda _message: 1):
            _report(work, [refused(0, message, code, field, expected)])
        return True
    restore = ThreadRestore(**current["restore"])
    restore = _portable(services).restore_rows(restore, batch, index=_index(services))
    current["restore"] = asdict(restore)
    work.count("stored", len(batch))
    return True


def _message(work: Work, place: str, row: Any, current: Mapping[str, Any], owner: str) -> Message | None:
    """A message of an export under its owner and thread; None where it was reported, or has expired."""
    if current["id"] is None:
        _report_row(
            work, place, row, "THREAD_REFUSED", "threadId", "expected a thread that was taken, found one that was not"
        )
        return None
    try:
        message = message_from_json(row, "row")
    except InvalidInputError as error:
        _report_row(work, place, row, "INVALID_ROW", error.field.removeprefix("row."), error.detail)
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
    services, owner, source = work.services, _owner(work), work.cursor.get("source")
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
    store, row = _portable(work.services), current["row"]
    restore = ThreadRestore(**current["restore"])
    thread = _thread(row, _owner(work))
    try:
        store.finish_restore(
            restore,
            Thread(**{**_fields(thread), "id": current["id"]}),
            title_source=row.get("titleSource", "given"),
        )
    except AccessDeniedError:
        store.abandon_restore(restore)
        _report_row(work, "threads", row, "ACCESS_DENIED", "id", "expected a thread of this resource, found another's")
        return
    work.count("threads")


def _leftovers(work: Work, messages: _Position) -> bool:
    """Messages behind the last thread: none, unless somebody has changed the file."""
    while (row := messages.peek()) is not None:
        work.count("rows")
        _report_row(work, messages.place(), row, "THREAD_UNKNOWN", "threadId", "expected a thread that the export has")
        messages.next()
    work.cursor["phase"] = "memory"
    return False


def _memory(work: Work) -> bool:
    """The working memories of one file. A working memory may go on in the next file, so all of it is gathered first."""
    cursor, owner = work.cursor, _owner(work)
    opened = archive.ZipOfBlob(_blobs(work.services), work.params["key"])
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
        _report_row(
            work, place, {"id": None, "threadId": thread_id}, "INVALID_ROW", "", "expected version, text and updatedAt"
        )
        return
    place_of = thread_id
    store = _portable(work.services)
    if thread_id is not None and work.cursor.get("source") != owner:
        derived = derived_id(f"import#{owner}", thread_id)
        if _store(work.services).get_thread(owner, derived) is not None:
            place_of = derived
    if store.restore_working_memory(owner, WorkingMemoryHistory(place_of, versions)):
        work.count("workingMemories")
    else:
        _report_row(
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


def _fields(thread: Thread) -> dict[str, Any]:
    return {name: getattr(thread, name) for name in Thread.__dataclass_fields__}


# ------------------------------------------------------------------------------------------------------------ the report


def _report_row(work: Work, place: str, row: Any, code: str, field: str, expected: str) -> None:
    named = row if isinstance(row, Mapping) else {}
    entry = {"row": place, "id": named.get("id"), "threadId": named.get("threadId")}
    _report_entries(work, [{**entry, "code": code, "field": field, "expected": expected[:300]}])


def _report(work: Work, bad: Sequence[BadRow]) -> None:
    _report_entries(work, [row.to_json() for row in bad])


def _report_entries(work: Work, entries: Sequence[Mapping[str, Any]]) -> None:
    """Keep entries in an object of their own: as many as will be reported, and the first ones in the job."""
    if not entries:
        return
    room = MAX_REPORTED - work.progress.get("refused", 0)
    work.count("refused", len(entries))
    shown = work.result.setdefault("errors", [])
    shown += entries[: max(SHOWN_ERRORS - len(shown), 0)]
    if room > 0:
        number = work.cursor["reports"] = work.cursor.get("reports", 0) + 1
        _blobs(work.services).put(_part_key(work, number), archive.lines(entries[:room]), "application/jsonl")


def _end(work: Work) -> bool:
    """Join the report, and forget what was kept for the import alone."""
    blobs, cursor, owner = _blobs(work.services), work.cursor, _owner(work)
    parts = [_part_key(work, number) for number in range(1, cursor.get("reports", 0) + 1)]
    work.result["counts"] = {name: work.progress.get(name, 0) for name in _COUNTS} | dict(work.progress)
    work.result.setdefault("errors", [])
    work.result["reported"] = min(work.progress.get("refused", 0), MAX_REPORTED)
    if parts:
        key = _report_key(owner, work.job.id)
        data = b"".join(blobs.get(part) for part in parts)
        upload = blobs.begin_upload(key, "application/jsonl", expires=True)
        blobs.finish_upload(key, upload, [blobs.upload_piece(key, upload, 1, data)])
    blobs.delete([*parts, _rows_key(owner, work.job.id)])
    cursor.clear()
    return True


_COUNTS: Final = ("rows", "stored", "known", "ignored", "refused", "threads")
_PHASES: Final = {
    "open": _open,
    "rows": _rows,
    "threads": _restore,
    "memory": _memory,
    "report": _end,
}


def _folder(owner: str, job_id: str) -> str:
    return f"{owner_prefix(owner)}imports/{job_id}"


def _rows_key(owner: str, job_id: str) -> str:
    return f"{_folder(owner, job_id)}/rows.jsonl"


def _report_key(owner: str, job_id: str) -> str:
    return f"{_folder(owner, job_id)}-report.jsonl"


def _part_key(work: Work, number: int) -> str:
    return f"{_folder(_owner(work), work.job.id)}/report-{number:05d}.jsonl"


# -------------------------------------------------------------------------------------------------------------- adapters


def _owner(work: Work) -> str:
    if work.job.owner is None:
        raise ConfigurationError("an import is a job of the resource that it fills")
    return work.job.owner


def _index(services: Services) -> str | None:
    return None if services.index is None else services.index.id


@contextlib.contextmanager
def _keeper(services: Services, owner: str) -> Iterator[Any]:
    """Keeps files that come inside of messages, as a save does."""
    from agent_memory.memory import Memory
    from agent_memory.memory.files import FileKeeper

    memory = Memory()
    memory.bind(services)
    with FileKeeper(memory, owner) as keeper:
        yield keeper


def _check_open(services: Services, resource_id: str) -> None:
    from agent_memory.aws.dynamodb.base import resource_locked
    from agent_memory.ports.erasure import ErasableStore

    if isinstance(services.store, ErasableStore) and services.store.lock_of(resource_id) is not None:
        raise resource_locked(resource_id)


def _store(services: Services) -> MessageStore:
    if services.store is None:
        raise ConfigurationError("an import needs the message store")
    return services.store


def _portable(services: Services) -> PortableStore:
    if not isinstance(services.store, PortableStore):
        raise ConfigurationError("an import needs a message store that takes whole histories")
    return services.store


def _blobs(services: Services) -> Archive:
    if not isinstance(services.blobs, Archive):
        raise ConfigurationError("an import needs a bucket; set ATTACHMENTS_BUCKET", code="SETTING_MISSING")
    return services.blobs
