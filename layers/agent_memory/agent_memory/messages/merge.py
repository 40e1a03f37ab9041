"""How two copies of a message become one: the stored copy is the base, and only outcomes move it forward."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agent_memory._json import FrozenDict, FrozenList
from agent_memory.messages.for_storage import for_storage
from agent_memory.messages.message import Message
from agent_memory.messages.parts import MISSING, Part, ToolInvocation, ToolPart, UnknownPart
from agent_memory.messages.tool_outcome import (
    ToolOutcome,
    merged_approval,
    model_output_of,
    settle,
    with_model_output,
)


def apply_outcomes(stored: Message, incoming: Message) -> Message | None:
    """`stored` with the outcomes that `incoming` has for its pending calls; None where there is nothing new.

    Everything else of the stored copy wins: text, metadata, date, the calls' names and arguments. An outcome is taken
    only where it moves its call forward; for a call the provider runs itself only an approval's answer is.
    """
    changed: dict[int, ToolPart] = {}
    for given in incoming.parts:
        if not isinstance(given, ToolPart) or not given.invocation.is_outcome:
            continue
        for index, part in enumerate(stored.parts):
            current = changed.get(index, part)
            if isinstance(current, ToolPart) and _moves(current, given.invocation):
                changed[index] = _layered(current, given)
                break
    return _with_changed(stored, changed)


def apply_tool_outcome(stored: Message, outcome: ToolOutcome) -> Message | None:
    """`stored` with the outcome of a tool message in its pending call; None where it has none that this moves."""
    for index, part in enumerate(stored.parts):
        if not isinstance(part, ToolPart) or not _is_call_of(part.invocation, outcome):
            continue
        settled = settle(part, outcome)
        if _accepts(part, settled.invocation):
            return _with_changed(stored, {index: settled})
    return None


def merge_assistant(base: Message, following: Message) -> Message:
    """One message out of two: the parts of `following` behind those of `base`, whose id and date stay.

    A tool part that repeats a call of `base` moves that call forward or is left out: a call stays one part.
    Metadata of `following` is laid over that of `base`.
    """
    parts: list[Part] = list(base.parts)
    places = {part.invocation.tool_call_id: i for i, part in enumerate(parts) if isinstance(part, ToolPart)}
    for part in following.parts:
        place = places.get(part.invocation.tool_call_id) if isinstance(part, ToolPart) else None
        if place is None:
            parts.append(part)
            continue
        current = parts[place]
        if (
            isinstance(part, ToolPart)
            and isinstance(current, ToolPart)
            and current.invocation.advanced_by(part.invocation)
        ):
            parts[place] = _layered(current, part)
    content = base.content
    attachments = (*(content.experimental_attachments or ()), *(following.content.experimental_attachments or ()))
    metadata = FrozenDict({**base.metadata, **following.metadata})
    merged = base.with_content(
        metadata=metadata if metadata or content.metadata is not None else None,
        experimental_attachments=attachments or content.experimental_attachments,
    )
    if content.content is None and following.content.content is not None and not base.parts:
        merged = merged.with_content(content="")
    return merged.with_parts(parts)


def strip_provider_metadata(message: Message) -> Message:
    """The message without what providers said about it, where it is an assistant message; others come back as they are.

    Item references and signatures of another conversation must not be replayed. What the model shall see instead of
    a tool result is ours, not a provider's, and stays with its outcome.
    """
    if message.role != "assistant":
        return message
    content = message.content
    parts = tuple(_stripped(part) for part in content.parts)
    extra = _without_options(content.extra)
    return message.replace(
        content=replace(content, parts=parts, provider_metadata=None, extra=extra),
        extra=_without_options(message.extra),
    )


def _is_call_of(invocation: ToolInvocation, outcome: ToolOutcome) -> bool:
    if outcome.tool_call_id:
        return invocation.tool_call_id == outcome.tool_call_id
    wanted = outcome.approval.id if outcome.approval else None
    return bool(wanted) and invocation.approval is not None and invocation.approval.id == wanted


def _moves(part: ToolPart, given: ToolInvocation) -> bool:
    return part.invocation.tool_call_id == given.tool_call_id and _accepts(part, given)


def _accepts(part: ToolPart, given: ToolInvocation) -> bool:
    if not part.invocation.advanced_by(given):
        return False
    if given.state == "approval-responded":
        return given.approval is not None and given.approval.approved is not None
    return not part.provider_executed


def _layered(part: ToolPart, given: ToolPart) -> ToolPart:
    told = given.invocation
    invocation = replace(
        part.invocation,
        state=told.state,
        result=told.result if told.result is not MISSING else part.invocation.result,
        error_text=told.error_text or part.invocation.error_text,
        is_error=part.invocation.is_error if told.is_error is None else told.is_error,
        approval=merged_approval(part.invocation.approval, told.approval),
    )
    shown = model_output_of(given.provider_metadata)
    metadata = part.provider_metadata if shown is None else with_model_output(part.provider_metadata, shown)
    return replace(part, invocation=invocation, provider_metadata=metadata)


def _with_changed(stored: Message, changed: dict[int, ToolPart]) -> Message | None:
    if not changed:
        return None
    content = stored.content
    parts = tuple(changed.get(index, part) for index, part in enumerate(content.parts))
    extra = content.extra
    if isinstance(extra.get("toolInvocations"), list):
        # The copy that older clients read must not say that the call is still pending.
        done = {part.invocation.tool_call_id for part in changed.values()}
        kept = [c for c in extra["toolInvocations"] if not (isinstance(c, dict) and c.get("toolCallId") in done)]
        extra = FrozenDict({**extra, "toolInvocations": FrozenList(kept)})
    return stored.replace(content=replace(content, parts=parts, extra=extra))


def _stripped(part: Part) -> Part:
    if isinstance(part, UnknownPart):
        raw = {key: value for key, value in part.raw.items() if key not in _PROVIDER_FIELDS}
        return part if len(raw) == len(part.raw) else UnknownPart(FrozenDict(raw))
    metadata: Any = None
    if isinstance(part, ToolPart) and part.invocation.is_outcome:
        shown = model_output_of(part.provider_metadata)
        metadata = None if shown is None else with_model_output(None, shown)
    extra = _without_options(part.extra)
    if part.provider_metadata == metadata and extra is part.extra:
        return part
    return replace(part, provider_metadata=metadata, extra=extra)


_PROVIDER_FIELDS = frozenset(
    {"providerMetadata", "providerOptions", "callProviderMetadata", "resultProviderMetadata", "providerReference"}
)


def _without_options(extra: FrozenDict) -> FrozenDict:
    if not extra or _PROVIDER_FIELDS.isdisjoint(extra):
        return extra
    return FrozenDict({key: value for key, value in extra.items() if key not in _PROVIDER_FIELDS})


__all__ = ["apply_outcomes", "apply_tool_outcome", "for_storage", "merge_assistant", "strip_provider_metadata"]
