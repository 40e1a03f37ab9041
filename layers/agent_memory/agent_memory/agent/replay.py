"""Tells a stored answer again, for a turn that was sent twice."""

from __future__ import annotations

from collections.abc import Iterator

from agent_memory.agent.events import RunEvent
from agent_memory.agent.result import FinishReason, StepResult
from agent_memory.agent.tool_calls import RESUME_SCHEMA
from agent_memory.messages import Message
from agent_memory.messages.parts import (
    DataPart,
    FilePart,
    ReasoningPart,
    SourcePart,
    StepStartPart,
    TextPart,
    ToolInvocation,
    ToolPart,
)
from agent_memory.ports import Usage


def replay(agent_id: str, message: Message) -> Iterator[RunEvent]:
    """The events that an answer's stream had, as far as its stored parts tell."""
    from agent_memory.agent.finish import finish_event, step_finish_event

    yield RunEvent("start", {"id": agent_id, "messageId": message.id})
    started = RunEvent("step-start", {"messageId": message.id, "request": {}, "warnings": []})
    open_step = False
    reason: FinishReason = "stop"
    for number, part in enumerate(message.parts):
        if isinstance(part, StepStartPart):
            if open_step:
                yield step_finish_event(message.id, _step("tool-calls"), continued=True)
            yield started
            open_step = True
            continue
        if not open_step:
            yield started
            open_step = True
        if isinstance(part, ToolPart):
            yield from _tool(part.invocation)
            if part.invocation.state == "approval-requested":
                reason = "suspended"
            elif part.invocation.is_pending:
                reason = "tool-calls"
        elif isinstance(part, TextPart):
            yield from _block("text", f"{message.id}-{number}", part.text)
        elif isinstance(part, ReasoningPart):
            yield from _block("reasoning", f"{message.id}-{number}", part.text)
        elif isinstance(part, FilePart):
            yield RunEvent("file", {"mimeType": part.mime_type, "data": part.data})
        elif isinstance(part, SourcePart):
            yield RunEvent("source", {"source": part.source})
        elif isinstance(part, DataPart):
            yield RunEvent(part.kind, part.data, id=part.id)
    if reason == "suspended":
        return
    if open_step:
        yield step_finish_event(message.id, _step(reason), continued=False)
    yield finish_event(message.id, reason, None)


def _step(reason: FinishReason) -> StepResult:
    return StepResult(0, "", "", reason, Usage())


def _block(kind: str, block: str, text: str) -> Iterator[RunEvent]:
    yield RunEvent(f"{kind}-start", {"id": block})
    yield RunEvent(f"{kind}-delta", {"id": block, "text": text})
    yield RunEvent(f"{kind}-end", {"id": block})


def _tool(call: ToolInvocation) -> Iterator[RunEvent]:
    payload = {"toolCallId": call.tool_call_id, "toolName": call.tool_name, "args": call.args}
    yield RunEvent("tool-call", payload)
    if call.state == "result":
        yield RunEvent("tool-result", {**payload, "result": call.result})
    elif call.state == "output-error":
        yield RunEvent("tool-error", {**payload, "error": {"name": "Error", "message": call.error_text or ""}})
    elif call.state == "output-denied":
        approval = {"approved": False, "reason": call.approval.reason if call.approval else None}
        yield RunEvent("tool-output-denied", {**payload, "approval": approval})
    elif call.state == "approval-requested":
        yield RunEvent("tool-call-approval", {**payload, "resumeSchema": RESUME_SCHEMA})
