"""Fields that page messages of all versions have."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from agent_memory import clock
from agent_memory.messages.parts import MISSING
from agent_memory.messages.tool_outcome import as_text

if TYPE_CHECKING:
    from agent_memory._json import FrozenDict
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


def page_metadata_of(metadata: Any) -> dict[str, Any] | None:
    """Provider metadata in the shape that pages accept, an object of objects, one for each provider; None if empty."""
    if not isinstance(metadata, dict):
        return None
    kept = {name: value for name, value in metadata.items() if isinstance(value, dict)}
    return kept or None


def page_extra(extra: FrozenDict) -> dict[str, Any]:
    """Fields without a name here, as far as a page does not refuse them.

    Pages (ai 5 to 7) tolerate fields they do not know and refuse a whole conversation over one they know and that has
    another type.
    """
    return {key: value for key, value in extra.items() if key not in _CHECKED or _CHECKED[key](value)}


def _is_metadata(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(item, dict) for item in value.values())


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _never(_value: Any) -> bool:
    return False


_CHECKED: Final[dict[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("id", "title", "filename", "signature", "requestReason"), _is_text),
    **dict.fromkeys(("isAutomatic", "preliminary", "providerExecuted"), _is_flag),
    "resultProviderMetadata": _is_metadata,
    "toolMetadata": lambda value: isinstance(value, dict),
    "citations": lambda value: isinstance(value, list) and all(isinstance(item, dict) for item in value),
    "providerReference": lambda value: isinstance(value, dict) and all(map(_is_text, value.values())),
    **dict.fromkeys(
        (
            *("type", "state", "text", "url", "mediaType", "sourceId", "data", "dynamic", "toolName", "toolCallId"),
            *("input", "output", "errorText", "rawInput", "inputEncoding", "providerMetadata", "callProviderMetadata"),
            *("approval", "approved", "reason", "descriptor", "inputSchemaInput"),
        ),
        _never,
    ),
}
