"""Tries a model call again where that may help, until its first piece has arrived."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from agent_memory.errors import ModelError

T = TypeVar("T")

MAX_TRIES: Final = 4
FIRST_DELAY_S: Final = 0.5
QUESTION_S: Final = 5.0  # a turn waits for the vector of its question about as long, and then goes on without recall
MAX_DELAY_S: Final = 8.0
RETRY_STATUS: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})  # 529: Anthropic's "overloaded"


class TryAgain(Exception):
    """An attempt failed in a way that may pass. `wait_s` is what the provider asked to wait, or None."""

    def __init__(self, error: ModelError, wait_s: float | None = None) -> None:
        super().__init__(error.message)
        self.error = error
        self.wait_s = wait_s


def with_retries(
    attempt: Callable[[], Iterator[T]],
    *,
    deadline: float | None = None,
    stopped: Callable[[], bool] = lambda: False,
    tries: int = MAX_TRIES,
    sleep: Callable[[float], object] = time.sleep,
) -> Iterator[T]:
    """Yield what `attempt` yields; an attempt that raises TryAgain before its first piece is made again.

    Waits are random within a bound that doubles (full jitter), or as long as the provider asked for, at most 8 s. No
    attempt is made past `deadline` (`time.monotonic()` seconds), nor once `stopped`. After the last one, and for a
    failure between pieces, the ModelError itself is raised.
    """
    bound = FIRST_DELAY_S
    for left in range(tries - 1, -1, -1):
        began = False
        try:
            for piece in attempt():
                began = True
                yield piece
            return
        except TryAgain as failure:
            wait_s = failure.wait_s if failure.wait_s is not None else random.uniform(0, bound)
            late = deadline is not None and time.monotonic() + wait_s >= deadline
            if began or not left or late or wait_s > MAX_DELAY_S or stopped():
                raise failure.error from failure.__cause__
            sleep(wait_s)
            bound = min(bound * 2, MAX_DELAY_S)
