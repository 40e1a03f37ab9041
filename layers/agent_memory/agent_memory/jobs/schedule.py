"""Jobs that run by the clock."""

from __future__ import annotations

from typing import Any, Final

from agent_memory import clock

PERIODS: Final = {"sweep": "%Y-%m-%dT%H", "reconcile": "%Y-%m-%d"}
"""Scheduled kinds, and the part of the time that names one run: a schedule that fires twice starts one job."""


def job_of(event: Any) -> tuple[str, str] | None:
    """Kind and id of the job that a scheduled event starts; None for any other event."""
    kind = event.get("schedule") if isinstance(event, dict) else None
    if kind not in PERIODS:
        return None
    return kind, f"{kind}-{clock.now():{PERIODS[kind]}}"
