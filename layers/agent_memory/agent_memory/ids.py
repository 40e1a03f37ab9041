"""Ids of threads, resources, messages and runs."""

from __future__ import annotations

import hashlib
import os
import time
from typing import Any, Literal

from agent_memory.errors import InvalidInputError

MAX_ID_BYTES = 512  # a DynamoDB sort key ends at 1,024 bytes; escaping may double an id


def new_id(prefix: str = "") -> str:
    """A time-ordered unique id: 48 bits of milliseconds and 80 random bits, in hex (the layout of UUID v7)."""
    raw = bytearray((time.time_ns() // 1_000_000).to_bytes(6, "big") + os.urandom(10))
    raw[6] = 0x70 | (raw[6] & 0x0F)
    raw[8] = 0x80 | (raw[8] & 0x3F)
    text = raw.hex()
    return f"{prefix}{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def derived_id(seed: str, id: str) -> str:
    """An id that is always the same for the same seed and id, and another one for any others (the layout of UUID v8)."""
    raw = bytearray(hashlib.sha256(f"{len(seed)}#{seed}#{id}".encode()).digest()[:16])
    raw[6] = 0x80 | (raw[6] & 0x0F)
    raw[8] = 0x80 | (raw[8] & 0x3F)
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def check_id(field: str, value: Any, *, where: Literal["body", "query", "path"] = "body") -> str:
    """Return `value` if it may name a thread, resource or message; raise InvalidInputError otherwise.

    An id is text of 1 to 512 UTF-8 bytes that is not blank. ``*`` is refused because callers of other systems
    use it to mean everything.
    """
    if not isinstance(value, str):
        raise InvalidInputError(field, f"expected a string, found {type(value).__name__}", where=where)
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidInputError(field, "expected valid Unicode text, found a lone surrogate", where=where) from None
    if not 1 <= size <= MAX_ID_BYTES:
        raise InvalidInputError(field, f"expected 1 to {MAX_ID_BYTES} UTF-8 bytes, found {size}", where=where)
    if value.isspace() or value == "*":
        raise InvalidInputError(field, "expected an id, found a blank or a wildcard", where=where)
    return value
