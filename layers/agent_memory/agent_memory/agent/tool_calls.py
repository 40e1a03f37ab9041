"""Runs the tool calls of one step."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from agent_memory import clock
from agent_memory._json import dumps, freeze
from agent_memory.agent.events import RunEvent
from agent_memory.agent.tools import Tool, ToolContext
from agent_memory.errors import InvalidInputError
from agent_memory.messages.parts import Approval, ToolInvocation
from agent_memory.messages.tool_outcome import DENIAL_TEXT

if TYPE_CHECKING:
    from agent_memory.processors.base import RunContext
    from agent_memory.processors.pipeline import Pipeline

RESUME_SCHEMA = dumps(
    {
        "type": "object",
        "properties": {"approved": {"type": "boolean"}, "reason": {"type": "string"}},
        "required": ["approved"],
    }
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a tool call: its new state and the event that tells of it."""

    invocation: ToolInvocation
    event: RunEvent


def approval_id(run_id: str, tool_call_id: str) -> str:
    """The id of a request for approval; a page hands it back unread."""
    return f"{run_id}::{tool_call_id}"


def run_id_of(approval: Approval | None) -> str | None:
    """The run that asked for an approval."""
    if approval is None or not approval.id or "::" not in approval.id:
        return None
    return approval.id.split("::", 1)[0]


def request_approval(invocation: ToolInvocation, run_id: str) -> Outcome:
    """Turn a call into one that waits for a person."""
    approval = Approval(approval_id(run_id, invocation.tool_call_id))
    payload = {**_call(invocation), "resumeSchema": RESUME_SCHEMA}
    waiting = dataclasses.replace(invocation, state="approval-requested", approval=approval)
    return Outcome(waiting, RunEvent("tool-call-approval", payload))


def deny(invocation: ToolInvocation) -> Outcome:
    """Turn a refused call into its outcome."""
    approval = invocation.approval or Approval(approved=False)
    if not approval.reason:
        approval = dataclasses.replace(approval, reason=DENIAL_TEXT)
    denied = dataclasses.replace(invocation, state="output-denied", approval=approval)
    payload = {
        **_call(invocation),
        "approval": {"id": approval.id, "approved": False, "reason": approval.reason},
    }
    return Outcome(denied, RunEvent("tool-output-denied", payload))


def execute(tool: Tool | None, invocation: ToolInvocation, run: RunContext, pipeline: Pipeline, step: int) -> Outcome:
    """Run one call. A tool that fails is an outcome like any other: the model is told, the run goes on."""
    if tool is None:
        return failed(invocation, "UnknownToolError", f"there is no tool named {invocation.tool_name}")
    if "rawInput" in invocation.extra:
        return failed(invocation, "InvalidToolInputError", "the arguments are not valid JSON")
    context = ToolContext(
        agent_id=run.agent_id,
        run_id=run.run_id,
        tool_call_id=invocation.tool_call_id,
        thread_id=run.thread_id,
        resource_id=run.resource_id,
        request_context=run.request_context,
        store=run.store,
        should_stop=run.should_stop,
    )
    try:
        result = to_json_value(tool.run(_thawed(invocation.args), context))
    except InvalidInputError as error:
        return failed(invocation, "InvalidToolInputError", _guarded(str(error), invocation, pipeline, step))
    except Exception as error:
        name = type(error).__name__
        return failed(invocation, name, _guarded(str(error) or name, invocation, pipeline, step))
    result = _guarded_result(result, invocation, pipeline, step)
    done = dataclasses.replace(invocation, state="result", result=freeze(result))
    return Outcome(done, RunEvent("tool-result", {**_call(invocation), "result": result}))


def failed(invocation: ToolInvocation, name: str, message: str) -> Outcome:
    """The outcome of a call that failed. No stack trace: name and message only."""
    done = dataclasses.replace(invocation, state="output-error", error_text=message)
    payload = {**_call(invocation), "error": {"name": name, "message": message}}
    return Outcome(done, RunEvent("tool-error", payload))


def to_json_value(value: Any) -> Any:
    """A tool's return value as JSON. Raises TypeError or ValueError for what JSON cannot hold."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise ValueError("a tool returned a number that JSON cannot hold")
        return value
    if isinstance(value, Mapping):
        return {str(key): to_json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_json_value(item) for item in value]
    if isinstance(value, datetime):
        return clock.to_iso(clock.parse(value))
    if isinstance(value, date):
        return value.isoformat()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json_value(getattr(value, f.name)) for f in dataclasses.fields(value)}
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return to_json_value(dump(mode="json"))
    raise TypeError(f"a tool returned a {type(value).__name__}, which JSON cannot hold")


def _guarded(text: str, invocation: ToolInvocation, pipeline: Pipeline, step: int) -> str:
    told = _guarded_result(text, invocation, pipeline, step, is_error=True)
    return told if isinstance(told, str) else dumps(told)


def _guarded_result(
    result: Any, invocation: ToolInvocation, pipeline: Pipeline, step: int, *, is_error: bool = False
) -> Any:
    return pipeline.process_tool_result(
        result,
        tool_name=invocation.tool_name,
        tool_call_id=invocation.tool_call_id,
        args=invocation.args,
        is_error=is_error,
        step_number=step,
    )


def _call(invocation: ToolInvocation) -> dict[str, Any]:
    return {
        "toolCallId": invocation.tool_call_id,
        "toolName": invocation.tool_name,
        "args": invocation.args,
    }


def _thawed(args: Any) -> Any:
    from agent_memory._json import thaw

    return thaw(args) if args is not None else {}
