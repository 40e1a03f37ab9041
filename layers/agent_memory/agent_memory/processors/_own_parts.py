"""Changes the parts that this run added to its answer; what an answer that goes on had before stays."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agent_memory.messages import Message
from agent_memory.messages.parts import Part
from agent_memory.processors.base import HookContext


def change_own_parts(ctx: HookContext, change: Callable[[Sequence[Part]], Sequence[Part]]) -> list[Message] | None:
    """The hook's messages with the run's own parts of the answer as `change` returns them; None where nothing changed."""
    messages = ctx.message_list
    answer, own = messages.answer, messages.answer_parts
    if answer is None or not own:
        return None
    changed = tuple(change(own))
    if changed == own:
        return None
    new = answer.with_parts((*answer.parts[: len(answer.parts) - len(own)], *changed))
    return [new if message.id == answer.id else message for message in ctx.messages]
