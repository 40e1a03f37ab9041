"""Keeps prompts and answers within a number of tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NoReturn, get_args

from agent_memory._json import dumps
from agent_memory.agent.events import RunEvent
from agent_memory.errors import ConfigurationError
from agent_memory.messages import Message
from agent_memory.messages.parts import Part, TextPart
from agent_memory.ports import ModelRequest, PromptMessage
from agent_memory.processors._own_parts import change_own_parts
from agent_memory.processors._prompt_units import Unit, units
from agent_memory.processors.base import HookContext, InputContext, OutputContext, RequestContext, StreamContext
from agent_memory.tokens import (
    TOKENS_PER_CONVERSATION,
    TokenCounter,
    count_message,
    count_prompt_message,
    estimate_tokens,
)

Strategy = Literal["truncate", "abort"]
CountMode = Literal["cumulative", "part"]
TrimMode = Literal["best-fit", "contiguous", "memory-only"]

LIMIT_REACHED: Final = "data-token-limit-reached"
REMOVED_SHARE: Final = 4  # memory-only lets a quarter of the limit go at once
_RECOUNTED_CHARS: Final = 2_000  # of a stream, counted again with each piece, as one word may come in several


@dataclass(slots=True)
class _Counted:
    """Tokens of a growing text. Its end is counted again with each piece; what is before it, once."""

    settled: int = 0
    end: str = ""

    def tokens_with(self, more: str, counter: TokenCounter) -> int:
        return self.settled + counter(self.end + more)

    def add(self, more: str, counter: TokenCounter) -> None:
        self.end += more
        if len(self.end) > _RECOUNTED_CHARS:
            self.settle(counter)

    def settle(self, counter: TokenCounter) -> None:
        self.settled += counter(self.end)
        self.end = ""


class TokenLimiter:
    """Token limiter.

    **Prompt.** Each prompt is trimmed as it is sent; what is stored and listed stays as it is. System texts count first
    and stay. The user's newest message and everything of this turn stay too, calls with their results. Of what memory
    loaded the newest is kept and the oldest goes; a call goes with its results. Where what must stay does not fit, messages
    recalled from other conversations are given up, and if that is not enough the run is stopped. Tool schemas are not
    counted.

    **Answer.** `text-delta` and `object` events are counted. What is over the limit is dropped, and one transient
    ``data-token-limit-reached`` event says so; or the run is stopped. The text that is stored is cut likewise.

    Args:
        limit: Tokens, from 1 up; or a mapping of all settings, with the names below or in camel case.
        strategy: Of the answer: ``truncate`` or ``abort``.
        count_mode: Of the answer: ``cumulative`` counts all of it, ``part`` each event and each text part by itself.
        trim_mode: ``best-fit`` leaves out loaded messages that do not fit and goes on to older ones; ``contiguous`` stops
            at the first that does not fit; ``memory-only`` takes the oldest loaded messages out of the list before the first
            step, and leaves each prompt alone.
        at_max_remove_tokens: In ``memory-only``: how far below the limit to go when it is met, so that the following
            turns begin with the same bytes; a quarter of the limit unless given.
        token_counter: Counts the tokens of a text.

    Raises:
        ConfigurationError: A setting is wrong.
    """

    id = "token-limiter"
    name = "TokenLimiter"

    def __init__(
        self,
        limit: int | Mapping[str, Any],
        *,
        strategy: Strategy = "truncate",
        count_mode: CountMode = "cumulative",
        trim_mode: TrimMode = "best-fit",
        at_max_remove_tokens: int | None = None,
        token_counter: TokenCounter = estimate_tokens,
    ) -> None:
        given: dict[str, Any] = {
            "strategy": strategy,
            "count_mode": count_mode,
            "trim_mode": trim_mode,
            "at_max_remove_tokens": at_max_remove_tokens,
            **(_named(limit) if isinstance(limit, Mapping) else {"limit": limit}),
        }
        self.limit: int = _tokens("limit", given.get("limit"), least=1)
        self.strategy: Strategy = _one_of("strategy", given["strategy"], get_args(Strategy))
        self.count_mode: CountMode = _one_of("count_mode", given["count_mode"], get_args(CountMode))
        self.trim_mode: TrimMode = _one_of("trim_mode", given["trim_mode"], get_args(TrimMode))
        removed = given["at_max_remove_tokens"]
        self.at_max_remove_tokens: int = (
            self.limit // REMOVED_SHARE if removed is None else _tokens("at_max_remove_tokens", removed, least=0)
        )
        if self.at_max_remove_tokens >= self.limit:
            raise ConfigurationError(
                f"expected at_max_remove_tokens below the limit {self.limit}, found {self.at_max_remove_tokens}"
            )
        self.token_counter = token_counter

    # -- the prompt

    def process_input(self, ctx: InputContext) -> list[Message] | None:
        """In ``memory-only``: take the oldest loaded messages out of the list."""
        if self.trim_mode != "memory-only":
            return None
        listed = ctx.message_list.all()
        asked = max((place for place, m in enumerate(listed) if m.role == "user"), default=0)
        removable = [m for m in listed[:asked] if ctx.message_list.source(m.id) == "memory"]
        total = TOKENS_PER_CONVERSATION + sum(self.token_counter(text) for text in ctx.message_list.system.all())
        total += sum(count_message(message, self.token_counter) for message in listed)
        if total <= self.limit:
            return None
        gone: set[str] = set()
        for message in removable:
            if total <= self.limit - self.at_max_remove_tokens:
                break
            total -= count_message(message, self.token_counter)
            gone.add(message.id)
        for text in _recalled(ctx) if total > self.limit else ():
            ctx.message_list.system.tagged["memory"].remove(text)
            total -= self.token_counter(text)
        if total > self.limit:
            system = sum(self.token_counter(text) for text in ctx.message_list.system.all())
            self._stop(ctx, system, len(listed) - len(gone))
        if not gone:
            return None
        ctx.message_list.remove(gone)
        return [message for message in ctx.messages if message.id not in gone]

    def process_llm_request(self, ctx: RequestContext) -> ModelRequest | None:
        """The request within the limit; None where nothing changes."""
        if self.trim_mode == "memory-only":
            return None
        messages = ctx.request.messages
        recalled = _recalled(ctx)
        without = tuple(m for m in messages if m.role != "system" or m.text not in recalled)
        shown = self._trimmed(messages) or self._trimmed(without)
        if shown is None:
            system = sum(count_prompt_message(m, self.token_counter) for m in without if m.role == "system")
            self._stop(ctx, system, len(messages))
        return None if len(shown) == len(messages) else replace(ctx.request, messages=shown)

    def _trimmed(self, messages: tuple[PromptMessage, ...]) -> tuple[PromptMessage, ...] | None:
        """What of a prompt is shown; None where not even what must stay fits."""
        sizes = [count_prompt_message(message, self.token_counter) for message in messages]
        system = sum(size for size, message in zip(sizes, messages, strict=True) if message.role == "system")
        parts = list(units(messages))
        budget = self.limit - system - TOKENS_PER_CONVERSATION
        kept = self._needed(messages, parts)
        used = sum(sizes[place] for unit in kept for place in unit.places)
        if not parts or budget <= 0 or used > budget:
            return None
        for unit in reversed(parts):
            size = sum(sizes[place] for place in unit.places)
            if unit in kept:
                continue
            if used + size <= budget:
                kept.add(unit)
                used += size
            elif self.trim_mode == "contiguous":
                break
        places = {place for unit in kept for place in unit.places}
        return tuple(m for place, m in enumerate(messages) if place in places or m.role == "system")

    def _needed(self, messages: Sequence[PromptMessage], parts: Sequence[Unit]) -> set[Unit]:
        """What every prompt of this turn holds: the user's newest message, and what came after it."""
        asked = [place for place, unit in enumerate(parts) if messages[unit.places[0]].role == "user"]
        return set(parts[asked[-1] if asked else -1 :])

    def _stop(self, ctx: RequestContext | InputContext, system: int, count: int) -> NoReturn:
        left = self.limit - system - TOKENS_PER_CONVERSATION
        ctx.abort(
            f"the prompt does not fit: expected at most {self.limit} tokens, and what must stay takes more; "
            "shorten the input or the instructions, or raise the limit",
            metadata={
                "systemTokens": system,
                "limit": self.limit,
                "remainingBudget": max(left, 0),
                "messageCount": count,
            },
        )

    # -- the answer

    def process_output_stream(self, ctx: StreamContext) -> RunEvent | tuple[RunEvent, ...] | None:
        """The event, while the answer is within the limit."""
        event = ctx.part
        # Keyed by the limiter: an agent may have two, and state is shared by id.
        state: dict[str, Any] = ctx.state.setdefault(str(id(self)), {})
        counted: _Counted = state.setdefault("counted", _Counted())
        if event.type == "text-end":
            counted.settle(self.token_counter)
        if event.type == "text-delta":
            text = event.payload["text"]
        elif event.type == "object":
            text = dumps(event.payload)
        else:
            return event
        if self.count_mode == "part":
            over = self.token_counter(text) > self.limit
        else:
            over = state.get("full", False) or counted.tokens_with(text, self.token_counter) > self.limit
            if over:
                state["full"] = True
            else:
                counted.add(text, self.token_counter)
        if not over:
            return event
        if self.strategy == "abort":
            ctx.abort(f"the answer is over its limit of {self.limit} tokens", metadata={"limit": self.limit})
        if state.get("told"):
            return None
        state["told"] = True
        return (RunEvent(LIMIT_REACHED, {"limit": self.limit}, transient=True),)

    def process_output_result(self, ctx: OutputContext) -> list[Message] | None:
        """Cut the answer's text parts to the limit."""
        return change_own_parts(ctx, lambda parts: self._cut(ctx, parts))

    def _cut(self, ctx: OutputContext, parts: Sequence[Part]) -> list[Part]:
        kept: list[Part] = []
        left = self.limit
        for part in parts:
            if not isinstance(part, TextPart):
                kept.append(part)
                continue
            size = self.token_counter(part.text)
            if size > left:
                if self.strategy == "abort":
                    ctx.abort(f"the answer is over its limit of {self.limit} tokens", metadata={"limit": self.limit})
                part = replace(part, text=_beginning(part.text, left, self.token_counter))
                size = left
            if self.count_mode == "cumulative":
                left -= size
            if part.text:
                kept.append(part)
        return kept


