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
    told = [part for part in incoming.parts if isinstance(part, ToolPart) and part.invocation.is_outcome]
    if not told:
        return None
    changed: dict[int, ToolPart] = {}
    pending: dict[str, list[int]] = {}
    for index, part in enumerate(stored.parts):
        if isinstance(part, ToolPart) and part.invocation.is_pending:
            pending.setdefault(part.invocation.tool_call_id, []).append(index)
    for given in told:
        places = pending.get(given.invocation.tool_call_id)
        if not places:
            continue
        current = changed.get(places[0], stored.parts[places[0]])
        if isinstance(current, ToolPart) and _accepts(current, given.invocation):
            changed[places[0]] = _layered(current, given)
            if not given.invocation.is_pending:
                del places[0]
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


def merge_assistant(base: Message, *following: Message) -> Message:
    """One message out of several: the parts of `following` behind those of `base`, whose id and date stay.

    A tool part that repeats a call moves that call forward or is left out: a call stays one part. Metadata of later
    messages is laid over that of earlier ones.
    """
    parts: list[Part] = list(base.parts)
    places = {part.invocation.tool_call_id: i for i, part in enumerate(parts) if isinstance(part, ToolPart)}
    content = base.content
    attachments = list(content.experimental_attachments or ())
    metadata = dict(base.metadata)
    text = content.content
    for message in following:
        metadata.update(message.metadata)
        attachments.extend(message.content.experimental_attachments or ())
        if text is None and not parts:
            text = message.content.content
        for part in message.parts:
            place = places.get(part.invocation.tool_call_id) if isinstance(part, ToolPart) else None
            if place is not None:
                parts[place] = _advanced(parts[place], part)
                continue
            if isinstance(part, ToolPart):
                places[part.invocation.tool_call_id] = len(parts)
            parts.append(part)
    return base.with_content(
        content=text,
        metadata=FrozenDict(metadata) if metadata or content.metadata is not None else None,
        experimental_attachments=tuple(attachments) or content.experimental_attachments,
    ).with_parts(parts)


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


def _accepts(part: ToolPart, given: ToolInvocation) -> bool:
    if not part.invocation.advanced_by(given):
        return False
    if given.state == "approval-responded":
        return given.approval is not None and given.approval.approved is not None
    return not part.provider_executed


def _advanced(known: Part, repeated: Part) -> Part:
    if not isinstance(known, ToolPart) or not isinstance(repeated, ToolPart):
        return known
    return _layered(known, repeated) if known.invocation.advanced_by(repeated.invocation) else known


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
