"""Running answers as other requests see them: a stop flag, messages to take in, and the chunks of agents that keep them.

A run is registered when it has lasted a second, so that short turns cost no request. An agent that keeps its chunks
registers at once and stores them in batches.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from agent_memory import clock
from agent_memory.errors import AgentMemoryError

if TYPE_CHECKING:
    from agent_memory.ports import RunStore

LOOK_EVERY_S: Final = 1.0  # how often a run looks whether it was asked to stop
BATCH_S: Final = 0.5  # how long chunks are collected before they are stored
MAX_BATCH_CHARS: Final = 200_000  # an item ends at 400 KB; a character may take more than a byte
LEASE_MS: Final = 15 * 60 * 1000  # Lambda's longest run

_log = logging.getLogger("agent_memory.http")


class ActiveRun:
    """One running answer.

    Args:
        runs: Where it is registered.
        owner, thread_id: The thread.
        agent_id: The agent.
        keep_chunks: Whether its events are stored while it runs.
    """

    def __init__(self, runs: RunStore, owner: str, thread_id: str, agent_id: str, *, keep_chunks: bool) -> None:
        self._runs = runs
        self._place = (owner, thread_id)
        self._agent_id = agent_id
        self.keeps_chunks = keep_chunks
        self._run_id: str | None = None
        self._registered = False
        self._stop = False
        self._over = False
        self._waiting = False
        self._began_at = self._looked_at = time.monotonic()
        self._batch: list[str] = []
        self._batch_at = time.monotonic()
        self._number = -1
        self._first = -1
        self._lock = threading.Lock()

    def start(self, run_id: str) -> None:
        """The run begins."""
        self._run_id = run_id
        # Tenths of a second: a run that goes on after an approval has the same id and must not write over its first part.
        self._number = self._first = clock.now_ms() // 100
        if self.keeps_chunks:
            self._register()

    def should_stop(self) -> bool:
        """Whether somebody asked this run to stop. Looks at most once a second."""
        with self._lock:
            now = time.monotonic()
            if self._stop or self._over or self._run_id is None or now - self._looked_at < LOOK_EVERY_S:
                return self._stop
            self._looked_at = now
            try:
                if not self._registered:
                    self._register()
                    return False
                active = self._runs.get_active(*self._place)
                if active is None:
                    self._register()  # another turn took the thread's place and has ended since
            except AgentMemoryError as error:
                _log.warning("code=<%s> | a run could not look whether to stop", error.code)
                return False
            own = active is not None and active["run_id"] == self._run_id
            self._stop = own and active is not None and bool(active["abort"])
            self._waiting = own and active is not None and active["waiting"] > 0
            return self._stop

    def arrived(self, ending: bool) -> Sequence[Mapping[str, Any]]:
        """Messages that were handed in for this run since the last time.

        Between steps only what the look at the stop flag saw is asked for. Before the end of a run that has lasted for a
        while there is one look more.
        """
        with self._lock:
            late = ending and time.monotonic() - self._began_at >= LOOK_EVERY_S
            if not self._registered or self._run_id is None or not (self._waiting or late):
                return ()
            self._waiting = False
            try:
                return self._runs.take_in(*self._place, self._run_id)
            except AgentMemoryError as error:
                _log.warning("code=<%s> | a run could not look for messages", error.code)
                return ()

    def told(self, text: str) -> None:
        """An event was sent; `text` is its JSON."""
        if not self.keeps_chunks:
            return
        self._batch.append(text)
        size = sum(map(len, self._batch))
        if time.monotonic() - self._batch_at >= BATCH_S or size >= MAX_BATCH_CHARS or self._number == self._first:
            self._flush()

    def end(self) -> None:
        """The run ended, whichever way."""
        with self._lock:
            self._over = True
        try:
            if self.keeps_chunks and self._batch:
                self._flush()
            if self._registered and self._run_id is not None:
                self._runs.clear_active(*self._place, self._run_id)
        except AgentMemoryError as error:
            # Its registration and chunks expire by themselves.
            _log.warning("code=<%s> | a run could not be taken off the list of running ones", error.code)

    def _register(self) -> None:
        assert self._run_id is not None
        expires_at = clock.now_ms() + LEASE_MS
        self._runs.set_active(*self._place, self._run_id, agent_id=self._agent_id, expires_at=expires_at)
        self._registered = True

    def _flush(self) -> None:
        assert self._run_id is not None
        batch, self._batch = self._batch, []
        self._batch_at = time.monotonic()
        try:
            self._runs.append_chunk(*self._place, self._run_id, self._number, batch)
            self._number += 1
        except AgentMemoryError as error:
            # Readers that rejoin miss these chunks; the answer itself goes on and is stored as a whole.
            _log.warning("code=<%s> | chunks of a running answer could not be kept", error.code)
