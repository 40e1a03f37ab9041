"""Asynchronous invokes as Lambda does them: a queue, two more tries, and a dead-letter file."""

from __future__ import annotations

import heapq
import itertools
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from agent_memory import observe
from agent_memory.errors import ConfigurationError, TooLargeError

MAX_EVENT_BYTES = 256 * 1024
DELAYS_S = (1.0, 2.0)  # Lambda waits one minute and then two; nobody wants to sit through that at a desk

_log = logging.getLogger("infra.local")


class DeadLetters:
    """A file of events that failed for good, one JSON object a line; `path` None keeps them in memory only."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self.written: list[dict[str, Any]] = []

    def write(self, function: str, payload: Any, error: BaseException, tries: int) -> None:
        """Add one."""
        entry = {
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "function": function,
            "tries": tries,
            "errorType": type(error).__name__,
            "errorMessage": str(error)[:1000],
            "payload": payload,
        }
        with self._lock:
            self.written.append(entry)
            if self._path is not None:
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(entry) + "\n")


class Background:
    """A Dispatcher that calls functions in this process, later.

    Args:
        functions: Function by target, e.g. ``{"titles": "TitlesFunction"}``.
        call: Calls a function with an event.
        dead: Where events go whose tries are spent.
        pending: File that keeps events which were not done when the stack stopped; read at the start.
        delays_s: Seconds before each further try; their number is the number of retries.
    """

    def __init__(
        self,
        functions: Mapping[str, str],
        call: Callable[[str, Any], Any],
        dead: DeadLetters,
        *,
        pending: Path | None = None,
        delays_s: Sequence[float] = DELAYS_S,
        workers: int = 2,
    ) -> None:
        self._functions = functions
        self._call = call
        self._dead = dead
        self._pending = pending
        self._delays_s = delays_s
        self._queue: list[tuple[float, int, str, str, int]] = []
        self._numbers = itertools.count()
        self._ready = threading.Condition()
        self._running: dict[int, tuple[str, str, int]] = {}
        self._stopping = False
        if pending is not None and pending.exists():
            for line in pending.read_text(encoding="utf-8").splitlines():
                entry = json.loads(line)
                self._put(time.monotonic(), entry["target"], json.dumps(entry["event"]), entry["tries"])
            pending.unlink()
        self._threads = [threading.Thread(target=self._work, name=f"async-{n}", daemon=True) for n in range(workers)]
        for thread in self._threads:
            thread.start()

    def dispatch(self, target: Literal["titles", "janitor", "chat"], event: Mapping[str, Any]) -> None:
        """Hand over an event. Raises ConfigurationError for a target without a function."""
        if target not in self._functions:
            raise ConfigurationError(f"no function is set for {target}; set {target.upper()}_FUNCTION to its name")
        text = json.dumps(observe.with_correlation(event))
        if len(text.encode()) > MAX_EVENT_BYTES:
            raise TooLargeError(f"an asynchronous event holds at most {MAX_EVENT_BYTES} bytes; found {len(text)}")
        self._put(time.monotonic(), target, text, 0)

    def wait_idle(self, timeout_s: float = 10.0) -> bool:
        """Wait until every event is done; False when some were not after `timeout_s`."""
        with self._ready:
            return self._ready.wait_for(lambda: not self._queue and not self._running, timeout_s)

    def stop(self, wait_s: float = 5.0) -> None:
        """Let running events end and keep the others for the next start."""
        with self._ready:
            self._stopping = True
            self._ready.notify_all()
        end = time.monotonic() + wait_s
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        with self._ready:
            # An event that still runs may be cut off, so it comes again; consumers are made for that.
            left = [
                {"target": target, "event": json.loads(text), "tries": tries}
                for target, text, tries in [*self._running.values(), *(entry[2:] for entry in sorted(self._queue))]
            ]
        if left and self._pending is not None:
            self._pending.write_text("".join(json.dumps(entry) + "\n" for entry in left), encoding="utf-8")

    def _put(self, due: float, target: str, text: str, tries: int) -> None:
        with self._ready:
            heapq.heappush(self._queue, (due, next(self._numbers), target, text, tries))
            self._ready.notify_all()

    def _take(self) -> int | None:
        with self._ready:
            while not self._stopping:
                if not self._queue:
                    self._ready.wait()
                    continue
                wait_s = self._queue[0][0] - time.monotonic()
                if wait_s > 0:
                    self._ready.wait(wait_s)
                    continue
                _, number, target, text, tries = heapq.heappop(self._queue)
                self._running[number] = (target, text, tries)
                return number
            return None

    def _work(self) -> None:
        while (number := self._take()) is not None:
            target, text, tries = self._running[number]
            try:
                self._call(self._functions[target], json.loads(text))
            except Exception as error:
                self._failed(target, text, tries + 1, error)
            with self._ready:
                del self._running[number]
                self._ready.notify_all()

    def _failed(self, target: str, text: str, tries: int, error: Exception) -> None:
        name = self._functions[target]
        if tries <= len(self._delays_s):
            _log.warning("%s failed (%s), try %d of %d", name, type(error).__name__, tries, len(self._delays_s) + 1)
            self._put(time.monotonic() + self._delays_s[tries - 1], target, text, tries)
        else:
            _log.error("%s failed %d times and was given up", name, tries, exc_info=error)
            self._dead.write(name, json.loads(text), error, tries)
