"""Jobs: how far they are, and another try for those that failed."""

from __future__ import annotations

from typing import Any, Final

from agent_memory import clock, runtime
from agent_memory.errors import ConflictError, InvalidInputError, NotFoundError
from agent_memory.http.call import Call
from agent_memory.jobs.runner import jobs_of, retry, start
from agent_memory.ports.jobs import Job

_PARAMS: Final = {"reindex": ("stamps",), "drop-index": ("index",)}


def get_job(call: Call) -> dict[str, Any]:
    """A job of the caller's resource; a trusted caller sees every job. One request, one more without a resource."""
    return to_wire(_found(call))


def start_job(call: Call) -> dict[str, Any]:
    """Start a job of the deployment; for trusted callers. It is answered before it has run where there is a janitor."""
    kind = call.body["kind"]
    params = {name: call.body[name] for name in _PARAMS.get(kind, ()) if call.body.get(name) is not None}
    if kind == "drop-index" and "index" not in params:
        raise InvalidInputError("index", "expected the id of the index to remove, found none")
    return to_wire(start(runtime.services(), kind, params, owner=None))


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
    """A job as answers show it, with links to what it made that are signed now; its parameters are not shown."""
    return {
        "id": job.id,
        "kind": job.kind,
        "resourceId": job.owner,
        "state": job.state,
        "progress": dict(job.progress),
        "result": _result(job),
        "error": job.error,
        "createdAt": clock.to_iso(job.created_at),
        "updatedAt": clock.to_iso(job.updated_at),
    }


def _result(job: Job) -> Any:
    if job.kind not in ("export", "import") or job.result is None:
        return job.result
    from agent_memory.jobs.export import link_of
    from agent_memory.jobs.imports import report_of

    services = runtime.services()
    links = {"url": link_of(services, job), "reportUrl": report_of(services, job)}
    return {**job.result, **{name: link for name, link in links.items() if link is not None}}


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
