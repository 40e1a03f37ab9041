"""Tokens that embedders report, counted where somebody asks for them at the time.

A vector's protocol has no place for its price, so an embedder whose provider tells it notes it here.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(slots=True)
class EmbeddingUsage:
    """Tokens of everything embedded since counting began."""

    tokens: int = 0


_counting: ContextVar[tuple[EmbeddingUsage, ...]] = ContextVar("embedding_usage", default=())
_lock = threading.Lock()


def begin() -> EmbeddingUsage:
    """Count from now on in this context and in its copies, for as long as the context lives."""
    usage = EmbeddingUsage()
    _counting.set((*_counting.get(), usage))
    return usage


@contextlib.contextmanager
def measure() -> Iterator[EmbeddingUsage]:
    """Count inside the block, in this context and in its copies."""
    token = _counting.set(_counting.get())
    try:
        yield begin()
    finally:
        _counting.reset(token)


def note(tokens: object) -> None:
    """What a provider said that a call took; anything but a number above 0 is left alone."""
    if not isinstance(tokens, int) or tokens <= 0:
        return
    with _lock:
        for usage in _counting.get():
            usage.tokens += tokens
