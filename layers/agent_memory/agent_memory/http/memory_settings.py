"""Routes that tell of an agent's memory, and the health check."""

from __future__ import annotations

from typing import Any

from agent_memory.errors import InvalidInputError
from agent_memory.http.call import Call
from agent_memory.options import to_config_json


def status(call: Call) -> Any:
    """Whether the named agent has a memory."""
    agent = call.agent()
    return {"result": agent is None or agent.memory is not None, "memoryType": "local"}


def config(call: Call) -> Any:
    """The memory settings of the named agent; null without one."""
    agent = call.agent()
    if agent is None or agent.memory is None:
        return {"config": None}
    return {"config": to_config_json(agent.memory.options)}


def observational_memory(call: Call) -> Any:
    """Not built: 400, as where it is not enabled."""
    call.agent()
    raise InvalidInputError(
        "agentId", "observational memory is not enabled for this agent", where="query", code="NOT_ENABLED"
    )


def health(_call: Call) -> Any:
    """Says that the function answers. Touches no data."""
    return {"status": "ok"}
