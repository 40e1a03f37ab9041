"""What `generate` answers: a run's result in the wire's shape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from agent_memory import clock
from agent_memory.agent.step import usage_json
from agent_memory.http.wire import messages_json
from agent_memory.messages.parts import FilePart, ReasoningPart, StepStartPart, TextPart, ToolInvocation, ToolPart

if TYPE_CHECKING:
    from agent_memory.agent.result import RunResult, StepResult
    from agent_memory.memory import Memory
    from agent_memory.messages import Message


def result_json(result: RunResult, memory: Memory | None) -> dict[str, Any]:
    """The whole answer."""
    steps = [_step(result, step, number) for number, step in enumerate(result.steps)]
    last = result.steps[-1] if result.steps else None
    out: dict[str, Any] = {
        "text": result.text,
        "finishReason": result.finish_reason,
        "runId": result.run_id,
        "usage": usage_json(result.usage if last is None else last.usage),
        "totalUsage": usage_json(result.usage),
        "steps": steps,
        "toolCalls": _chunks("tool-call", result.run_id, result.tool_calls),
        "toolResults": _results(result.run_id, result.tool_results),
        "reasoning": [{"type": "reasoning", "text": result.reasoning}] if result.reasoning else [],
        "reasoningText": result.reasoning or None,
        "sources": [source for step in result.steps for source in step.sources],
        "files": [file for step in result.steps for file in step.files],
        "warnings": list(result.warnings),
        "response": {
            "id": last.response_id if last is not None and last.response_id else result.message_id,
            "timestamp": clock.to_iso(result.created_at),
            "modelId": last.model_id if last is not None else None,
            "messages": model_messages(result.response_messages),
        },
        "messages": messages_json(memory, result.messages),
        "rememberedMessages": messages_json(memory, result.remembered),
    }
    if result.object is not None:
        out["object"] = result.object
    if result.tripwire is not None:
        out["tripwire"] = result.tripwire.to_json()
    if result.suspend_payload is not None:
        out["suspendPayload"] = result.suspend_payload
        out["resumeSchema"] = result.suspend_payload.get("resumeSchema")
    if result.notes:
        out["providerMetadata"] = {"memory": dict(result.notes)}
    return out


def model_messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Stored answers as model messages: assistant messages, and a tool message after each one with outcomes."""
    made: list[dict[str, Any]] = []
    for message in messages:
        said: list[dict[str, Any]] = []
        outcomes: list[dict[str, Any]] = []
        for part in message.parts:
            if isinstance(part, StepStartPart):
                _close(made, said, outcomes)
                said, outcomes = [], []
            elif isinstance(part, TextPart):
                said.append({"type": "text", "text": part.text})
            elif isinstance(part, ReasoningPart):
                said.append({"type": "reasoning", "text": part.text})
            elif isinstance(part, FilePart):
                said.append({"type": "file", "mediaType": part.mime_type, "data": part.data})
            elif isinstance(part, ToolPart):
                call = part.invocation
                named = {"toolCallId": call.tool_call_id, "toolName": call.tool_name}
                said.append({"type": "tool-call", **named, "input": call.args})
                output = _output(call)
                if output is not None:
                    outcomes.append({"type": "tool-result", **named, "output": output})
        _close(made, said, outcomes)
    return made


def _close(made: list[dict[str, Any]], said: list[dict[str, Any]], outcomes: list[dict[str, Any]]) -> None:
    if said:
        made.append({"role": "assistant", "content": said})
    if outcomes:
        made.append({"role": "tool", "content": outcomes})


def _output(call: ToolInvocation) -> dict[str, Any] | None:
    if call.state == "result":
        return {"type": "json", "value": call.result}
    if call.state == "output-error":
        return {"type": "error-text", "value": call.error_text or ""}
    if call.state == "output-denied":
        return {"type": "execution-denied", "reason": call.approval.reason if call.approval else None}
    return None


def _step(result: RunResult, step: StepResult, number: int) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    if step.reasoning:
        content.append({"type": "reasoning", "text": step.reasoning})
    if step.text:
        content.append({"type": "text", "text": step.text})
    content.extend(
        {"type": "tool-call", "toolCallId": c["toolCallId"], "toolName": c["toolName"], "input": c.get("args")}
        for c in step.tool_calls
    )
    out: dict[str, Any] = {
        "stepType": "tool-result" if number else "initial",
        "text": step.text,
        "reasoningText": step.reasoning or None,
        "content": content,
        "toolCalls": _chunks("tool-call", result.run_id, step.tool_calls),
        "toolResults": _results(result.run_id, step.tool_results),
        "sources": list(step.sources),
        "files": list(step.files),
        "finishReason": step.finish_reason,
        "usage": usage_json(step.usage),
        "response": {
            "id": step.response_id or result.message_id,
            "timestamp": clock.to_iso(result.created_at),
            "modelId": step.model_id,
        },
    }
    if step.tripwire is not None:
        out["tripwire"] = step.tripwire.to_json()
    return out


def _chunks(kind: str, run_id: str, payloads: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{"type": kind, "runId": run_id, "from": "AGENT", "payload": payload} for payload in payloads]


def _results(run_id: str, payloads: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Outcomes: what succeeded as ``tool-result``, what failed as ``tool-error``."""
    return [
        chunk
        for payload in payloads
        for chunk in _chunks("tool-error" if "error" in payload else "tool-result", run_id, (payload,))
    ]
