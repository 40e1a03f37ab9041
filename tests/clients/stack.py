"""The local stack with the conformance agents, and one whose words a guardrail may stop."""

from __future__ import annotations

import sys
from typing import Any

from agent_memory import Agent, Memory
from agent_memory.models.scripted import ScriptedModel
from agent_memory.processors.base import InputContext, OutputContext, StreamContext
from infra.conformance.agents import AGENTS, get_weather
from infra.local.__main__ import main


class Words:
    """Stops a run at certain words: of the user, in the stream of the answer, or in the whole answer."""

    id = "words"

    def process_input(self, ctx: InputContext) -> None:
        """Look at what is new."""
        if any("forbidden" in message.text for message in ctx.message_list.of("input")):
            ctx.abort("not asked here", metadata={"word": "forbidden"})

    def process_output_stream(self, ctx: StreamContext) -> Any:
        """Look at one event."""
        if "secret" in str(ctx.part.payload):
            ctx.abort("not said here")
        return ctx.part

    def process_output_result(self, ctx: OutputContext) -> None:
        """Look at the whole answer."""
        if "weather" in ctx.result.text and "returned" in ctx.result.text:
            ctx.abort("not told here")


def _guarded(name: str, **more: Any) -> Agent:
    memory = Memory(last_messages=20)
    return Agent(
        name,
        model=ScriptedModel(),
        tools=[get_weather],
        memory=memory,
        input_processors=[Words()],
        output_processors=[Words()],
        **more,
    )


AGENTS["guarded"] = _guarded("guarded", resumable=True)
AGENTS["held"] = _guarded("held", hold_stream=True)

if __name__ == "__main__":
    sys.exit(main(["--conformance", "--port", "0"]))
