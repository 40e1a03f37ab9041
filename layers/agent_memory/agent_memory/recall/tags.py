"""Metadata of messages as an index holds it: one exact text for each pair of a flat key and a scalar."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from typing import Any, Final

from agent_memory._json import dumps
from agent_memory.errors import InvalidInputError

_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_MAX_CHARS: Final = 512  # an engine's keyword ends at 32,766 bytes; longer values are compared by their hash


def tags_of(metadata: Mapping[str, Any]) -> list[str]:
    """The tags of a message. Nested values, numbers that are not finite and keys outside the rule have none."""
    return [_tag(key, value) for key, value in metadata.items() if _KEY.fullmatch(key) and _is_scalar(value)]


def wanted_tags(pairs: Mapping[str, Any] | None) -> list[str]:
    """The tags that a filter asks for; a message must have all of them.

    Raises InvalidInputError for a key that is not ``[A-Za-z_][A-Za-z0-9_]*`` (at most 128 characters), or a value
    that is not text, a finite number, a boolean or None.
    """
    tags = []
    for key, value in (pairs or {}).items():
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            raise InvalidInputError(
                "filter.metadata", f"expected keys of letters, digits and _ that begin with no digit, found {key!r:.40}"
            )
        if not _is_scalar(value):
            raise InvalidInputError(
                f"filter.metadata.{key}",
                f"expected text, a finite number, a boolean or None, found {type(value).__name__}",
            )
        tags.append(_tag(key, value))
    return tags


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value))


def _tag(key: str, value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = value if isinstance(value, str) else None
    tag = f"{key}={dumps(value)}"
    if len(tag) > _MAX_CHARS:
        digest = hashlib.sha256((text or tag).encode("utf-8", "surrogatepass")).hexdigest()
        tag = f"{key}~{digest}"
    return tag
