"""What older clients keep beside `parts`: text, tool calls, reasoning and files in fields of their own."""

from __future__ import annotations

from typing import Any

from agent_memory._json import FrozenList, freeze
from agent_memory.errors import InvalidInputError
from agent_memory.messages.message import Attachment, Content
from agent_memory.messages.parts import FilePart, Part, ReasoningPart, TextPart, ToolPart, invocation_from_json

LEGACY_FIELDS = frozenset({"toolInvocations", "reasoning"})


def reasoning_part(text: str, **fields: Any) -> ReasoningPart:
    """A reasoning part in the shape that the published converters read: the text, and the text as details."""
    return ReasoningPart(reasoning=text, details=FrozenList([freeze({"type": "text", "text": text})]), **fields)


def all_parts(content: Content) -> tuple[Part, ...]:
    """The parts, and before them whatever a field beside them says that no part says.

    Order as older clients mean it: reasoning, tool calls, text. Entries that cannot be read are left out.
    """
    parts = content.parts
    before: list[Part] = []
    if content.extra:
        before = [*_legacy_reasoning(content), *_legacy_calls(content)]
    if content.content and not any(isinstance(part, TextPart) for part in parts):
        return (*before, *parts, TextPart(content.content))
    return (*before, *parts) if before else parts


def lone_attachments(content: Content) -> tuple[Attachment, ...]:
    """The attachments that no file part repeats."""
    attachments = content.experimental_attachments
    if not attachments:
        return ()
    told = {part.data for part in content.parts if isinstance(part, FilePart)}
    return tuple(item for item in attachments if item.url not in told)


def _legacy_reasoning(content: Content) -> list[Part]:
    text = content.extra.get("reasoning")
    if not isinstance(text, str) or not text or any(isinstance(part, ReasoningPart) for part in content.parts):
        return []
    return [reasoning_part(text)]


def _legacy_calls(content: Content) -> list[Part]:
    calls = content.extra.get("toolInvocations")
    if not isinstance(calls, list):
        return []
    known = {part.invocation.tool_call_id for part in content.parts if isinstance(part, ToolPart)}
    found: list[Part] = []
    for raw in calls:
        if not isinstance(raw, dict):
            continue
        try:
            invocation = invocation_from_json(raw)
        except InvalidInputError:
            continue
        if invocation.tool_call_id not in known:
            known.add(invocation.tool_call_id)
            found.append(ToolPart(invocation))
    return found
