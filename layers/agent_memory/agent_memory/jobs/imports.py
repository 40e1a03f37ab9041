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
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from agent_memory import clock
from agent_memory._json import loads
from agent_memory.attachments import key_of_name, name_of, owner_prefix
from agent_memory.errors import (
    AccessDeniedError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
)
from agent_memory.ids import check_id
from agent_memory.jobs import archive, import_archive
from agent_memory.jobs import import_parts as parts
from agent_memory.jobs.adapters import blobs_of, store_of
from agent_memory.jobs.erase import check_open
from agent_memory.jobs.export import LINK_S, file_key
from agent_memory.jobs.import_rows import Target, follows, read_rows, refused
from agent_memory.messages import Message
from agent_memory.ports import Thread
from agent_memory.ports.jobs import Job

if TYPE_CHECKING:
    from agent_memory.agent.services import Services
    from agent_memory.jobs.runner import Work

KIND: Final = "import"
READ_BYTES: Final = 4 * 1024 * 1024  # of lines that a step reads
MAX_ROW_BYTES: Final = 8 * 1024 * 1024
MAX_ARRAY_BYTES: Final = (
    32 * 1024 * 1024
)  # of a JSON array, which has to be read at once; a larger one is read as lines
ROWS_AT_ONCE: Final = 500


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
        rows_of: Another resource that rows may say to be of, and whose files an uploaded export's messages take along.
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
    check_open(services, resource_id)
    if thread_id is not None and store_of(services).owner_of(thread_id) not in (None, resource_id):
        raise AccessDeniedError("Access denied: thread belongs to a different resource")
    blobs, job_id = blobs_of(services), job_id or new_id("job-")
    if messages is not None:
        key = parts.rows_key(resource_id, job_id)
        try:
            blobs.put_for_a_week(key, archive.lines(messages), "application/jsonl")
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
    return services.blobs.link(parts.report_key(job.owner, job.id), expires_in_s=LINK_S, filename=f"{job.id}.jsonl")


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
    check_open(work.services, parts.owner_of(work))
    blobs, key = blobs_of(work.services), work.params["key"]
    try:
        first = blobs.get_range(key, 0, 64)
    except NotFoundError as error:
        raise InvalidInputError("source", "expected a file, found none", code="IMPORT_UNREADABLE") from error
    if first.startswith(b"PK"):
        opened = archive.ZipOfBlob(blobs, key)
        source = opened.manifest.get("resourceId")
        work.cursor |= {"phase": "threads", "sourceResource": source}
        # What an uploaded file says of itself opens nobody's files; where it lies, or the caller's word, does.
        known = isinstance(source, str) and (
            source == work.params.get("rowsOf") or key.startswith(f"{owner_prefix(source)}exports/")
        )
        work.cursor["filesOf"] = source if known else None
        return False
    if first.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[") and blobs.head(key).size <= MAX_ARRAY_BYTES:
        # An array; or lines, of which the first one is an array and will be named.
        with contextlib.suppress(ValueError, RecursionError):
            rows = loads(blobs.get(key).decode("utf-8-sig"))
            work.cursor["key"] = parts.rows_key(parts.owner_of(work), work.job.id)
            blobs.put_for_a_week(work.cursor["key"], archive.lines(rows), "application/jsonl")
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
    owner = parts.owner_of(work)
    read = read_rows(rows, Target(owner, work.params.get("threadId"), work.params.get("rowsOf")))
    work.count("rows", len(rows))
    work.count("ignored", read.ignored)
    bad = list(read.bad)
    for thread_id, messages in read.threads.items():
        kept = _dated(work, thread_id, messages, read.dated)
        rejected = parts.save(work, thread_id, kept, lambda message: len(read.rows_of[thread_id, message.id]))  # noqa: B023
        bad += [
            refused(row, message, code, field, expected)
            for message, (code, field, expected) in rejected
            for row in read.rows_of[thread_id, message.id]
        ]
    parts.report(work, sorted(bad, key=lambda row: row.row))
    cursor["at"] += length
    cursor["row"] += len(rows)
    return False


def _next_rows(work: Work) -> tuple[list[tuple[int, Any]], int]:
    """The next rows with their numbers, and how many bytes they take. A result stays with the call before it."""
    blobs, cursor = blobs_of(work.services), work.cursor
    data = blobs.get_range(cursor.get("key") or work.params["key"], cursor["at"], MAX_ROW_BYTES + READ_BYTES)
    ended = len(data) < MAX_ROW_BYTES + READ_BYTES
    found: list[tuple[int, Any]] = []
    length = 0
    for line in data.splitlines(keepends=True):
        if not ended and not line.endswith(b"\n") and length + len(line) == len(data):
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
    header = store_of(work.services).get_thread(parts.owner_of(work), thread_id)
    last = header.last_created_at if header is not None else None
    found = []
    for message in messages:
        if (thread_id, message.id) not in dated:
            message = message.replace(created_at=last or clock.now())
        last = message.created_at
        found.append(message)
    if header is None and found:
        dates = [message.created_at for message in found]
        thread = Thread(thread_id, parts.owner_of(work), min(dates), max(dates))
        with contextlib.suppress(AccessDeniedError):  # the save tells it of each row
            store_of(work.services).create_thread(thread, title_source="none")
            work.count("threads")
    return found


_PHASES: Final = {
    "open": _open,
    "rows": _rows,
    "threads": import_archive.restore,
    "memory": import_archive.restore_memory,
    "report": parts.join_report,
    "clean": parts.clean,
}
