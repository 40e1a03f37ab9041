"""The agents of the conformance profile: a scripted model, no provider, no identity."""

from __future__ import annotations

from typing import Any

from agent_memory import Agent, Memory, Tool, tool
from agent_memory.models.scripted import ScriptedModel

TEMPLATE = "# User\n- Name:\n"


@tool
def get_weather(city: str) -> dict[str, Any]:
    """Current weather of a city."""
    return {"city": city, "tempC": 21, "summary": "sunny"}


@tool(requires_approval=True)
def delete_record(id: str) -> dict[str, str]:
    """Delete a record."""
    return {"deleted": id}


def _explode(_args: Any, _context: Any) -> None:
    raise RuntimeError("tool exploded")


broken_tool = Tool("broken_tool", description="Always fails.", execute=_explode, input_schema={"type": "object"})

pick_color = Tool(
    "pick_color",
    description="Let the person pick a colour.",
    input_schema={
        "type": "object",
        "properties": {"options": {"type": "array", "items": {"type": "string"}}},
        "required": ["options"],
    },
)


def _agent(agent_id: str, scope: str) -> Agent:
    return Agent(
        agent_id,
        instructions="Do as the script says.",
        model=ScriptedModel(),
        tools=[get_weather, delete_record, broken_tool, pick_color],
        memory=Memory(
            last_messages=20,
            semantic_recall={"top_k": 3, "message_range": 1, "scope": "resource"},
            working_memory={"scope": scope, "template": TEMPLATE},
        ),
        resumable=True,
    )


conformance = _agent("conformance", "resource")
conformance_thread = _agent("conformance-thread", "thread")
