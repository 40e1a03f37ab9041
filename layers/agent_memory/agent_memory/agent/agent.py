"""An agent: instructions, a model, tools, guardrails and a memory."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from agent_memory import embedding_usage
from agent_memory._json import EMPTY
from agent_memory.agent.events import RunEvent
from agent_memory.agent.report import report_refused
from agent_memory.agent.result import MemoryArgs, RunOptions, RunResult
from agent_memory.agent.run import Run
from agent_memory.agent.services import CostMeter, Services
from agent_memory.agent.tools import Tool, as_tools
from agent_memory.errors import ConfigurationError, ConflictError, NotFoundError
from agent_memory.ids import check_id
from agent_memory.messages.from_input import ToolOutcome
from agent_memory.messages.parts import Approval
from agent_memory.ports import ChatModel, SuspendedRun
from agent_memory.processors.base import Processor
from agent_memory.processors.pipeline import check_processor

if TYPE_CHECKING:
    from agent_memory.memory import Memory


_NONE: Final = Services()


class RunStream:
    """A running answer: iterate it for its events; afterwards `result` holds what it came to.

    Attributes:
        run_id: Of the run.
        message_id: Id under which the answer is stored.
        continues: Whether the answer goes on in an assistant message that the caller has already.
        repeated: Whether this is the stored answer of an earlier, equal turn.
    """

    def __init__(self, start: Callable[[], Run], meter: CostMeter | None = None) -> None:
        # A context of its own, so that what this run requests is counted for it alone, in its pool threads too.
        self._context = contextvars.copy_context()
        cost = None if meter is None else self._context.run(meter.begin)
        embedded = self._context.run(embedding_usage.begin)
        try:
            self._run = run = self._context.run(start)
        except BaseException as error:
            self._context.run(report_refused, error)
            raise
        run.cost, run.embedded = cost, embedded
        self._events = run.events()
        self.run_id = run.ctx.run_id
        self.message_id = run.ctx.answer_id
        self.continues = run.continues
        self.repeated = run.replayed is not None

    def __iter__(self) -> Iterator[RunEvent]:
        return self

    def __next__(self) -> RunEvent:
        return self._context.run(next, self._events)

    @property
    def result(self) -> RunResult:
        """What the run came to. Raises RuntimeError before its end."""
        if self._run.result is None:
            raise RuntimeError("the run has not ended: iterate the stream to its end first")
        return self._run.result

    def close(self) -> None:
        """Stop here: what was produced is stored, marked incomplete."""
        self._context.run(self._events.close)

    def drain(self) -> RunResult:
        """Run to the end and return the result. Raises the run's error, if it failed."""
        for _event in self:
            pass
        result = self.result
        if result.error is not None:
            raise result.error
        return result


