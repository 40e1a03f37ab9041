"""The hourly round: starts jobs that nobody runs, and purges what deleted and expired threads left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_memory.errors import ConfigurationError

if TYPE_CHECKING:
    from agent_memory.jobs.runner import Work


def step(work: Work) -> bool:
    """One page of open jobs, then one page of dead threads at a time. Without params."""
    services = work.services
    if services.store is None or services.jobs is None:
        raise ConfigurationError("a sweep needs the message store and the jobs")
    if not work.cursor.get("jobs_done"):
        found, more = services.jobs.list_open(cursor=work.cursor.get("jobs"))
        for job_id, owner in found:
            if job_id != work.job.id and services.dispatcher is not None:
                # A job that is running or not due is left alone by the call itself.
                services.dispatcher.dispatch("janitor", {"jobId": job_id, "owner": owner})
                work.count("jobs")
        work.cursor["jobs"] = more
        work.cursor["jobs_done"] = more is None
        return False
    dead, more = services.store.dead_threads(cursor=work.cursor.get("threads"))
    for owner, thread_id in dead:
        work.count("messages", services.store.purge_thread(owner, thread_id))
        work.count("threads")
    work.cursor["threads"] = more
    return more is None
