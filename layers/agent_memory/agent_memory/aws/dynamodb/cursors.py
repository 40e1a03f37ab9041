"""Cursors: where a page ended, as text that callers hand back and do not read."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from agent_memory._json import dumps, loads
from agent_memory.errors import InvalidInputError


def write_cursor(kind: str, *place: Any) -> str:
    """A cursor of a kind of list at a place in it."""
    return base64.urlsafe_b64encode(dumps([kind, *place]).encode()).decode().rstrip("=")


def read_cursor(kind: str, cursor: str, *types: type) -> list[Any]:
    """The place in a cursor. Raises InvalidInputError where it is not one of this kind of list."""
    try:
        found = loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, binascii.Error):
        found = None
    if (
        not isinstance(found, list)
        or len(found) != len(types) + 1
        or found[0] != kind
        or not all(type(item) is wanted for item, wanted in zip(found[1:], types, strict=True))
    ):
        raise InvalidInputError("cursor", "expected a cursor of an earlier page of the same list, found another text")
    return found[1:]
