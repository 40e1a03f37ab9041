"""What the library answers, in the shapes of the wire."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from agent_memory import clock
from agent_memory.errors import TooLargeError
from agent_memory.http.response import Response
from agent_memory.messages.message import message_to_json

if TYPE_CHECKING:
    from agent_memory.memory import Memory
    from agent_memory.messages import Message
    from agent_memory.ports import Thread


MAX_COPY_CHARS: Final = 100_000  # twice the text of a few such messages would fill an answer


def thread_json(thread: Thread) -> dict[str, Any]:
    """A thread."""
    out: dict[str, Any] = {
        "id": thread.id,
        "resourceId": thread.resource_id,
        "title": thread.title,
        "metadata": thread.metadata,
        "createdAt": clock.to_iso(thread.created_at),
        "updatedAt": clock.to_iso(thread.updated_at),
    }
    if thread.expires_at is not None:
        out["expiresAt"] = clock.to_iso(thread.expires_at)
    if thread.usage is not None:
        out["usage"] = {
            "inputTokens": thread.usage.input_tokens,
            "outputTokens": thread.usage.output_tokens,
            "embeddingTokens": thread.usage.embedding_tokens,
        }
    return out


def shown(memory: Memory | None, messages: Iterable[Message]) -> list[Message]:
    """Messages as callers get them: references to attachments become links that are signed now."""
    blobs = memory.blobs if memory is not None else None
    if blobs is None:
        return list(messages)
    from agent_memory.attachments import resolve_links

    return [resolve_links(message, blobs) for message in messages]


def messages_json(memory: Memory | None, messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Messages in the stored shape. A long one goes without the plain-text copy of what its parts say."""
    return [message_to_json(_without_copy(message)) for message in shown(memory, messages)]


def _without_copy(message: Message) -> Message:
    copy = message.content.content
    if copy is None or len(copy) <= MAX_COPY_CHARS or not message.parts:
        return message
    return message.with_content(content=None)


def bounded(value: Any, max_bytes: int, advice: str) -> Response:
    """A JSON answer that a buffered function can send. Raises TooLargeError with the advice."""
    response = Response.json(value)
    size = len(response.read())
    if size > max_bytes:
        raise TooLargeError(f"expected an answer of at most {max_bytes} bytes, found {size}; {advice}")
    return response
