"""The hourly round: starts jobs that nobody runs, and once a day the round over the threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_memory import clock
from agent_memory.errors import ConfigurationError
from agent_memory.ports import RebuildableIndex

if TYPE_CHECKING:
    from agent_memory.jobs.runner import Work


def step(work: Work) -> bool:
    """One page of open jobs at a time. Without params."""
    from agent_memory.jobs.runner import dispatch, start

    services = work.services
    if services.jobs is None:
        raise ConfigurationError("a sweep needs the jobs")
    found, more = services.jobs.list_open(cursor=work.cursor.get("jobs"))
    for job_id, owner in found:
        if job_id == work.job.id:
            continue
        job = services.jobs.get(job_id, owner=owner)
        if job is None:
            # Its row went without its mark, as when all rows of the owner were erased.
            services.jobs.delete(job_id, owner=owner)
        elif not job.ended and (job.not_before is None or job.not_before <= clock.now()):
            # One that is running is left alone by the call itself.
            work.count("jobs", int(dispatch(services, job)))
    work.cursor["jobs"] = more
    if more is not None:
        return False
    start(services, "expiry", {}, owner=None, job_id=f"expiry-{clock.now():%Y-%m-%d}")
    if services.files is not None:
        start(services, "files", {}, owner=None, job_id=f"files-{clock.now():%Y-%m-%dT%H}")
    if isinstance(services.index, RebuildableIndex) and services.index.visible_after_s:
        start(services, "again", {}, owner=None, job_id=f"again-{clock.now():%Y-%m-%dT%H}")
    return True
