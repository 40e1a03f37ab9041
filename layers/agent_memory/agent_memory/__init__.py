"""Memory for AI agents on AWS: message history, semantic recall, working memory, guardrails, attachments, titles.

The public names; each loads its module when it is first used, because imports are part of a cold start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

_WHERE = {
    "Agent": "agent.agent",
    "Memory": "memory",
    "MemoryArgs": "agent.result",
    "MemoryOptions": "options",
    "Message": "messages",
    "RunEvent": "agent.events",
    "RunOptions": "agent.result",
    "RunResult": "agent.result",
    "Tool": "agent.tools",
    "ToolContext": "agent.tools",
    "get_agent": "runtime",
    "tool": "agent.tools",
}

if TYPE_CHECKING:
    from agent_memory.agent.agent import Agent
    from agent_memory.agent.events import RunEvent
    from agent_memory.agent.result import MemoryArgs, RunOptions, RunResult
    from agent_memory.agent.tools import Tool, ToolContext, tool
    from agent_memory.memory import Memory
    from agent_memory.messages import Message
    from agent_memory.options import MemoryOptions
    from agent_memory.runtime import get_agent

__all__ = [
    "Agent",
    "Memory",
    "MemoryArgs",
    "MemoryOptions",
    "Message",
    "RunEvent",
    "RunOptions",
    "RunResult",
    "Tool",
    "ToolContext",
    "get_agent",
    "tool",
]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        from importlib import import_module

        return getattr(import_module(f"agent_memory.{_WHERE[name]}"), name)
    raise AttributeError(f"module agent_memory has no attribute {name}")


def __dir__() -> list[str]:
    return sorted(__all__)
