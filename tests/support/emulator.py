"""The emulator for tests: one process for a test session, started when the first test asks for it."""

from __future__ import annotations

import atexit
import functools

from infra.local.emulator import Emulator


@functools.cache
def shared_emulator() -> Emulator:
    """The session's emulator. It keeps nothing and ends with the process."""
    emulator = Emulator().start()
    atexit.register(emulator.stop)
    return emulator
