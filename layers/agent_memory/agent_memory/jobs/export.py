"""Exports what a resource has as a zip in the bucket: threads, messages, working memory, and a list of the files.

A step gathers some rows into files of the zip, each of which is kept as an object of its own; at the end they are joined.
So a resource may be larger than memory, and a step that is repeated writes the same objects again.

Nothing is closed meanwhile. Each thread is as it was when its rows were read: what is said in it later may be missing,
and a thread that is deleted while it is read ends there. Threads that are made during an export may be in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from agent_memory import clock
from agent_memory._json import dumps
from agent_memory.attachments import change_files, key_of_name, name_of, owner_prefix
from agent_memory.errors import ConfigurationError, NotFoundError
from agent_memory.ids import check_id
from agent_memory.jobs import archive
from agent_memory.jobs.adapters import blobs_of, portable_of, store_of
from agent_memory.messages import Message
from agent_memory.messages.message import message_to_json
from agent_memory.ports import Thread, ThreadHeader, ThreadQuery
from agent_memory.ports.jobs import Job

if TYPE_CHECKING:
    from agent_memory.agent.services import Services
    from agent_memory.jobs.runner import Work
    from agent_memory.ports import MessageStore

KIND: Final = "export"
CHUNK_BYTES: Final = 8 * 1024 * 1024  # of rows that a step gathers, before they are packed
PIECE_BYTES: Final = 8 * 1024 * 1024  # of an upload in pieces; S3 wants at least 5 MiB
READ_BYTES: Final = 1024 * 1024  # of one reading of rows
THREADS_A_STEP: Final = 200
USES_A_STEP: Final = 500  # of files, each of which is looked at
LIFETIME_S: Final = 7 * 86_400  # of an export; the bucket's lifecycle rule removes it then
LINK_S: Final = 3_600
_LOOKS_AT_ONCE: Final = 8


def export_resource(
    services: Services, resource_id: str, *, job_id: str | None = None, correlation_id: str | None = None
) -> Job:
    """Start an export of everything a resource has; one that is under way is returned as it is.

    Returns a job of the resource; `link_of` gives the address of its file once it has finished.
    Raises ConflictError while the resource is being erased.
    """
    from agent_memory.jobs.erase import check_open
    from agent_memory.jobs.runner import jobs_of, start

    check_id("resourceId", resource_id)
    _parts(services)
    check_open(services, resource_id)
    for running in jobs_of(services).list_jobs(resource_id):
        if running.kind == KIND and not running.ended:
            return running
    return start(services, KIND, {}, owner=resource_id, job_id=job_id, correlation_id=correlation_id)


def link_of(services: Services, job: Job) -> str | None:
    """An address of a finished export's file that works for an hour, signed now; None before and after its time."""
    if job.kind != KIND or job.state != "finished" or job.owner is None or job.result is None:
        return None
    if services.blobs is None or clock.parse(job.result["expiresAt"]) <= clock.now():
        return None
    return services.blobs.link(file_key(job.owner, job.id), expires_in_s=LINK_S, filename=f"{job.id}.zip")


def file_key(resource_id: str, job_id: str) -> str:
    """Where the file of an export lies."""
    return f"{owner_prefix(resource_id)}exports/{job_id}.zip"


def step(work: Work) -> bool:
    """The job's owner is the resource. Without params."""
    phase = work.cursor.setdefault("phase", "threads")
    return {"threads": _threads, "memory": _memory, "manifest": _manifest, "join": _join, "end": _end}[phase](work)


# ------------------------------------------------------------------------------------------------------------- gathering


