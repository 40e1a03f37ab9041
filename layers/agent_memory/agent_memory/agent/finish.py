"""How a run ends: the turn is stored, the title is asked for, the result is put together."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from agent_memory import clock, observe
from agent_memory._json import dumps, freeze, loads
from agent_memory._schema import compile_schema
from agent_memory.agent.events import RunEvent
from agent_memory.agent.preparation import release, stored_message
from agent_memory.agent.result import FinishReason, RunResult, StepResult
from agent_memory.agent.step import Step, usage_json, usage_of
from agent_memory.agent.tool_calls import RESUME_SCHEMA
from agent_memory.errors import AgentMemoryError, ConfigurationError, ModelError
from agent_memory.messages.message import Message, message_to_json
from agent_memory.messages.parts import StepStartPart, TextPart, ToolPart
from agent_memory.ports import Committed, MessageRef, SuspendedRun, ThreadUsage, Usage

if TYPE_CHECKING:
    from agent_memory.agent.run import Run


class Finisher:
    """Stores a run's turn once, and makes its result."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._warnings: list[Any] = []
        self._object: Any = None
        self._failed = False
        self._settled = False

    # -- storing

    def store(
        self, reason: FinishReason, *, incomplete: str | None = None, error: AgentMemoryError | None = None
    ) -> None:
        """Run the output processors, whose last one stores the turn. Raises what they raise; never stores twice."""
        run, ctx = self._run, self._run.ctx
        if self._failed or self._settled:
            return
        messages = ctx.messages
        ctx.usage = self._taken()
        own = messages.answer_parts
        if all(isinstance(part, StepStartPart) for part in own):
            messages.set_answer_parts(())
        if messages.answer_parts or run.continues:
            messages.annotate_answer(
                modelId=next((step.model_id for step in reversed(run.steps) if step.model_id), None),
                usage=usage_json(self._before() + self.usage()) if run.steps else None,
                incomplete=incomplete,
            )
        if ctx.turn is not None:
            ctx.turn = dataclasses.replace(
                ctx.turn,
                state="failed" if error is not None or incomplete == "deadline" else "finished",
                answer_id=next((i for i in (ctx.answer_id, *reversed(run.earlier_answers)) if i in messages), None),
                user_ids=tuple(m.id for m in messages.of("input", "memory") if m.id in run.prepared.input_ids),
            )
        try:
            if reason == "suspended":
                self._suspend()
            run.pipeline.process_output_result(self.done(reason, error=error), incomplete=incomplete is not None)
        except AgentMemoryError:
            self._failed = True
            raise
        self._settled = True

    def store_step(self) -> None:
        """Store what there is after a step, so that a crash later in the run loses nothing of it."""
        ctx = self._run.ctx
        if ctx.store is None or ctx.read_only:
            return
        from agent_memory.processors.message_history import save_turn

        ctx.usage = self._taken()
        save_turn(ctx.store, ctx, incomplete=True)

    def release(self) -> None:
        """After a turn that was not stored: forget that it was running, and remove what it uploaded."""
        if self._run.ctx.shared.get("committed") is None and not self._settled:
            release(self._run.ctx)

    def _take_back(self) -> None:
        """Remove what `store_step` stored of a turn that a guardrail then stopped."""
        ctx = self._run.ctx
        if ctx.shared.get("committed") is None or ctx.store is None:
            return
        assert ctx.resource_id is not None and ctx.thread_id is not None
        del ctx.shared["committed"]  # so that `release` forgets the turn too
        if ctx.header is None:
            ctx.store.delete_thread(ctx.resource_id, ctx.thread_id)
            return
        made = [m.id for m in ctx.messages.new() if m.id in self._run.prepared.input_ids]
        own = (*self._run.earlier_answers, *self._run.arrived, ctx.answer_id)
        made.extend(message_id for message_id in own if ctx.messages.stored(message_id) is None)
        numbers = ctx.store.find(ctx.resource_id, ctx.thread_id, made)
        refs = [MessageRef(ctx.resource_id, ctx.thread_id, message_id, seq) for message_id, seq in numbers.items()]
        ctx.store.delete_messages(ctx.resource_id, refs)

    def _suspend(self) -> None:
        run, ctx = self._run, self._run.ctx
        runs = run.agent.services.runs
        if runs is None:
            raise ConfigurationError("a tool call needs approval, and there is no run store to keep the run in")
        waiting = run.waiting_calls()
        runs.suspend(
            SuspendedRun(
                run_id=ctx.run_id,
                agent_id=run.agent.id,
                resource_id=ctx.resource_id,
                thread_id=ctx.thread_id,
                suspended_at=clock.now(),
                tool_calls=tuple(
                    {
                        "toolCallId": call.tool_call_id,
                        "toolName": call.tool_name,
                        "args": call.args,
                        "requiresApproval": True,
                    }
                    for call in waiting
                ),
                state=self._state(),
            )
        )

    def _state(self) -> Mapping[str, Any]:
        """What a suspended run needs to go on. The messages themselves are in the thread; without one, they go along."""
        run, ctx, options = self._run, self._run.ctx, self._run.options
        state: dict[str, Any] = {
            "answerId": ctx.answer_id,
            "options": {
                "instructions": options.instructions,
                "system": list(options.system),
                "clientTools": options.client_tools,
                "maxSteps": options.max_steps,
                "toolChoice": options.tool_choice,
                "activeTools": options.active_tools,
                "modelSettings": options.model_settings,
                "providerOptions": options.provider_options,
                "requireToolApproval": options.require_tool_approval,
                "structuredOutput": options.structured_output,
            },
            "memoryOptions": run.memory.options if run.memory else None,
        }
        if ctx.store is None:
            state["messages"] = [message_to_json(message) for message in ctx.messages.all()]
        return freeze(loads(dumps(state)))  # type: ignore[no-any-return]

    # -- titles

    def titles(self) -> Iterator[RunEvent]:
        """Ask for a title where one is due: after the turn, in another function; or here, where it is announced."""
        ctx, services = self._run.ctx, self._run.agent.services
        committed: Committed | None = ctx.shared.get("committed")
        if committed is None or ctx.options is None or ctx.options.generate_title is None:
            return
        from agent_memory import titles

        try:
            if not titles.should_generate_title(
                ctx.options, committed.header, ctx.messages.all(), read_only=ctx.read_only
            ):
                return
            event = {
                "agentId": ctx.agent_id,
                "resourceId": ctx.resource_id,
                "threadId": ctx.thread_id,
                "correlationId": observe.correlation_id() or ctx.run_id,
            }
            if ctx.options.generate_title.emit_event and ctx.store is not None:
                title = titles.generate_title(ctx.store, self._run.agent, event)
                if title:
                    data = {"threadId": ctx.thread_id, "title": title}
                    yield RunEvent("data-thread-title", data, transient=True)
            elif services.dispatcher is not None:
                services.dispatcher.dispatch("titles", event)
        except Exception as error:
            # A title never fails an answer; the next turn tries again.
            ctx.notes["title_failed"] = error.code if isinstance(error, AgentMemoryError) else type(error).__name__

    # -- structured answers

    def structured(self, step: Step) -> Iterator[RunEvent]:
        """Read the answer as an object of the wanted schema and tell of it."""
        wanted = self._run.options.structured_output or {}
        try:
            value = loads(step.parts.text)
            schema = wanted.get("schema")
            if schema:
                compile_schema(schema, use_default=True)(value)
        except ValueError as error:
            strategy = wanted.get("errorStrategy", "strict")
            if strategy == "fallback":
                value = wanted.get("fallbackValue")
            elif strategy == "warn":
                self._warnings.append({"type": "structured-output", "message": "the answer does not fit the schema"})
                return
            else:
                raise ModelError(
                    "the model's answer does not fit the schema of structuredOutput", code="STRUCTURED_OUTPUT_INVALID"
                ) from error
        self._object = value
        yield RunEvent("object", value)
        yield RunEvent("object-result", value)

    # -- results

    def usage(self) -> Usage:
        """Tokens of all steps so far, rejected ones included."""
        total = Usage()
        for step in self._run.steps:
            total = total + step.usage
        return total

    def _taken(self) -> ThreadUsage:
        usage = self.usage()
        return ThreadUsage(usage.input_tokens, usage.output_tokens, self._run.embedded.tokens)

    def _before(self) -> Usage:
        """Tokens of the answer that this run goes on with, from the runs before it."""
        stored = self._run.ctx.messages.stored(self._run.ctx.answer_id) if self._run.continues else None
        return Usage() if stored is None else usage_of(stored.metadata.get("usage"))

    def done(self, reason: FinishReason, *, error: AgentMemoryError | None = None) -> RunResult:
        """The result of a run that got as far as an answer."""
        run, ctx = self._run, self._run.ctx
        messages = ctx.messages
        answers = (messages.get(message_id) for message_id in (*run.earlier_answers, ctx.answer_id))
        committed: Committed | None = ctx.shared.get("committed")
        if committed is not None and committed.repeat is not None and committed.repeat.answer_id:
            stored = stored_message(ctx, committed.repeat.answer_id)
            if stored is not None:
                return self.repeated(stored)
        self._note_cost()
        own = messages.answer_parts
        steps = [step for step in run.steps if step.tripwire is None]
        return RunResult(
            run_id=ctx.run_id,
            text=_last_text(own) if error is None or own else "",
            finish_reason=reason,
            message_id=ctx.answer_id,
            created_at=run.started_at,
            steps=tuple(run.steps),
            usage=self.usage(),
            messages=messages.of("memory", "input", "response"),
            remembered=messages.of("memory"),
            response_messages=tuple(answer for answer in answers if answer is not None),
            reasoning="".join(step.reasoning for step in steps),
            object=self._object,
            suspend_payload=self._suspend_payload() if reason == "suspended" else None,
            error=error,
            warnings=tuple(self._warnings),
            stored=committed is not None,
            notes=ctx.notes,
        )

    def _note_cost(self) -> None:
        cost = self._run.cost
        if cost is not None:
            self._run.ctx.notes["cost"] = {
                "requests": cost.requests,
                "readUnits": cost.read_units,
                "writeUnits": cost.write_units,
                "bytesRead": cost.bytes_read,
                "s3Requests": cost.s3_requests,
                "tokens": self.usage().total_tokens,
            }
            if self._run.embedded.tokens:
                self._run.ctx.notes["cost"]["embeddingTokens"] = self._run.embedded.tokens
            if cost.partition_gb >= 1:
                self._run.ctx.notes["cost"]["partitionGb"] = cost.partition_gb

    def tripped(self) -> RunResult:
        """The result of a run that a guardrail stopped: nothing of what was blocked is in it."""
        run, ctx = self._run, self._run.ctx
        self._take_back()
        self._note_cost()
        remembered = ctx.messages.of("memory")
        return RunResult(
            run_id=ctx.run_id,
            text="",
            finish_reason="other",
            message_id=ctx.answer_id,
            created_at=run.started_at,
            steps=tuple(_blocked(step, run) for step in run.steps),
            usage=self.usage(),
            messages=remembered,
            remembered=remembered,
            tripwire=run.tripwire,
            notes=ctx.notes,
        )

    def repeated(self, message: Message) -> RunResult:
        """The stored answer of an earlier, equal turn."""
        ctx = self._run.ctx
        reason: FinishReason = "stop"
        pending = [p.invocation for p in message.parts if isinstance(p, ToolPart) and p.invocation.is_pending]
        if pending:
            waits = any(call.state == "approval-requested" for call in pending)
            reason = "suspended" if waits else "tool-calls"
        total = usage_of(message.metadata.get("usage"))
        step = StepResult(0, message.text, "", reason, total, model_id=message.metadata.get("modelId"))
        return RunResult(
            run_id=ctx.run_id,
            text=_last_text(message.parts),
            finish_reason=reason,
            message_id=message.id,
            created_at=message.created_at,
            steps=(step,),
            usage=total,
            messages=ctx.messages.of("memory", "input"),
            remembered=ctx.messages.of("memory"),
            response_messages=(message,),
            stored=True,
            repeated=True,
            notes=ctx.notes,
        )

    def _suspend_payload(self) -> Mapping[str, Any] | None:
        for call in self._run.waiting_calls():
            return {
                "toolCallId": call.tool_call_id,
                "toolName": call.tool_name,
                "args": call.args,
                "resumeSchema": RESUME_SCHEMA,
            }
        return None


