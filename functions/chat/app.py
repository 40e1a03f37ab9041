"""Chat routes: agents, runs, approvals, the chat endpoint. Every answer is one that may stream.

An event that is no HTTP request is work handed over by an earlier request, which is done here to its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_memory import observe
from agent_memory.http import Application, Response
from agent_memory.http.routes import CHAT_ROUTES

application = Application(CHAT_ROUTES)


@observe.function("chat")
def handler(event: Mapping[str, Any], context: Any) -> Response | dict[str, Any]:
    """Answer a proxy event of API Gateway or a function URL, or do handed-over work.

    A Response has `status`, `headers` and `body`, whose pieces are sent as they come (see `streaming_runtime`).
    """
    if "job" in event:
        from agent_memory.http.background import do_job

        return do_job(event, context)
    return application.handle(event, context)
