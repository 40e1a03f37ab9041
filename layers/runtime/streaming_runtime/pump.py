"""Runs a body's iterator on a thread of its own, so that whoever sends it can wait with a limit."""

from __future__ import annotations

import contextvars
import queue
import threading
from collections.abc import Iterable, Iterator
from typing import Final

KEEP_ALIVE: Final = b": keep-alive\n\n"
"""A comment of an event stream: readers skip it, and no proxy takes the stream for dead."""

SILENCE_S: Final = 15.0  # below the 30 s after which the strictest front door closes a silent stream
_AHEAD: Final = 64  # pieces that may wait for a slow reader


class Silence(Exception):
    """No piece came in time; the iterator goes on."""


class Pump:
    """The pieces of a body, in order, each as soon as it is there.

    The iterator runs to its end even when nobody reads any more: a turn is stored by running it.
    """

    def __init__(self, body: Iterable[bytes]) -> None:
        self._queue: queue.Queue[bytes | BaseException | None] = queue.Queue(_AHEAD)
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._run, body), name="body", daemon=True)
        self._thread.start()

    def _run(self, body: Iterable[bytes]) -> None:
        try:
            for piece in body:
                if piece:
                    self._queue.put(piece)
        except BaseException as error:
            self._queue.put(error)
        else:
            self._queue.put(None)

    def next(self, timeout_s: float | None = None) -> bytes | None:
        """The next piece, or None at the end. Raises Silence after `timeout_s`, and what the iterator raised."""
        try:
            piece = self._queue.get(timeout=timeout_s)
        except queue.Empty:
            raise Silence from None
        if isinstance(piece, BaseException):
            raise piece
        return piece

    def drain(self, timeout_s: float | None = None) -> bool:
        """Run the iterator to its end without using its pieces; False when it did not end in time or failed."""
        import time

        end = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            while self.next(None if end is None else max(0.0, end - time.monotonic())) is not None:
                pass
        except Exception:
            return False
        return True

    def with_comments(self, silence_s: float = SILENCE_S) -> Iterator[bytes]:
        """The pieces, and a comment after each `silence_s` seconds without one (event streams only)."""
        while True:
            try:
                piece = self.next(silence_s)
            except Silence:
                piece = KEEP_ALIVE
            if piece is None:
                return
            yield piece
