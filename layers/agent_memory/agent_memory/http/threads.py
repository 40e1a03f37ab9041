"""Routes of threads."""

from __future__ import annotations

from typing import Any

from agent_memory.errors import AccessDeniedError, NotFoundError
from agent_memory.http.call import Call
from agent_memory.http.response import Response
from agent_memory.http.wire import bounded, messages_json, thread_json
from agent_memory.memory.base import UNSET, Unset


def list_threads(call: Call) -> Any:
    """A page of a resource's threads. A trusted caller that names no resource gets an empty one, never everybody's."""
    query = call.query
    page, per_page = query.get("page", 0), query.get("perPage", 100)
    owner = call.owner
    if isinstance(owner, Unset):
        return {"threads": [], "total": 0, "page": page, "perPage": per_page, "hasMore": False}
    found = call.memory().list_threads(
        owner,
        filter={"metadata": query["metadata"]} if query.get("metadata") else None,
        page=page,
        per_page=per_page,
        order_by=_order(call),
        cursor=query.get("cursor"),
    )
    content = {
        "threads": [thread_json(thread) for thread in found.threads],
        "total": found.total,
        "page": page,
        "perPage": per_page,
        "hasMore": found.has_more,
    }
    if found.next_cursor is not None:
        content["nextCursor"] = found.next_cursor
    return bounded(content, call.settings.max_answer_bytes, "ask for fewer threads a page (perPage)")


def create_thread(call: Call) -> Any:
    """A new thread, or the one of that id and owner."""
    memory = call.memory_to_write()
    thread = memory.create_thread(
        call.required_owner(),
        thread_id=call.body.get("threadId"),
        title=call.body.get("title"),
        metadata=call.body.get("metadata"),
        expires_at=call.body.get("expiresAt"),
    )
    return thread_json(thread)


def get_thread(call: Call) -> Any:
    """One thread."""
    return thread_json(call.thread(call.memory(), call.id("threadId")))


def update_thread(call: Call) -> Any:
    """Change title, metadata (which is replaced) and expiry. The owner stays: a resource named here must be the thread's own.

    An end user may make a thread expire, and sooner than it does; to keep it longer than somebody else has set is not theirs.
    """
    memory = call.memory_to_write()
    thread_id = call.id("threadId")
    owner = call.thread_owner(memory, thread_id)
    title, metadata = call.body.get("title"), call.body.get("metadata")
    expires_at = call.body.get("expiresAt", UNSET)
    if title is None and metadata is None and isinstance(expires_at, Unset):
        return thread_json(call.thread(memory, thread_id))
    if not isinstance(expires_at, Unset) and not call.identity.trusted:
        current = call.thread(memory, thread_id).expires_at
        if current is not None and (expires_at is None or expires_at > current):
            raise AccessDeniedError("an end user may not put off the expiry of a thread", code="NOT_ALLOWED")
    thread = memory.update_thread(
        thread_id,
        title=title,
        metadata=metadata,
        replace_metadata=metadata is not None,
        expires_at=expires_at,
        resource_id=owner,
    )
    return thread_json(thread)


def delete_thread(call: Call) -> Any:
    """Delete a thread with its messages."""
    memory = call.memory_to_write()
    thread_id = call.id("threadId")
    if not memory.delete_thread(thread_id, resource_id=call.thread_owner(memory, thread_id)):
        raise NotFoundError("Thread not found", code="THREAD_NOT_FOUND")
    return {"result": "Thread deleted"}


def clone_thread(call: Call) -> Any:
    """Copy a thread. The resource in the body is the copy's owner, the one in the query the source's.

    A long thread is copied by a job, whose id comes with status 202; the copy is hidden until the job has finished.
    """
    memory = call.memory_to_write()
    thread_id = call.id("threadId")
    source_owner = call.thread_owner(memory, thread_id, call.query_owner)
    owner, new_id = call.identity.resource(call.body.get("resourceId")), call.body.get("newThreadId")
    if new_id is not None:
        call.check_thread(memory, new_id, source_owner if owner is None else owner)
    found = memory.clone_thread(
        thread_id,
        new_thread_id=new_id,
        resource_id=owner,
        title=call.body.get("title"),
        metadata=call.body.get("metadata"),
        options=call.body.get("options"),
        source_resource_id=source_owner,
    )
    content: dict[str, Any] = {
        "thread": thread_json(found.thread),
        "clonedMessages": messages_json(memory, found.cloned_messages),
        "messageIdMap": dict(found.message_id_map),
    }
    if found.job_id is not None:
        return Response.json({**content, "job": {"id": found.job_id}}, 202)
    response = Response.json(content)
    if len(response.read()) <= call.settings.max_answer_bytes:
        return response
    # The copy is made; what does not fit into the answer can be listed.
    return Response.json({**content, "clonedMessages": [], "truncated": True})


def transfer_thread(call: Call) -> Any:
    """Give a thread to another resource."""
    memory = call.memory_to_write() if call.agent_id is not None else call.memory()
    thread_id = call.id("threadId")
    owner = call.thread_owner(memory, thread_id, call.query_owner)
    moved = memory.transfer_thread(thread_id, call.body["resourceId"], resource_id=owner)
    if moved.job_id is not None:
        return Response.json({**thread_json(moved.thread), "job": {"id": moved.job_id}}, 202)
    return thread_json(moved.thread)


def _order(call: Call) -> dict[str, Any]:
    """The order, from ``orderBy[field]`` and ``orderBy[direction]``, or ``orderBy`` and ``sortDirection`` of old clients."""
    plain = call.query.get("orderBy")
    given = plain if isinstance(plain, dict) else {"field": plain}
    return {
        "field": call.query.get("orderBy[field]") or given.get("field"),
        "direction": call.query.get("orderBy[direction]") or call.query.get("sortDirection") or given.get("direction"),
    }
