"""What belongs together in a prompt: a message alone, or calls with their results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agent_memory.messages.parts import ToolPart
from agent_memory.ports import PromptMessage, PromptToolCall
from agent_memory.processors.base import RunContext


@dataclass(frozen=True, slots=True)
class Unit:
    """Messages of a prompt that stay or go together: their places in the prompt, and whether tools were called."""

    places: tuple[int, ...]
    calls: bool = False


def units(messages: Sequence[PromptMessage]) -> Iterator[Unit]:
    """The units of a prompt, in order; system messages are in none."""
    place = 0
    while place < len(messages):
        first = messages[place]
        end = place + 1
        calls = any(isinstance(part, PromptToolCall) for part in first.content)
        while end < len(messages) and messages[end].role == "tool":
            end += 1
        if first.role != "system":
            yield Unit(tuple(range(place, end)), calls or end > place + 1)
        place = end


def current_ids(run: RunContext) -> frozenset[str]:
    """Ids of loaded messages that belong to the turn all the same: the answer that goes on, and calls settled just now.

    A page sends the result of its own tool for a call that is stored already; the prompt shows it as memory.
    """
    settled = {
        message.id
        for message in run.messages.updated()
        if any(isinstance(part, ToolPart) and not part.invocation.is_pending for part in message.parts)
    }
    return frozenset({run.answer_id, *settled})