def _threads(work: Work) -> bool:
    """Some threads with their messages, up to a chunk."""
    store, portable = store_of(work.services), portable_of(work.services)
    owner, cursor = _owner(work), work.cursor
    threads: list[Any] = []
    messages: list[Any] = []
    uses: list[FileUse] = []
    size = 0
    while size < CHUNK_BYTES and len(threads) < THREADS_A_STEP and len(uses) < USES_A_STEP:
        current = cursor.get("thread")
        if current is None:
            header = _next_thread(store, owner, cursor)
            if header is None:
                cursor["phase"] = "memory"
                break
            threads.append(thread_row(header))
            current = cursor["thread"] = {"id": header.thread.id, "incarnation": header.incarnation, "after": 0}
        else:
            header = store.get_thread(owner, current["id"])
        if header is None or header.incarnation != current["incarnation"]:
            cursor["thread"] = None  # it was deleted meanwhile
            continue
        rows, more = portable.read_rows(header, after=current["after"], most_bytes=min(CHUNK_BYTES - size, READ_BYTES))
        for message in rows:
            row = message_to_json(message)
            messages.append(row)
            size += len(dumps(row))
            uses += _uses(message)
        if more is None:
            cursor["thread"] = None
        else:
            current["after"] = more
    for kind, found in (("threads", threads), ("messages", messages), ("attachments", _file_rows(work, uses))):
        _write(work, kind, found)
    return False


def _next_thread(store: MessageStore, owner: str, cursor: dict[str, Any]) -> ThreadHeader | None:
    """The header of the next thread by the date of its creation; None behind the last."""
    while not cursor.get("listed"):
        waiting = cursor.setdefault("waiting", [])
        if not waiting:
            query = ThreadQuery(per_page=50, newest_first=False, cursor=cursor.get("page"))
            page = store.list_threads(owner, query)
            waiting += [thread.id for thread in page.threads]
            cursor["page"] = page.next_cursor
            cursor["last"] = page.next_cursor is None
        if not waiting:
            cursor["listed"] = True
            return None
        header = store.get_thread(owner, waiting.pop(0))
        cursor["listed"] = not waiting and cursor["last"]
        if header is not None:
            return header
    return None


def thread_row(header: ThreadHeader) -> dict[str, Any]:
    """A thread as an export holds it."""
    thread: Thread = header.thread
    row: dict[str, Any] = {
        "id": thread.id,
        "title": thread.title,
        "titleSource": header.title_source,
        "metadata": thread.metadata,
        "createdAt": clock.to_iso(thread.created_at),
        "updatedAt": clock.to_iso(thread.updated_at),
    }
    if thread.expires_at is not None and header.idle_s is None:
        row["expiresAt"] = clock.to_iso(thread.expires_at)
    if thread.usage is not None:
        row["usage"] = {
            "inputTokens": thread.usage.input_tokens,
            "outputTokens": thread.usage.output_tokens,
            "embeddingTokens": thread.usage.embedding_tokens,
        }
    return row


FileUse = dict[str, Any]
"""A file as a message refers to it, and the message."""


def _uses(message: Message) -> list[FileUse]:
    found: dict[str, FileUse] = {}

    def collect(address: str, media_type: str | None, filename: str | None) -> None:
        name = name_of(address)
        if name is not None and name not in found:
            place = {"threadId": message.thread_id, "messageId": message.id}
            found[name] = {"name": name, "filename": filename, "contentType": media_type, **place}

    change_files(message, collect)
    return list(found.values())


def _file_rows(work: Work, uses: list[FileUse]) -> list[Any]:
    """What is known of the files of messages. Their bytes are not in the export."""
    blobs, owner = blobs_of(work.services), _owner(work)

    def look(name: str) -> dict[str, Any]:
        try:
            stored = blobs.head(key_of_name(name, owner))
        except NotFoundError:
            return {"missing": True}
        return {"size": stored.size, "storedType": stored.content_type}

    names = list(dict.fromkeys(use["name"] for use in uses))
    with ThreadPoolExecutor(_LOOKS_AT_ONCE) as pool:
        known = dict(zip(names, pool.map(look, names), strict=True))
    rows = []
    for use in uses:
        stored = dict(known[use["name"]])
        kind = use["contentType"] or stored.pop("storedType", None)
        # A name begins with the hash of the bytes, but for uploads, which nobody has hashed.
        digest = None if use["name"].startswith("u-") else use["name"][:64]
        rows.append({**use, "contentType": kind, "size": stored.get("size"), "sha256": digest} | _missing(stored))
    return rows


def _missing(stored: Mapping[str, Any]) -> dict[str, Any]:
    return {"missing": True} if "missing" in stored else {}


