"""Runs of agents as HTTP answers: started, registered, streamed event by event, and always ended well."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from agent_memory import runtime
from agent_memory._json import dumps, loads
from agent_memory.agent.events import RunEvent
from agent_memory.errors import AgentMemoryError
from agent_memory.http.active_runs import ActiveRun
from agent_memory.http.sse import DONE, frame_text

if TYPE_CHECKING:
    from agent_memory.agent.agent import Agent, RunStream
    from agent_memory.agent.result import MemoryArgs, RunResult

Encode = Callable[[RunEvent], Iterable[Mapping[str, Any]]]


def active_run(agent: Agent, memory: MemoryArgs | None) -> ActiveRun | None:
    """The registration of a run on a thread; None without a thread or a run store."""
    runs = runtime.services().runs
    if runs is None or memory is None or agent.memory is None:
        return None
    return ActiveRun(runs, memory.resource, memory.thread, agent.id, keep_chunks=agent.resumable)


def wire_events(run_id: str) -> Encode:
    """Encodes events as agent streams carry them."""
    return lambda event: (event.to_wire(run_id),)


def stream_body(
    stream: RunStream, encode: Encode, active: ActiveRun | None, *, closing: Callable[[], Iterable[Any]] = tuple
) -> Iterator[bytes]:
    """The body of a stream: every event in its frame, then ``[DONE]``. The turn is stored before that.

    A failure after the first byte becomes an `error` event and an end; nothing is raised. `closing` gives events that the
    encoding adds after the last one.
    """
    if active is not None:
        active.start(stream.run_id)
    try:
        for event in _safely(stream):
            yield from _framed(event, encode, active)
        for chunk in closing():
            yield frame_text(dumps(chunk))
        yield DONE
    finally:
        if active is not None:
            active.end()


def drained(stream: RunStream, active: ActiveRun | None) -> RunResult:
    """Run a stream to its end for an answer in one piece; who watches the thread is told its events all the same.

    Raises the run's error, if it failed.
    """
    if active is None:
        return stream.drain()
    active.start(stream.run_id)
    try:
        if active.keeps_chunks:
            for event in stream:
                active.told(_kept(event))
        return stream.drain()
    finally:
        active.end()


def _framed(event: RunEvent, encode: Encode, active: ActiveRun | None) -> Iterator[bytes]:
    if active is not None:
        active.told(_kept(event))
    for chunk in encode(event):
        yield frame_text(dumps(chunk))


def _kept(event: RunEvent) -> str:
    return dumps([event.type, event.payload, event.id, event.transient])


def read_kept(text: str) -> RunEvent:
    """An event as `ActiveRun` keeps it."""
    kind, payload, event_id, transient = loads(text)
    return RunEvent(kind, payload, id=event_id, transient=transient)


def _safely(stream: RunStream) -> Iterator[RunEvent]:
    """The events of a run; what it raises ends it with an `error` event."""
    try:
        yield from stream
    except GeneratorExit:
        with suppress(AgentMemoryError):
            stream.close()
        raise
    except Exception as error:
        from agent_memory.agent.finish import error_event, finish_event

        shown = error if isinstance(error, AgentMemoryError) else AgentMemoryError(type(error).__name__)
        yield error_event(shown)
        yield finish_event(stream.message_id, "error", None)