def _recalled(ctx: HookContext) -> list[str]:
    """System texts that hold messages of other conversations."""
    from agent_memory.processors.semantic_recall import TAG

    return [text for text in ctx.message_list.system.tagged.get("memory", ()) if f"<{TAG}>" in text]


def _beginning(text: str, tokens: int, counter: TokenCounter) -> str:
    """The longest beginning of `text` that takes at most `tokens`."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if counter(text[:middle]) <= tokens:
            low = middle
        else:
            high = middle - 1
    return text[:low]


_NAMES: Final = {
    "limit": "limit",
    "strategy": "strategy",
    "countMode": "count_mode",
    "trimMode": "trim_mode",
    "atMaxRemoveTokens": "at_max_remove_tokens",
}


def _named(options: Mapping[str, Any]) -> dict[str, Any]:
    known = {**_NAMES, **{name: name for name in _NAMES.values()}}
    wrong = [key for key in options if key not in known]
    if wrong:
        raise ConfigurationError(f"the token limiter has no setting {wrong[0]}; it has {', '.join(_NAMES)}")
    return {known[key]: value for key, value in options.items()}


def _tokens(name: str, value: Any, *, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigurationError(f"expected {name} to be a whole number from {least} up, found {value!r:.40}")
    return value


def _one_of(name: str, value: Any, known: tuple[Any, ...]) -> Any:
    if value not in known:
        raise ConfigurationError(f"expected {name} to be one of {', '.join(known)}, found {value!r:.40}")
    return value


TokenLimiterProcessor = TokenLimiter
