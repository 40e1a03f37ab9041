"""What a run answers, what one step of it was, and what a caller may ask of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from agent_memory._json import EMPTY
from agent_memory.agent.events import TripwireInfo
from agent_memory.messages import Message
from agent_memory.ports import ChatModel, Usage

if TYPE_CHECKING:
    from agent_memory.agent.tools import Tool
    from agent_memory.processors.base import Processor

FinishReason = Literal["stop", "length", "tool-calls", "content-filter", "error", "other", "suspended"]


@dataclass(frozen=True, slots=True)
class MemoryArgs:
    """Which conversation a run belongs to.

    Attributes:
        thread: The thread's id.
        resource: Its owner.
        title, metadata: Applied when the thread is created; metadata is merged into an existing one.
        options: Memory options for this call, over the agent's own.
    """

    thread: str
    resource: str
    title: str | None = None
    metadata: Mapping[str, Any] | None = None
    options: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Everything a call of `generate` or `stream` may set beside the messages; None means the agent's own value.

    Attributes:
        run_id: Id of the run; made when absent.
        instructions: Instead of the agent's.
        system: More system texts, after the instructions.
        context: Messages the model sees and nobody stores.
        model, model_settings, provider_options, tool_choice, active_tools, max_steps: Of the model calls.
        toolsets: More server tools, by name.
        client_tools: Tools that the caller runs: name to ``{"description", "inputSchema"}``.
        require_tool_approval: Suspend before every tool call.
        structured_output: ``{"schema": JSON Schema}``: the answer is an object of that schema.
        idempotency_key: Names the turn for repeats; else the last user message's id does.
        regenerate: Answer the last user message anew and replace the old answer in storage.
        save_per_step: Store after every step instead of at the end.
        input_processors, output_processors: Instead of the agent's own lists.
        max_processor_retries: How often a step may be tried again on a guardrail's request.
        request_context: Handed to processors, tools and dynamic settings.
        should_stop: Asked between chunks; True cancels the run.
        arrived: Asked before each step but the first (False) and before the run ends (True): messages that were sent to the
            thread meanwhile, as input. They are stored behind what was answered so far, and answered by the next step.
        quota_owner: Resource whose quota a run without memory counts against; with memory it is the thread's owner.
        admitted: Whether the turn was counted against the quota before.
        deadline: `time.monotonic()` seconds at which the run closes itself; stored as incomplete.
    """

    run_id: str | None = None
    instructions: str | None = None
    system: Sequence[str] = ()
    context: Any = None
    model: ChatModel | str | None = None
    model_settings: Mapping[str, Any] | None = None
    provider_options: Mapping[str, Any] | None = None
    tool_choice: Any = None
    active_tools: Sequence[str] | None = None
    max_steps: int | None = None
    toolsets: Mapping[str, Tool] = field(default_factory=dict)
    client_tools: Mapping[str, Mapping[str, Any]] = EMPTY
    require_tool_approval: bool | None = None
    structured_output: Mapping[str, Any] | None = None
    idempotency_key: str | None = None
    regenerate: bool = False
    save_per_step: bool = False
    input_processors: Sequence[Processor] | None = None
    output_processors: Sequence[Processor] | None = None
    max_processor_retries: int | None = None
    request_context: Mapping[str, Any] = EMPTY
    should_stop: Callable[[], bool] | None = None
    arrived: Callable[[bool], Sequence[Any]] | None = None
    deadline: float | None = None
    quota_owner: str | None = None
    admitted: bool = False


@dataclass(frozen=True, slots=True)
class StepResult:
    """One model call and the tools it started. `tool_calls` and `tool_results` hold the event payloads."""

    number: int
    text: str
    reasoning: str
    finish_reason: FinishReason
    usage: Usage
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    tool_results: tuple[Mapping[str, Any], ...] = ()
    sources: tuple[Any, ...] = ()
    files: tuple[Any, ...] = ()
    response_id: str | None = None
    model_id: str | None = None
    tripwire: TripwireInfo | None = None


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run came to.

    Attributes:
        run_id: Of the run.
        text: The final text ('' after a tripwire).
        finish_reason: Why the run ended; ``suspended`` while a tool call waits for approval.
        steps: One entry per model call.
        usage: Tokens of all steps together.
        messages: Remembered and new messages, in order.
        remembered: Messages that memory loaded.
        response_messages: The messages this run made (the answer; with a continued answer, that whole message; where
            messages arrived meanwhile, every answer).
        message_id: Id under which the answer is stored.
        object: The structured answer, or None.
        tripwire: Why a guardrail stopped the run, or None.
        suspend_payload: ``{toolCallId, toolName, args, resumeSchema}`` of the first call that waits, or None.
        error: Why the run failed, or None (`generate` raises instead).
        stored: Whether the turn was stored.
        repeated: Whether this is the stored answer of an earlier, equal turn.
        notes: Facts about memory and cost: counts, units, ids.
    """

    run_id: str
    text: str
    finish_reason: FinishReason
    message_id: str
    created_at: datetime
    steps: tuple[StepResult, ...] = ()
    usage: Usage = field(default_factory=Usage)
    messages: tuple[Message, ...] = ()
    remembered: tuple[Message, ...] = ()
    response_messages: tuple[Message, ...] = ()
    reasoning: str = ""
    object: Any = None
    tripwire: TripwireInfo | None = None
    suspend_payload: Mapping[str, Any] | None = None
    error: Exception | None = None
    warnings: tuple[Any, ...] = ()
    stored: bool = False
    repeated: bool = False
    notes: Mapping[str, Any] = EMPTY

    @property
    def tool_calls(self) -> tuple[Mapping[str, Any], ...]:
        """Tool calls of all steps."""
        return tuple(call for step in self.steps for call in step.tool_calls)

    @property
    def tool_results(self) -> tuple[Mapping[str, Any], ...]:
        """Tool results of all steps."""
        return tuple(result for step in self.steps for result in step.tool_results)
