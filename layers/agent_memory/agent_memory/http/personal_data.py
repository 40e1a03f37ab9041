"""Routes of a person's data as a whole: export, import, erasure. All of it is work of the janitor; answers name the job."""

from __future__ import annotations

from agent_memory import runtime
from agent_memory.http.call import Call
from agent_memory.http.jobs import to_wire
from agent_memory.http.response import Response
from agent_memory.ports.jobs import Job


def export_data(call: Call) -> Response:
    """Export what the resource has. Its job answers a link to the file."""
    from agent_memory.jobs.export import export_resource

    return _accepted(export_resource(runtime.services(), call.required_owner()))


def import_data(call: Call) -> Response:
    """Import an export, or rows of another system, into the resource. Its job answers what became of the rows."""
    from agent_memory.jobs.imports import import_resource

    export = call.body.get("export")
    job = import_resource(
        runtime.services(),
        call.required_owner(),
        export=None if export is None else (export["resourceId"], export["jobId"]),
        attachment=call.body.get("attachment"),
        messages=call.body.get("messages"),
        thread_id=call.body.get("threadId"),
        rows_of=call.body.get("rowsOf"),
    )
    return _accepted(job)


def erase_data(call: Call) -> Response:
    """Erase the resource from every store. Its job answers a signed receipt."""
    from agent_memory.jobs.erase import erase

    return _accepted(erase(runtime.services(), call.required_owner(), wait_s=call.settings.erase_wait_s))


def _accepted(job: Job) -> Response:
    return Response.json({"job": to_wire(job)}, 202)
