"""One model call of a run: prompt, stream, guardrails, parts."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent_memory.agent.answer import StepParts
from agent_memory.agent.events import RunEvent
from agent_memory.agent.prompt import build_prompt
from agent_memory.errors import ModelError
from agent_memory.ports import ChatModel, ModelChunk, ModelRequest, Usage

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_memory.agent.tools import Tool
    from agent_memory.processors.pipeline import Pipeline

MAX_API_RETRIES = 3  # how often processors may ask to repeat a call the provider refused


class Stopped(Exception):
    """The caller asked to stop, or the run's time is over."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(slots=True)
class StepSettings:
    """What one model call is made with, after the step hooks."""

    model: ChatModel
    tools: Mapping[str, Tool]
    tool_choice: Any = "auto"
    active_tools: Sequence[str] | None = None
    provider_options: Mapping[str, Any] = field(default_factory=dict)
    model_settings: Mapping[str, Any] = field(default_factory=dict)
    structured_output: Mapping[str, Any] | None = None


@dataclass(slots=True)
class Step:
    """One model call while it goes on, and what it came to."""

    number: int
    settings: StepSettings
    parts: StepParts = field(default_factory=StepParts)
    usage: Usage = field(default_factory=Usage)
    reason: str = "other"
    response_id: str | None = None
    model_id: str | None = None

    def stream(
        self, pipeline: Pipeline, *, should_stop: Callable[[], bool], deadline: float | None
    ) -> Iterator[RunEvent]:
        """Call the model and yield its events as guardrails let them through. Raises ModelError and Stopped."""
        retries = 0
        while True:
            started = False
            try:
                for event in self._call(pipeline, should_stop, deadline):
                    started = True
                    yield event
                return
            except ModelError as error:
                if started or error.retryable or retries >= MAX_API_RETRIES or not pipeline.process_api_error(error):
                    raise
                retries += 1

    def _call(self, pipeline: Pipeline, should_stop: Callable[[], bool], deadline: float | None) -> Iterator[RunEvent]:
        settings = self.settings
        chosen = [
            tool
            for name, tool in settings.tools.items()
            if settings.active_tools is None or name in settings.active_tools
        ]
        schema = settings.structured_output.get("schema") if settings.structured_output else None
        request = ModelRequest(
            messages=build_prompt(pipeline.run),
            tools=tuple(tool.spec() for tool in chosen),
            tool_choice=settings.tool_choice if settings.tool_choice is not None else "auto",
            settings=settings.model_settings,
            provider_options=settings.provider_options,
            response_schema=schema,
            should_stop=should_stop,
            deadline=deadline,
        )
        request, ready = pipeline.process_llm_request(request, self.number)
        self.model_id = settings.model.model_id
        chunks: list[ModelChunk] = []
        for chunk in ready if ready is not None else settings.model.stream(request):
            chunks.append(chunk)
            if chunk.type == "finish":
                self.reason = chunk.payload.get("reason", "other")
                self.usage = chunk.usage or Usage()
            elif chunk.type == "response-metadata":
                self.response_id = chunk.payload.get("id")
                self.model_id = chunk.payload.get("modelId") or self.model_id
            else:
                yield from self.let_through(RunEvent(chunk.type, dict(chunk.payload)), pipeline)
            check_stop(should_stop, deadline)
        pipeline.process_llm_response(chunks, from_cache=ready is not None, step_number=self.number)

    def let_through(self, event: RunEvent, pipeline: Pipeline) -> Iterator[RunEvent]:
        """Pass an event through the guardrails; what is left becomes part of the answer."""
        for passed in pipeline.process_output_stream(event):
            self.parts.take(passed)
            yield passed


def check_stop(should_stop: Callable[[], bool], deadline: float | None) -> None:
    """Raise Stopped when the caller asked to stop or the deadline has passed."""
    if deadline is not None and time.monotonic() >= deadline:
        raise Stopped("deadline")
    if should_stop():
        raise Stopped("stopped")


def usage_json(usage: Usage) -> dict[str, int]:
    """Tokens as they travel."""
    out = {
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "totalTokens": usage.total_tokens,
    }
    if usage.reasoning_tokens:
        out["reasoningTokens"] = usage.reasoning_tokens
    if usage.cached_input_tokens:
        out["cachedInputTokens"] = usage.cached_input_tokens
    return out


def usage_of(given: object) -> Usage:
    """Tokens as `usage_json` wrote them; what is no number counts as 0."""
    fields = given if isinstance(given, Mapping) else {}
    names = ("inputTokens", "outputTokens", "reasoningTokens", "cachedInputTokens")
    return Usage(*(count if isinstance(count := fields.get(name), int) else 0 for name in names))
