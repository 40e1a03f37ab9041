"""Fields that page messages of all versions have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_memory import clock
from agent_memory.messages.parts import MISSING
from agent_memory.messages.tool_outcome import as_text

if TYPE_CHECKING:
    from agent_memory.messages.message import Message
    from agent_memory.messages.parts import ToolInvocation


def page_metadata(message: Message) -> dict[str, Any]:
    """The application's metadata with the date and the place of the message.

    An application's own `createdAt` stays, because its page checks it against a schema of its own. `threadId` and
    `resourceId` are always the row's: a page that copies a conversation sends those of the thread it came from.
    """
    metadata = {"createdAt": clock.to_iso(message.created_at), **message.metadata}
    if message.thread_id is not None:
        metadata["threadId"] = message.thread_id
    if message.resource_id is not None:
        metadata["resourceId"] = message.resource_id
    return metadata


def error_text(invocation: ToolInvocation) -> str:
    """What went wrong in a failed call, as text."""
    if invocation.error_text is not None:
        return invocation.error_text
    result = invocation.result
    return "" if result is MISSING or result is None else as_text(result)