class Agent:
    """An agent.

    Args:
        id: Its id in routes and in stored runs.
        name, description: For people; the name is the id unless given.
        instructions: The system text, or a function of the request context.
        model: A ChatModel, ``provider/model`` or ``provider:model``; None: the deployment's model.
        tools: Typed functions, `Tool` objects, or a mapping of them.
        memory: Its memory; None: nothing is stored.
        input_processors, output_processors: The user's own, run after (in) and before (out) memory's.
        max_steps: The most model calls of one run.
        model_settings: temperature, topP, maxOutputTokens and so on.
        max_processor_retries: How often a step is tried again when a guardrail asks for it; 0: never.
        hold_stream: Keep a streamed answer back until the output guardrails have passed.
        resumable: Keep the chunks of running answers for an hour, so that a reloaded page can rejoin.
    """

    def __init__(
        self,
        id: str,
        *,
        name: str | None = None,
        description: str = "",
        instructions: str | Callable[[Mapping[str, Any]], str] = "",
        model: ChatModel | str | None = None,
        tools: Sequence[Any] | Mapping[str, Any] = (),
        memory: Memory | None = None,
        input_processors: Sequence[Processor] = (),
        output_processors: Sequence[Processor] = (),
        max_steps: int = 5,
        model_settings: Mapping[str, Any] = EMPTY,
        max_processor_retries: int = 0,
        hold_stream: bool = False,
        resumable: bool = False,
    ) -> None:
        if max_steps < 1:
            raise ConfigurationError(f"max_steps of agent {id} must be 1 or more; found {max_steps}")
        self.id = check_id("id", id)
        self.name = name or id
        self.description = description
        self.instructions = instructions
        self.model = model
        self.tools: dict[str, Tool] = as_tools(tools)
        self.memory = memory
        self.input_processors = tuple(check_processor(processor) for processor in input_processors)
        self.output_processors = tuple(check_processor(processor) for processor in output_processors)
        self.max_steps = max_steps
        self.model_settings = model_settings
        self.max_processor_retries = max_processor_retries
        self.hold_stream = hold_stream
        self.resumable = resumable
        self._services: Services | None = None

    @property
    def services(self) -> Services:
        """The deployment's adapters: those of `bind`, else those of the environment, for an agent whose memory is theirs too."""
        if self._services is None:
            if self.memory is None or self.memory.is_bound:
                return _NONE
            from agent_memory.runtime import services

            self.bind(services())
        return self._services or _NONE

    def bind(self, services: Services) -> Agent:
        """Give the agent the deployment's adapters; its memory takes those it was not built with."""
        self._services = services
        if self.memory is not None:
            self.memory.bind(services)
        return self

    def resolve_model(self, model: ChatModel | str | None = None) -> ChatModel:
        """The model to call: the one given, else the agent's, else the deployment's."""
        wanted = model if model is not None else self.model
        if wanted is None:
            wanted = self.services.model
        if not isinstance(wanted, str):
            return wanted
        from agent_memory.models import resolve_model

        return resolve_model(wanted)

    def generate(
        self, messages: Any, *, memory: MemoryArgs | None = None, options: RunOptions | None = None
    ) -> RunResult:
        """Answer, and return when the turn is stored.

        Args:
            messages: Text, a list of texts, model messages, page messages or stored messages.
            memory: The conversation; None: nothing is loaded or stored.
            options: What differs from the agent's own settings.

        Raises:
            InvalidInputError: The input does not make sense; nothing was written.
            AccessDeniedError: The thread belongs to another resource.
            TurnInProgressError: The same turn is running.
            ModelError: The model failed; the user's message and finished steps are stored.
            UnavailableError, StorageError: The turn could not be loaded or stored.
        """
        return self.stream(messages, memory=memory, options=options).drain()

    def stream(
        self, messages: Any, *, memory: MemoryArgs | None = None, options: RunOptions | None = None
    ) -> RunStream:
        """Answer as a stream. What can be refused is refused here; later failures are events of the stream."""
        return RunStream(lambda: Run(self, messages, memory, options or RunOptions()), self.services.meter)

    def resume(
        self,
        run_id: str,
        tool_call_id: str | None = None,
        *,
        approved: bool,
        reason: str | None = None,
        owner: str | None = None,
        options: RunOptions | None = None,
    ) -> RunStream:
        """Decide on a call that waits for approval, and go on with its run. A decision counts once.

        Args:
            run_id: The suspended run.
            tool_call_id: The call; may be left out where only one waits.
            approved, reason: The decision.
            owner: The signed-in resource: runs of others do not exist for it. None: a trusted caller.
            options: Settings that take the place of those the run was started with.

        Raises:
            NotFoundError: No such suspended run.
            ConflictError: The call was decided before.
        """
        suspended = self._suspended(run_id, owner)
        call = _waiting_call(suspended, tool_call_id)
        decision = Approval(f"{run_id}::{call['toolCallId']}", approved, reason)
        outcome = ToolOutcome(call["toolCallId"], call["toolName"], "approval-responded", approval=decision)
        memory = None
        if suspended.thread_id is not None and suspended.resource_id is not None:
            memory = MemoryArgs(
                suspended.thread_id, suspended.resource_id, options=suspended.state.get("memoryOptions")
            )
        resumed = _resumed_options(suspended, options or RunOptions())
        return RunStream(
            lambda: Run(self, (), memory, resumed, decisions=(outcome,), resumed=suspended.state), self.services.meter
        )

    def _suspended(self, run_id: str, owner: str | None) -> SuspendedRun:
        runs = self.services.runs
        suspended = runs.find_suspended(run_id, owner=owner) if runs is not None else None
        if suspended is None or suspended.agent_id != self.id:
            raise NotFoundError(f"no suspended run {run_id}; it may have been decided or be older than 7 days")
        return suspended


def _waiting_call(suspended: SuspendedRun, tool_call_id: str | None) -> Mapping[str, Any]:
    decided = suspended.state.get("decisions", {})
    waiting = [call for call in suspended.tool_calls if call["toolCallId"] not in decided]
    for call in suspended.tool_calls:
        if call["toolCallId"] == tool_call_id or (tool_call_id is None and waiting == [call]):
            if call not in waiting:
                raise ConflictError(f"tool call {call['toolCallId']} was decided before")
            return call
    raise NotFoundError(f"no call {tool_call_id or 'alone'} waits in run {suspended.run_id}; name a toolCallId")


def _resumed_options(suspended: SuspendedRun, given: RunOptions) -> RunOptions:
    import dataclasses

    kept = suspended.state.get("options", {})
    names = {
        "instructions": "instructions",
        "system": "system",
        "client_tools": "clientTools",
        "max_steps": "maxSteps",
        "tool_choice": "toolChoice",
        "active_tools": "activeTools",
        "model_settings": "modelSettings",
        "provider_options": "providerOptions",
        "require_tool_approval": "requireToolApproval",
        "structured_output": "structuredOutput",
    }
    defaults = RunOptions()
    changes = {
        name: kept[key]
        for name, key in names.items()
        if kept.get(key) is not None and getattr(given, name) == getattr(defaults, name)
    }
    return dataclasses.replace(given, run_id=suspended.run_id, **changes)
