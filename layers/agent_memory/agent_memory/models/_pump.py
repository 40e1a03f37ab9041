"""Reads a provider's stream on a thread of its own, so that a caller who stops need not wait for the next piece.

The thread reads on to the end of the stream behind the last piece, which gives the connection back for the next call.
"""

from __future__ import annotations

import contextvars
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar, cast

from agent_memory.models._chunks import must_end
from agent_memory.ports import ModelRequest

T = TypeVar("T")

POLL_S: Final = 0.1  # how often a silent stream is left to ask whether to stop
_END: Final = object()


class Pump(Generic[T]):
    """Iterates over `source` until it ends, or until the request's caller stops or its time is over.

    Args:
        source: Makes the iterator; runs on the thread, so it may connect, wait and retry. It is handed the pump's
            `stopped` event and should look at it between pieces and while it waits.
        request: Whose `should_stop` and `deadline` end the reading.
    """

    def __init__(self, source: Callable[[threading.Event], Iterator[T]], request: ModelRequest) -> None:
        self._source = source
        self._request = request
        self._pieces: queue.SimpleQueue[object] = queue.SimpleQueue()
        self.stopped = threading.Event()
        self.ended_early = False
        self.close: Callable[[], object] | None = None  # set by the source: frees a read that waits in silence

    def __iter__(self) -> Iterator[T]:
        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(self._read,), daemon=True, name="agent-memory-model").start()
        try:
            while True:
                if must_end(self._request):
                    self.ended_early = True
                    return
                try:
                    piece = self._pieces.get(timeout=POLL_S)
                except queue.Empty:
                    continue
                if piece is _END:
                    return
                if isinstance(piece, BaseException):
                    raise piece
                yield cast("T", piece)
        finally:
            self.stopped.set()
            if self.ended_early and self.close is not None:
                try:
                    self.close()
                except (OSError, RuntimeError, ValueError):
                    pass  # the stream ended by itself a moment ago

    def _read(self) -> None:
        try:
            for piece in self._source(self.stopped):
                if self.stopped.is_set():
                    return
                self._pieces.put(piece)
            self._pieces.put(_END)
        except BaseException as error:
            self._pieces.put(error)
