"""Short builders of stored messages for tests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from agent_memory.messages.message import Message, message_from_json

WHEN = datetime(2026, 3, 4, 5, 6, 7, 89_000, tzinfo=UTC)


def text(value: str, **fields: Any) -> dict[str, Any]:
    """A text part."""
    return {"type": "text", "text": value, **fields}


def call(
    call_id: str, state: str = "call", name: str = "w", args: Any = None, part: Any = None, **fields: Any
) -> dict[str, Any]:
    """A tool part; `part` holds fields beside the invocation."""
    invocation = {
        "state": state,
        "toolCallId": call_id,
        "toolName": name,
        "args": {} if args is None else args,
        **fields,
    }
    return {"type": "tool-invocation", "toolInvocation": invocation, **(part or {})}


def stored(message_id: str, role: str, *parts: Any, **content: Any) -> Message:
    """A stored message; strings become text parts."""
    read = [text(part) if isinstance(part, str) else part for part in parts]
    raw = {"id": message_id, "role": role, "content": {"format": 2, "parts": read, **content}}
    return message_from_json(raw).replace(created_at=WHEN, thread_id="trip-42", resource_id="ada")


STEP = {"type": "step-start"}
