"""The janitor: runs jobs, and starts those of the schedule.

A job runs a step at a time until it is done or the time is nearly over; it then calls the function again. What fails is
raised, so that Lambda calls again and at last hands the event to the queue of failures; the job itself is kept.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from agent_memory import observe
from agent_memory.jobs.runner import run, start
from agent_memory.jobs.schedule import job_of
from agent_memory.runtime import services

_log = logging.getLogger("agent_memory.jobs")


@observe.function("janitor")
def handler(event: Any, context: Any) -> dict[str, Any]:
    """Run ``{"jobId", "owner"}``, or start the job of ``{"schedule": "sweep" | "reconcile"}``.

    Answers ``{"jobId", "state"}``; the state is None where there was nothing to do.
    """
    if isinstance(event, dict) and isinstance(event.get("jobId"), str):
        deadline = time.monotonic() + context.get_remaining_time_in_millis() / 1000
        job = run(services(), event["jobId"], event.get("owner"), deadline=deadline)
        return {"jobId": event["jobId"], "state": None if job is None else job.state}
    due = job_of(event)
    if due is None:
        _log.warning("called with something that is neither a job nor a schedule")
        return {"jobId": None, "state": None}
    kind, job_id = due
    return {"jobId": job_id, "state": start(services(), kind, {}, owner=None, job_id=job_id).state}