def _last_text(parts: Any) -> str:
    """The text after the last step boundary that has any (what the model said last)."""
    texts: list[str] = []
    last = ""
    for part in parts:
        if isinstance(part, StepStartPart):
            last = "".join(texts) or last
            texts = []
        elif isinstance(part, TextPart):
            texts.append(part.text)
    return "".join(texts) or last


def _blocked(step: StepResult, run: Run) -> StepResult:
    return StepResult(step.number, "", "", "other", step.usage, tripwire=step.tripwire or run.tripwire)


def error_event(error: AgentMemoryError) -> RunEvent:
    """What a stream tells of an error: name and message only."""
    return RunEvent("error", {"error": {"name": type(error).__name__, "message": error.message, "code": error.code}})


def step_finish_event(message_id: str, step: StepResult, *, continued: bool) -> RunEvent:
    """The end of a step."""
    return RunEvent(
        "step-finish",
        {
            "messageId": message_id,
            "stepResult": {"reason": step.finish_reason, "isContinued": continued, "warnings": []},
            "output": {
                "text": step.text,
                "toolCalls": list(step.tool_calls),
                "usage": usage_json(step.usage),
            },
            "metadata": {},
        },
    )


def finish_event(message_id: str, reason: FinishReason, result: RunResult | None) -> RunEvent:
    """The end of a run."""
    usage = result.usage if result is not None else Usage()
    return RunEvent(
        "finish",
        {
            "messageId": message_id,
            "stepResult": {"reason": reason, "warnings": []},
            "output": {"text": result.text if result is not None else "", "usage": usage_json(usage)},
            "metadata": {"memory": dict(result.notes)} if result is not None and result.notes else {},
            "messages": {"all": [], "user": [], "nonUser": []},
        },
    )
