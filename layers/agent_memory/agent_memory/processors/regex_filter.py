"""Finds what patterns describe, in what users, models and tools say, and hides or stops it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, NoReturn, get_args

from agent_memory._json import freeze
from agent_memory.agent.events import RunEvent
from agent_memory.errors import ConfigurationError
from agent_memory.messages import Message
from agent_memory.messages.parts import ToolPart
from agent_memory.ports import (
    ModelRequest,
    PromptMessage,
    PromptPart,
    PromptReasoning,
    PromptText,
    PromptToolCall,
    PromptToolResult,
)
from agent_memory.processors._held_text import HeldText
from agent_memory.processors._own_parts import change_own_parts
from agent_memory.processors._patterns import Rule, find_all, pattern_rule, preset_rules, redacted, rule_of
from agent_memory.processors._texts import change_invocation, change_message, change_part, change_value
from agent_memory.processors.base import (
    HookContext,
    InputContext,
    OutputContext,
    RequestContext,
    RunContext,
    StreamContext,
    ToolResultChange,
    ToolResultContext,
)

Strategy = Literal["block", "redact", "warn"]
DEFAULT_WINDOW: Final = 64  # more than the longest card number in groups, 37 characters
_NAMES: Final = frozenset({"id", "type", "toolCallId", "toolName"})
NOTE: Final = "regexFilter"  # in the run's notes: how often each rule matched


class RegexFilter:
    """Regex filter.

    Give it to an agent as input processor, output processor or both.

    - As input processor: the request's messages, as they are stored, and every prompt: history, recalled messages and working
      memory as the model sees them (stored rows stay). The agent's own instructions are not searched.
    - As output processor: the answer as it is streamed and stored, reasoning, the arguments of tool calls (the tool gets them as
      they are shown) and the results of tools.

    ``block`` stops the run, and judges only what is new; ``redact`` replaces each match; ``warn`` lets it pass. How often each rule
    matched is in the run's notes under ``regexFilter``, without the text.

    A streamed text is held back by `window` characters until it ends, and longer while a match grows, so a match that comes in
    pieces is never shown in part. Arguments of calls are not streamed in pieces while this filter redacts or blocks.

    Patterns are the application's own and run on what users write: use none that backtrack without bound.

    Args:
        rules: ``{"name", "pattern", "replacement"?}`` each, or `Rule` objects. The replacement is ``[name]`` unless given.
        presets: ``email``, ``credit-card`` (with its check digit), ``phone``, ``api-key``; or ``pii`` and ``secrets``.
        strategy: ``block``, ``redact`` or ``warn``.
        window: Characters held back; at least as long as a match's longest beginning that is no match yet.

    Raises:
        ConfigurationError: No rule, or one that cannot be read.
    """

    id = "regex-filter"
    name = "RegexFilter"
    process_data_parts = True

    def __init__(
        self,
        rules: Iterable[Rule | Mapping[str, Any]] = (),
        presets: Iterable[str] = (),
        strategy: Strategy = "redact",
        *,
        window: int = DEFAULT_WINDOW,
    ) -> None:
        if isinstance(presets, str):
            presets = (presets,)
        self.rules = (*(rule_of(rule) for rule in rules), *preset_rules(presets))
        if not self.rules:
            raise ConfigurationError("a regex filter needs a rule: pass rules= or presets=")
        if strategy not in get_args(Strategy):
            raise ConfigurationError(f"expected strategy to be one of block, redact, warn; found {strategy!r:.40}")
        if isinstance(window, bool) or not isinstance(window, int) or window < 1:
            raise ConfigurationError(f"expected window to be a whole number from 1 up, found {window!r:.40}")
        self.strategy: Strategy = strategy
        self.window = window

    # -- input

    def process_input(self, ctx: InputContext) -> list[Message] | None:
        """Filter the request's messages, and what a page tells of its tools."""
        look = _Look(self, ctx)
        new = {m.id: change_message(m, look) for m in ctx.messages if ctx.message_list.source(m.id) == "input"}
        changes = self.strategy == "redact"
        _settled(ctx.run, look, write=changes)
        look.report()
        if not changes or all(new.get(m.id, m) is m for m in ctx.messages):
            return None
        return [new.get(message.id, message) for message in ctx.messages]

    def process_llm_request(self, ctx: RequestContext) -> ModelRequest | None:
        """Hide matches in everything the model is shown, but for the agent's instructions."""
        if self.strategy != "redact":
            return None
        look = _Look(self, ctx)
        own = frozenset(ctx.system_messages)
        shown = tuple(
            message if message.role == "system" and message.text in own else _changed_prompt(message, look)
            for message in ctx.request.messages
        )
        return None if shown == ctx.request.messages else replace(ctx.request, messages=shown)

    # -- output

    def process_output_stream(self, ctx: StreamContext) -> RunEvent | list[RunEvent] | None:
        """The event with matches hidden; text is held back until it is known to hold none."""
        event = ctx.part
        if self.strategy == "warn":
            return event
        kind, _, step = event.type.rpartition("-")
        if kind in ("text", "reasoning") and step in ("delta", "end"):
            return self._held(ctx, kind, step)
        if event.type == "tool-call-delta":
            return None
        if event.type == "file":
            return event
        look = _Look(self, ctx)
        payload = event.payload
        if isinstance(payload, Mapping):
            changed: Any = {k: v if k in _NAMES else change_value(v, look) for k, v in payload.items()}
        else:
            changed = change_value(payload, look)
        look.report()
        return event if changed == payload else replace(event, payload=changed)

    def _held(self, ctx: StreamContext, kind: str, step: str) -> list[RunEvent]:
        event = ctx.part
        # Keyed by the filter: an agent may have two, and state is shared by id.
        blocks: dict[tuple[str, str], HeldText] = ctx.state.setdefault(str(id(self)), {})
        key = (kind, event.payload["id"])
        held = blocks.setdefault(key, HeldText(self.rules, self.window, []))
        text = held.add(event.payload["text"]) if step == "delta" else held.end()
        found, held.matches = held.matches, []
        if found:
            self.found(ctx, found)
        if step == "delta":
            return [replace(event, payload={**event.payload, "text": text})] if text else []
        del blocks[key]
        last = RunEvent(f"{kind}-delta", {"id": event.payload["id"], "text": text})
        return [last, event] if text else [event]

    def process_tool_result(self, ctx: ToolResultContext) -> ToolResultChange | None:
        """The tool's result with matches hidden, before the model, the caller or storage sees it."""
        if self.strategy == "warn":
            return None
        look = _Look(self, ctx)
        changed = change_value(ctx.result, look)
        look.report()
        return None if changed is ctx.result else ToolResultChange(changed)

    def process_output_result(self, ctx: OutputContext) -> list[Message] | None:
        """A last look at the whole answer, as it is about to be stored."""
        look = _Look(self, ctx)
        changed = change_own_parts(ctx, lambda parts: [change_part(part, look) for part in parts])
        look.report()
        return changed if self.strategy == "redact" else None

    # -- inside

    def found(self, ctx: HookContext, rules: Sequence[Rule]) -> None:
        """Count matches; with ``block``, stop the run."""
        if self.strategy == "block":
            self._block(ctx, rules)
        counts = Counter(ctx.run.notes.get(NOTE, {}))
        counts.update(rule.name for rule in rules)
        ctx.run.notes[NOTE] = dict(counts)

    def _block(self, ctx: HookContext, rules: Sequence[Rule]) -> NoReturn:
        names = sorted({rule.name for rule in rules})
        ctx.abort(f"the text holds what is not allowed here: {', '.join(names)}", metadata={"rules": names})


