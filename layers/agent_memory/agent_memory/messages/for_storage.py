"""What of a message is kept: everything but half-arrived calls and the traces of working memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from agent_memory._json import FrozenDict, FrozenList
from agent_memory.messages.message import Message
from agent_memory.messages.parts import Part, StepStartPart, TextPart, ToolPart

UPDATE_WORKING_MEMORY: Final = "updateWorkingMemory"
_OPEN: Final = "<working_memory>"
_CLOSE: Final = "</working_memory>"


def for_storage(message: Message) -> Message | None:
    """The message as it is stored, or None where nothing of it is.

    Left out: system messages; calls whose arguments were still arriving; calls of ``updateWorkingMemory``; text
    between working memory tags. A message without any part but step boundaries after that is not stored.
    """
    if message.role == "system":
        return None
    content = message.content
    parts = tuple(kept for part in content.parts if (kept := _kept(part)) is not None)
    text = content.content
    if text is not None:
        text = without_working_memory(text)
    if all(isinstance(part, StepStartPart) for part in parts) and not content.experimental_attachments:
        return None
    extra = _kept_extra(content.extra)
    if parts == content.parts and text == content.content and extra is content.extra:
        return message
    return message.replace(content=replace(content, parts=parts, content=text, extra=extra))


def without_working_memory(text: str) -> str:
    """`text` without ``<working_memory>…</working_memory>`` spans; trimmed only where there was one."""
    start = text.find(_OPEN)
    if start < 0:
        return text
    kept: list[str] = []
    position = 0
    while start >= 0:
        end = text.find(_CLOSE, start + len(_OPEN))
        if end < 0:
            break
        kept.append(text[position:start])
        position = end + len(_CLOSE)
        start = text.find(_OPEN, position)
    if position == 0:
        return text
    return "".join((*kept, text[position:])).strip()


def _kept(part: Part) -> Part | None:
    if isinstance(part, ToolPart):
        invocation = part.invocation
        return None if _is_left_out(invocation.state, invocation.tool_name) else part
    if isinstance(part, TextPart):
        text = without_working_memory(part.text)
        if text == part.text:
            return part
        return replace(part, text=text) if text else None
    return part


def _kept_extra(extra: FrozenDict) -> FrozenDict:
    calls = extra.get("toolInvocations")
    if not isinstance(calls, list):
        return extra
    kept = [call for call in calls if not (isinstance(call, dict) and _names_left_out(call))]
    return extra if len(kept) == len(calls) else FrozenDict({**extra, "toolInvocations": FrozenList(kept)})


def _names_left_out(call: dict[str, Any]) -> bool:
    return _is_left_out(call.get("state"), call.get("toolName"))


def _is_left_out(state: Any, tool_name: Any) -> bool:
    return bool(state == "partial-call" or tool_name == UPDATE_WORKING_MEMORY)
