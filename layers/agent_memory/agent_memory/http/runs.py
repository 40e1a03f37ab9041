"""Routes that run an agent: generate and stream."""

from __future__ import annotations

from typing import Any

from agent_memory.http.answering import active_run, drained, stream_body, wire_events
from agent_memory.http.call import Call
from agent_memory.http.generate_answer import result_json
from agent_memory.http.response import Response
from agent_memory.http.run_input import input_messages, memory_args, run_options


def generate(call: Call) -> Any:
    """Answer as JSON when the turn is stored."""
    agent = call.named_agent()
    memory = memory_args(call, agent)
    active = active_run(agent, memory)
    options = run_options(call, agent, active=active)
    stream = agent.stream(input_messages(call, memory), memory=memory, options=options)
    return result_json(drained(stream, active), agent.memory)


def stream(call: Call) -> Response:
    """Answer as a stream of events. What can be refused is refused before it starts."""
    agent = call.named_agent()
    memory = memory_args(call, agent)
    active = active_run(agent, memory)
    options = run_options(call, agent, active=active)
    running = agent.stream(input_messages(call, memory), memory=memory, options=options)
    return Response.events(stream_body(running, wire_events(running.run_id), active))
