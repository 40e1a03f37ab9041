"""Server-sent events, as strict as the clients' parsers: one line ``data: `` and JSON, a blank line, LF only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from agent_memory._json import dumps

DONE: Final = b"data: [DONE]\n\n"
CONNECTED: Final = b": connected\n\n"


def frame(event: Any) -> bytes:
    """One event. JSON escapes line breaks, so it stays one line."""
    return f"data: {dumps(event)}\n\n".encode()


def frame_text(text: str) -> bytes:
    """One event whose JSON text is there already."""
    return f"data: {text}\n\n".encode()


def texts(pieces: bytes) -> Iterator[str]:
    """The JSON texts of framed events, ``[DONE]`` and comments left out."""
    for block in pieces.decode().split("\n\n"):
        if block.startswith("data: ") and block != "data: [DONE]":
            yield block.removeprefix("data: ")
