"""A clock that stands still until a test moves it."""

from __future__ import annotations

from datetime import datetime, timedelta

from agent_memory import clock


class FakeClock:
    """Call it for the current time. It starts in years to come, so that no service removes rows that a test lets expire."""

    def __init__(self, start: datetime | str = "2036-03-04T05:06:07.089Z") -> None:
        self.now = clock.parse(start)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **units: float) -> None:
        """Move on, e.g. ``advance(hours=1)``."""
        self.now += timedelta(**units)

    @property
    def ms(self) -> int:
        """Milliseconds since 1970."""
        return clock.to_ms(self.now)
