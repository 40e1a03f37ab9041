"""Metadata filters: equality as JSON has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def same_json(left: Any, right: Any) -> bool:
    """Deep equality of JSON values: 1 equals 1.0, and neither equals true."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same_json(item, right[key]) for key, item in left.items())
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same_json, left, right))
    return bool(left == right)


def matches(metadata: Mapping[str, Any] | None, wanted: Mapping[str, Any]) -> bool:
    """Whether every wanted pair is there; null matches only a null that is there."""
    return metadata is not None and all(
        key in metadata and same_json(metadata[key], content) for key, content in wanted.items()
    )
