"""The chat endpoint for pages that use the AI SDK's useChat."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from agent_memory import runtime
from agent_memory._json import dumps
from agent_memory.errors import InvalidInputError, NotFoundError
from agent_memory.http.answering import active_run, stream_body
from agent_memory.http.call import Call
from agent_memory.http.limits import PAGE_SHARE
from agent_memory.http.response import Response
from agent_memory.http.run_input import input_messages, memory_args, run_options
from agent_memory.http.sse import DONE, frame_text
from agent_memory.http.subscriptions import run_events
from agent_memory.http.ui_stream import HEADERS, UiEncoder
from agent_memory.http.wire import shown
from agent_memory.memory.base import Unset
from agent_memory.messages.to_ui import to_ui_messages

if TYPE_CHECKING:
    from agent_memory.agent.agent import Agent
    from agent_memory.ports import RunStore

HISTORY_MESSAGES: Final = 1_000  # that a page gets at most; it is cut by size before


def post_chat(call: Call) -> Response:
    """One turn, as a stream for the page."""
    agent = _agent(call)
    memory = memory_args(call, agent, thread=call.body.get("id"))
    if memory is None and "agentId" not in call.params:
        raise InvalidInputError("id", "expected the id of the chat, or memory.thread")
    active = active_run(agent, memory)
    options = run_options(call, agent, regenerate=call.body.get("trigger") == "regenerate-message", active=active)
    stream = agent.stream(input_messages(call, memory), memory=memory, options=options)
    encoder = UiEncoder(stream.run_id)
    return Response.events(stream_body(stream, encoder, active, closing=encoder.closing), HEADERS)


def get_chat(call: Call) -> Any:
    """The thread as page messages, oldest first."""
    memory, thread_id = call.memory(), call.id("threadId")
    try:
        owner = call.thread_owner(memory, thread_id)
        found = memory.recall(
            thread_id,
            resource_id=owner,
            per_page=HISTORY_MESSAGES,
            include_total=False,
            max_bytes=int(call.settings.max_answer_bytes * PAGE_SHARE),
        )
    except NotFoundError:
        raise NotFoundError("Chat not found", code="THREAD_NOT_FOUND") from None
    return {"id": thread_id, "messages": to_ui_messages(shown(memory, found.messages))}


def resume_chat(call: Call) -> Response:
    """The running answer from its beginning, then live to its end; 204 when nothing runs or nothing was kept."""
    runs, thread_id, owner = runtime.services().runs, call.id("threadId"), call.owner
    memory = call.memory()
    if isinstance(owner, Unset):
        known = memory.storage.owner_of(thread_id)
        if known is None:
            return Response.empty()
        owner = known
    call.check_thread(memory, thread_id, owner)
    active = None if runs is None else runs.get_active(owner, thread_id)
    if runs is None or active is None or not runs.read_chunks(owner, thread_id, active["run_id"], -1):
        return Response.empty()
    return Response.events(_rejoined(runs, owner, thread_id, str(active["run_id"]), call.deadline), HEADERS)


def _rejoined(runs: RunStore, owner: str, thread_id: str, run_id: str, deadline: float | None) -> Iterator[bytes]:
    encoder = UiEncoder(run_id)
    for event in run_events(runs, owner, thread_id, run_id, deadline=deadline):
        for chunk in encoder(event) if event is not None else ():
            yield frame_text(dumps(chunk))
    for chunk in encoder.closing():
        yield frame_text(dumps(chunk))
    yield DONE


def _agent(call: Call) -> Agent:
    """The agent named in path or body, else the first of the deployment."""
    return call.agent() or next(iter(runtime.agents().values()))
