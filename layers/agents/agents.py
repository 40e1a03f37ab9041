"""The agents of this deployment: edit this file.

Every `Agent` at the top level of this module is served under its id.
"""

from __future__ import annotations

from agent_memory import Agent, Memory, tool
from agent_memory.settings import Settings


@tool
def multiply(a: float, b: float) -> float:
    """Multiply two numbers."""
    return a * b


assistant = Agent(
    "assistant",
    description="A general assistant with a memory of its own for every user.",
    instructions="You are a helpful assistant. Answer briefly.",
    tools=[multiply],
    memory=Memory(
        last_messages=10,
        # Recall needs an embedder and an index: a deployment without OpenSearch sets none.
        semantic_recall={"top_k": 4, "message_range": 1, "scope": "resource"}
        if Settings.from_env().embedder
        else False,
        working_memory={"scope": "resource"},
        generate_title=True,
    ),
)
