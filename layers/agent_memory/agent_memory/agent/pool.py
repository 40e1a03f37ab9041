"""The small thread pool on which a run's independent requests go out together."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

WORKERS = 8  # a turn starts at most five loads at once; the rest is for tool calls that run together

_pool: ThreadPoolExecutor | None = None


def submit(function: Callable[..., T], *args: Any) -> Future[T]:
    """Run `function(*args)` on the process's pool, in a copy of the caller's context (so that costs are counted)."""
    global _pool
    if _pool is None:
        _pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="turn")
    return _pool.submit(contextvars.copy_context().run, function, *args)
