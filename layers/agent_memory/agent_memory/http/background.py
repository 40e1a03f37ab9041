"""Work that outlives its request: handed to an asynchronous call of the chat function, or done behind the answer."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from agent_memory import clock, runtime
from agent_memory.acting import acting_for
from agent_memory.agent.result import MemoryArgs, RunOptions
from agent_memory.errors import ConfigurationError, ConflictError, NotFoundError
from agent_memory.http.answering import active_run, stream_body, wire_events
from agent_memory.http.call import deadline_of
from agent_memory.http.response import Response

if TYPE_CHECKING:
    from agent_memory.ports import ThreadHeader

WAIT_FOR_TURN_S: Final = 120.0  # how long a queued message waits for the running turn
LOOK_EVERY_S: Final = 0.5

_log = logging.getLogger("agent_memory.http")


def in_background(answer: Mapping[str, Any], job: Mapping[str, Any]) -> Response:
    """Answer at once and do `job` later.

    Where no function is set for asynchronous chat work, the job is done in the same call: the answer's bytes leave
    first and the body ends when the job has.
    """
    dispatcher = runtime.services().dispatcher
    if dispatcher is not None:
        try:
            dispatcher.dispatch("chat", job)
        except ConfigurationError:
            _log.info("no function is set for chat work; it is done behind the answer")
        else:
            return Response.json(answer)
    response = Response.json(answer)
    response.body = _then(response.read(), job)
    return response


def do_job(event: Mapping[str, Any], context: Any = None) -> dict[str, Any]:
    """Do handed-over work to its end. A job that is delivered twice is done once.

    ``{"job": "turn", "agentId", "threadId", "resourceId", "runId", "messages", "requestContext"?}``, a turn that was
    counted against its owner's quota, or
    ``{"job": "approval", "agentId", "runId", "toolCallId", "approved", "reason", "owner"}``.
    """
    signed_in = runtime.deployment().settings.auth_mode == "jwt"
    with acting_for(event.get("owner", event.get("resourceId")) if signed_in else None):
        return _do(event, context)


def _do(event: Mapping[str, Any], context: Any) -> dict[str, Any]:
    deadline = deadline_of(context, runtime.deployment().settings)
    agent = runtime.get_agent(event["agentId"])
    if event["job"] == "approval":
        suspended = (
            None
            if agent.services.runs is None
            else agent.services.runs.find_suspended(event["runId"], owner=event["owner"])
        )
        place = None
        if suspended is not None and suspended.thread_id is not None:
            place = MemoryArgs(suspended.thread_id, event["owner"])
        active = active_run(agent, place)
        options = RunOptions(deadline=deadline, should_stop=active.should_stop if active else None)
        try:
            stream = agent.resume(
                event["runId"],
                event["toolCallId"],
                approved=event["approved"],
                reason=event.get("reason"),
                owner=event["owner"],
                options=options,
            )
        except (ConflictError, NotFoundError) as error:
            return {"runId": event["runId"], "done": False, "code": error.code}
    else:
        place = MemoryArgs(event["threadId"], event["resourceId"])
        _wait_for_turn(place)
        active = active_run(agent, place)
        options = RunOptions(
            run_id=event["runId"],
            request_context=event.get("requestContext") or {},
            admitted=True,
            deadline=deadline,
            should_stop=active.should_stop if active else None,
        )
        stream = agent.stream(event["messages"], memory=place, options=options)
    for _ in stream_body(stream, wire_events(stream.run_id), active):
        pass
    result = stream.result
    return {"runId": result.run_id, "done": result.error is None, "finishReason": result.finish_reason}


def running_turn(owner: str, thread_id: str) -> str | None:
    """The id of the run that is at work on a thread, or None. One request.

    The first turn of a thread is not seen: there is no header yet to note it in.
    """
    store = runtime.services().store
    header = None if store is None else store.get_thread(owner, thread_id)
    return None if header is None else running_in(header)


def running_in(header: ThreadHeader) -> str | None:
    """The id of the run that a header says is at work, or None."""
    now = clock.now_ms()
    return next((t.run_id for t in reversed(header.turns) if t.state == "running" and t.deadline > now), None)


def _wait_for_turn(place: MemoryArgs) -> None:
    """Let the running turn of the thread end first. After the limit both run; storage takes two turns at once."""
    until = time.monotonic() + WAIT_FOR_TURN_S
    while running_turn(place.resource, place.thread) is not None and time.monotonic() < until:
        time.sleep(LOOK_EVERY_S)


def _then(answer: bytes, job: Mapping[str, Any]) -> Iterator[bytes]:
    yield answer
    try:
        do_job(job)
    except Exception as error:
        _log.error("job=<%s>, error=<%s> | work behind an answer failed", job["job"], type(error).__name__)
