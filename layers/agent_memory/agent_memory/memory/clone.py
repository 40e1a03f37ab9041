"""Clones: copies of threads, and where they came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent_memory import clock
from agent_memory._json import EMPTY, freeze
from agent_memory.errors import AccessDeniedError, InvalidInputError, NotFoundError
from agent_memory.ids import check_id, derived_id, new_id
from agent_memory.memory.base import UNSET, Owner, Unset
from agent_memory.memory.copying import COPIED_AT_ONCE
from agent_memory.memory.copying import clone as clone_at_once
from agent_memory.memory.files import copy_files
from agent_memory.memory.filters import read_message_filter
from agent_memory.memory.messages import Messages
from agent_memory.memory.results import CloneMetadata, CloneResult
from agent_memory.messages import Message
from agent_memory.ports import CopyChoice, Thread, ThreadCopy, ThreadHeader, ThreadQuery, with_last_message

MAX_ANCESTORS = 100
MAX_CHOSEN_IDS = 1_000


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

        Threads of more than 1,000 messages are left to a job where the deployment has a janitor. The copy holds what the
        source held at the time of the call; it expires when the source does, and its messages when those of the source do.

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
        source_owner = self._source_owner(source_thread_id, source_resource_id, resource_id)
        owner = source_owner if resource_id is None else check_id("resource_id", resource_id)
        new_id_ = new_id() if new_thread_id is None else check_id("new_thread_id", new_thread_id)
        seed = new_id()
        now = clock.now()
        clone = {"sourceThreadId": source_thread_id, "clonedAt": clock.to_iso(now)}
        copied: list[Message] = []

        def make(source: ThreadHeader) -> Thread:
            own = f"Clone of {source.thread.title}" if source.thread.title else ""
            return Thread(
                id=new_id_,
                resource_id=owner,
                created_at=now,
                updated_at=now,
                title=own if title is None else title,
                metadata=freeze({**(metadata or {}), "clone": clone}),
                expires_at=source.thread.expires_at if source.idle_s is None else None,
            )

        def carry(messages: Sequence[Message]) -> None:
            copy_files(self.blobs, messages, source_owner, owner, files=self.files)
            copied[:0] = messages

        choice = _choice(options)
        index = self.index_id(self._merged(thread_config))
        try:
            copy = self.storage.begin_clone(
                source_owner, source_thread_id, make, seed=seed, index=index, choice=choice, carry=carry
            )
        except NotFoundError:
            raise self._no_source(source_thread_id, source_resource_id, source_owner) from None
        if copy.rows + copy.left > COPIED_AT_ONCE and self._has_jobs:
            return self._clone_later(copy, new_thread_id is not None)
        built = clone_at_once(self.storage, copy, carry)
        offset = copy.first_seq - copy.low
        ids = {message.id: derived_id(seed, message.id) for message in copied}
        rows = tuple(
            message.replace(id=ids[message.id], thread_id=new_id_, resource_id=owner, seq=(message.seq or 0) + offset)
            for message in copied
        )
        return CloneResult(built.thread, rows, ids)

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

    def _source_owner(self, thread_id: str, source_resource_id: Owner, resource_id: str | None) -> str:
        owner = self._owner(thread_id, source_resource_id)
        if owner is None and resource_id is not None:
            owner = check_id("resource_id", resource_id)
        if owner is None:
            raise self._no_source(thread_id, source_resource_id, None)
        return owner

    def _no_source(
        self, thread_id: str, source_resource_id: Owner, owner: str | None
    ) -> NotFoundError | AccessDeniedError:
        error = self._missing(thread_id, None if isinstance(source_resource_id, Unset) else owner)
        if isinstance(error, NotFoundError):
            return NotFoundError(f"Source thread with id {thread_id} not found", code="THREAD_NOT_FOUND")
        return error

    def _clone_later(self, copy: ThreadCopy, id_was_given: bool) -> CloneResult:
        """Leave the rest of a clone to a job."""
        store = self.storage
        try:
            if id_was_given and store.owner_of(copy.thread_id) not in (None, copy.resource_id):
                raise AccessDeniedError(f"thread {copy.thread_id}: expected a free id, found another resource's thread")
            thread = store.copied_thread(copy)
            made_of = {
                "title": thread.title,
                "metadata": thread.metadata,
                "createdAt": clock.to_iso(thread.created_at),
                "expiresAt": None if thread.expires_at is None else clock.to_iso(thread.expires_at),
            }
            job = self._start_copy("clone", copy, thread=made_of)
        except BaseException:
            store.abandon_copy(copy)
            raise
        if copy.last_id is not None:
            thread = with_last_message(thread, copy.last_id)
        return CloneResult(thread, (), {}, job.id)


def _choice(options: Mapping[str, Any] | None) -> CopyChoice:
    """The messages that a clone copies."""
    given = _object("options", options)
    chosen = _object("options.messageFilter", given.get("message_filter", given.get("messageFilter")))
    ids = chosen.get("message_ids", chosen.get("messageIds"))
    if ids is not None and (isinstance(ids, str) or not isinstance(ids, Sequence)):
        raise InvalidInputError("options.messageFilter.messageIds", f"expected a list, found {type(ids).__name__}")
    if ids is not None and len(ids) > MAX_CHOSEN_IDS:
        raise InvalidInputError(
            "options.messageFilter.messageIds", f"expected at most {MAX_CHOSEN_IDS} ids, found {len(ids)}"
        )
    limit = given.get("message_limit", given.get("messageLimit"))
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int)):
        raise InvalidInputError("options.messageLimit", f"expected a whole number, found {type(limit).__name__}")
    start = chosen.get("start_date", chosen.get("startDate"))
    end = chosen.get("end_date", chosen.get("endDate"))
    dates, _ = read_message_filter({"dateRange": {"start": start, "end": end}})
    named = None if ids is None else frozenset(id for id in ids if isinstance(id, str))
    return CopyChoice(dates, named, limit if limit is not None and limit > 0 else None)


def _object(field: str, value: Any) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidInputError(field, f"expected an object, found {type(value).__name__}")
    return value
