"""What exports and imports ask of a message store beside the port of every day."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

from agent_memory.messages import Message
from agent_memory.ports.records import Thread, ThreadHeader, TitleSource


@dataclass(frozen=True, slots=True)
class WorkingMemoryVersion:
    """One version of working memory; `text` is None where it was cleared."""

    version: int
    text: str | None
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class WorkingMemoryHistory:
    """The versions that are kept of one working memory, oldest first; the last one is current. `thread_id` None: the resource's."""

    thread_id: str | None
    versions: tuple[WorkingMemoryVersion, ...]


@dataclass(frozen=True, slots=True)
class ThreadRestore:
    """How far a thread is that is put back row by row. Dates are milliseconds since 1970."""

    resource_id: str
    thread_id: str
    incarnation: str
    first_seq: int
    rows: int = 0
    last_created: int | None = None
    in_date_order: bool = True
    rows_expire: bool = False


@runtime_checkable
class PortableStore(Protocol):
    """Threads as they are: whole histories, in their order, with the dates they have."""

    def read_rows(self, header: ThreadHeader, *, after: int, most_bytes: int) -> tuple[tuple[Message, ...], int | None]:
        """Messages with numbers above `after`, in order.

        Returns about `most_bytes` of them, and the number to go on after; None where there are no more. One request per MB.
        """

    def known_messages(self, resource_id: str, thread_id: str, ids: Sequence[str]) -> frozenset[str]:
        """Those of the ids that the thread shows. Three requests, and one for each MB of ids or for each few ids."""

    def list_working_memory(
        self, resource_id: str, *, cursor: Any = None
    ) -> tuple[tuple[WorkingMemoryHistory, ...], Any]:
        """The working memories of a resource and of its threads, some at a time, and a cursor where there are more."""

    def begin_restore(self, thread: Thread, *, title_source: TitleSource) -> ThreadRestore:
        """Take the id of a thread that is hidden until it is whole. One request.

        Raises ConflictError where there is a thread of that id (``THREAD_EXISTS``), one is being built, or the resource is
        being erased; AccessDeniedError where the id belongs to another resource.
        """

    def restore_rows(
        self, restore: ThreadRestore, rows: Sequence[Message], *, index: str | None = None
    ) -> ThreadRestore:
        """Write the next messages. Repeatable: the same rows come to the same places. Raises ConflictError when given up."""

    def finish_restore(self, restore: ThreadRestore, thread: Thread, *, title_source: TitleSource) -> ThreadHeader:
        """Show the thread, with its dates. One request. Raises ConflictError, AccessDeniedError."""

    def abandon_restore(self, restore: ThreadRestore) -> None:
        """Give the thread up; its rows are purged. One request."""

    def restore_working_memory(self, resource_id: str, history: WorkingMemoryHistory) -> bool:
        """Put versions back where there are none. False where there is another working memory, which stays. Two requests."""
