"""Clones: copies of threads, and where they came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent_memory import clock
from agent_memory._json import EMPTY, freeze
from agent_memory.errors import AgentMemoryError, InvalidInputError, NotFoundError
from agent_memory.ids import check_id, new_id
from agent_memory.memory.base import UNSET, Owner, Unset
from agent_memory.memory.files import copy_files
from agent_memory.memory.filters import matches, read_message_filter
from agent_memory.memory.messages import Messages
from agent_memory.memory.results import CloneMetadata, CloneResult
from agent_memory.messages import Message
from agent_memory.ports import Thread, ThreadHeader, ThreadQuery

MAX_ANCESTORS = 100


class Clones(Messages):
    """The part of the facade that copies threads."""

    def clone_thread(
        self,
        source_thread_id: str,
        *,
        new_thread_id: str | None = None,
        resource_id: str | None = None,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
        source_resource_id: Owner = UNSET,
        thread_config: Mapping[str, Any] | None = None,
    ) -> CloneResult:
        """Copy a thread with its messages and its thread working memory. Nobody sees the copy before it is whole.

        Args:
            source_thread_id: The thread to copy.
            new_thread_id: Id of the copy; made when absent.
            resource_id: Owner of the copy; the source's when absent. The source owner's own working memory is not copied.
            title: ``Clone of <title>`` when absent ('' where the source has none).
            metadata: For the copy; the source's is not copied. ``clone`` is added.
            options: ``{"messageLimit"?, "messageFilter"?: {"startDate", "endDate", "messageIds"}}``. The limit keeps the
                newest; both dates belong to the range.
            source_resource_id: Owner of the source, where thread ids are per owner.
            thread_config: Memory options for this call.

        Raises:
            NotFoundError, AccessDeniedError: No such source of that owner.
            ConflictError: The new id is taken.
        """
        source = self._source(source_thread_id, source_resource_id, resource_id)
        owner = source.thread.resource_id if resource_id is None else check_id("resource_id", resource_id)
        new_id_ = new_id() if new_thread_id is None else check_id("new_thread_id", new_thread_id)
        copied = _chosen(self._all_messages(source), options)
        ids = {message.id: new_id() for message in copied}
        now = clock.now()
        if title is None:
            title = f"Clone of {source.thread.title}" if source.thread.title else ""
        clone: dict[str, Any] = {"sourceThreadId": source_thread_id, "clonedAt": clock.to_iso(now)}
        if copied:
            clone["lastMessageId"] = copied[-1].id
        thread = Thread(
            id=new_id_,
            resource_id=owner,
            created_at=now,
            updated_at=now,
            title=title,
            metadata=freeze({**(metadata or {}), "clone": clone}),
        )
        rows = [
            message.replace(id=ids[message.id], thread_id=new_id_, resource_id=owner, seq=None, version=None)
            for message in copied
        ]
        index = self.index_id(self._merged(thread_config))
        copy_files(self.blobs, copied, source.thread.resource_id, owner)
        built = self.storage.build_thread(thread, rows, index=index)
        try:
            self._copy_working_memory(source.thread, thread)
        except AgentMemoryError:
            self.delete_thread(new_id_, resource_id=owner)
            raise
        stored = self._all_messages(built)
        return CloneResult(built.thread, stored or tuple(rows), ids)

    def get_clone_metadata(self, thread: Thread) -> CloneMetadata | None:
        """Where a thread was cloned from; None for one that is no clone."""
        clone = (thread.metadata or EMPTY).get("clone")
        if not isinstance(clone, Mapping) or not isinstance(clone.get("sourceThreadId"), str):
            return None
        try:
            cloned_at = clock.parse(clone.get("clonedAt", ""))
        except (ValueError, TypeError, AttributeError):
            return None
        return CloneMetadata(clone["sourceThreadId"], cloned_at, clone.get("lastMessageId"))

    def is_clone(self, thread: Thread) -> bool:
        """Whether a thread is a clone."""
        return self.get_clone_metadata(thread) is not None

    def get_source_thread(self, thread_id: str, *, resource_id: Owner = UNSET) -> Thread | None:
        """The thread that this one was cloned from; None where it is no clone, or the source is gone or somebody else's."""
        thread = self._header(thread_id, resource_id).thread
        clone = self.get_clone_metadata(thread)
        return None if clone is None else self.get_thread(clone.source_thread_id, resource_id=thread.resource_id)

    def list_clones(self, source_thread_id: str, *, resource_id: Owner = UNSET) -> tuple[Thread, ...]:
        """Clones of a thread that belong to `resource_id` (the source's owner when absent), oldest first.

        Reads all threads of the resource.
        """
        owner = self._owner(source_thread_id, resource_id)
        if owner is None:
            return ()
        threads: list[Thread] = []
        query = ThreadQuery(per_page=None, newest_first=False)
        while True:
            page = self.storage.list_threads(owner, query)
            threads.extend(page.threads)
            if page.next_cursor is None:
                break
            query = ThreadQuery(per_page=None, newest_first=False, cursor=page.next_cursor)
        found = ((thread, self.get_clone_metadata(thread)) for thread in threads)
        return tuple(thread for thread, clone in found if clone and clone.source_thread_id == source_thread_id)

    def get_clone_history(self, thread_id: str, *, resource_id: Owner = UNSET) -> tuple[Thread, ...]:
        """A thread and its ancestors of the same owner, the oldest first."""
        thread: Thread | None = self._header(thread_id, resource_id).thread
        chain: list[Thread] = []
        while thread is not None and len(chain) < MAX_ANCESTORS and thread.id not in {known.id for known in chain}:
            chain.append(thread)
            clone = self.get_clone_metadata(thread)
            thread = None if clone is None else self.get_thread(clone.source_thread_id, resource_id=thread.resource_id)
        return tuple(reversed(chain))

    # -- inside

    def _source(self, thread_id: str, source_resource_id: Owner, resource_id: str | None) -> ThreadHeader:
        owner = self._owner(thread_id, source_resource_id)
        if owner is None and resource_id is not None:
            owner = check_id("resource_id", resource_id)
        header = None if owner is None else self.storage.get_thread(owner, thread_id)
        if header is not None:
            return header
        error = self._missing(thread_id, None if isinstance(source_resource_id, Unset) else owner)
        if isinstance(error, NotFoundError):
            raise NotFoundError(f"Source thread with id {thread_id} not found", code="THREAD_NOT_FOUND")
        raise error

    def _copy_working_memory(self, source: Thread, clone: Thread) -> None:
        record = self.storage.get_working_memory(source.resource_id, source.id)
        if record is not None and record.text:
            self.storage.put_working_memory(clone.resource_id, clone.id, record.text, expected_version=0)


def _chosen(messages: Sequence[Message], options: Mapping[str, Any] | None) -> list[Message]:
    """The messages that a clone copies, oldest first."""
    given = _object("options", options)
    chosen = _object("options.messageFilter", given.get("message_filter", given.get("messageFilter")))
    ids = chosen.get("message_ids", chosen.get("messageIds"))
    if ids is not None and (isinstance(ids, str) or not isinstance(ids, Sequence)):
        raise InvalidInputError("options.messageFilter.messageIds", f"expected a list, found {type(ids).__name__}")
    limit = given.get("message_limit", given.get("messageLimit"))
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int)):
        raise InvalidInputError("options.messageLimit", f"expected a whole number, found {type(limit).__name__}")
    start = chosen.get("start_date", chosen.get("startDate"))
    end = chosen.get("end_date", chosen.get("endDate"))
    dates, _ = read_message_filter({"dateRange": {"start": start, "end": end}})
    passes = matches(dates)
    kept = [message for message in messages if passes(message) and (ids is None or message.id in ids)]
    return kept[-limit:] if limit is not None and limit > 0 else kept


def _object(field: str, value: Any) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidInputError(field, f"expected an object, found {type(value).__name__}")
    return value
