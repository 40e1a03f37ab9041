"""What the Memory facade answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from agent_memory.messages import Message
from agent_memory.ports import Thread


@dataclass(frozen=True, slots=True)
class ThreadList:
    """One page of threads. `per_page` is False where all were asked for; `next_cursor` is None on the last page."""

    threads: tuple[Thread, ...]
    total: int
    page: int
    per_page: int | Literal[False]
    has_more: bool
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True)
class RecallResult:
    """Messages, oldest first.

    `total` and `has_more` describe the page that was asked for, whatever `include` or a search added to `messages`.
    `total` is None where it was not asked for; `per_page` is 0 where only included or found messages were asked for.
    `scores` holds the score of each message that a search found, by (thread id, message id).
    """

    messages: tuple[Message, ...]
    total: int | None
    page: int
    per_page: int | Literal[False]
    has_more: bool
    next_cursor: str | None = None
    scores: Mapping[tuple[str, str], float] | None = None


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A message that a search found, with its thread's title ('' where it has none) and its neighbours, oldest first."""

    message: Message
    score: float
    thread_id: str
    thread_title: str
    before: tuple[Message, ...] = ()
    after: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True)
class CloneMetadata:
    """Where a clone came from. `last_message_id` is the source's id of the last copied message."""

    source_thread_id: str
    cloned_at: datetime
    last_message_id: str | None = None


@dataclass(frozen=True, slots=True)
class CloneResult:
    """A clone: its thread, its messages and the new id of each copied one.

    `job_id` is set for a long thread, which a job copies: the clone is hidden until that has finished, and neither messages
    nor ids are listed.
    """

    thread: Thread
    cloned_messages: tuple[Message, ...]
    message_id_map: Mapping[str, str]
    job_id: str | None = None


@dataclass(frozen=True, slots=True)
class TransferResult:
    """A thread and its new owner; where `job_id` is set, the thread as it is until that job has finished."""

    thread: Thread
    job_id: str | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """What a model call made by hand needs: the system text (None without working memory) and the last messages."""

    system: str | None
    messages: tuple[Message, ...]
