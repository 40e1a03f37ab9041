"""The outcome of a tool call, in the forms in which callers send it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from agent_memory._json import EMPTY, FrozenDict, dumps, freeze
from agent_memory.messages.parts import MISSING, Approval, ToolInvocation, ToolPart, ToolState

DENIAL_TEXT: Final = "Tool call was not approved by the user"
_OUTPUT_KEYS: Final = frozenset({"type", "value", "reason", "providerOptions", "providerMetadata"})
_VALUE_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "text": (str,),
    "error-text": (str,),
    "json": (object,),
    "error-json": (object,),
    "content": (list,),
}


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What became of a tool call, told in a tool message.

    Attributes:
        tool_call_id: The call. Empty where a decision names only its approval (`approval.id`).
        tool_name: Name of the tool as the caller sent it; the stored call's name stays.
        state: ``result``, ``output-error``, ``output-denied`` or ``approval-responded``.
        result: The value of state ``result``; None otherwise.
        error_text: The text of state ``output-error``.
        model_output: What the model shall see instead of `result`, or None.
        approval: The decision, where there is one.
        args: The call's arguments where they rode along; never put in place of stored ones.
        message_id: The input message that holds the call, once it was folded into one.
    """

    tool_call_id: str
    tool_name: str
    state: ToolState
    result: Any = None
    error_text: str | None = None
    model_output: Any = None
    approval: Approval | None = None
    args: Any = MISSING
    message_id: str | None = None

    def as_part(self) -> ToolPart:
        """A part that holds the call and its outcome, for a conversation in which the call itself was lost."""
        part = ToolPart(
            ToolInvocation(
                state="call",
                tool_call_id=self.tool_call_id,
                tool_name=self.tool_name,
                args=EMPTY if self.args is MISSING else self.args,
            )
        )
        return settle(part, self)


def settle(part: ToolPart, outcome: ToolOutcome) -> ToolPart:
    """The part with the outcome in it. Name, arguments and an approval that the outcome lacks stay."""
    invocation = part.invocation
    settled = replace(
        invocation,
        state=outcome.state,
        result=outcome.result if outcome.state == "result" else invocation.result,
        error_text=outcome.error_text if outcome.state == "output-error" else invocation.error_text,
        approval=merged_approval(invocation.approval, outcome.approval),
    )
    metadata = part.provider_metadata
    if outcome.model_output is not None:
        metadata = with_model_output(metadata, outcome.model_output)
    return replace(part, invocation=settled, provider_metadata=metadata)


def merged_approval(stored: Approval | None, incoming: Approval | None) -> Approval | None:
    """The stored request with the incoming decision. The request's own id and fields stay."""
    if incoming is None or stored is None:
        return incoming or stored
    return Approval(
        id=stored.id or incoming.id,
        approved=stored.approved if incoming.approved is None else incoming.approved,
        reason=stored.reason if incoming.reason is None else incoming.reason,
        extra=FrozenDict({**incoming.extra, **stored.extra}) if incoming.extra else stored.extra,
    )


def with_model_output(metadata: Any, model_output: Any) -> FrozenDict:
    """Provider metadata that also says what the model sees instead of the result."""
    base: Mapping[str, Any] = metadata if isinstance(metadata, dict) else EMPTY
    own = base.get("mastra")
    return FrozenDict(
        {**base, "mastra": FrozenDict({**(own if isinstance(own, dict) else EMPTY), "modelOutput": model_output})}
    )


def model_output_of(metadata: Any) -> Any:
    """What the model sees instead of the result, or None."""
    own = metadata.get("mastra") if isinstance(metadata, dict) else None
    return own.get("modelOutput") if isinstance(own, dict) else None


def is_tagged(output: Any) -> bool:
    """Whether `output` is the tagged form ``{"type": "text" | "json" | …, "value"}``."""
    if not isinstance(output, dict) or not output.keys() <= _OUTPUT_KEYS:
        return False
    if output.get("type") == "execution-denied":
        return True
    wanted = _VALUE_TYPES.get(output["type"]) if isinstance(output.get("type"), str) else None
    return wanted is not None and "value" in output and isinstance(output["value"], wanted)


def untagged(output: Any) -> Any:
    """The value of a tagged output, or `output` itself."""
    return output.get("value") if is_tagged(output) else output


def read_outcome(raw: Mapping[str, Any], *, tool_call_id: str, tool_name: str) -> ToolOutcome:
    """The outcome in a ``tool-result`` part: `output` tagged or bare, or `result`, with `isError`.

    A `result` that is exactly ``{"error": "<text>"}`` is how a tool that failed in the client is reported.
    """
    state: ToolState = "result"
    result: Any = None
    error_text: str | None = None
    approval: Approval | None = None
    output = raw.get("output", MISSING)
    if output is not MISSING and is_tagged(output):
        kind, value = output["type"], freeze(output.get("value"))
        if kind in ("error-text", "error-json"):
            state, error_text = "output-error", as_text(value)
        elif kind == "execution-denied":
            reason = output.get("reason")
            state = "output-denied"
            approval = Approval(approved=False, reason=reason if isinstance(reason, str) else None)
        else:
            result = value
    else:
        result = freeze(raw.get("result") if output is MISSING else output)
        if raw.get("isError") is True:
            state, error_text, result = "output-error", _error_text(result), None
        elif isinstance(result, dict) and len(result) == 1 and isinstance(result.get("error"), str):
            state, error_text, result = "output-error", result["error"], None
    model_output = model_output_of(raw.get("providerOptions"))
    if model_output is None:
        model_output = model_output_of(raw.get("providerMetadata"))
    return ToolOutcome(
        tool_call_id=tool_call_id,
        tool_name=tool_name,
        state=state,
        result=result,
        error_text=error_text,
        model_output=freeze(model_output) if state == "result" else None,
        approval=approval,
        args=freeze(raw["input"]) if "input" in raw else freeze(raw["args"]) if "args" in raw else MISSING,
    )


def _error_text(result: Any) -> str:
    if isinstance(result, dict) and len(result) == 1 and isinstance(result.get("error"), str):
        return str(result["error"])
    return as_text(result)


def as_text(value: Any) -> str:
    """A value as text: strings as they are, anything else as JSON."""
    return value if isinstance(value, str) else dumps(value)
