"""Threads: create, read, list, change, delete, hand over."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from agent_memory import clock
from agent_memory._json import freeze
from agent_memory.errors import InvalidInputError, NotFoundError
from agent_memory.ids import check_id, new_id
from agent_memory.memory.base import UNSET, MemoryBase, Owner, Unset
from agent_memory.memory.files import copy_files
from agent_memory.memory.filters import (
    DEFAULT_THREADS_PER_PAGE,
    PerPage,
    read_order,
    read_page,
    read_thread_filter,
)
from agent_memory.memory.results import ThreadList
from agent_memory.messages import Message
from agent_memory.ports import MessageQuery, Thread, ThreadHeader, ThreadQuery

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
            expires_at: When the thread goes away by itself.

        Raises:
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
            expires_at=expires_at,
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
        expires_at: datetime | None = None,
        resource_id: Owner = UNSET,
    ) -> Thread:
        """Change a thread. Metadata is merged key by key unless `replace_metadata`; what is None stays.

        A title set here counts as a person's: the title job leaves it alone, also when it is ''.

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
                expires_at=expires_at,
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
        self._purge(owner, thread_id, header.message_count)
        return deleted

    def transfer_thread(self, thread_id: str, new_resource_id: str, *, resource_id: Owner = UNSET) -> Thread:
        """Move a thread with its messages, files and thread working memory to another resource; its dates stay.

        Raises:
            NotFoundError, AccessDeniedError: No such thread of that owner.
            ConflictError: The new owner has a thread of that id.
        """
        check_id("new_resource_id", new_resource_id)
        header = self._header(thread_id, resource_id)
        if header.thread.resource_id == new_resource_id:
            return header.thread
        if self.blobs is not None:
            copy_files(self.blobs, self._all_messages(header), header.thread.resource_id, new_resource_id)
        return self.storage.transfer_thread(header.thread.resource_id, thread_id, new_resource_id)

    # -- inside

    def _all_messages(self, header: ThreadHeader) -> tuple[Message, ...]:
        query = MessageQuery(per_page=None, newest_first=False, include_total=False)
        return self.storage.list_messages(header, query).messages

    def _refuse_foreign(self, thread_id: str, owner: str) -> None:
        error = self._missing(thread_id, owner)
        if not isinstance(error, NotFoundError):
            raise error

    def _purge(self, resource_id: str, thread_id: str, count: int) -> None:
        """Remove rows that no reader sees any more: here, or by the janitor where they are many."""
        services = self._services
        if count > PURGED_AT_ONCE and services is not None and services.jobs is not None:
            from agent_memory.jobs.runner import start

            start(services, "purge", {"threadId": thread_id}, owner=resource_id)
            return
        self.storage.purge_thread(resource_id, thread_id)


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
