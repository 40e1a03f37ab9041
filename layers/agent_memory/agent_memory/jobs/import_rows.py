"""Rows of other systems' histories as messages, each row checked by itself so that a bad one can be named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from agent_memory._json import dumps
from agent_memory.errors import InvalidInputError
from agent_memory.ids import check_id, derived_id
from agent_memory.messages import Message
from agent_memory.messages.for_storage import for_storage
from agent_memory.messages.from_input import messages_from_input
from agent_memory.messages.from_openai import from_openai, is_openai

_AT: Final = "row"


@dataclass(frozen=True, slots=True)
class BadRow:
    """Why a row was not stored."""

    row: int
    code: str
    field: str
    expected: str
    id: str | None = None
    thread_id: str | None = None

    def to_json(self) -> dict[str, Any]:
        """As the report holds it."""
        return {
            "row": self.row,
            "id": self.id,
            "threadId": self.thread_id,
            "code": self.code,
            "field": self.field,
            "expected": self.expected,
        }


@dataclass(slots=True)
class ReadRows:
    """What rows say: messages by thread, in the order of the rows, and those that say nothing that can be stored.

    `rows_of` holds the numbers of the rows that each message is made of, by thread and message id: its own, and those of
    results of its calls. `dated` names the messages whose rows tell their date.
    """

    threads: dict[str, list[Message]] = field(default_factory=dict)
    rows_of: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    dated: set[tuple[str, str]] = field(default_factory=set)
    bad: list[BadRow] = field(default_factory=list)
    ignored: int = 0


@dataclass(frozen=True, slots=True)
class Target:
    """Where rows go: the owner, the thread of rows that name none, and whose rows they may say to be."""

    resource_id: str
    thread_id: str | None = None
    rows_of: str | None = None


def follows(raw: Any) -> bool:
    """Whether a row belongs to the one before it: the result of a tool that was called there."""
    return isinstance(raw, dict) and raw.get("role") == "tool"


def read_rows(rows: Sequence[tuple[int, Any]], target: Target) -> ReadRows:
    """Read numbered rows: values as parsed from JSON, or the error of a row that is not JSON."""
    found = ReadRows()
    by_thread: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    seen: dict[tuple[str, str], str] = {}
    for number, raw in rows:
        try:
            thread_id, message = _checked(number, raw, target)
        except InvalidInputError as error:
            found.bad.append(_bad(number, raw, error))
            continue
        place, text = (thread_id, message["id"]), dumps(message)
        if place in seen:
            if seen[place] != text:
                double = InvalidInputError(f"{_AT}.id", "expected an id of its own, found that of a row before it")
                found.bad.append(_bad(number, raw, double, code="DUPLICATE_ID"))
            else:
                found.ignored += 1
            continue
        seen[place] = text
        by_thread.setdefault(thread_id, []).append((number, message))
    for thread_id, given in by_thread.items():
        _read_thread(found, thread_id, given, target)
    return found


def _checked(number: int, raw: Any, target: Target) -> tuple[str, dict[str, Any]]:
    """Thread and row, in a form that `messages_from_input` takes, with an id. Raises InvalidInputError."""
    if isinstance(raw, ValueError):
        raise InvalidInputError(_AT, "expected JSON, found something else")
    if not isinstance(raw, dict):
        raise InvalidInputError(_AT, f"expected an object, found {type(raw).__name__}")
    thread_id = raw.get("threadId") if raw.get("threadId") is not None else target.thread_id
    if thread_id is None:
        raise InvalidInputError(f"{_AT}.threadId", "expected the id of a thread, found nothing")
    check_id(f"{_AT}.threadId", thread_id)
    owner = raw.get("resourceId")
    if owner is not None and owner not in (target.resource_id, target.rows_of):
        raise InvalidInputError(f"{_AT}.resourceId", "expected the resource of the import or none, found another")
    row = {key: value for key, value in raw.items() if key != "resourceId"}
    row["threadId"] = thread_id
    if is_openai(row):
        row = from_openai(row, _AT)
    given = row.get("id")
    if given is None or (isinstance(given, str) and not given.strip()):
        # The same for the same row of the same file, so that a second import finds it.
        row["id"] = derived_id(f"import#{target.resource_id}#{thread_id}", f"{number}#{dumps(row)}")
    # Each row by itself first: one that is wrong must not take others with it.
    messages_from_input([row], thread_id=thread_id, field=_AT, keep_dates=True)
    return thread_id, row


def _read_thread(found: ReadRows, thread_id: str, given: Sequence[tuple[int, dict[str, Any]]], target: Target) -> None:
    read = messages_from_input(
        [row for _, row in given], thread_id=thread_id, resource_id=target.resource_id, field=_AT, keep_dates=True
    )
    lost = {outcome.tool_call_id for outcome in read.tool_outcomes}
    owner_of_call = {outcome.tool_call_id: outcome.message_id for outcome in read.folded_outcomes}
    rows_of: dict[str, list[int]] = {}
    for number, row in given:
        calls = _calls_of(row) if follows(row) else set()
        if lost & calls:
            error = InvalidInputError(f"{_AT}.content", "expected the result of a call in a row before it")
            found.bad.append(_bad(number, row, error, code="TOOL_CALL_UNKNOWN"))
            continue
        message_id = next((owner_of_call[call] for call in calls if call in owner_of_call), row["id"])
        rows_of.setdefault(message_id or row["id"], []).append(number)
        if row.get("createdAt") is not None:
            found.dated.add((thread_id, row["id"]))
    kept = [stored for message in read.messages if (stored := for_storage(message)) is not None]
    for message in kept:
        found.rows_of[thread_id, message.id] = rows_of.pop(message.id, [])
    # System messages, and those of which nothing is stored.
    found.ignored += sum(map(len, rows_of.values()))
    if kept:
        found.threads[thread_id] = kept


def _calls_of(row: dict[str, Any]) -> set[str]:
    content = row.get("content")
    return (
        {part.get("toolCallId", "") for part in content if isinstance(part, dict)}
        if isinstance(content, list)
        else set()
    )


def _bad(number: int, raw: Any, error: InvalidInputError, *, code: str | None = None) -> BadRow:
    named = raw if isinstance(raw, dict) else {}
    id, thread_id = named.get("id"), named.get("threadId")
    path = error.field.removeprefix(f"{_AT}.0").removeprefix(_AT).removeprefix(".")
    return BadRow(
        row=number,
        code=code or ("INVALID_ROW" if error.code == "INVALID_INPUT" else error.code),
        field=path,
        expected=error.detail[:300],
        id=id[:512] if isinstance(id, str) else None,
        thread_id=thread_id[:512] if isinstance(thread_id, str) else None,
    )


def refused(row: int, message: Message, code: str, field_name: str, expected: str) -> BadRow:
    """A row that the store did not take."""
    return BadRow(row, code, field_name, expected[:300], message.id, message.thread_id)
