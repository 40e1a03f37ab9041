"""Reads server-sent events, as the standard frames them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from agent_memory.errors import ModelError

MAX_EVENT_BYTES: Final = 16 * 1024 * 1024  # a piece of an answer is far smaller; what is not is no event stream


def events(pieces: Iterable[bytes]) -> Iterator[str]:
    """The data of each event in a byte stream cut anywhere: lines end in LF, CRLF or CR, comments are skipped."""
    pending = b""
    data: list[str] = []
    for piece in pieces:
        pending += piece
        if len(pending) > MAX_EVENT_BYTES:
            raise ModelError(f"expected events of at most {MAX_EVENT_BYTES} bytes", code="MODEL_STREAM_INVALID")
        # A CR at the end may be half of a CRLF: its line waits for the next piece.
        cut = max(pending.rfind(b"\n"), pending.rfind(b"\r", 0, -1)) + 1
        if not cut:
            continue
        lines, pending = pending[:cut].replace(b"\r\n", b"\n").replace(b"\r", b"\n"), pending[cut:]
        for line in lines[:-1].split(b"\n"):
            yield from _line(line, data)
    if pending:
        yield from _line(pending.rstrip(b"\r"), data)
    yield from _line(b"", data)  # a last event whose blank line never came


def _line(line: bytes, data: list[str]) -> Iterator[str]:
    if not line:
        if data:
            yield "\n".join(data)
            data.clear()
    elif line.startswith(b"data:"):
        data.append(line[5:].removeprefix(b" ").decode(errors="replace"))
