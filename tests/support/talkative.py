"""Agents whose models, tools and guardrails put what they were told into everything that can fail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agent_memory import Agent, Memory, Tool
from agent_memory.errors import ModelError
from agent_memory.models.scripted import ScriptedModel
from agent_memory.ports import ModelChunk, ModelRequest


def _told(request: ModelRequest) -> str:
    return " ".join(message.text for message in request.messages)


class Crasher:
    """Raises what it was told: as a provider's error, or as something unexpected."""

    provider, model_id = "crasher", "crasher"

    def stream(self, request: ModelRequest) -> Iterator[ModelChunk]:
        told = _told(request)
        raise ModelError(f"bad request: {told}") if "provider" in told else ValueError(told)


class Guard:
    """Stops or crashes with what it read."""

    id = "guard"

    def process_input(self, ctx: Any) -> None:
        text = " ".join(message.text for message in ctx.messages)
        if "stop" in text:
            ctx.abort(f"not allowed: {text}", metadata={"text": text})
        if "crash" in text:
            raise RuntimeError(text)


def _explode(args: Any, _context: Any) -> Any:
    raise RuntimeError(f"cannot do {args}")


EXPLODE = Tool("explode", description="Fails.", execute=_explode, input_schema={"type": "object"})
ASK = Tool("ask", description="Asks.", execute=lambda args, _context: args, requires_approval=True)


def _memory(**more: Any) -> Memory:
    return Memory(semantic_recall=True, working_memory={"scope": "resource"}, **more)


talker = Agent(
    "talker",
    model=ScriptedModel(),
    tools=[EXPLODE, ASK],
    memory=_memory(generate_title={"model": Crasher()}),
    input_processors=[Guard()],
)
titled = Agent("titled", model=ScriptedModel(), memory=_memory(generate_title={"model": ScriptedModel()}))
crasher = Agent("crasher", model=Crasher(), memory=_memory())
