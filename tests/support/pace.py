"""Answers of the scripted model that wait for the test, so that no test depends on how fast the machine is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from agent_memory.http import active_runs, background, subscriptions
from agent_memory.models import scripted
from agent_memory.models._chunks import must_end


def until(condition: Callable[[], Any], *, within_s: float = 60.0) -> Any:
    """Wait for a true value and return it."""
    end = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < end, f"expected a true value within {within_s:.0f} s, found {found!r}"
        time.sleep(0.01)
    return found


def first_look(patch: Any) -> threading.Event:
    """Set when a reader of a running answer has read what there is and waits for more."""
    return _first_sleep(patch, subscriptions)


def _first_sleep(patch: Any, module: Any) -> threading.Event:
    slept = threading.Event()

    class Time:
        monotonic = time.monotonic

        @staticmethod
        def sleep(seconds: float) -> None:
            slept.set()
            time.sleep(seconds)

    patch.setattr(module, "time", Time)
    return slept


class Pace:
    """The model's ``slow`` says its first word and then waits until `go_on`, or until it is told to stop.

    Args:
        patch: pytest's monkeypatch.
    """

    def __init__(self, patch: Any) -> None:
        self._gate = threading.Event()
        self.said = threading.Event()  # a first word
        patch.setattr(scripted, "_stopped_while_waiting", self._stopped_while_waiting)
        patch.setattr(active_runs, "LOOK_EVERY_S", 0.05)
        patch.setattr(active_runs, "BATCH_S", 0.05)

    def go_on(self) -> None:
        """Let all answers, those to come too, run to their ends."""
        self._gate.set()

    def go_on_once_a_message_waits(self, patch: Any) -> None:
        """Go on when a message that came meanwhile was handed in, or found that it has to wait."""
        self._gate = _first_sleep(patch, background)

    def _stopped_while_waiting(self, request: Any, wait_s: float) -> bool:
        while not must_end(request):
            if not wait_s or self._gate.wait(0.01):
                return False
            self.said.set()
        return True
