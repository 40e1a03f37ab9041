"""What a message store holds and is asked for: threads, turns, pages, working memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from agent_memory._json import FrozenDict
from agent_memory.messages import Message

TitleSource = Literal["none", "given", "generated", "person"]
"""Who wrote the title: nobody, the creating call, the title job, or a person (who may also have cleared it)."""


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """What a thread's header remembers of one of its last few turns.

    `key` is the turn key. `deadline` (milliseconds since 1970) is when a running turn counts as dead. `answer_id` is
    the id of the stored answer, `user_ids` the ids of the user rows that the turn stored.
    """

    key: str
    state: Literal["running", "finished", "failed"]
    run_id: str
    started_at: int
    deadline: int
    answer_id: str | None = None
    user_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ThreadUsage:
    """Tokens that the stored turns of a thread have taken in all, its title included."""

    input_tokens: int = 0
    output_tokens: int = 0
    embedding_tokens: int = 0

    def __add__(self, other: ThreadUsage) -> ThreadUsage:
        return ThreadUsage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.embedding_tokens + other.embedding_tokens,
        )

    def __sub__(self, other: ThreadUsage) -> ThreadUsage:
        return ThreadUsage(
            self.input_tokens - other.input_tokens,
            self.output_tokens - other.output_tokens,
            self.embedding_tokens - other.embedding_tokens,
        )


NO_USAGE: Final = ThreadUsage()


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread as callers see it. `usage` is None where nothing was counted, and in lists, whose index does not hold it."""

    id: str
    resource_id: str
    created_at: datetime
    updated_at: datetime
    title: str = ""
    metadata: FrozenDict | None = None
    expires_at: datetime | None = None
    usage: ThreadUsage | None = None


@dataclass(frozen=True, slots=True)
class ThreadHeader:
    """A thread with the counters that a turn needs.

    Live rows are those with ``first_seq <= seq < next_seq``. `incarnation` changes when a thread is deleted, so that
    a late commit of the old one fails. `turns` are the newest turn records, oldest first. `rows_expire` is set once a
    row that expires was stored, `in_date_order` until rows may stand in another order than their dates. `idle_s` is set
    where the thread expires so many seconds after its last write, as the deployment's retention asks for.
    """

    thread: Thread
    next_seq: int
    first_seq: int
    message_count: int
    incarnation: str
    title_source: TitleSource = "none"
    last_created_at: datetime | None = None
    metadata_version: int = 0
    turns: tuple[TurnRecord, ...] = ()
    rows_expire: bool = False
    in_date_order: bool = True
    idle_s: int | None = None


@dataclass(frozen=True, slots=True)
class TurnStart:
    """The answer of `MessageStore.begin_turn`.

    `header` is None for a thread that does not exist (yet, or any more). `repeat` is the record of an earlier turn with the
    same key, as it was before this call; where it is None this turn was registered as running.
    """

    header: ThreadHeader | None
    repeat: TurnRecord | None = None


@dataclass(frozen=True, slots=True)
class TurnCommit:
    """Everything that one turn (or one save) writes, applied in one transaction.

    Attributes:
        thread_id: The thread.
        resource_id: Its owner.
        header: The header this commit was prepared against; None: the thread is expected to be new.
        appended: New messages in order; storage gives them the next numbers. A message whose id is already stored
            is not written again (its stored row stays as it is).
        updated: Stored messages (with `seq` and `version`) whose parts changed: outcomes of pending calls. Where the row
            changed meanwhile, only outcomes that still advance a pending call are applied.
        removed: Stored messages to delete in the same transaction (the old answer of a regenerate).
        regenerates: Id of the question that this turn answers anew, or None. Where others have written to the thread meanwhile
            and this turn has an answer, answers that stand behind that question by then are deleted too: one remains.
        title: Title for a thread that is created by this commit; ignored where it exists.
        metadata: Shallow-merged into the thread's metadata.
        turn: The turn's record to put (by key) into the header; None for a plain save.
        index: Id of the vector index that the new rows are stamped with, or None when recall is off.
        expires_at: When new rows expire that say nothing else, or None.
        usage: Tokens to add to the thread's sum, or None.
    """

    thread_id: str
    resource_id: str
    header: ThreadHeader | None
    appended: tuple[Message, ...] = ()
    updated: tuple[Message, ...] = ()
    removed: tuple[Message, ...] = ()
    regenerates: str | None = None
    title: str | None = None
    metadata: Mapping[str, Any] | None = None
    turn: TurnRecord | None = None
    index: str | None = None
    expires_at: datetime | None = None
    usage: ThreadUsage | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """What a commit stored. `repeat` is set (and nothing was written) when a turn with the same key had finished first."""

    header: ThreadHeader
    appended: tuple[Message, ...] = ()
    updated: tuple[Message, ...] = ()
    repeat: TurnRecord | None = None


@dataclass(frozen=True, slots=True)
class DateRange:
    """Bounds on `created_at`; both ends belong to the range unless marked exclusive."""

    start: datetime | None = None
    end: datetime | None = None
    start_exclusive: bool = False
    end_exclusive: bool = False

    def contains(self, value: datetime) -> bool:
        """Whether `value` lies in the range."""
        if self.start is not None and (value < self.start or (self.start_exclusive and value == self.start)):
            return False
        return not (self.end is not None and (value > self.end or (self.end_exclusive and value == self.end)))


@dataclass(frozen=True, slots=True)
class MessageQuery:
    """Which messages of a thread, and which page of them.

    `newest_first` chooses the window (pages count from the newest end); results are always oldest first.
    `per_page` None means all. `cursor` comes from an earlier page and replaces `page`.
    `max_bytes` cuts a page by size (it then holds fewer messages and a cursor).
    """

    page: int = 0
    per_page: int | None = 40
    newest_first: bool = True
    date_range: DateRange | None = None
    metadata: Mapping[str, Any] | None = None
    cursor: str | None = None
    include_total: bool = True
    max_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class MessagePage:
    """One page, oldest first. `total` is None where it was not asked for. `next_cursor` is None on the last page."""

    messages: tuple[Message, ...]
    total: int | None
    has_more: bool
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True)
class ThreadQuery:
    """Which threads of a resource. `metadata` pairs must all match by deep equality. `per_page` None means all."""

    page: int = 0
    per_page: int | None = 100
    order_by: Literal["createdAt", "updatedAt"] = "createdAt"
    newest_first: bool = True
    metadata: Mapping[str, Any] | None = None
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class ThreadPage:
    """One page of threads."""

    threads: tuple[Thread, ...]
    total: int
    has_more: bool
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True)
class WorkingMemoryRecord:
    """Working memory as stored: `text` (markdown or JSON text) and its version, which counts from 1."""

    text: str
    version: int
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class MessageRef:
    """The place of a stored message, found by its id."""

    resource_id: str
    thread_id: str
    message_id: str
    seq: int


@dataclass(frozen=True, slots=True)
class MessageRow:
    """A stored row without what it says. `index` is the stamp: the vector index it belongs to, or None."""

    resource_id: str
    thread_id: str
    message_id: str
    seq: int
    version: int
    role: str
    created_at: datetime
    index: str | None
