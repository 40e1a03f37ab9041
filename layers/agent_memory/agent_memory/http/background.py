"""Work that outlives its request: handed to an asynchronous call of the chat function, or done behind the answer."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from agent_memory import clock, runtime
from agent_memory.acting import acting_for
from agent_memory.agent.result import MemoryArgs, RunOptions
from agent_memory.errors import ConfigurationError, ConflictError, NotFoundError
from agent_memory.http.answering import active_run, stream_body, wire_events
from agent_memory.http.call import deadline_of
from agent_memory.http.response import Response
from agent_memory.http.run_input import options_from

if TYPE_CHECKING:
    from agent_memory.http.active_runs import ActiveRun
    from agent_memory.ports import ThreadHeader

WAIT_FOR_TURN_S: Final = 120.0  # how long a queued message waits for the running turn
LOOK_EVERY_S: Final = 0.5
HAND_ON_S: Final = 60.0  # of its own time that a job keeps for a turn

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

    ``{"job": "turn", "agentId", "threadId", "resourceId", "runId", "messages", "options"?, "memoryOptions"?,
    "requestContext"?, "at"?, "into"?}``, a turn that was counted against its owner's quota. With `at`, milliseconds since
    1970, its one message may go into a run that is at work on the thread; `into` is the run that it was handed to. Or
    ``{"job": "approval", "agentId", "runId", "toolCallId", "approved", "reason", "owner", "options"?, "requestContext"?}``.
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
        options = _options(event, deadline, active)
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
        place = MemoryArgs(event["threadId"], event["resourceId"], options=event.get("memoryOptions"))
        settled = Delivery(event, place, deadline).wait()
        if settled is not None:
            return settled
        active = active_run(agent, place)
        options = replace(_options(event, deadline, active), run_id=event["runId"], admitted=True)
        stream = agent.stream(event["messages"], memory=place, options=options)
    for _ in stream_body(stream, wire_events(stream.run_id), active):
        pass
    result = stream.result
    return {"runId": result.run_id, "done": result.error is None, "finishReason": result.finish_reason}


def running_turn(owner: str, thread_id: str) -> str | None:
    """The id of the run that is at work on a thread, or None. One request, two for a thread that does not exist.

    The first turn of a thread has no header to be noted in, so it is seen once it has lasted for a second.
    """
    services = runtime.services()
    header = None if services.store is None else services.store.get_thread(owner, thread_id)
    if header is not None:
        return running_in(header)
    active = None if services.runs is None else services.runs.get_active(owner, thread_id)
    return None if active is None else str(active["run_id"])


def running_in(header: ThreadHeader) -> str | None:
    """The id of the run that a header says is at work, or None."""
    now = clock.now_ms()
    return next((t.run_id for t in reversed(header.turns) if t.state == "running" and t.deadline > now), None)


class Delivery:
    """What becomes of a message to a thread where a turn may be running: it goes into that turn, or waits for its end.

    A message is handed to one run at a time. The run may take it until it ends, and stores it with its turn; only one that
    is not in the thread after the run's end gets a turn of its own. So it is answered once, whatever fails in between.

    Args:
        job: The job, see `do_job`.
        place: The thread.
        deadline: When the job must have ended, `time.monotonic()` seconds.
    """

    def __init__(self, job: Mapping[str, Any], place: MemoryArgs, deadline: float | None) -> None:
        self._job = job
        self._owner, self._thread_id = place.resource, place.thread
        self._deadline = deadline
        self._into: str | None = job.get("into")

    def wait(self) -> dict[str, Any] | None:
        """Wait for the running turn; what the job came to, or None where the message still needs a turn.

        After two minutes a message that no run has taken does not wait any longer: then both run, and storage takes two
        turns at once. A job whose time is over before a run that took its message has ended hands itself on.
        """
        until = time.monotonic() + WAIT_FOR_TURN_S
        own, unsure = self._job["runId"], True
        while True:
            running = running_turn(self._owner, self._thread_id)
            if self._into is not None and running != self._into:
                if self._is_at_work(self._into):
                    running = self._into
                else:
                    self._into, unsure = None, True
            if (unsure or running is None) and self._is_answered():
                return {"runId": own, "done": True}
            unsure = False
            if running is None:
                return None
            if self._into is None and running != own and self._hand_in(running):
                self._into = running
            if time.monotonic() >= until and (self._into is None or self._take_back()):
                return None
            if self._into is not None and self._is_late() and self._hand_on():
                return {"runId": own, "done": False, "code": "HANDED_ON"}
            time.sleep(LOOK_EVERY_S)

    def _is_at_work(self, run_id: str) -> bool:
        """Whether a run that is not the newest on the thread, or began before the thread was there, has not ended."""
        services, now = runtime.services(), clock.now_ms()
        active = None if services.runs is None else services.runs.get_active(self._owner, self._thread_id)
        if active is not None and active["run_id"] == run_id:
            return True
        header = None if services.store is None else services.store.get_thread(self._owner, self._thread_id)
        return header is not None and any(
            turn.run_id == run_id and turn.state == "running" and turn.deadline > now for turn in header.turns
        )

    def _is_answered(self) -> bool:
        """Whether another run has stored the message with its turn, now or when this job was delivered before."""
        store, job = runtime.services().store, self._job
        if store is None or "at" not in job:
            return False
        message_id = job["messages"][0]["id"]
        if message_id not in store.find(self._owner, self._thread_id, [message_id]):
            return False
        header = store.get_thread(self._owner, self._thread_id)
        return header is not None and all(turn.run_id != job["runId"] for turn in header.turns)

    def _hand_in(self, run_id: str) -> bool:
        runs, job = runtime.services().runs, self._job
        if runs is None or "at" not in job:
            return False
        message = job["messages"][0]
        return runs.hand_in(self._owner, self._thread_id, run_id, message, agent_id=job["agentId"], at=job["at"])

    def _take_back(self) -> bool:
        runs, run_id = runtime.services().runs, self._into
        message_id = self._job["messages"][0]["id"]
        return (
            runs is not None and run_id is not None and runs.hand_back(self._owner, self._thread_id, run_id, message_id)
        )

    def _is_late(self) -> bool:
        return self._deadline is not None and time.monotonic() >= self._deadline - HAND_ON_S

    def _hand_on(self) -> bool:
        dispatcher = runtime.services().dispatcher
        if dispatcher is None:
            return False
        dispatcher.dispatch("chat", {**self._job, "into": self._into})
        return True


def _options(event: Mapping[str, Any], deadline: float | None, active: ActiveRun | None) -> RunOptions:
    return replace(
        options_from(event.get("options") or {}),
        request_context=event.get("requestContext") or {},
        deadline=deadline,
        should_stop=active.should_stop if active else None,
        arrived=active.arrived if active else None,
    )


def _then(answer: bytes, job: Mapping[str, Any]) -> Iterator[bytes]:
    yield answer
    try:
        do_job(job)
    except Exception as error:
        _log.error("job=<%s>, error=<%s> | work behind an answer failed", job["job"], type(error).__name__)
