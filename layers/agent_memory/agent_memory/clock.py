"""Time as this project keeps it: aware UTC datetimes with whole milliseconds, ISO text with three decimals."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def now() -> datetime:
    """The current time in UTC, cut to milliseconds (the wire carries three decimals)."""
    return from_ms(now_ms())


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def from_ms(value: int) -> datetime:
    """The UTC datetime of milliseconds since 1970."""
    return EPOCH + timedelta(milliseconds=value)


def to_ms(value: datetime) -> int:
    """Milliseconds since 1970, exactly (no float in between)."""
    delta = value - EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1000 + delta.microseconds // 1000


def to_iso(value: datetime) -> str:
    """``2026-03-04T05:06:07.089Z``."""
    utc = value.astimezone(UTC)
    return f"{utc:%Y-%m-%dT%H:%M:%S}.{utc.microsecond // 1000:03d}Z"


def parse(value: str | int | float | datetime) -> datetime:
    """Read an ISO text, milliseconds since 1970 or a datetime (naive means UTC).

    Raises ValueError, TypeError or OverflowError for what is no date.
    """
    if isinstance(value, bool):
        raise ValueError("expected a date, found a boolean")
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if isinstance(value, int | float):
        return from_ms(int(value))
    if not isinstance(value, datetime):
        raise TypeError(f"expected a date, found a {type(value).__name__}")
    if value.tzinfo is None:
        value = value.replace(tzinfo=UTC)
    value = value.astimezone(UTC)
    return value.replace(microsecond=value.microsecond // 1000 * 1000)
