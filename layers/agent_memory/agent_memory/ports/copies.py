"""Threads that are copied a piece at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from agent_memory import clock
from agent_memory._json import EMPTY, freeze
from agent_memory.errors import ConflictError
from agent_memory.ports.records import DateRange, Thread

BUSY: Final = "THREAD_BUSY"
LOOKS: Final = 5
"""How often a thread that keeps changing is looked at before its transfer is given up."""


@dataclass(frozen=True, slots=True)
class CopyChoice:
    """Which messages of a thread a clone takes: of those in `dates` and among `ids` the newest `limit` (at least 1).

    None: all.
    """

    dates: DateRange | None = None
    ids: frozenset[str] | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadCopy:
    """How far the copy of a thread is. The target is hidden until it is finished.

    Attributes:
        source_resource, source_thread, source_incarnation, source_first: The source, and the number of its first row.
        revision, edits: What the source's rows had come to when the look at them began.
        resource_id, thread_id, incarnation: The target.
        first_seq: Number in the target of the source's row `low`; the others keep their distance.
        low, high: Rows of the source are copied with ``low <= seq < high``, the newest first.
        at: Those from here up have been.
        floor: Those below have been looked at before and stay as they are; None: none have.
        seed: Copied messages get ids that are made of this and their own; None: they keep theirs.
        index: Id of the vector index that they are stamped with; without a seed they keep their stamps.
        choice: Which messages are taken.
        rows, last_id, last_created, oldest: How many were, the source's id of the newest, dates of newest and oldest
            (milliseconds since 1970).
        in_date_order, rows_expire: As of a header, for the copied rows.
        looks_again: Whether rows of an earlier look are there, which may differ or have to go.
        enough: Whether as many as were chosen have been copied.
    """

    source_resource: str
    source_thread: str
    source_incarnation: str
    source_first: int
    revision: int
    resource_id: str
    thread_id: str
    incarnation: str
    first_seq: int
    low: int
    high: int
    at: int
    edits: int = 0
    floor: int | None = None
    seed: str | None = None
    index: str | None = None
    choice: CopyChoice = field(default_factory=CopyChoice)
    rows: int = 0
    last_id: str | None = None
    last_created: int | None = None
    oldest: int | None = None
    in_date_order: bool = True
    rows_expire: bool = False
    looks_again: bool = False
    enough: bool = False

    @property
    def all_read(self) -> bool:
        """Whether every row has been looked at that is to be copied."""
        return self.enough or self.at <= self.bottom

    @property
    def bottom(self) -> int:
        """The source's first row that is to be looked at."""
        return self.low if self.floor is None else max(self.low, self.floor)

    @property
    def left(self) -> int:
        """At most so many rows are still to be copied."""
        rows = 0 if self.all_read else self.at - self.bottom
        return rows if self.choice.limit is None else min(rows, self.choice.limit - self.rows)

    def to_json(self) -> dict[str, Any]:
        """As JSON, for a job's cursor."""
        return {**{name: getattr(self, name) for name in _FIELDS}, "choice": choice_to_json(self.choice)}

    @staticmethod
    def from_json(raw: Mapping[str, Any]) -> ThreadCopy:
        """The reverse of `to_json`."""
        return ThreadCopy(**{**raw, "choice": choice_from_json(raw["choice"])})


_FIELDS = tuple(field.name for field in fields(ThreadCopy))


def choice_to_json(choice: CopyChoice) -> dict[str, Any]:
    """A choice as JSON."""
    out: dict[str, Any] = {"limit": choice.limit, "ids": None if choice.ids is None else sorted(choice.ids)}
    dates = choice.dates
    if dates is not None:
        out["dates"] = {
            "start": None if dates.start is None else clock.to_ms(dates.start),
            "end": None if dates.end is None else clock.to_ms(dates.end),
            "startExclusive": dates.start_exclusive,
            "endExclusive": dates.end_exclusive,
        }
    return out


def choice_from_json(raw: Mapping[str, Any]) -> CopyChoice:
    """The reverse of `choice_to_json`."""
    dates = None
    if "dates" in raw:
        given = raw["dates"]
        start, end = (None if given[name] is None else clock.from_ms(given[name]) for name in ("start", "end"))
        dates = DateRange(start, end, given["startExclusive"], given["endExclusive"])
    return CopyChoice(dates, None if raw["ids"] is None else frozenset(raw["ids"]), raw["limit"])


def with_last_message(thread: Thread, message_id: str) -> Thread:
    """A clone whose metadata names the newest message that it was made of."""
    metadata = thread.metadata or EMPTY
    clone = {**metadata.get("clone", EMPTY), "lastMessageId": message_id}
    return replace(thread, metadata=freeze({**metadata, "clone": clone}))


def never_rests(thread_id: str) -> ConflictError:
    """A thread that changes whenever it is about to be moved."""
    return ConflictError(
        f"thread {thread_id}: expected one that rests while it is moved, found that it changed {LOOKS} times; "
        "try again later",
        code=BUSY,
    )
