"""What both kinds of imports share: saves that never overwrite, the report of what was not taken, and the adapters."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from agent_memory.attachments import owner_prefix
from agent_memory.errors import AccessDeniedError, AgentMemoryError, ConfigurationError, InvalidInputError
from agent_memory.jobs import archive
from agent_memory.jobs.adapters import blobs_of, portable_of, store_of
from agent_memory.jobs.import_rows import BadRow
from agent_memory.messages import Message

if TYPE_CHECKING:
    from agent_memory.agent.services import Services
    from agent_memory.jobs.runner import Work

MAX_REPORTED: Final = 10_000
SHOWN_ERRORS: Final = 100  # in the job itself
_COUNTS: Final = ("rows", "stored", "known", "ignored", "refused", "threads")

Refusal = tuple[str, str, str]
"""Code, field, and what was expected."""


def save(
    work: Work, thread_id: str, messages: Sequence[Message], weight: Callable[[Message], int]
) -> list[tuple[Message, Refusal]]:
    """Store messages that the thread does not have; those that were refused, with the reason."""
    store, owner = store_of(work.services), owner_of(work)
    known = portable_of(work.services).known_messages(owner, thread_id, [message.id for message in messages])
    work.count("known", sum(weight(message) for message in messages if message.id in known))
    fresh = [message for message in messages if message.id not in known]
    if not fresh:
        return []
    rejected: list[tuple[Message, Refusal]] = []

    def save(group: Sequence[Message]) -> None:
        try:
            with _keeper(work.services, owner) as files:
                store.save_messages(owner, thread_id, files.take(group), index=index_of(work.services))
        except AgentMemoryError as error:
            reason = refusal(error)
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


def refusal(error: AgentMemoryError) -> Refusal | None:
    """Why a message itself was refused; None for what is not its fault."""
    if isinstance(error, InvalidInputError):
        return error.code, error.field, error.detail
    if isinstance(error, AccessDeniedError):
        return "ACCESS_DENIED", "threadId", "expected a thread of this resource, found another's"
    if error.code in ("IMPORT_TOO_FAR_BACK", "TOO_LARGE", "ATTACHMENT_TOO_LARGE", "ATTACHMENT_TYPE"):
        field = "createdAt" if error.code == "IMPORT_TOO_FAR_BACK" else "content"
        return error.code, field, error.message
    return None


# ------------------------------------------------------------------------------------------------------------ the report


def report_row(work: Work, place: str, row: Any, code: str, field: str, expected: str) -> None:
    named = row if isinstance(row, Mapping) else {}
    entry = {"row": place, "id": named.get("id"), "threadId": named.get("threadId")}
    _report_entries(work, [{**entry, "code": code, "field": field, "expected": expected[:300]}])


def report(work: Work, bad: Sequence[BadRow]) -> None:
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
        part = archive.lines(entries[:room])
        blobs_of(work.services).put_for_a_week(_part_key(work, number), part, "application/jsonl")


def join_report(work: Work) -> bool:
    """Make one object of the report."""
    blobs, owner = blobs_of(work.services), owner_of(work)
    work.result["counts"] = {name: work.progress.get(name, 0) for name in _COUNTS} | dict(work.progress)
    work.result.setdefault("errors", [])
    work.result["reported"] = min(work.progress.get("refused", 0), MAX_REPORTED)
    parts = _report_parts(work)
    if parts:
        data = b"".join(blobs.get(part) for part in parts)
        blobs.put_for_a_week(report_key(owner, work.job.id), data, "application/jsonl")
    work.cursor["phase"] = "clean"
    return False


def clean(work: Work) -> bool:
    """Forget what was kept for the import alone."""
    blobs_of(work.services).delete([*_report_parts(work), rows_key(owner_of(work), work.job.id)])
    work.cursor.clear()
    return True


def _report_parts(work: Work) -> list[str]:
    return [_part_key(work, number) for number in range(1, work.cursor.get("reports", 0) + 1)]


def _folder(owner: str, job_id: str) -> str:
    return f"{owner_prefix(owner)}imports/{job_id}"


def rows_key(owner: str, job_id: str) -> str:
    return f"{_folder(owner, job_id)}/rows.jsonl"


def report_key(owner: str, job_id: str) -> str:
    return f"{_folder(owner, job_id)}-report.jsonl"


def _part_key(work: Work, number: int) -> str:
    return f"{_folder(owner_of(work), work.job.id)}/report-{number:05d}.jsonl"


# -------------------------------------------------------------------------------------------------------------- adapters


def owner_of(work: Work) -> str:
    if work.job.owner is None:
        raise ConfigurationError("an import is a job of the resource that it fills")
    return work.job.owner


def index_of(services: Services) -> str | None:
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
