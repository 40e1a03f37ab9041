"""One run: everything that can be refused is checked in `prepare`; the answer then comes from `events`."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from agent_memory import clock, observe
from agent_memory.agent import preparation, tool_calls
from agent_memory.agent.events import RunEvent, TripwireInfo
from agent_memory.agent.finish import Finisher, error_event, finish_event, step_finish_event
from agent_memory.agent.pool import submit
from agent_memory.agent.replay import replay
from agent_memory.agent.report import report
from agent_memory.agent.result import FinishReason, MemoryArgs, RunOptions, RunResult, StepResult
from agent_memory.agent.step import Step, StepSettings, Stopped, check_stop
from agent_memory.embedding_usage import EmbeddingUsage
from agent_memory.errors import AgentMemoryError, Tripwire
from agent_memory.messages import Message
from agent_memory.messages.from_input import messages_from_input
from agent_memory.messages.parts import Part, ToolInvocation, ToolPart
from agent_memory.ports import Usage
from agent_memory.processors.base import RunContext

if TYPE_CHECKING:
    from agent_memory.agent.agent import Agent
    from agent_memory.messages.from_input import ToolOutcome

ANSWER_S: Final = 20.0  # that a run must have left to take in a message

logger = logging.getLogger(__name__)


class Run:
    """A run of an agent, from its preparation to its result."""

    def __init__(
        self,
        agent: Agent,
        messages: Any,
        memory: MemoryArgs | None,
        options: RunOptions,
        *,
        decisions: tuple[ToolOutcome, ...] = (),
        resumed: Mapping[str, Any] | None = None,
    ) -> None:
        self.agent = agent
        self.options = options
        self.memory = memory
        self.quota = agent.services.quota
        self.quota_owner = options.quota_owner if memory is None else memory.resource
        self.started_at = clock.now()
        self.result: RunResult | None = None
        self.began = time.monotonic()
        self.cost: Any = None
        self.closed: str | None = None
        self.embedded = EmbeddingUsage()
        self.steps: list[StepResult] = []
        self.tripwire: TripwireInfo | None = None
        self.replayed: Message | None = None
        self.continues = False
        self.suspended = False
        self.earlier_answers: list[str] = []
        self.arrived: list[str] = []
        self._finished_parts: list[Part] = []
        self._outbox: list[RunEvent] = []
        self._held: list[RunEvent] = []
        self.prepared = preparation.prepare(self, messages, decisions, resumed)
        self.ctx: RunContext = self.prepared.ctx
        self.pipeline = self.prepared.pipeline
        self.finisher = Finisher(self)

    # -- what preparation needs

    def should_stop(self) -> bool:
        """Whether the caller asked to stop."""
        asked = self.options.should_stop
        return asked() if asked is not None else False

    def emit(self, event: RunEvent) -> None:
        """Queue a ``data-…`` event of a processor or tool."""
        self._outbox.append(event)

    @property
    def deadline(self) -> float | None:
        """When the run closes itself, `time.monotonic()` seconds."""
        return self.options.deadline

    # -- the answer

    def events(self) -> Generator[RunEvent, None, None]:
        """The events of the run, in wire order. The turn is stored before the last one is yielded."""
        try:
            yield from self._events()
        finally:
            if self.quota is not None and self.quota_owner is not None:
                self.quota.spend(self.quota_owner, self.finisher.usage().total_tokens)
            report(self)

    def _events(self) -> Iterator[RunEvent]:
        if self.replayed is not None:
            yield from replay(self.agent.id, self.replayed)
            self.result = self.finisher.repeated(self.replayed)
            return
        if self.tripwire is not None:
            yield RunEvent("tripwire", self.tripwire.to_json())
            self.result = self.finisher.tripped()
            return
        source = self._answer()
        if self.agent.hold_stream:
            source = self._hold(source)
        try:
            yield from source
        except GeneratorExit:
            self._close("stopped")
            raise
        finally:
            self.finisher.release()

    def _hold(self, source: Iterator[RunEvent]) -> Iterator[RunEvent]:
        """Keep the answer back until the output guardrails have passed; after a tripwire nothing of it is shown."""
        held = list(source)
        if self.tripwire is not None:
            yield from (event for event in held if event.type in ("start", "tripwire"))
            return
        yield from held

    def _answer(self) -> Iterator[RunEvent]:
        yield RunEvent("start", {"id": self.agent.id, "messageId": self.ctx.answer_id})
        reason: FinishReason = "other"
        try:
            if self._waiting("approval-responded"):
                yield from self._settle_approvals()
            if self.waiting_calls():
                reason = "suspended"
            else:
                reason = yield from self._steps()
            last = self.steps[-1] if self.steps and reason != "suspended" else None
            self.finisher.store(reason)
            yield from self._drain()
            if reason == "suspended":
                self.result = self.finisher.done("suspended")
                return
            if last is not None:
                yield step_finish_event(self.ctx.answer_id, last, continued=False)
            yield from self.finisher.titles()
            self.result = self.finisher.done(reason)
            yield finish_event(self.ctx.answer_id, reason, self.result)
        except Tripwire as tripwire:
            yield self._trip(tripwire)
        except Stopped as stop:
            yield from self._stop(stop)
        except Exception as error:
            yield from self._fail(error)

    def _steps(self) -> Generator[RunEvent, None, FinishReason]:
        """Call the model until it has answered, also what arrived meanwhile; returns why it ended."""
        limit = left = self.options.max_steps or self.agent.max_steps
        number = 0
        while True:
            check_stop(self.should_stop, self.deadline)
            step = yield from self._step(number)
            number, left = number + 1, left - 1
            own_calls = [
                part.invocation
                for part in step.parts.parts()
                if isinstance(part, ToolPart) and not part.provider_executed
            ]
            outcomes = []
            for outcome in self._run_tools(own_calls, step):
                self.ctx.messages.set_invocation(self.ctx.answer_id, outcome.invocation)
                outcomes.append(outcome)
                yield outcome.event
            yield from self._drain()
            self._finished_parts = list(self.ctx.messages.answer_parts)
            self._record(step, outcomes)
            if any(outcome.invocation.state == "approval-requested" for outcome in outcomes):
                return "suspended"
            if len(outcomes) < len(own_calls):
                return "tool-calls"
            answered = self.ctx.answer_id
            over = not own_calls or not left
            if self._take_arrived(ending=over):
                left = limit
            elif over:
                if own_calls:
                    return "tool-calls"
                return cast("FinishReason", step.reason if step.reason != "tool-calls" else "stop")
            if self.options.save_per_step:
                self.finisher.store_step()
            yield step_finish_event(answered, self.steps[-1], continued=True)

    def _take_arrived(self, *, ending: bool) -> bool:
        """Take in messages that were sent to the thread meanwhile: what was said so far becomes an answer of its own.

        What a guardrail stops or a rule refuses is left out; its sender has it answered by a turn of its own, which then fails.
        """
        arrived, ctx = self.options.arrived, self.ctx
        if arrived is None or ctx.store is None or ctx.read_only or self.options.structured_output is not None:
            return False
        if self.deadline is not None and time.monotonic() >= self.deadline - ANSWER_S:
            return False
        raw = arrived(ending)
        given = messages_from_input(raw, thread_id=ctx.thread_id, resource_id=ctx.resource_id)
        taken = [message.id for message in given.messages if message.id not in ctx.messages and self._lets_in(message)]
        if not taken:
            return False
        if ctx.messages.answer is not None:
            models = [step.model_id for step in self.steps if step.model_id]
            ctx.messages.annotate_answer(modelId=models[-1] if models else None)
            self.earlier_answers.append(ctx.answer_id)
        self.arrived.extend(taken)
        self.continues = False
        self._finished_parts = []
        preparation.begin_answer(ctx)
        return True

    def _lets_in(self, message: Message) -> bool:
        try:
            self.pipeline.process_arrived([message])
        except (Tripwire, AgentMemoryError) as error:
            if isinstance(error, AgentMemoryError) and error.status >= 500:
                raise
            self.ctx.messages.remove([message.id])
            return False
        return message.id in self.ctx.messages

    def _step(self, number: int) -> Generator[RunEvent, None, Step]:
        """One model call, tried again while a guardrail asks for it; returns the accepted Step."""
        retries = self.options.max_processor_retries
        retries = self.agent.max_processor_retries if retries is None else retries
        while True:
            step = Step(number, self._settings(number))
            yield RunEvent("step-start", {"messageId": self.ctx.answer_id, "request": {}, "warnings": []})
            try:
                for event in step.stream(self.pipeline, should_stop=self.should_stop, deadline=self.deadline):
                    yield event
                    yield from self._drain()
                if self.options.structured_output is not None and not step.parts.tool_calls:
                    yield from self.finisher.structured(step)
            finally:
                # Also when the model fails or the caller leaves: what was said until then is part of the answer.
                self.ctx.messages.set_answer_parts([*self._finished_parts, *step.parts.parts()])
            try:
                self.pipeline.process_output_step(
                    step_number=number,
                    finish_reason=step.reason,
                    tool_calls=tuple(step.parts.tool_calls),
                    text=step.parts.text,
                    usage=step.usage,
                    steps=tuple(self.steps),
                )
            except Tripwire as tripwire:
                if not tripwire.retry or not retries or self.pipeline.retry_count >= retries:
                    raise
                self.pipeline.retry_count += 1
                self.ctx.messages.set_answer_parts(self._finished_parts)
                self.ctx.messages.system.add(str(tripwire), "processor-retry-feedback")
                self.steps.append(self._rejected(step, tripwire))
                continue
            self.pipeline.retry_count = 0
            return step

    def _settings(self, number: int) -> StepSettings:
        agent, options = self.agent, self.options
        fields = self.pipeline.process_input_step(
            step_number=number,
            steps=tuple(self.steps),
            message_id=self.ctx.answer_id,
            model=agent.resolve_model(options.model),
            tools=self.prepared.tools,
            tool_choice="auto" if options.tool_choice is None else options.tool_choice,
            active_tools=options.active_tools,
            provider_options=options.provider_options or {},
            model_settings={**agent.model_settings, **(options.model_settings or {})},
            structured_output=options.structured_output,
        )
        return StepSettings(
            model=agent.resolve_model(fields["model"]),
            tools=fields["tools"],
            tool_choice=fields["tool_choice"],
            active_tools=fields["active_tools"],
            provider_options=fields["provider_options"],
            model_settings=fields["model_settings"],
            structured_output=fields["structured_output"],
        )

    def _run_tools(self, calls: list[ToolInvocation], step: Step) -> Iterator[tool_calls.Outcome]:
        """Outcomes of the calls that end here. Calls of the caller's own tools have none yet."""
        everywhere = self.options.require_tool_approval
        pending = []
        for call in calls:
            tool = step.settings.tools.get(call.tool_name)
            if tool is not None and not tool.runs_here and not (tool.requires_approval or everywhere):
                continue
            if tool is not None and (tool.requires_approval or everywhere):
                yield tool_calls.request_approval(call, self.ctx.run_id)
                continue
            pending.append((tool, call))
        if len(pending) == 1:
            yield tool_calls.execute(*pending[0], self.ctx, self.pipeline, step.number)
            return
        futures = [
            submit(tool_calls.execute, tool, call, self.ctx, self.pipeline, step.number) for tool, call in pending
        ]
        for future in futures:
            yield future.result()

    # -- approvals

    def _waiting(self, state: str) -> list[ToolInvocation]:
        message = self.ctx.messages.get(self.ctx.answer_id)
        return [
            part.invocation
            for part in (message.parts if message else ())
            if isinstance(part, ToolPart) and part.invocation.state == state
        ]

    def waiting_calls(self) -> list[ToolInvocation]:
        """Calls of the answer that wait for a person's approval."""
        return self._waiting("approval-requested")

    def _settle_approvals(self) -> Iterator[RunEvent]:
        """Run what was approved and turn down what was not, then close that step."""
        outcomes = []
        for call in self._waiting("approval-responded"):
            yield RunEvent(
                "tool-call", {"toolCallId": call.tool_call_id, "toolName": call.tool_name, "args": call.args}
            )
            if call.approval is not None and call.approval.approved:
                outcome = tool_calls.execute(
                    self.prepared.tools.get(call.tool_name), call, self.ctx, self.pipeline, len(self.steps)
                )
            else:
                outcome = tool_calls.deny(call)
            self.ctx.messages.set_invocation(self.ctx.answer_id, outcome.invocation)
            outcomes.append(outcome)
            yield outcome.event
        self._finished_parts = list(self.ctx.messages.answer_parts)
        settled = StepResult(
            number=0,
            text="",
            reasoning="",
            finish_reason="tool-calls",
            usage=Usage(),
            tool_calls=tuple(_payload(outcome.invocation) for outcome in outcomes),
            tool_results=tuple(outcome.event.payload for outcome in outcomes),
        )
        self.steps.append(settled)
        yield step_finish_event(self.ctx.answer_id, settled, continued=True)

    # -- how a run may end

    def _record(self, step: Step, outcomes: list[tool_calls.Outcome]) -> None:
        self.steps.append(
            StepResult(
                number=step.number,
                text=step.parts.text,
                reasoning=step.parts.reasoning,
                finish_reason=cast("FinishReason", step.reason),
                usage=step.usage,
                tool_calls=tuple(step.parts.tool_calls),
                tool_results=tuple(o.event.payload for o in outcomes if o.event.type in ("tool-result", "tool-error")),
                sources=tuple(step.parts.sources),
                files=tuple(step.parts.files),
                response_id=step.response_id,
                model_id=step.model_id,
            )
        )

    def _rejected(self, step: Step, tripwire: Tripwire) -> StepResult:
        return StepResult(
            number=step.number,
            text="",
            reasoning="",
            finish_reason="other",
            usage=step.usage,
            tripwire=info_of(tripwire),
        )

    def _trip(self, tripwire: Tripwire) -> RunEvent:
        self.tripwire = info_of(tripwire)
        self.result = self.finisher.tripped()
        return RunEvent("tripwire", self.tripwire.to_json())

    def _stop(self, stop: Stopped) -> Iterator[RunEvent]:
        """Keep what was produced, marked incomplete, and close the stream."""
        tripwire = self._close(stop.reason)
        if tripwire is not None:
            yield tripwire
            return
        if stop.reason == "deadline":
            error = AgentMemoryError("the run's time was over before the answer was complete", code="DEADLINE")
            yield error_event(error)
            yield finish_event(self.ctx.answer_id, "error", self.result)
            return
        yield RunEvent("abort", {})
        yield finish_event(self.ctx.answer_id, "other", self.result)

    def _fail(self, error: Exception) -> Iterator[RunEvent]:
        """Keep the user's message and finished steps, marked incomplete; tell the caller what went wrong."""
        shown = error if isinstance(error, AgentMemoryError) else AgentMemoryError(type(error).__name__)
        if shown is not error:
            shown.__cause__ = error
            logger.error("run failed", extra=observe.described(error))
        tripwire = self._close("failed", shown)
        if tripwire is not None:
            yield tripwire
            return
        yield error_event(shown)
        failed = StepResult(number=len(self.steps), text="", reasoning="", finish_reason="error", usage=Usage())
        yield step_finish_event(self.ctx.answer_id, failed, continued=False)
        yield finish_event(self.ctx.answer_id, "error", self.result)

    def _close(self, mark: str, error: AgentMemoryError | None = None) -> RunEvent | None:
        """Store an incomplete turn and settle the result. A guardrail may still stop it: then its event is returned."""
        if self.result is not None:
            return None
        self.closed = mark
        reason: FinishReason = "error" if error is not None or mark == "deadline" else "other"
        try:
            self.finisher.store(reason, incomplete=mark, error=error)
        except Tripwire as tripwire:
            return self._trip(tripwire)
        except AgentMemoryError as second:
            error = error or second
            reason = "error"
        self.result = self.finisher.done(reason, error=error)
        return None

    def _drain(self) -> Iterator[RunEvent]:
        while self._outbox:
            event = self._outbox.pop(0)
            yield from self.pipeline.process_output_stream(event)


def info_of(tripwire: Tripwire) -> TripwireInfo:
    """What callers are told of a tripwire."""
    return TripwireInfo(str(tripwire), tripwire.processor_id, tripwire.metadata, tripwire.retry)


def _payload(invocation: ToolInvocation) -> dict[str, Any]:
    return {
        "toolCallId": invocation.tool_call_id,
        "toolName": invocation.tool_name,
        "args": invocation.args,
    }


__all__ = ["Run", "info_of"]
