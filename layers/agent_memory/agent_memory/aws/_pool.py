"""Independent requests at the same time, on a small pool of threads that is made on first use."""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

WORKERS = 8  # a boto3 client keeps 10 connections; two are left for the caller's own threads


@functools.cache
def _executor() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(WORKERS, thread_name_prefix="agent-memory-aws")


def together(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Run `calls` at the same time and return their results in order; the first error is raised after all have ended.

    The calls see the caller's context variables. They must not use `together` themselves: they would wait for
    workers that wait for them.
    """
    if len(calls) <= 1:
        return [call() for call in calls]
    futures = [_executor().submit(contextvars.copy_context().run, call) for call in calls]
    errors: list[BaseException] = []
    results: list[T] = []
    for future in futures:
        try:
            results.append(future.result())
        except BaseException as error:
            errors.append(error)
    if errors:
        raise errors[0]
    return results
