"""Jobs: how far they are, and another try for those that failed."""

from __future__ import annotations

from typing import Any

from agent_memory import clock, runtime
from agent_memory.errors import ConflictError, NotFoundError
from agent_memory.http.call import Call
from agent_memory.jobs.runner import jobs_of, retry
from agent_memory.ports.jobs import Job


def get_job(call: Call) -> dict[str, Any]:
    """A job of the caller's resource; a trusted caller sees every job. One request, one more without a resource."""
    return to_wire(_found(call))


def retry_job(call: Call) -> dict[str, Any]:
    """Run a failed job again from where it was; for trusted callers."""
    job = _found(call)
    again = retry(runtime.services(), job.id, job.owner)
    if again is None:
        raise ConflictError(
            f"job {job.id}: expected a failed job, found one that is {job.state}", code="JOB_NOT_FAILED"
        )
    return to_wire(again)


def to_wire(job: Job) -> dict[str, Any]:
    """A job as answers show it; its parameters are not shown."""
    return {
        "id": job.id,
        "kind": job.kind,
        "resourceId": job.owner,
        "state": job.state,
        "progress": dict(job.progress),
        "result": job.result,
        "error": job.error,
        "createdAt": clock.to_iso(job.created_at),
        "updatedAt": clock.to_iso(job.updated_at),
    }


def _found(call: Call) -> Job:
    jobs = jobs_of(runtime.services())
    job_id = call.id("jobId")
    owner = call.identity.resource(call.named_resource)
    if owner is None:
        owner = jobs.owner_of(job_id)
    job = jobs.get(job_id, owner=owner)
    if job is None:
        raise NotFoundError("Job not found", code="JOB_NOT_FOUND")
    return job
