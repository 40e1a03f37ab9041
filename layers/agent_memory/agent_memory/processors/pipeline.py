"""Runs the hooks of a run's processors, in order, and turns what they return into changes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from agent_memory.agent.events import RunEvent
from agent_memory.errors import AgentMemoryError, ConfigurationError, ProcessorError, Tripwire
from agent_memory.messages import Message
from agent_memory.messages.list import MessageList, Source
from agent_memory.ports import ModelChunk, ModelRequest
from agent_memory.processors.base import (
    HOOKS,
    INPUT_HOOKS,
    OUTPUT_HOOKS,
    ErrorContext,
    HookContext,
    InputChange,
    InputContext,
    LoadContext,
    OutputContext,
    OutputStepContext,
    Processor,
    RequestContext,
    ResponseContext,
    RunContext,
    StepChange,
    StepContext,
    StreamContext,
    ToolResultChange,
    ToolResultContext,
)

C = TypeVar("C", bound=HookContext)

INPUT_ORDER = (
    "memory-input-filter",
    "working-memory",
    "message-history",
    "semantic-recall",
    "memory-token-limiter",
)
OUTPUT_ORDER = ("semantic-recall", "message-history")
FILTER_ID = "memory-input-filter"


def check_processor(processor: Any) -> Processor:
    """Return `processor` if it can be one; raise ConfigurationError that says what is missing."""
    if not isinstance(getattr(processor, "id", None), str) or not processor.id:
        raise ConfigurationError(
            f"a processor needs a non-empty string id; {type(processor).__name__} has none", code="PROCESSOR_WITHOUT_ID"
        )
    if not any(callable(getattr(processor, hook, None)) for hook in HOOKS):
        raise ConfigurationError(
            f"processor {processor.id} has none of the hooks {', '.join(HOOKS)}", code="PROCESSOR_WITHOUT_HOOK"
        )
    return processor  # type: ignore[no-any-return]


def arrange(
    automatic_in: Sequence[Processor],
    automatic_out: Sequence[Processor],
    user_in: Sequence[Processor],
    user_out: Sequence[Processor],
    trailing: Sequence[Processor] = (),
) -> tuple[tuple[Processor, ...], tuple[Processor, ...]]:
    """The order of a run's processors.

    In: memory's (filter, working memory, history, recall, token limiter), then the user's, then `trailing` (the attachment
    uploader). Out: the user's, then `trailing`, then recall, then history. A hand-placed processor suppresses the
    automatic one of its id on its side; a hand-placed input filter moves in front of all loaders.
    """
    user_in = [check_processor(processor) for processor in user_in]
    user_out = [check_processor(processor) for processor in user_out]
    ids_in, ids_out = {p.id for p in user_in}, {p.id for p in user_out}
    hoisted = [p for p in user_in if p.id == FILTER_ID]
    placed = [p for p in user_in if p.id != FILTER_ID]
    memory_in = sorted((p for p in automatic_in if p.id not in ids_in), key=lambda p: INPUT_ORDER.index(p.id))
    memory_out = sorted((p for p in automatic_out if p.id not in ids_out), key=lambda p: OUTPUT_ORDER.index(p.id))
    last_in = [p for p in trailing if p.id not in ids_in]
    last_out = [p for p in trailing if p.id not in ids_out]
    return (*hoisted, *memory_in, *placed, *last_in), (*user_out, *last_out, *memory_out)


class Pipeline:
    """The processors of one run, with their states."""

    def __init__(self, inputs: Sequence[Processor], outputs: Sequence[Processor], run: RunContext) -> None:
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.run = run
        self._states: dict[str, dict[str, Any]] = {}
        self._stream: list[RunEvent] = []
        self.retry_count = 0

    def _has(self, processors: Iterable[Processor], hook: str) -> list[tuple[Processor, Callable[[Any], Any]]]:
        return [(p, getattr(p, hook)) for p in processors if callable(getattr(p, hook, None))]

    def _context(self, kind: type[C], processor: Processor, messages: Sequence[Message] = (), **fields: Any) -> C:
        return kind(
            run=self.run,
            processor_id=processor.id,
            state=self._states.setdefault(processor.id, {}),
            messages=tuple(messages),
            retry_count=self.retry_count,
            **fields,
        )

    def _call(self, processor: Processor, hook: Callable[[Any], Any], context: HookContext) -> Any:
        """Call a hook. What it raises on purpose passes; anything else fails the run closed."""
        try:
            outcome = hook(context)
            return wait(outcome) if inspect.isawaitable(outcome) else outcome
        except Tripwire as tripwire:
            self._report_violation(processor, tripwire)
            raise
        except AgentMemoryError:
            raise
        except Exception as error:
            name = getattr(hook, "__name__", "hook")
            raise ProcessorError(
                f"processor {processor.id} raised {type(error).__name__} in {name}; the run was stopped"
            ) from error

    def _report_violation(self, processor: Processor, tripwire: Tripwire) -> None:
        report = getattr(processor, "on_violation", None)
        if callable(report):
            try:
                report(processor_id=processor.id, message=str(tripwire), detail=tripwire.metadata)
            except Exception:
                self.run.notes["on_violation_failed"] = processor.id

    # -- before the model

    def start_loads(self) -> dict[str, Any]:
        """Start every processor's `load` on the run's pool; futures by processor id."""
        messages = self.run.messages.of("input")
        return {
            processor.id: self.run.submit(self._call, processor, hook, self._context(LoadContext, processor, messages))
            for processor, hook in self._has(self.inputs, "load")
        }

    def process_input(self, loads: dict[str, Any]) -> None:
        """Run all `process_input` hooks in order. The first ones see the input only, until one changed the list."""
        loaded = {processor_id: future.result() for processor_id, future in loads.items()}
        widened = False
        for processor, hook in self._has(self.inputs, "process_input"):
            messages = self.run.messages.all() if widened else self.run.messages.of("input")
            context = self._context(InputContext, processor, messages, loaded=loaded.get(processor.id))
            outcome = self._call(processor, hook, context)
            if outcome is None:
                widened = widened or len(self.run.messages) != len(self.run.messages.of("input"))
                continue
            self._take(outcome, messages, "input", processor.id)
            widened = True

    def process_arrived(self, messages: Sequence[Message]) -> None:
        """Run the `process_input` hooks on input that joins a run on its way; memory's loaders have done their part."""
        self.run.messages.add(messages, "input")
        ids = {message.id for message in messages}
        for processor, hook in self._has(self.inputs, "process_input"):
            if processor.id in INPUT_ORDER:
                continue
            shown = tuple(message for message in self.run.messages.of("input") if message.id in ids)
            outcome = self._call(processor, hook, self._context(InputContext, processor, shown))
            if outcome is not None:
                self._take(outcome, shown, "input", processor.id)

    def process_input_step(self, **fields: Any) -> dict[str, Any]:
        """Run all `process_input_step` hooks; returns the step's settings with what they changed."""
        for processor, hook in self._has(self.inputs, "process_input_step"):
            messages = self.run.messages.all()
            outcome = self._call(processor, hook, self._context(StepContext, processor, messages, **fields))
            if isinstance(outcome, StepChange):
                if outcome.messages is not None or outcome.system_messages is not None:
                    self._take(InputChange(outcome.messages, outcome.system_messages), messages, "input", processor.id)
                for name in (*fields, "message_id"):
                    value = getattr(outcome, name, None)
                    if value is not None:
                        fields[name] = value
            elif outcome is not None:
                self._take(outcome, messages, "input", processor.id)
        return fields

    def process_llm_request(
        self, request: ModelRequest, step_number: int
    ) -> tuple[ModelRequest, Sequence[ModelChunk] | None]:
        """Run the input side's `process_llm_request` hooks. The first that answers with chunks skips the model.

        A processor that stands on the output side only (a limit for answers) has no say over prompts.
        """
        ready: Sequence[ModelChunk] | None = None
        for processor, hook in self._has(self.inputs, "process_llm_request"):
            outcome = self._call(
                processor, hook, self._context(RequestContext, processor, request=request, step_number=step_number)
            )
            if isinstance(outcome, ModelRequest):
                request = outcome
            elif outcome is not None and ready is None:
                ready = tuple(outcome)
        return request, ready

    def process_llm_response(self, chunks: Sequence[ModelChunk], *, from_cache: bool, step_number: int) -> None:
        """Tell all `process_llm_response` hooks what the model answered."""
        for processor, hook in self._has((*self.inputs, *self._only_out()), "process_llm_response"):
            self._call(
                processor,
                hook,
                self._context(
                    ResponseContext, processor, chunks=tuple(chunks), from_cache=from_cache, step_number=step_number
                ),
            )

    # -- after the model

    @property
    def changes_stream(self) -> bool:
        """Whether any processor looks at the events of the answer."""
        return bool(self._has(self.outputs, "process_output_stream"))

    def process_output_stream(self, event: RunEvent) -> tuple[RunEvent, ...]:
        """Pass one event of the answer through all `process_output_stream` hooks: what is left of it, in order."""
        hooks = self._has(self.outputs, "process_output_stream")
        if not hooks:
            return (event,)
        self._stream.append(event)
        events: tuple[RunEvent, ...] = (event,)
        for processor, hook in hooks:
            events = tuple(made for given in events for made in self._pass_event(processor, hook, given))
        return events

    def _pass_event(self, processor: Processor, hook: Callable[[Any], Any], event: RunEvent) -> tuple[RunEvent, ...]:
        if event.type.startswith("data-") and not getattr(processor, "process_data_parts", False):
            return (event,)
        context = self._context(
            StreamContext,
            processor,
            self.run.messages.of("response"),
            part=event,
            stream_parts=tuple(self._stream),
        )
        outcome = self._call(processor, hook, context)
        if outcome is None:
            return ()
        return (outcome,) if isinstance(outcome, RunEvent) else tuple(outcome)

    def process_output_step(self, **fields: Any) -> None:
        """Run all `process_output_step` hooks on the response messages."""
        for processor, hook in self._has(self.outputs, "process_output_step"):
            messages = self._answer()
            outcome = self._call(processor, hook, self._context(OutputStepContext, processor, messages, **fields))
            if outcome is not None:
                self._take(outcome, messages, "response", processor.id)

    def process_tool_result(self, result: Any, **fields: Any) -> Any:
        """Run all `process_tool_result` hooks; returns the result that is shown and stored."""
        for processor, hook in self._has(self.outputs, "process_tool_result"):
            messages = self._answer()
            outcome = self._call(
                processor, hook, self._context(ToolResultContext, processor, messages, result=result, **fields)
            )
            if isinstance(outcome, ToolResultChange):
                result = outcome.result
            elif outcome is not None:
                self._take(outcome, messages, "response", processor.id)
        return result

    def process_output_result(self, result: Any, *, incomplete: bool = False) -> None:
        """Run all `process_output_result` hooks in order: the user's, then memory's."""
        widened = False
        for processor, hook in self._has(self.outputs, "process_output_result"):
            messages = self.run.messages.all() if widened else self._answer()
            context = self._context(OutputContext, processor, messages, result=result, incomplete=incomplete)
            outcome = self._call(processor, hook, context)
            if outcome is not None:
                widened = isinstance(outcome, MessageList) or widened
                self._take(outcome, messages, "response", processor.id)

    def process_api_error(self, error: Exception) -> bool:
        """Ask all `process_api_error` hooks whether to try again; the first that says so wins."""
        for processor, hook in self._has((*self.inputs, *self._only_out()), "process_api_error"):
            try:
                if self._call(processor, hook, self._context(ErrorContext, processor, error=error)) is True:
                    return True
            except AgentMemoryError:
                continue
        return False

    # -- inside

    def _only_out(self) -> tuple[Processor, ...]:
        known = {id(processor) for processor in self.inputs}
        return tuple(processor for processor in self.outputs if id(processor) not in known)

    def _answer(self) -> tuple[Message, ...]:
        messages = self.run.messages
        return tuple(m for m in messages.all() if m.id == self.run.answer_id or messages.source(m.id) == "response")

    def _take(self, outcome: Any, given: Sequence[Message], default: Source, processor_id: str) -> None:
        messages = self.run.messages
        if isinstance(outcome, MessageList):
            if outcome is not messages:
                raise ProcessorError(
                    f"processor {processor_id} returned another message list than the run's; "
                    "return ctx.message_list, a list of messages or None",
                    code="PROCESSOR_RETURNED_EXTERNAL_MESSAGE_LIST",
                )
            return
        if isinstance(outcome, InputChange):
            if outcome.system_messages is not None:
                messages.system.untagged = list(outcome.system_messages)
            if outcome.messages is None:
                return
            outcome = outcome.messages
        returned = list(outcome)
        wrong = next((item for item in returned if not isinstance(item, Message)), None)
        if wrong is not None:
            raise ProcessorError(
                f"processor {processor_id} returned a {type(wrong).__name__} among its messages; expected Message",
                code="PROCESSOR_RETURNED_NO_MESSAGE",
            )
        messages.apply_to(given, returned, default=default)


def wait(awaitable: Any) -> Any:
    import asyncio
    import contextvars

    async def finish() -> Any:
        return await awaitable

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(finish())
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(contextvars.copy_context().run, asyncio.run, finish()).result()


__all__ = ["INPUT_HOOKS", "OUTPUT_HOOKS", "Pipeline", "arrange", "check_processor", "wait"]
