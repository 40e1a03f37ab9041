"""Messages on purpose: save, change, delete."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from agent_memory import clock
from agent_memory._json import thaw
from agent_memory.errors import ConflictError, InvalidInputError, NotFoundError
from agent_memory.ids import check_id, new_id
from agent_memory.memory.base import UNSET, Owner, Unset
from agent_memory.memory.files import FileKeeper
from agent_memory.memory.threads import Threads, to_come
from agent_memory.messages import Message, TextPart
from agent_memory.messages.for_storage import for_storage
from agent_memory.messages.message import content_from_json, content_to_json, message_from_json
from agent_memory.ports import MessageRef


class Messages(Threads):
    """The part of the facade that writes messages outside a run."""

    def save_messages(
        self,
        messages: Sequence[Message | Mapping[str, Any]],
        *,
        thread_id: str | Unset = UNSET,
        resource_id: Owner = UNSET,
        expires_at: datetime | None = None,
        thread_config: Mapping[str, Any] | None = None,
    ) -> tuple[Message, ...]:
        """Store messages, replacing those whose id is known in their thread. Unknown threads are created.

        System messages and traces of working memory are left out. Of one id given twice the last copy counts. Messages that
        are dated before stored ones are put in their place.

        Args:
            messages: Messages, or their wire form; missing ids and dates are filled in.
            thread_id, resource_id: For messages that do not name their own. Where no resource is named, the owner of an
                existing thread is meant.
            expires_at: When new messages go away that name no time of their own (`Message.expires_at`, ``expiresAt``); else the
                option `expire_days` counts. A stored message that is replaced keeps its time unless it names another.
            thread_config: Memory options for this call.

        Returns:
            What was stored, in the order given.

        Raises:
            InvalidInputError: A message is malformed or names no thread or resource; nothing was written.
            AccessDeniedError: A thread belongs to another resource.
            ConflictError: An import would renumber more rows than one transaction holds.
        """
        if isinstance(messages, Mapping | str) or not isinstance(messages, Sequence):
            raise InvalidInputError("messages", f"expected a list, found {type(messages).__name__}")
        merged = self._merged(thread_config)
        index = self.index_id(merged)
        if expires_at is not None:
            expires_at = to_come("expires_at", expires_at)
        elif merged.expire_days is not None:
            expires_at = clock.now() + timedelta(days=merged.expire_days)
        threads: dict[str, dict[str, Message]] = {}
        owners: dict[str, str] = {}
        for number, raw in enumerate(messages):
            message = self._placed(f"messages.{number}", raw, thread_id, resource_id, owners)
            kept = for_storage(message)
            if kept is not None:
                threads.setdefault(message.thread_id or "", {})[kept.id] = kept
        if len(threads) > 1:
            # One thread's owner is checked by its save; with several, none is saved before all are checked.
            for thread in threads:
                self._refuse_foreign_thread(thread, owners[thread])
        keepers = {owner: FileKeeper(self, owner) for owner in dict.fromkeys(owners.values())}
        stored: dict[tuple[str, str], Message] = {}
        for thread, rows in threads.items():
            with keepers[owners[thread]] as keeper:
                kept_rows = keeper.take(tuple(rows.values()))
                saved = self.storage.save_messages(
                    owners[thread], thread, kept_rows, index=index, expires_at=expires_at
                )
                stored |= {(thread, row.id): row for row in saved}
        return tuple(
            stored[thread, message_id]
            for thread, rows in threads.items()
            for message_id in rows
            if (thread, message_id) in stored
        )

    def update_messages(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        thread_id: str | Unset = UNSET,
        resource_id: Owner = UNSET,
        check: Callable[[Message], None] | None = None,
    ) -> tuple[Message, ...]:
        """Change stored messages: ``[{"id": …, "content": {…}, "role"?, "type"?}]``. Unknown ids are skipped.

        Keys of `content` replace those stored; its `metadata` is merged by key; a text as `content` replaces the text parts.
        Place and date of a message stay. `check` is called with each message as it is stored, and raises to refuse its change.

        Raises:
            InvalidInputError: A malformed message, a change of thread or owner, or no hint where to look.
            ConflictError: A bare id is in more than one thread; name `thread_id`.
        """
        changed: list[Message] = []
        for number, change in enumerate(messages):
            at = f"messages.{number}"
            if not isinstance(change, Mapping):
                raise InvalidInputError(at, f"expected an object with an id, found {type(change).__name__}")
            message_id = check_id(f"{at}.id", change.get("id"))
            thread: Any = _either(change, "thread_id", "threadId") or thread_id
            owner: Any = _either(change, "resource_id", "resourceId") or resource_id
            for ref in self._one_ref(message_id, thread, owner):
                apply = functools.partial(_changed, change, at, check)
                try:
                    with FileKeeper(self, ref.resource_id) as keeper:
                        kept = keeper.after(apply)
                        changed.append(self.storage.update_message(ref.resource_id, ref.thread_id, message_id, kept))
                except NotFoundError:
                    continue
        return tuple(changed)

    def delete_messages(
        self,
        message_ids: Sequence[str | Mapping[str, Any]] | str | None = None,
        *,
        thread_id: str | Unset = UNSET,
        resource_id: Owner = UNSET,
    ) -> int:
        """Delete messages by id, or with `thread_id` alone all messages of a thread. The thread stays.

        Unknown ids are not an error. Search entries follow.

        Returns:
            How many were deleted.

        Raises:
            InvalidInputError: Neither ids nor a thread, an empty id, or bare ids without a thread or resource.
            NotFoundError, AccessDeniedError: No such thread of that owner.
        """
        if message_ids is None:
            if isinstance(thread_id, Unset):
                raise InvalidInputError(
                    "message_ids", "expected ids of messages, or thread_id alone for all of a thread"
                )
            header = self._header(thread_id, resource_id)
            cleared = self.storage.clear_thread(header.thread.resource_id, thread_id)
            self._purge(header.thread.resource_id, thread_id, cleared)
            return cleared
        ids = _ids(message_ids)
        if not ids:
            return 0
        refs = self._refs(ids, thread_id, resource_id)
        return self.storage.delete_messages(refs[0].resource_id, refs) if refs else 0

    # -- inside

    def _placed(
        self,
        at: str,
        raw: Message | Mapping[str, Any],
        thread_id: str | Unset,
        resource_id: Owner,
        owners: dict[str, str],
    ) -> Message:
        """A message with id, thread and owner; `owners` is what is known of the threads of this call."""
        message = raw if isinstance(raw, Message) else message_from_json(_with_id(raw, at), at)
        if not message.id.strip():
            message = message.replace(id=new_id())
        check_id(f"{at}.id", message.id)
        if message.expires_at is not None:
            message = message.replace(expires_at=to_come(f"{at}.expiresAt", message.expires_at))
        thread = message.thread_id or thread_id
        if isinstance(thread, Unset):
            raise InvalidInputError(f"{at}.threadId", "expected the id of a thread, found nothing")
        check_id(f"{at}.threadId", thread)
        owner = message.resource_id or resource_id
        if isinstance(owner, Unset):
            owner = owners.get(thread) or self.storage.owner_of(thread) or UNSET
        if isinstance(owner, Unset):
            raise InvalidInputError(f"{at}.resourceId", "expected the id of the thread's owner, found nothing")
        check_id(f"{at}.resourceId", owner)
        if owners.setdefault(thread, owner) != owner:
            raise InvalidInputError(f"{at}.resourceId", "expected one resource for all messages of a thread, found two")
        return message.replace(thread_id=thread, resource_id=owner)

    def _refuse_foreign_thread(self, thread_id: str, owner: str) -> None:
        claimed = self.storage.owner_of(thread_id)
        if claimed is not None and claimed != owner:
            raise self._missing(thread_id, owner)

    def _refs(self, ids: Sequence[str], thread_id: str | Unset, resource_id: Owner) -> tuple[MessageRef, ...]:
        """Where these messages are: in the named thread, else in any thread of the named resource."""
        if not isinstance(thread_id, Unset):
            header = self._header(thread_id, resource_id)
            owner = header.thread.resource_id
            found = self.storage.find(owner, thread_id, ids)
            return tuple(
                MessageRef(owner, thread_id, message_id, seq)
                for message_id, seq in found.items()
                if header.first_seq <= seq < header.next_seq
            )
        if isinstance(resource_id, Unset):
            raise InvalidInputError("resource_id", "expected a resource or a thread to look in, found neither")
        return self.storage.locate(check_id("resource_id", resource_id), ids)

    def _one_ref(self, message_id: str, thread_id: str | Unset, resource_id: Owner) -> tuple[MessageRef, ...]:
        refs = self._refs((message_id,), thread_id, resource_id)
        if len(refs) > 1:
            raise ConflictError(
                f"message {message_id} is in {len(refs)} threads; name thread_id", code="AMBIGUOUS_MESSAGE"
            )
        return refs


def _with_id(raw: Any, at: str) -> dict[str, Any]:
    if not isinstance(raw, Mapping):
        raise InvalidInputError(at, f"expected an object, found {type(raw).__name__}")
    given = dict(raw)
    message_id = given.get("id")
    if message_id is None or (isinstance(message_id, str) and not message_id.strip()):
        given["id"] = new_id()
    return given


def _ids(given: Any) -> list[str]:
    items = [given] if isinstance(given, str | Mapping) else given
    if not isinstance(items, Sequence):
        raise InvalidInputError("message_ids", f"expected a list of ids, found {type(given).__name__}")
    ids = [item.get("id") if isinstance(item, Mapping) else item for item in items]
    return list(dict.fromkeys(check_id(f"message_ids.{number}", item) for number, item in enumerate(ids)))


def _either(given: Mapping[str, Any], *names: str) -> Any:
    return next((given[name] for name in names if given.get(name) is not None), None)


def _changed(change: Mapping[str, Any], at: str, check: Callable[[Message], None] | None, stored: Message) -> Message:
    if check is not None:
        check(stored)
    for names, own in (
        (("thread_id", "threadId"), stored.thread_id),
        (("resource_id", "resourceId"), stored.resource_id),
    ):
        asked = _either(change, *names)
        if asked is not None and asked != own:
            raise InvalidInputError(
                f"{at}.{names[1]}", "a message stays in its thread; clone or transfer the thread instead"
            )
    content = change.get("content")
    if content is None:
        message = stored
    elif isinstance(content, str):
        message = _with_text(stored, content)
    elif isinstance(content, Mapping):
        message = _with_content(stored, content, f"{at}.content")
    else:
        raise InvalidInputError(f"{at}.content", f"expected an object or a text, found {type(content).__name__}")
    top = {name: change[name] for name in ("role", "type") if change.get(name) is not None}
    if top.get("role", "user") not in ("user", "assistant", "signal"):
        raise InvalidInputError(f"{at}.role", f"expected user, assistant or signal, found {top['role']!r:.20}")
    return message.replace(**top)


def _with_content(stored: Message, given: Mapping[str, Any], at: str) -> Message:
    own = thaw(content_to_json(stored.content))
    merged = {**own, **given}
    if isinstance(given.get("metadata"), Mapping):
        merged["metadata"] = {**own.get("metadata", {}), **given["metadata"]}
    message = stored.replace(content=content_from_json(merged, at))
    if "parts" in given and "content" not in given:
        return message.with_parts(message.parts)
    if isinstance(given.get("content"), str) and "parts" not in given:
        return _with_text(message, given["content"])
    return message


def _with_text(message: Message, text: str) -> Message:
    """The message with `text` in place of its text parts, at the first one's place."""
    parts: list[Any] = []
    placed = False
    for part in message.parts:
        if not isinstance(part, TextPart):
            parts.append(part)
        elif not placed:
            parts.append(TextPart(text))
            placed = True
    if not placed:
        parts.append(TextPart(text))
    return message.with_content(parts=tuple(parts), content=text)