class _Look:
    """Replaces what the rules find in a text, and remembers which did."""

    def __init__(self, owner: RegexFilter, ctx: HookContext) -> None:
        self._owner = owner
        self._ctx = ctx
        self._found: list[Rule] = []

    def __call__(self, text: str) -> str:
        matches = find_all(text, self._owner.rules)
        self._found.extend(match.rule for match in matches)
        return redacted(text, matches) if matches else text

    def report(self) -> None:
        """Tell the filter what was found."""
        if self._found:
            self._owner.found(self._ctx, self._found)


def _settled(run: RunContext, look: _Look, *, write: bool) -> None:
    """Outcomes that came in for stored calls sit in stored messages, which hooks cannot change: calls are set one by one."""
    for message in run.messages.updated():
        stored = run.messages.stored(message.id)
        before = () if stored is None else stored.parts
        for part in message.parts:
            if isinstance(part, ToolPart) and part not in before:
                call = replace(part.invocation, args=None)
                changed = change_invocation(call, look)
                if write and changed != call:
                    run.messages.set_invocation(message.id, replace(changed, args=part.invocation.args))


def _changed_prompt(message: PromptMessage, look: _Look) -> PromptMessage:
    content = tuple(_changed_prompt_part(part, look) for part in message.content)
    return message if content == message.content else replace(message, content=content)


def _changed_prompt_part(part: PromptPart, look: _Look) -> PromptPart:
    if isinstance(part, PromptText):
        return replace(part, text=look(part.text))
    if isinstance(part, PromptToolCall):
        return replace(part, args=freeze(change_value(part.args, look)))
    if isinstance(part, PromptToolResult):
        return replace(part, output=freeze(change_value(part.output, look)))
    if isinstance(part, PromptReasoning) and part.provider_metadata is None:
        # Signed reasoning must go back unchanged.
        return replace(part, text=look(part.text))
    return part


RegexFilterProcessor = RegexFilter

__all__ = ["RegexFilter", "RegexFilterProcessor", "Rule", "pattern_rule"]
