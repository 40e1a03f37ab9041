"""Memory routes: threads, messages, working memory, search, settings. Answers are buffered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_memory import observe
from agent_memory.http import Application
from agent_memory.http.routes import MEMORY_ROUTES

application = Application(MEMORY_ROUTES)


@observe.function("memory")
def handler(event: Mapping[str, Any], context: Any) -> dict[str, Any]:
    """Answer a proxy event of API Gateway."""
    return application.handle(event, context).to_gateway()
