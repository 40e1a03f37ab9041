"""Changes every text in a message, wherever it sits: what is written, thought, asked of tools and answered by them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from agent_memory._json import freeze
from agent_memory.messages import Message
from agent_memory.messages.parts import (
    MISSING,
    DataPart,
    ErrorPart,
    FilePart,
    Part,
    ReasoningPart,
    SourcePart,
    StepStartPart,
    TextPart,
    ToolInvocation,
    ToolPart,
    UnknownPart,
)

Change = Callable[[str], str]


def change_value(value: Any, change: Change) -> Any:
    """JSON with `change` applied to its texts, keys included; the same object where nothing changes.

    A whole number counts as the text of its digits, because card and phone numbers come as numbers too.
    """
    if isinstance(value, str):
        changed = change(value)
        return value if changed == value else changed
    if isinstance(value, Mapping):
        pairs = [(change(key), change_value(item, change)) for key, item in value.items()]
        same = all(new == old and item is value[old] for (new, item), old in zip(pairs, value, strict=True))
        return value if same else dict(pairs)
    if isinstance(value, list | tuple):
        items = [change_value(item, change) for item in value]
        return value if all(new is old for new, old in zip(items, value, strict=True)) else items
    if isinstance(value, int) and not isinstance(value, bool):
        digits = str(value)
        changed = change(digits)
        return value if changed == digits else changed
    return value


def change_part(part: Part, change: Change) -> Part:
    """The part with `change` applied to its texts. Files stay as they are."""
    if isinstance(part, TextPart):
        return replace(part, text=change(part.text))
    if isinstance(part, ReasoningPart):
        thought = None if part.reasoning is None else change(part.reasoning)
        return replace(part, reasoning=thought, details=freeze(change_value(part.details, change)))
    if isinstance(part, ToolPart):
        shown = freeze(change_value(part.provider_metadata, change))
        return replace(part, invocation=change_invocation(part.invocation, change), provider_metadata=shown)
    if isinstance(part, SourcePart):
        return replace(part, source=freeze(change_value(part.source, change)))
    if isinstance(part, ErrorPart):
        return replace(part, error=freeze(change_value(part.error, change)))
    if isinstance(part, DataPart):
        return part if part.data is MISSING else replace(part, data=freeze(change_value(part.data, change)))
    if isinstance(part, UnknownPart):
        rest = {key: value if key == "type" else change_value(value, change) for key, value in part.raw.items()}
        return replace(part, raw=freeze(rest))
    if isinstance(part, FilePart | StepStartPart):
        return part
    return replace(part, extra=freeze(change_value(part.extra, change)))


def change_invocation(call: ToolInvocation, change: Change) -> ToolInvocation:
    """The call with `change` applied to arguments, result, error and the reason of a decision. Ids and names stay."""
    approval = call.approval
    if approval is not None and approval.reason is not None:
        approval = replace(approval, reason=change(approval.reason))
    return replace(
        call,
        args=freeze(change_value(call.args, change)),
        result=freeze(change_value(call.result, change)),
        raw_input=freeze(change_value(call.raw_input, change)),
        error_text=None if call.error_text is None else change(call.error_text),
        approval=approval,
        extra=freeze(change_value(call.extra, change)),
    )


def change_message(message: Message, change: Change) -> Message:
    """The message with `change` applied to its texts, those that older clients keep beside the parts included."""
    content = message.content
    parts = tuple(change_part(part, change) for part in content.parts)
    text = content.content
    if text is not None:
        spoken = [part.text for part in parts if isinstance(part, TextPart)]
        text = "".join(spoken) if spoken else change(text)
    changed = replace(content, parts=parts, content=text, extra=freeze(change_value(content.extra, change)))
    return message if changed == content else message.replace(content=changed)
