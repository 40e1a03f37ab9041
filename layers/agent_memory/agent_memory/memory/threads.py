"""Threads: create, read, list, change, delete, hand over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from agent_memory import clock
from agent_memory._json import freeze
from agent_memory.errors import ConfigurationError, ConflictError, InvalidInputError, NotFoundError
from agent_memory.ids import check_id, new_id
from agent_memory.memory.base import UNSET, MemoryBase, Owner, Unset
from agent_memory.memory.copying import COPIED_AT_ONCE, forget_runs, withdraw_files
from agent_memory.memory.files import copy_files
from agent_memory.memory.filters import (
    DEFAULT_THREADS_PER_PAGE,
    PerPage,
    read_order,
    read_page,
    read_thread_filter,
)
from agent_memory.memory.results import ThreadList, TransferResult
from agent_memory.messages import Message
from agent_memory.ports import Job, Thread, ThreadCopy, ThreadQuery

PURGED_AT_ONCE: Final = 200  # rows that a call removes itself (8 batches of 25); more are left to the janitor


class Threads(MemoryBase):
    """The part of the facade that deals with threads."""

    def create_thread(
        self,
        resource_id: str,
        *,
        thread_id: str | None = None,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        expires_at: datetime | None = None,
    ) -> Thread:
        """Create a thread; one of the same owner that exists is returned as it is.

        Args:
            resource_id: The owner.
            thread_id: Its id; made when absent.
            title: None or '' leaves it to the title job, where one is on.
            metadata: Any JSON object up to 16 KB.
            expires_at: When the thread goes away by itself; None: when the deployment's retention ends, or never.

        Raises:
            InvalidInputError: A time that is over.
            AccessDeniedError: The id belongs to another resource.
            ConflictError: A clone is filling that thread.
        """
        now = clock.now()
        thread = Thread(
            id=new_id() if thread_id is None else check_id("thread_id", thread_id),
            resource_id=check_id("resource_id", resource_id),
            created_at=now,
            updated_at=now,
            title=_title(title) or "",
            metadata=_metadata(metadata),
            expires_at=None if expires_at is None else to_come("expires_at", expires_at),
        )
        return self.storage.create_thread(thread, title_source="given" if thread.title else "none").thread

    def save_thread(self, thread: Thread) -> Thread:
        """Store a thread as given: it is created, or its title and metadata are replaced. Its dates are the store's."""
        check_id("thread.id", thread.id)
        check_id("thread.resource_id", thread.resource_id)
        title, metadata = _title(thread.title) or "", _metadata(thread.metadata)
        source = "given" if title else "none"
        stored = self.storage.create_thread(thread, title_source=source).thread  # type: ignore[arg-type]
        if (stored.title, stored.metadata or None) == (title, metadata or None):
            return stored
        return self.storage.update_thread(
            thread.resource_id,
            thread.id,
            title=title if title != stored.title else None,
            metadata=metadata if metadata is not None else {},
            replace_metadata=True,
        )

    def get_thread(self, thread_id: str, *, resource_id: Owner = UNSET) -> Thread | None:
        """A thread, or None where there is none of that id (and that owner, if named)."""
        owner = self._owner(thread_id, resource_id)
        header = None if owner is None else self.storage.get_thread(owner, thread_id)
        return None if header is None else header.thread

    def get_thread_by_id(self, thread_id: str, *, resource_id: Owner = UNSET) -> Thread | None:
        """The same as `get_thread`, under the name that the documents use."""
        return self.get_thread(thread_id, resource_id=resource_id)

    def list_threads(
        self,
        resource_id: Owner = UNSET,
        *,
        filter: Mapping[str, Any] | None = None,
        page: int = 0,
        per_page: PerPage = None,
        order_by: Mapping[str, Any] | None = None,
        cursor: str | None = None,
    ) -> ThreadList:
        """One page of a resource's threads.

        Args:
            resource_id: The owner; may stand in `filter` instead.
            filter: ``{"resourceId": …, "metadata": {…}}``; all pairs must match by deep equality.
            page: From 0.
            per_page: 100 by default; False: all.
            order_by: ``{"field": "createdAt" | "updatedAt", "direction": "ASC" | "DESC"}``; newest created first.
            cursor: `next_cursor` of an earlier page; takes the place of `page`.

        Raises:
            InvalidInputError: No resource is named, or a value is out of range.
        """
        named, metadata = read_thread_filter(filter)
        if isinstance(resource_id, Unset):
            resource_id = check_id("filter.resource_id", named)
        elif named is not None and named != resource_id:
            raise InvalidInputError("filter.resource_id", "given twice with different values; remove one")
        owner = check_id("resource_id", resource_id)
        number, size = read_page(page, per_page, DEFAULT_THREADS_PER_PAGE)
        field, newest_first = read_order(order_by)
        found = self.storage.list_threads(
            owner,
            ThreadQuery(
                page=number if size else 0,
                per_page=None if size is False else max(size, 1),
                order_by=field,
                newest_first=newest_first,
                metadata=metadata,
                cursor=cursor,
            ),
        )
        if size == 0 and size is not False:
            return ThreadList((), found.total, number, 0, found.total > 0)
        return ThreadList(found.threads, found.total, number, size, found.has_more, found.next_cursor)

    def update_thread(
        self,
        thread_id: str,
        *,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        replace_metadata: bool = False,
        expires_at: datetime | Unset | None = UNSET,
        resource_id: Owner = UNSET,
    ) -> Thread:
        """Change a thread. Metadata is merged key by key unless `replace_metadata`; a title or metadata of None stays.

        A title set here counts as a person's: the title job leaves it alone, also when it is ''. `expires_at` is when the
        thread goes with all of its messages; None takes such a time away. Times of single messages stay.

        Raises:
            NotFoundError, AccessDeniedError: No such thread of that owner.
        """
        owner = self._known_owner(thread_id, resource_id)
        try:
            return self.storage.update_thread(
                owner,
                thread_id,
                title=_title(title),
                title_source="person",
                metadata=_metadata(metadata),
                replace_metadata=replace_metadata,
                expires_at=None
                if isinstance(expires_at, Unset) or expires_at is None
                else to_come("expires_at", expires_at),
                forget_expiry=expires_at is None,
            )
        except NotFoundError:
            raise self._missing(thread_id, owner) from None

    def delete_thread(self, thread_id: str, *, resource_id: Owner = UNSET) -> bool:
        """Delete a thread with its messages and its working memory; False where there was none.

        It is gone for every reader when this returns. Rows of long threads and search entries are removed soon after.
        """
        owner = self._owner(thread_id, resource_id)
        header = None if owner is None else self.storage.get_thread(owner, thread_id)
        if owner is None or header is None:
            if not isinstance(resource_id, Unset) and owner is not None:
                self._refuse_foreign(thread_id, owner)
            return False
        deleted = self.storage.delete_thread(owner, thread_id)
        self._forget(owner, thread_id, header.message_count)
        return deleted

    def transfer_thread(self, thread_id: str, new_resource_id: str, *, resource_id: Owner = UNSET) -> TransferResult:
        """Move a thread with its messages, files and thread working memory to another resource; its dates stay.

        Threads of more than 1,000 messages are left to a job where the deployment has a janitor. Until the thread is moved,
        in one transaction, its old owner has it and can write to it; what is written meanwhile is moved too.

        Raises:
            NotFoundError, AccessDeniedError: No such thread of that owner.
            ConflictError: The new owner has a thread of that id, or the thread never rests.
        """
        check_id("new_resource_id", new_resource_id)
        header = self._header(thread_id, resource_id)
        owner = header.thread.resource_id
        if owner == new_resource_id:
            return TransferResult(header.thread)
        if header.message_count > COPIED_AT_ONCE and self._has_jobs:
            copy = self.storage.begin_transfer(owner, thread_id, new_resource_id)
            try:
                job = self._start_copy("transfer", copy)
            except BaseException:
                self.storage.abandon_copy(copy)
                raise
            return TransferResult(header.thread, job.id)

        def carry(messages: Sequence[Message]) -> None:
            copy_files(self.blobs, messages, owner, new_resource_id, files=self.files)

        moved = self.storage.transfer_thread(owner, thread_id, new_resource_id, carry=carry)
        more = withdraw_files(self.storage, self.files, owner, thread_id)
        while more is not None:
            more = withdraw_files(self.storage, self.files, owner, thread_id, more)
        self._forget(owner, thread_id, header.message_count)
        return TransferResult(moved)

    # -- inside

    def _refuse_foreign(self, thread_id: str, owner: str) -> None:
        error = self._missing(thread_id, owner)
        if not isinstance(error, NotFoundError):
            raise error

    @property
    def _has_jobs(self) -> bool:
        return self._services is not None and self._services.jobs is not None

    def _start_copy(self, kind: str, copy: ThreadCopy, **params: Any) -> Job:
        """Start a job that copies. It is the owner's; one between two owners is the deployment's, so that neither sees it.

        Raises what ended it, where it ran at once and failed.
        """
        from agent_memory.jobs.runner import start

        services = self._services
        if services is None:
            raise ConfigurationError("long threads are copied by jobs; bind the memory to a deployment")
        owner = copy.resource_id if copy.resource_id == copy.source_resource else None
        job = start(services, kind, {"copy": copy.to_json(), **params}, owner=owner)
        if job.state == "failed" and job.error is not None:
            raise ConflictError(job.error["message"], code=job.error["code"])
        return job

    def _forget(self, resource_id: str, thread_id: str, count: int) -> None:
        """Remove what is left of a thread that the resource has no more."""
        if self._services is not None:
            forget_runs(self._services.runs, resource_id, thread_id)
        self._purge(resource_id, thread_id, count)

    def _purge(self, resource_id: str, thread_id: str, count: int) -> None:
        """Remove rows that no reader sees any more: here, or by the janitor where they are many."""
        services = self._services
        if count > PURGED_AT_ONCE and services is not None and services.jobs is not None:
            from agent_memory.jobs.runner import start

            start(services, "purge", {"threadId": thread_id}, owner=resource_id)
            return
        self.storage.purge_thread(resource_id, thread_id)


def to_come(field: str, value: datetime) -> datetime:
    """A time in UTC that is not over. Raises InvalidInputError that names `field`."""
    try:
        parsed = clock.parse(value)
    except (ValueError, TypeError, OverflowError):
        raise InvalidInputError(field, "expected a date") from None
    if parsed <= clock.now():
        raise InvalidInputError(field, f"expected a time to come, found {clock.to_iso(parsed)}")
    return parsed


def _title(title: Any) -> str | None:
    if title is not None and not isinstance(title, str):
        raise InvalidInputError("title", f"expected a text, found {type(title).__name__}")
    return title


def _metadata(metadata: Any) -> Any:
    if metadata is None:
        return None
    if not isinstance(metadata, Mapping):
        raise InvalidInputError("metadata", f"expected an object, found {type(metadata).__name__}")
    return freeze(dict(metadata))
