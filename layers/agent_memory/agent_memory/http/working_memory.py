"""Routes of working memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_memory import clock
from agent_memory._json import dumps
from agent_memory.errors import AccessDeniedError, AgentMemoryError, ConflictError, InvalidInputError, NotFoundError
from agent_memory.http.call import Call
from agent_memory.memory.base import Owner, Unset

if TYPE_CHECKING:
    from agent_memory.memory import Memory
    from agent_memory.options import WorkingMemoryOptions
    from agent_memory.ports import WorkingMemoryRecord


class VersionConflictError(ConflictError):
    """The named version is not the current one; `current` is."""

    def __init__(self, message: str, current: dict[str, Any]) -> None:
        super().__init__(message, code="WORKING_MEMORY_VERSION")
        self.current = current


def get_working_memory(call: Call) -> Any:
    """The text, where it comes from, and its template."""
    memory, thread_id = call.memory(), call.id("threadId")
    options = memory.options.merged(call.query.get("memoryConfig"), strict=False).working_memory
    owner = call.owner
    thread = memory.get_thread(thread_id, resource_id=owner)
    if thread is None and not isinstance(owner, Unset) and memory.storage.owner_of(thread_id) not in (None, owner):
        raise AccessDeniedError("Access denied: thread belongs to a different resource")
    content: dict[str, Any] = {
        "workingMemory": None,
        "source": "thread" if options is None else options.scope,
        "workingMemoryTemplate": None if options is None else _template(options),
        "threadExists": thread is not None,
        "version": None,
    }
    if options is None:
        return content
    keeper = owner if thread is None else thread.resource_id
    if isinstance(keeper, Unset) or (options.scope == "thread" and thread is None):
        return content
    record = memory.storage.get_working_memory(keeper, thread_id if options.scope == "thread" else None)
    if record is not None:
        content |= {"workingMemory": record.text, "version": record.version}
    return content


def update_working_memory(call: Call) -> Any:
    """Replace the text."""
    memory, thread_id, owner = _place(call)
    version = call.body.get("version")
    try:
        record = memory.update_working_memory(
            call.body["workingMemory"], thread_id=thread_id, resource_id=owner, expected_version=version
        )
    except ConflictError as error:
        raise _conflict(memory, thread_id, owner, error) from error
    return {"success": True, "version": record.version}


def patch_working_memory(call: Call) -> Any:
    """Change a piece of the text under its version."""
    memory, thread_id, owner = _place(call)
    try:
        record = memory.patch_working_memory(
            call.body["patch"], thread_id=thread_id, resource_id=owner, expected_version=call.body.get("version")
        )
    except ConflictError as error:
        raise _conflict(memory, thread_id, owner, error) from error
    return _record(record)


def delete_working_memory(call: Call) -> Any:
    """Clear the text."""
    memory, thread_id, owner = _place(call)
    version = call.query.get("version")
    try:
        memory.delete_working_memory(thread_id=thread_id, resource_id=owner, expected_version=version)
    except ConflictError as error:
        raise _conflict(memory, thread_id, owner, error) from error
    return {"success": True}


def working_memory_history(call: Call) -> Any:
    """The last 20 versions, newest first."""
    memory = call.memory()
    if memory.options.working_memory is None:
        raise InvalidInputError("agentId", "working memory is off for this agent", where="query", code="NOT_ENABLED")
    thread_id = call.id("threadId")
    owner = _owner(call, memory, thread_id)
    found = memory.working_memory_history(thread_id=thread_id, resource_id=owner)
    return {"versions": [_record(record) for record in found]}


def _place(call: Call) -> tuple[Memory, str, Owner]:
    """Memory, thread and owner of a write."""
    memory, thread_id = call.memory_to_write(), call.id("threadId")
    if memory.options.working_memory is None:
        raise InvalidInputError("agentId", "working memory is off for this agent", where="query", code="NOT_ENABLED")
    return memory, thread_id, _owner(call, memory, thread_id)


def _owner(call: Call, memory: Memory, thread_id: str) -> Owner:
    """The resource meant; the thread's where none is named. Under scope ``thread`` the thread must exist."""
    owner = call.owner
    if isinstance(owner, Unset):
        return call.thread_owner(memory, thread_id)
    return owner


def _conflict(memory: Memory, thread_id: str, owner: Owner, error: ConflictError) -> AgentMemoryError:
    if error.code == "RESOURCE_LOCKED":
        return error
    try:
        record = memory.get_working_memory_record(thread_id=thread_id, resource_id=owner)
    except NotFoundError:
        return error
    return VersionConflictError(error.message, _record(record))


def _record(record: WorkingMemoryRecord | None) -> dict[str, Any]:
    if record is None:
        return {"workingMemory": None, "version": 0}
    return {
        "workingMemory": record.text,
        "version": record.version,
        "updatedAt": clock.to_iso(record.updated_at),
    }


def _template(options: WorkingMemoryOptions) -> dict[str, Any]:
    if options.schema is not None:
        return {"format": "json", "content": dumps(options.schema)}
    from agent_memory.working_memory import DEFAULT_TEMPLATE

    return {"format": "markdown", "content": options.template or DEFAULT_TEMPLATE}
