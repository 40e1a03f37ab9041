"""The agents for black-box checks: no provider, a model that does what the message says, tools of every kind."""

from __future__ import annotations

from typing import Any, Literal

from agent_memory import Agent, Memory, Tool, ToolContext, tool
from agent_memory.models.scripted import ScriptedModel

VARIABLES = {"MODEL": "demo", "EMBEDDER": "hashing", "OPENSEARCH_URL": ""}
TEMPLATE = "# User\n- Name:\n- City:\n"


@tool
def get_weather(city: str) -> dict[str, Any]:
    """The weather in a city."""
    return {"city": city, "tempC": 21, "summary": "sunny"}


@tool(requires_approval=True)
def delete_record(id: str) -> dict[str, Any]:
    """Delete a record; a person must agree."""
    return {"deleted": id}


def _explode(_args: Any, _context: ToolContext) -> Any:
    raise RuntimeError("tool exploded")


broken_tool = Tool("broken_tool", description="Always fails.", execute=_explode, input_schema={"type": "object"})

pick_color = Tool(
    "pick_color",
    description="Lets the person at the page pick a colour.",
    input_schema={
        "type": "object",
        "properties": {"options": {"type": "array", "items": {"type": "string"}}},
        "required": ["options"],
    },
)


def _agent(name: str, scope: Literal["resource", "thread"]) -> Agent:
    return Agent(
        name,
        description="For black-box checks.",
        instructions="Do what the last message says.",
        model=ScriptedModel(),
        tools=[get_weather, delete_record, broken_tool, pick_color],
        memory=Memory(
            last_messages=20,
            semantic_recall={"top_k": 3, "message_range": 1, "scope": "resource"},
            working_memory={"enabled": True, "scope": scope, "template": TEMPLATE},
        ),
        max_steps=8,
        resumable=True,
    )


AGENTS = {agent.id: agent for agent in (_agent("conformance", "resource"), _agent("conformance-thread", "thread"))}
