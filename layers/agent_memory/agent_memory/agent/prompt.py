"""The prompt of one model call, made from the run's list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_memory.messages.to_prompt import to_prompt
from agent_memory.ports import PromptFile, PromptMessage, PromptText

if TYPE_CHECKING:
    from agent_memory.messages import Attachment, FilePart
    from agent_memory.processors.base import RunContext


def build_prompt(run: RunContext) -> tuple[PromptMessage, ...]:
    """System texts, then every message once, in order. Files are resolved as the model will need them."""
    messages = run.messages
    system = tuple(PromptMessage("system", (PromptText(text),), origin="system") for text in messages.system.all())
    shown = [(message, messages.source(message.id) or "input") for message in messages.all()]
    return (*system, *to_prompt(shown, resolve_file=lambda file: _resolve(file, run)))


def _resolve(file: FilePart | Attachment, run: RunContext) -> PromptFile | None:
    from agent_memory import attachments

    cache: dict[Any, PromptFile | None] = run.shared.setdefault("prompt_files", {})
    if file not in cache:
        cache[file] = attachments.to_prompt_file(file, blobs=run.blobs, resource_id=run.resource_id)
    return cache[file]
