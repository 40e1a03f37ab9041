"""The studio: a page to chat on, and what memory put into each prompt. It exists on a local machine only."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Final

from agent_memory.agent.agent import Agent
from agent_memory.ports import PromptMessage, PromptText, PromptToolCall, PromptToolResult
from agent_memory.processors.base import RequestContext
from infra.local.template import ROOT

FOLDER: Final = ROOT / "infra" / "studio"
PROMPTS: Final = "/studio/prompts/"
KEPT_RUNS: Final = 100
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}


class Prompts:
    """A processor that keeps the prompts of the newest runs, as they leave for the model."""

    id = "studio-prompts"

    def __init__(self) -> None:
        self._kept: OrderedDict[str, list[list[dict[str, str]]]] = OrderedDict()
        self._lock = threading.Lock()

    def process_llm_request(self, ctx: RequestContext) -> None:
        """Keep one prompt."""
        prompt = [_shown(message) for message in ctx.request.messages]
        with self._lock:
            self._kept.setdefault(ctx.run.run_id, []).append(prompt)
            while len(self._kept) > KEPT_RUNS:
                self._kept.popitem(last=False)

    def of(self, run_id: str) -> list[list[dict[str, str]]]:
        """The prompts of a run, one a step; none for a run that is unknown or long ago."""
        with self._lock:
            return list(self._kept.get(run_id, ()))


class Studio:
    """Serves the page, and the prompts it shows."""

    def __init__(self) -> None:
        self._prompts = Prompts()

    def watch(self, agents: Iterable[Agent]) -> None:
        """Keep the prompts of these agents, as they are after all other processors."""
        for agent in agents:
            agent.input_processors = (*agent.input_processors, self._prompts)

    def page(self, path: str) -> tuple[str, bytes] | None:
        """Content type and bytes of a path; None for what is not there. Nothing outside the folder is shown."""
        if path.startswith(PROMPTS):
            return "application/json", json.dumps(self._prompts.of(path.removeprefix(PROMPTS))).encode()
        name = "index.html" if path in ("/", "/studio", "/studio/") else path.removeprefix("/studio/")
        file = (FOLDER / name).resolve()
        if not file.is_relative_to(FOLDER) or file.suffix not in _TYPES or not file.is_file():
            return None
        return _TYPES[file.suffix], file.read_bytes()


def _shown(message: PromptMessage) -> dict[str, str]:
    return {"role": message.role, "origin": message.origin, "text": "\n".join(map(_part, message.content))}


def _part(part: Any) -> str:
    if isinstance(part, PromptText):
        return part.text
    if isinstance(part, PromptToolCall):
        return f"[calls {part.tool_name}]"
    if isinstance(part, PromptToolResult):
        return f"[result of {part.tool_name}]"
    return f"[{type(part).__name__.removeprefix('Prompt').lower()}]"
