"""Writes the title that an asynchronous event asks for.

An event may come more than once; what fails is raised, so that Lambda calls again and at last hands the event to the
queue of failures. Anything that is no title event is left alone.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from agent_memory import observe
from agent_memory.errors import NotFoundError
from agent_memory.titles import event_of, generate_title

_log = logging.getLogger("agent_memory.titles")

MARGIN_S = 2.0  # of the function's time, kept for the write behind the model's answer


@observe.function("titles")
def handler(event: Any, context: Any) -> dict[str, str]:
    """Answers ``{"outcome": "written" | "not-due" | "ignored"}``."""
    asked = event_of(event) if isinstance(event, dict) else None
    if asked is None:
        _log.warning("called with something that is no title event")
        return {"outcome": "ignored"}
    from agent_memory import runtime

    try:
        agent = runtime.get_agent(asked["agentId"])
    except NotFoundError:
        # The agent was removed since the turn; calling again would find no other answer.
        _log.warning("a title was asked for an agent that is not here", extra={"agent_id": asked["agentId"]})
        return {"outcome": "ignored"}
    if agent.memory is None:
        return {"outcome": "ignored"}
    remaining_s = context.get_remaining_time_in_millis() / 1000
    title = generate_title(agent.memory.storage, agent, asked, deadline=time.monotonic() + remaining_s - MARGIN_S)
    outcome = "written" if title else "not-due"
    _log.info("a title job ended", extra={"outcome": outcome, "thread_id": asked["threadId"]})
    return {"outcome": outcome}
