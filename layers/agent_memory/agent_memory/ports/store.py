"""Threads, messages and working memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

from agent_memory.messages import Message
from agent_memory.ports.copies import CopyChoice, ThreadCopy
from agent_memory.ports.files import FileUse
from agent_memory.ports.records import (
    Committed,
    MessagePage,
    MessageQuery,
    MessageRef,
    MessageRow,
    Thread,
    ThreadHeader,
    ThreadPage,
    ThreadQuery,
    ThreadUsage,
    TitleSource,
    TurnCommit,
    TurnRecord,
    TurnStart,
    WorkingMemoryRecord,
)


@runtime_checkable
class MessageStore(Protocol):
    """Threads, messages and working memory of resources.

    Every read that builds a prompt, checks ownership or asks whether something is stored is strongly consistent.
    Errors: UnavailableError after throttling or conflicts that outlasted the retries (nothing half saved),
    StorageError for the rest, ConflictError and NotFoundError where a method says so.
    """

    # A turn. Each of the loads is one request, and they may run at the same time.

    def begin_turn(self, resource_id: str, thread_id: str, turn: TurnRecord | None) -> TurnStart:
        """Register `turn` as running in the header and return the header. One request.

        Where a record of the same key is there already and is neither failed nor past its deadline, nothing changes and it is
        returned as `repeat`; a failed or dead one is replaced by this one and returned as `repeat` too.
        With `turn` None only the header is read. Raises ConflictError for a thread that is being built by a clone.
        """

    def latest(
        self, resource_id: str, thread_id: str, limit: int, *, before_seq: int | None = None
    ) -> tuple[Message, ...]:
        """The newest `limit` rows (before `before_seq`), oldest first. One request for up to 1 MB.

        Rows may belong to an earlier incarnation of the thread: filter them with `live`.
        """

    def find(self, resource_id: str, thread_id: str, message_ids: Sequence[str]) -> Mapping[str, int]:
        """Numbers of the rows of this thread with these ids; unknown ids are left out. One request per id, together."""

    def get_messages(
        self,
        resource_id: str,
        keys: Sequence[tuple[str, int]],
        *,
        consistent: bool = True,
        live_only: bool = False,
    ) -> tuple[Message, ...]:
        """Rows by (thread id, seq), in the order asked; missing and expired ones are left out. One request per 100.

        With `live_only` rows that their thread does not show any more (it was deleted or emptied) are left out too; the
        threads' headers come in the same request, which then holds 50 rows.
        """

    def commit(self, commit: TurnCommit) -> Committed:
        """Write one turn in one transaction.

        On a conflict it re-reads the header, takes new numbers and tries again (full jitter, 8 tries, then
        UnavailableError). `created_at` of new rows is raised to the thread's newest where it would go back.
        Raises ConflictError when the thread was deleted meanwhile, AccessDeniedError when the thread id is claimed by another resource.
        """

    def fail_turn(self, header: ThreadHeader, turn: TurnRecord) -> None:
        """Replace the turn's record (or drop it, when its state is ``running``) without touching `updated_at`. One request."""

    # Threads.

    def get_thread(self, resource_id: str, thread_id: str) -> ThreadHeader | None:
        """The header, or None. One request."""

    def owner_of(self, thread_id: str) -> str | None:
        """The resource that a thread id belongs to, where ids are unique in the deployment; else None. One request."""

    def create_thread(self, thread: Thread, *, title_source: TitleSource = "given") -> ThreadHeader:
        """Create a thread; one of the same owner that exists is returned unchanged.

        Raises AccessDeniedError when the id belongs to another resource, ConflictError while a clone builds it.
        """

    def update_thread(
        self,
        resource_id: str,
        thread_id: str,
        *,
        title: str | None = None,
        title_source: TitleSource = "person",
        metadata: Mapping[str, Any] | None = None,
        replace_metadata: bool = False,
        expires_at: datetime | None = None,
        forget_expiry: bool = False,
    ) -> Thread:
        """Change the given fields and `updated_at`, nothing else. Metadata is merged unless `replace_metadata`.

        With `forget_expiry` the thread has no time of its own any more: it expires by the deployment's retention, or never.
        Expiry of its messages stays as it is. Parallel merges of different keys all survive. Raises NotFoundError.
        """

    def set_generated_title(
        self, resource_id: str, thread_id: str, title: str, *, usage: ThreadUsage | None = None
    ) -> bool:
        """Set the title if it is still empty and no person ever set or cleared it. One conditional request.

        `usage` is added to the thread's sum with it. Never creates a thread. Returns whether it was set.
        """

    def list_threads(self, resource_id: str, query: ThreadQuery) -> ThreadPage:
        """One page of a resource's threads: one request for the page, one for the total."""

    def delete_thread(self, resource_id: str, thread_id: str) -> bool:
        """Hide a thread at once and for good; False when there was none. Its rows are purged by `purge_thread`."""

    def purge_thread(self, resource_id: str, thread_id: str, *, limit: int | None = None) -> int:
        """Remove rows that no live thread shows any more (of a deleted, expired or emptied thread). Repeatable.

        A live thread that expires by the deployment's retention, or should, gets the time that this asks for now.
        Returns how many went. `limit` bounds them: where as many went, more may be left.
        """

    def dead_threads(self, *, limit: int = 250, cursor: Any = None) -> tuple[tuple[tuple[str, str], ...], Any]:
        """Threads that wait for `purge_thread`: (resource, thread) pairs, and a cursor where there may be more.

        Deleted and expired threads, those whose building was given up, and live ones whose expiry is not what the
        deployment's retention asks for, found by a walk over all threads, `limit` at a time; for a job that runs once in a
        while.
        """

    # Copies, a piece at a time. The target is hidden until it is finished; an id that is taken is refused at the
    # beginning. Each step may be repeated from the copy that the step before it returned.

    def begin_clone(
        self,
        resource_id: str,
        thread_id: str,
        make: Callable[[ThreadHeader], Thread],
        *,
        seed: str,
        index: str | None = None,
        choice: CopyChoice | None = None,
        carry: Callable[[Sequence[Message]], None] | None = None,
    ) -> ThreadCopy:
        """Begin a clone of the thread as it is now; what is written to it later is not copied.

        Args:
            resource_id, thread_id: The source.
            make: The target, from the source's header.
            seed: What the copied messages' ids are made of, with their own ids (`agent_memory.ids.derived_id`).
            index: Id of the vector index to stamp them with.
            choice: Which messages.
            carry: Called with source messages before they are copied, e.g. to copy their files.

        Raises:
            NotFoundError: No such source.
            ConflictError: The target's id is taken.
        """

    def begin_transfer(self, resource_id: str, thread_id: str, new_resource_id: str) -> ThreadCopy:
        """Begin to move a thread, which stays where it is, and can be written to, until `finish_transfer`."""

    def copy_rows(
        self,
        copy: ThreadCopy,
        *,
        again: bool = False,
        carry: Callable[[Sequence[Message]], None] | None = None,
    ) -> ThreadCopy:
        """Copy the next piece: up to 1,000 rows or about 8 MB. `again`: it may have been copied before."""

    def keep_copy(self, copy: ThreadCopy) -> ThreadCopy:
        """Hold the target's id for two more hours. One request. Raises ConflictError (BUILD_LOST) when it is too late."""

    def finish_clone(self, copy: ThreadCopy) -> ThreadHeader:
        """Show a clone, with the working memory that the source thread has now.

        Raises ConflictError where the source was deleted or emptied meanwhile (SOURCE_GONE), or BUILD_LOST.
        """

    def finish_transfer(
        self, copy: ThreadCopy, *, carry: Callable[[Sequence[Message]], None] | None = None
    ) -> Thread | ThreadCopy:
        """Move the thread in one transaction, with what was added to it since; where more than that has changed, answers the
        copy that is to look at all rows again.

        Raises ConflictError where the source was deleted meanwhile, or BUILD_LOST.
        """

    def copied_thread(self, copy: ThreadCopy) -> Thread:
        """The target of a copy, hidden as it is. One request. Raises ConflictError (BUILD_LOST)."""

    def abandon_copy(self, copy: ThreadCopy) -> None:
        """Give the target's id free. What was copied is purged later. One request."""

    def transfer_thread(
        self,
        resource_id: str,
        thread_id: str,
        new_resource_id: str,
        *,
        carry: Callable[[Sequence[Message]], None] | None = None,
    ) -> Thread:
        """Move a thread with its messages and thread working memory to another resource, keeping dates, in one call.

        Raises NotFoundError, ConflictError when the target has a thread of that id, or the thread never rests.
        """

    def build_thread(self, thread: Thread, messages: Sequence[Message], *, index: str | None = None) -> ThreadHeader:
        """Create a thread with all `messages` at once (clone): hidden until the last row is written.

        Raises ConflictError when the id is taken.
        """

    # Messages.

    def list_messages(self, header: ThreadHeader, query: MessageQuery) -> MessagePage:
        """One page. Without a filter its cost does not grow with the thread."""

    def save_messages(
        self,
        resource_id: str,
        thread_id: str,
        messages: Sequence[Message],
        *,
        index: str | None = None,
        expires_at: datetime | None = None,
    ) -> tuple[Message, ...]:
        """Upsert by id into a thread, which is created if needed. Known ids are replaced in place.

        New messages that name no time of their own expire at `expires_at`; replaced ones when they did before.

        Messages dated before stored ones are put in their place (the tail is renumbered) within one transaction's
        limits, else ConflictError.
        """

    def update_message(
        self, resource_id: str, thread_id: str, message_id: str, change: Callable[[Message], Message]
    ) -> Message:
        """Apply `change` to a stored message under its version; tried again on a conflict. Raises NotFoundError."""

    def delete_messages(self, resource_id: str, refs: Sequence[MessageRef]) -> int:
        """Delete rows; unknown ones are left out. Returns how many were deleted."""

    def clear_thread(self, resource_id: str, thread_id: str) -> int:
        """Hide all messages of a thread at once and keep the thread. Returns how many there were."""

    def buried_uses(self, resource_id: str, thread_id: str, *, cursor: Any = None) -> tuple[tuple[FileUse, ...], Any]:
        """Files that the rows of a thread use which is gone, and a cursor where there are more. Two requests.

        None where the id is in use again, because the same message may use the same file there.
        """

    def references(self, resource_id: str, thread_id: str, message_ids: Sequence[str]) -> Mapping[str, frozenset[str]]:
        """Names of files and keys of overflow bodies that rows of these messages refer to, hidden rows included.

        One request per message, together, and one per 100 rows.
        """

    def locate(self, resource_id: str | None, message_ids: Sequence[str]) -> tuple[MessageRef, ...]:
        """Find messages by bare id among this resource's threads (a message id may be in more than one).

        `resource_id` None: among everybody's, for a trusted caller that names bare ids alone.
        """

    def scan_messages(
        self, *, limit: int = 500, cursor: Any = None, consistent: bool = False
    ) -> tuple[tuple[MessageRow, ...], Any]:
        """Rows of all resources, and a cursor (JSON) where there are more. One request, which reads `limit` rows.

        One of the few reads that grow with all that is stored: a walk to its end reads every row, for jobs that compare the
        search index with the table. Rows may belong to threads that are deleted or expired; expired rows are left out.
        """

    # Working memory: `thread_id` None is the resource's own.

    def get_working_memory(self, resource_id: str, thread_id: str | None) -> WorkingMemoryRecord | None:
        """The current text, or None where it was never written or was deleted. One request."""

    def put_working_memory(
        self, resource_id: str, thread_id: str | None, text: str, *, expected_version: int | None
    ) -> WorkingMemoryRecord:
        """Write a new version on condition that the current one is `expected_version` (0: none yet; None: any).

        Raises ConflictError otherwise. The history item is written in the same transaction.
        """

    def delete_working_memory(self, resource_id: str, thread_id: str | None, *, expected_version: int | None) -> None:
        """Clear the text; the version goes on counting."""

    def working_memory_history(self, resource_id: str, thread_id: str | None) -> tuple[WorkingMemoryRecord, ...]:
        """The last 20 versions, newest first."""


def live(header: ThreadHeader | None, messages: Sequence[Message]) -> tuple[Message, ...]:
    """Those of `messages` that the thread shows: none without a header, else those from `first_seq` up."""
    if header is None:
        return ()
    return tuple(m for m in messages if m.seq is not None and header.first_seq <= m.seq < header.next_seq)
