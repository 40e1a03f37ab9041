"""Routes that decide on tool calls which wait for a person, and go on with their runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agent_memory import clock, runtime
from agent_memory._json import thaw
from agent_memory.agent.result import MemoryArgs
from agent_memory.errors import InvalidInputError, NotFoundError
from agent_memory.http.answering import active_run, drained, stream_body, wire_events
from agent_memory.http.background import in_background
from agent_memory.http.call import Call
from agent_memory.http.generate_answer import result_json
from agent_memory.http.response import Response
from agent_memory.http.run_input import check_place, input_messages, later_options, run_options
from agent_memory.ids import new_id
from agent_memory.memory.base import Unset
from agent_memory.messages.from_input import messages_from_input

if TYPE_CHECKING:
    from agent_memory.agent.agent import RunStream
    from agent_memory.http.active_runs import ActiveRun
    from agent_memory.ports import RunStore, SuspendedRun


def approve(call: Call) -> Response:
    """Approve a call; the run goes on as a stream."""
    return _stream(call, True, call.body.get("reason"))


def decline(call: Call) -> Response:
    """Decline a call; the model is told why, and the run goes on as a stream."""
    return _stream(call, False, call.body.get("reason"))


def approve_generate(call: Call) -> Any:
    """Approve a call; answers when the run has ended."""
    return _generate(call, True)


def decline_generate(call: Call) -> Any:
    """Decline a call; answers when the run has ended."""
    return _generate(call, False)


def resume(call: Call) -> Response:
    """Go on with a suspended run, by what ``resumeData`` decides."""
    data = call.body["resumeData"]
    return _stream(call, data["approved"], data.get("reason") or call.body.get("reason"))


def send_tool_approval(call: Call) -> Any:
    """Decide on a call by its thread; the run goes on in the background.

    With ``messages``, outcomes of calls that the page has run itself, where no run waits for the call: then the thread's next
    turn takes them and goes on.
    """
    agent = call.named_agent()
    owner = call.identity.resource(call.named_resource)
    thread_id, call_id = call.body.get("threadId"), call.body["toolCallId"]
    if owner is None and thread_id is not None:
        owner = call.thread_owner(call.memory(), thread_id)
    if owner is None:
        raise InvalidInputError("resourceId", "expected the id of the thread's owner, found nothing")
    if thread_id is not None:
        call.check_thread(call.memory(), thread_id, owner)
    waiting = [
        run
        for run in _runs().list_suspended(owner, thread_id=thread_id)
        if run.agent_id == agent.id and any(call["toolCallId"] == call_id for call in _waiting(run))
    ]
    later = later_options(call, agent, call.body.get("streamOptions"), at="streamOptions")
    told = call.body.get("messages") if not waiting and thread_id is not None else None
    if not waiting and not told:
        raise NotFoundError(f"no run waits for a decision on tool call {call_id}", code="RUN_NOT_FOUND")
    run_id = waiting[0].run_id if waiting else new_id("run-")
    job: dict[str, Any] = {"agentId": agent.id, "runId": run_id, **later}
    if told and thread_id is not None:
        messages = input_messages(call, MemoryArgs(thread_id, owner))
        messages_from_input(messages, thread_id=thread_id, resource_id=owner)
        quota = runtime.services().quota
        if quota is not None:
            quota.admit(owner)
        job |= {"job": "turn", "threadId": thread_id, "resourceId": owner, "messages": messages}
    else:
        decided = {name: call.body.get(name) for name in ("toolCallId", "approved", "reason")}
        job |= {"job": "approval", "owner": owner, **decided}
    return in_background({"accepted": True, "runId": run_id, "toolCallId": call_id}, job)


def suspended_runs(call: Call) -> Any:
    """Runs of a resource that wait for a decision, newest first."""
    agent, query = call.named_agent(), call.query
    thread_id, owner = query.get("threadId"), call.owner
    if isinstance(owner, Unset) and thread_id is not None:
        known = call.memory().storage.owner_of(thread_id)
        owner = owner if known is None else known
    elif thread_id is not None and not isinstance(owner, Unset):
        call.check_thread(call.memory(), thread_id, owner)
    found = [] if isinstance(owner, Unset) else _runs().list_suspended(owner, thread_id=thread_id)
    since, until = _date(query, "fromDate"), _date(query, "toDate")
    runs = [
        run
        for run in found
        if run.agent_id == agent.id
        and _waiting(run)
        and (since is None or run.suspended_at >= since)
        and (until is None or run.suspended_at <= until)
    ]
    page, per_page = query.get("page", 0), query.get("perPage")
    shown = runs if per_page is None else runs[page * per_page : (page + 1) * per_page]
    return {"runs": [_run_json(run) for run in shown], "total": len(runs)}


def _stream(call: Call, approved: bool, reason: str | None) -> Response:
    stream, active = _resume(call, approved, reason)
    return Response.events(stream_body(stream, wire_events(stream.run_id), active))


def _generate(call: Call, approved: bool) -> Any:
    stream, active = _resume(call, approved, call.body.get("reason"))
    return result_json(drained(stream, active), call.named_agent().memory)


def _resume(call: Call, approved: bool, reason: str | None) -> tuple[RunStream, ActiveRun | None]:
    agent, run_id = call.named_agent(), call.body["runId"]
    suspended = _runs().find_suspended(run_id, owner=call.identity.resource(call.named_resource))
    if suspended is None:
        suspended = _runs().find_suspended(run_id, owner=None) if call.identity.trusted else None
    place = None
    if suspended is not None and suspended.thread_id is not None and suspended.resource_id is not None:
        check_place(call, suspended.thread_id, suspended.resource_id)
        place = MemoryArgs(suspended.thread_id, suspended.resource_id)
    active = active_run(agent, place)
    options = run_options(call, agent, active=active)
    stream = agent.resume(
        run_id,
        call.body.get("toolCallId"),
        approved=approved,
        reason=reason,
        owner=call.identity.resource_id if place is None else place.resource,
        options=options,
    )
    return stream, active


def _runs() -> RunStore:
    runs = runtime.services().runs
    if runs is None:
        raise NotFoundError("no run waits: this deployment keeps no runs", code="RUN_NOT_FOUND")
    return runs


def _waiting(run: SuspendedRun) -> list[Mapping[str, Any]]:
    """The calls of a run that nobody has decided on."""
    decided = run.state.get("decisions", {})
    return [call for call in run.tool_calls if call["toolCallId"] not in decided]


def _run_json(run: SuspendedRun) -> dict[str, Any]:
    return {
        "runId": run.run_id,
        "status": "suspended",
        "threadId": run.thread_id,
        "resourceId": run.resource_id,
        "suspendedAt": clock.to_iso(run.suspended_at),
        "toolCalls": [thaw(dict(call)) for call in _waiting(run)],
    }


def _date(query: Any, name: str) -> Any:
    text = query.get(name)
    if text is None:
        return None
    try:
        return clock.parse(text)
    except ValueError:
        raise InvalidInputError(name, "expected an ISO 8601 date", where="query") from None