def _memory(work: Work) -> bool:
    found, more = portable_of(work.services).list_working_memory(_owner(work), cursor=work.cursor.get("memory"))
    rows = [
        {
            "threadId": history.thread_id,
            "version": version.version,
            "text": version.text,
            "updatedAt": clock.to_iso(version.updated_at),
        }
        for history in found
        for version in history.versions
    ]
    _write(work, "working-memory", rows)
    work.cursor["memory"] = more
    if more is None:
        work.cursor["phase"] = "manifest"
    return False


def _write(work: Work, kind: str, rows: list[Any]) -> None:
    """Keep rows as one more file of the zip."""
    if not rows:
        return
    numbers = work.cursor.setdefault("numbers", {})
    numbers[kind] = numbers.get(kind, 0) + 1
    _add(work, f"{kind}-{numbers[kind]:05d}.jsonl", archive.lines(rows), rows=len(rows))
    work.count(_COUNTS[kind], len(rows))


_COUNTS: Final[Mapping[str, str]] = {
    "threads": "threads",
    "messages": "messages",
    "working-memory": "workingMemoryVersions",
    "attachments": "attachments",
}


def _add(work: Work, name: str, data: bytes, **more: Any) -> None:
    entries = work.cursor.setdefault("entries", [])
    offset = work.cursor.get("offset", 0)
    packed, described = archive.entry(name, data, offset)
    blobs_of(work.services).put_for_a_week(_chunk_key(work, len(entries)), packed, "application/octet-stream")
    entries.append({**described, **more, "length": len(packed)})
    work.cursor["offset"] = offset + len(packed)


def _manifest(work: Work) -> bool:
    """The last file, which describes the others."""
    entries = work.cursor.get("entries", [])
    counts = {name: work.progress.get(name, 0) for name in _COUNTS.values()}
    files = [{name: entry[name] for name in ("name", "rows", "bytes", "sha256")} for entry in entries]
    manifest = {
        "format": archive.FORMAT,
        "schema": archive.SCHEMA,
        "resourceId": _owner(work),
        "exportedAt": clock.to_iso(clock.now()),
        "counts": counts,
        "files": files,
    }
    _add(work, archive.MANIFEST, dumps(manifest).encode())
    work.result |= {"schema": archive.SCHEMA, "counts": counts}
    work.cursor["phase"] = "join"
    return False


# --------------------------------------------------------------------------------------------------------------- joining


def _join(work: Work) -> bool:
    """One piece of the whole, made of as many files as it takes."""
    blobs, cursor = blobs_of(work.services), work.cursor
    key, entries = file_key(_owner(work), work.job.id), cursor["entries"]
    if "upload" not in cursor:
        cursor["upload"] = blobs.begin_upload(key, "application/zip", expires=True)
        cursor |= {"joined": 0, "tags": []}
        return False
    piece = b""
    while len(piece) < PIECE_BYTES and cursor["joined"] < len(entries):
        piece += blobs.get(_chunk_key(work, cursor["joined"]))
        cursor["joined"] += 1
    if cursor["joined"] == len(entries):
        piece += archive.directory(entries, cursor["offset"])
        cursor["phase"] = "end"
    tags = cursor["tags"]
    tags.append(blobs.upload_piece(key, cursor["upload"], len(tags) + 1, piece))
    cursor["size"] = cursor.get("size", 0) + len(piece)
    return False


def _end(work: Work) -> bool:
    blobs, cursor = blobs_of(work.services), work.cursor
    blobs.finish_upload(file_key(_owner(work), work.job.id), cursor["upload"], cursor["tags"])
    blobs.delete([_chunk_key(work, number) for number in range(len(cursor["entries"]))])
    expires_at = clock.now() + timedelta(seconds=LIFETIME_S)
    work.result |= {"bytes": cursor["size"], "expiresAt": clock.to_iso(expires_at)}
    cursor.clear()
    return True


def _chunk_key(work: Work, number: int) -> str:
    return f"{owner_prefix(_owner(work))}exports/{work.job.id}/{number:05d}"


# -------------------------------------------------------------------------------------------------------------- adapters


def _owner(work: Work) -> str:
    if work.job.owner is None:
        raise ConfigurationError("an export is a job of the resource whose data it holds")
    return work.job.owner


def _parts(services: Services) -> None:
    """Raises ConfigurationError where the deployment cannot export."""
    portable_of(services)
    blobs_of(services)
