"""Routes that send something to a thread without waiting for the answer."""

from __future__ import annotations

from typing import Any

from agent_memory import clock, runtime
from agent_memory.errors import InvalidInputError
from agent_memory.http.background import in_background, running_turn
from agent_memory.http.call import Call
from agent_memory.http.response import Response
from agent_memory.http.run_input import later_options
from agent_memory.ids import new_id


def send_message(call: Call) -> Response:
    """Send a message. A running turn takes it in before its next step or its end; else it gets a turn of its own."""
    return _send(call, call.body["message"], {"type": "user-message"}, joins=True)


def queue_message(call: Call) -> Response:
    """Send a message that is answered after the running turn."""
    return _send(call, call.body["message"], {"type": "user-message"}, joins=False)


def send_signal(call: Call) -> Response:
    """Send a signal; it is answered as a message is."""
    signal = call.body["signal"]
    named = {key: signal[key] for key in ("type", "tagName", "attributes") if signal.get(key) is not None}
    if signal.get("contents") is None:
        raise InvalidInputError("signal.contents", "expected a text or parts, found nothing")
    return _send(call, signal, {"type": "signal", **named}, joins=True)


def _send(call: Call, given: Any, about: dict[str, Any], *, joins: bool) -> Response:
    agent = call.named_agent()
    owner, thread_id = call.required_owner(), call.body["threadId"]
    if agent.memory is None:
        raise InvalidInputError("agentId", f"agent {agent.id} has no memory", where="path", code="NOT_ENABLED")
    call.check_thread(agent.memory, thread_id, owner)
    contents = given.get("contents", given.get("content")) if isinstance(given, dict) else given
    parts = _contents(contents)
    stored_parts = _stored_parts(parts)
    message = {
        "id": new_id("msg-"),
        "role": "user",
        "content": parts,
        "metadata": {**_metadata(given), "signal": about},
    }
    later = later_options(call, agent, (call.body.get("ifIdle") or {}).get("streamOptions"), at="ifIdle.streamOptions")
    accepted_at = clock.now()
    now = clock.to_iso(accepted_at)
    run_id = new_id("run-")
    running = running_turn(owner, thread_id)
    answer = {
        "accepted": True,
        "runId": running if running is not None and joins else run_id,
        "signal": {
            "id": message["id"],
            "type": about["type"],
            "contents": contents,
            "createdAt": now,
            "acceptedAt": now,
        },
    }
    wanted = (call.body.get("ifIdle" if running is None else "ifActive") or {}).get("behavior")
    if wanted == "discard":
        return Response.json({**answer, "accepted": False})
    if wanted == "persist":
        content = {"format": 2, "parts": stored_parts, "metadata": message["metadata"]}
        agent.memory.save_messages(
            [{"id": message["id"], "role": "user", "content": content, "threadId": thread_id, "resourceId": owner}]
        )
        return Response.json(answer)
    quota = runtime.services().quota
    if quota is not None:
        quota.admit(owner)
    job = {
        "job": "turn",
        "agentId": agent.id,
        "threadId": thread_id,
        "resourceId": owner,
        "runId": run_id,
        "messages": [message],
        **later,
        **({"at": clock.to_ms(accepted_at)} if joins else {}),
    }
    return in_background(answer, job)


def _contents(contents: Any) -> list[Any]:
    parts = contents if isinstance(contents, list) else [contents]
    if not parts or not all(isinstance(part, str | dict) for part in parts):
        raise InvalidInputError("message", "expected a text, parts, or an object with contents")
    return [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]


def _stored_parts(contents: list[Any]) -> list[Any]:
    from agent_memory.messages import part_to_json
    from agent_memory.messages.from_input import messages_from_input

    read = messages_from_input([{"role": "user", "content": contents}], field="message")
    return [part_to_json(part) for message in read.messages for part in message.parts]


def _metadata(given: Any) -> dict[str, Any]:
    metadata = given.get("metadata") if isinstance(given, dict) else None
    return dict(metadata) if isinstance(metadata, dict) else {}
