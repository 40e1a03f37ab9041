"""Whether a value is JSON that can be stored."""

from __future__ import annotations

import math
from typing import Any, Final

from agent_memory.errors import InvalidInputError

MAX_DEPTH: Final = 100  # levels of nesting; far below where Python's own recursion ends


def check_json(value: Any, path: str) -> None:
    """Raise InvalidInputError unless `value` is JSON that can be stored.

    Refused: other types, NaN and infinities, lone surrogates (they have no UTF-8 form), nesting over `MAX_DEPTH`.
    """
    level = [value]
    for _ in range(MAX_DEPTH):
        deeper: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is str:
                if not item.isascii():
                    _check_text(item, path)
            elif kind is int or kind is bool or item is None:
                continue
            elif isinstance(item, dict):
                _check_keys(item, path)
                deeper.extend(item.values())
            elif isinstance(item, list | tuple):
                deeper.extend(item)
            elif kind is not float:
                raise InvalidInputError(path, f"expected JSON, found {kind.__name__}")
            elif not math.isfinite(item):
                raise InvalidInputError(path, "expected JSON, found a number that is not finite")
        if not deeper:
            return
        level = deeper
    raise InvalidInputError(path, f"expected at most {MAX_DEPTH} levels of nesting, found more")


def _check_keys(item: dict[Any, Any], path: str) -> None:
    try:
        keys = "".join(item)
    except TypeError:
        raise InvalidInputError(path, "expected JSON, found a key that is no string") from None
    if not keys.isascii():
        for key in item:
            _check_text(key, path)


def _check_text(text: str, path: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInputError(path, "expected valid Unicode text, found a lone surrogate") from None
