"""Routes of stored messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agent_memory.errors import ConflictError, InvalidInputError, NotFoundError, TooLargeError
from agent_memory.http.call import Call
from agent_memory.http.limits import MAX_IDS, PAGE_SHARE
from agent_memory.http.permitted import change_check
from agent_memory.http.response import Response
from agent_memory.http.shapes import Issue, RequestError
from agent_memory.http.wire import messages_json
from agent_memory.ids import check_id
from agent_memory.memory.base import Unset

if TYPE_CHECKING:
    from agent_memory.memory import Memory
    from agent_memory.ports import MessageRef

DEFAULT_PER_PAGE = 40
CUTS = 4  # how often a page is cut shorter until it fits


def list_messages(call: Call) -> Any:
    """A page of a thread's messages, oldest first.

    A page that would not fit into an answer is cut and continues at its cursor, unless it was asked for by number.
    """
    query, memory, thread_id = call.query, call.memory(), call.id("threadId")
    page, per_page = query.get("page", 0), query.get("perPage", DEFAULT_PER_PAGE)
    limit = call.settings.max_answer_bytes
    numbered = "page" in query and "cursor" not in query
    order = query.get("orderBy")
    field = query.get("orderBy[field]") or (order.get("field") if isinstance(order, dict) else order)
    direction = query.get("orderBy[direction]") or query.get("sortDirection")
    if direction is None and isinstance(order, dict):
        direction = order.get("direction")
    owner = call.thread_owner(memory, thread_id)
    budget = int(limit * PAGE_SHARE)
    for _ in range(CUTS):
        found = memory.recall(
            thread_id,
            resource_id=owner,
            page=page,
            per_page=per_page,
            order_by={"field": field, "direction": direction} if field or direction else None,
            filter=query.get("filter"),
            include=query.get("include"),
            cursor=query.get("cursor"),
            max_bytes=None if numbered else budget,
        )
        content: dict[str, Any] = {
            "messages": messages_json(memory, found.messages),
            "total": found.total,
            "page": page,
            "perPage": per_page,
            "hasMore": found.has_more,
            "uiMessages": None,
        }
        if found.next_cursor is not None:
            content["nextCursor"] = found.next_cursor
        response = Response.json(content)
        size = len(response.read())
        if size <= limit:
            return response
        if numbered:
            break
        # Stored bytes say little about the wire's: text may come twice, and links are longer than references.
        budget = int(budget * limit / size * PAGE_SHARE)
    raise TooLargeError(
        f"expected an answer of at most {limit} bytes, found {size}; ask for fewer messages (perPage), "
        "or leave page out and follow nextCursor, whose pages are cut to fit"
    )


def save_messages(call: Call) -> Any:
    """Store messages; known ids are replaced in place."""
    memory = call.memory_to_write()
    given, issues = [], list[Issue]()
    for number, raw in enumerate(call.body["messages"]):
        message = dict(raw)
        if not call.identity.trusted:
            message["resourceId"] = call.identity.resource_id
            message.pop("expiresAt", None)
            if message.get("role") != "user":
                issues.append((f"messages.{number}.role", "expected user: what you may store is your own"))
        for key in ("threadId", "resourceId"):
            if message.get(key) is None:
                issues.append((f"messages.{number}.{key}", "expected a string, found nothing"))
        given.append(message)
    if issues:
        raise RequestError(issues, "body")
    for thread_id, owner in sorted({_place(message, number) for number, message in enumerate(given)}):
        call.check_thread(memory, thread_id, owner)  # before files are kept for messages that will be refused
    return {"messages": messages_json(memory, memory.save_messages(given))}


def _place(message: Mapping[str, Any], number: int) -> tuple[str, str]:
    keys = ("threadId", "resourceId")
    thread_id, owner = (check_id(f"messages.{number}.{key}", message[key]) for key in keys)
    return thread_id, owner


def delete_messages(call: Call) -> Any:
    """Delete messages by id, or with ``threadId`` alone all messages of a thread."""
    memory = call.memory_to_write()
    thread_id, given = call.body.get("threadId"), call.body.get("messageIds")
    if given is None:
        if thread_id is None:
            raise InvalidInputError("messageIds", "expected ids of messages, or threadId alone for all of a thread")
        count = memory.delete_messages(thread_id=thread_id, resource_id=call.thread_owner(memory, thread_id))
        return _deleted(count)
    ids = _ids(given)
    if thread_id is not None:
        memory.delete_messages(ids, thread_id=thread_id, resource_id=call.thread_owner(memory, thread_id))
    elif ids:
        owner = call.owner
        if not isinstance(owner, Unset):
            memory.delete_messages(ids, resource_id=owner)
        else:
            for ref in _anywhere(memory, ids):
                memory.delete_messages([ref.message_id], thread_id=ref.thread_id, resource_id=ref.resource_id)
    return _deleted(len(ids))


def update_message(call: Call) -> Any:
    """Change a stored message on purpose. Its place and date stay."""
    memory, message_id = call.memory_to_write(), call.id("messageId")
    thread_id, owner = call.query.get("threadId"), call.query_owner
    change = {"id": message_id, "content": call.body["content"]}
    check = change_check(call.identity, call.body["content"])
    if thread_id is not None:
        owner = call.thread_owner(memory, thread_id, call.query_owner)
        changed = memory.update_messages([change], thread_id=thread_id, resource_id=owner, check=check)
    elif not isinstance(owner, Unset):
        changed = memory.update_messages([change], resource_id=owner, check=check)
    else:
        refs = _anywhere(memory, [message_id])
        changed = tuple(
            row
            for ref in refs
            for row in memory.update_messages([change], thread_id=ref.thread_id, resource_id=ref.resource_id)
        )
    if not changed:
        raise NotFoundError("Message not found", code="MESSAGE_NOT_FOUND")
    return messages_json(memory, changed)[0]


def _deleted(count: int) -> dict[str, Any]:
    return {"success": True, "message": f"{count} message{'' if count == 1 else 's'} deleted successfully"}


def _ids(given: Any) -> list[str]:
    """Ids from an id, a list of ids, ``{"id": …}`` or a list of such."""
    items = given if isinstance(given, list) else [given]
    if len(items) > MAX_IDS:
        raise InvalidInputError("messageIds", f"expected at most {MAX_IDS} ids, found {len(items)}")
    ids = [item.get("id") if isinstance(item, dict) else item for item in items]
    if not ids:
        raise InvalidInputError("messageIds", "expected at least one id, found none")
    return list(dict.fromkeys(check_id(f"messageIds.{number}", item) for number, item in enumerate(ids)))


def _anywhere(memory: Memory, ids: Sequence[str]) -> tuple[MessageRef, ...]:
    """Places of messages that a trusted caller names by bare ids, whoever owns them.

    Raises ConflictError where an id is in more than one thread, because nobody can tell which one is meant.
    """
    refs = memory.storage.locate(None, ids)
    for message_id in ids:
        count = sum(ref.message_id == message_id for ref in refs)
        if count > 1:
            raise ConflictError(
                f"message {message_id} is in {count} threads; name threadId or resourceId", code="AMBIGUOUS_MESSAGE"
            )
    return refs
