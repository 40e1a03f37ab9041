"""Leaves tool calls and their results out of the prompt."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from agent_memory.errors import ConfigurationError
from agent_memory.messages import ToolPart
from agent_memory.messages.tool_outcome import as_text, model_output_of, untagged
from agent_memory.ports import (
    ModelRequest,
    PromptMessage,
    PromptPart,
    PromptReasoning,
    PromptText,
    PromptToolCall,
    PromptToolResult,
)
from agent_memory.processors._prompt_units import current_ids
from agent_memory.processors.base import RequestContext, RunContext


class ToolCallFilter:
    """Removes calls and results from the prompt of each model call; the run's messages and stored rows stay as they are.

    Args:
        exclude: Names of the tools to leave out; None: all; an empty list: none.
        filter_after_tool_steps: None: only calls from before this run are left out, so its tool loop works. A number:
            of this run's own tool steps only so many, the newest, are shown.
        preserve_model_output: Keep as text what a tool had written for the model, where it had.

    Raises:
        ConfigurationError: An option is wrong.
    """

    id = "tool-call-filter"
    name = "ToolCallFilter"

    def __init__(
        self,
        exclude: Sequence[str] | None = None,
        *,
        filter_after_tool_steps: int | None = None,
        preserve_model_output: bool = False,
    ) -> None:
        if isinstance(exclude, str):
            raise ConfigurationError("expected exclude to be a list of tool names, found one text")
        if filter_after_tool_steps is not None and filter_after_tool_steps < 1:
            raise ConfigurationError(
                f"expected filter_after_tool_steps to be a number from 1 up, found {filter_after_tool_steps}"
            )
        self.exclude = None if exclude is None else frozenset(exclude)
        self.filter_after_tool_steps = filter_after_tool_steps
        self.preserve_model_output = preserve_model_output

    def process_llm_request(self, ctx: RequestContext) -> ModelRequest | None:
        """Leave the calls out of the prompt of one call."""
        if self.exclude == frozenset():
            return None
        messages = ctx.request.messages
        kept = self._kept_steps(messages, ctx.run)
        changed = [
            message if number in kept else self._without_calls(message, ctx.run)
            for number, message in enumerate(messages)
        ]
        shown = tuple(message for message in changed if message is not None)
        return None if shown == messages else replace(ctx.request, messages=shown)

    def _kept_steps(self, messages: Sequence[PromptMessage], run: RunContext) -> Collection[int]:
        """Places of the messages whose calls stay: those of this run, or its newest tool steps."""
        current = current_ids(run)
        own = [n for n, m in enumerate(messages) if m.origin == "response" or m.message_id in current]
        if self.filter_after_tool_steps is None:
            return set(own)
        calling = [n for n in own if any(isinstance(part, PromptToolCall) for part in messages[n].content)]
        newest = calling[-self.filter_after_tool_steps :]
        first = newest[0] if newest else len(messages)
        return {n for n in own if n >= first}

    def _without_calls(self, message: PromptMessage, run: RunContext) -> PromptMessage | None:
        content: list[PromptPart] = []
        for part in message.content:
            if isinstance(part, PromptToolCall | PromptToolResult) and self._is_excluded(part.tool_name):
                # A tool message holds only results, so what stays of one is said by the assistant message of its call.
                if self.preserve_model_output and isinstance(part, PromptToolCall):
                    content.extend(_written_for_model(message, part.tool_call_id, run))
            else:
                content.append(part)
        if len(content) == len(message.content) and all(a is b for a, b in zip(content, message.content, strict=True)):
            return message
        if all(isinstance(part, PromptReasoning) for part in content):
            return None
        return replace(message, content=tuple(content))

    def _is_excluded(self, tool_name: str) -> bool:
        return self.exclude is None or tool_name in self.exclude


def _written_for_model(message: PromptMessage, tool_call_id: str, run: RunContext) -> list[PromptText]:
    stored = run.messages.get(message.message_id) if message.message_id is not None else None
    for part in stored.parts if stored is not None else ():
        if isinstance(part, ToolPart) and part.invocation.tool_call_id == tool_call_id:
            output = untagged(model_output_of(part.provider_metadata))
            if output is not None and (text := as_text(output)).strip():
                return [PromptText(text)]
    return []
