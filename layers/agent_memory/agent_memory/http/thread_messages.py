"""Routes that send something to a thread without waiting for the answer."""

from __future__ import annotations

from typing import Any

from agent_memory import clock, runtime
from agent_memory.errors import InvalidInputError
from agent_memory.http.background import in_background, running_turn
from agent_memory.http.call import Call
from agent_memory.http.response import Response
from agent_memory.ids import new_id


def send_message(call: Call) -> Response:
    """Send a message. A running turn ends first; the message is answered by the next one."""
    return _send(call, call.body["message"], {"type": "user-message"})


def queue_message(call: Call) -> Response:
    """Send a message that is answered after the running turn."""
    return _send(call, call.body["message"], {"type": "user-message"})


def send_signal(call: Call) -> Response:
    """Send a signal."""
    signal = call.body["signal"]
    named = {key: signal[key] for key in ("type", "tagName", "attributes") if signal.get(key) is not None}
    if signal.get("contents") is None:
        raise InvalidInputError("signal.contents", "expected a text or parts, found nothing")
    return _send(call, signal, {"type": "signal", **named})


def _send(call: Call, given: Any, about: dict[str, Any]) -> Response:
    agent = call.named_agent()
    owner, thread_id = call.required_owner(), call.body["threadId"]
    if agent.memory is None:
        raise InvalidInputError("agentId", f"agent {agent.id} has no memory", where="path", code="NOT_ENABLED")
    call.check_thread(agent.memory, thread_id, owner)
    contents = given.get("contents", given.get("content")) if isinstance(given, dict) else given
    message = {
        "id": new_id("msg-"),
        "role": "user",
        "content": _contents(contents),
        "metadata": {**_metadata(given), "signal": about},
    }
    now = clock.to_iso(clock.now())
    run_id = new_id("run-")
    answer = {
        "accepted": True,
        "runId": run_id,
        "signal": {
            "id": message["id"],
            "type": about["type"],
            "contents": contents,
            "createdAt": now,
            "acceptedAt": now,
        },
    }
    busy = running_turn(owner, thread_id) is not None
    wanted = (call.body.get("ifActive" if busy else "ifIdle") or {}).get("behavior")
    if wanted == "discard":
        return Response.json({**answer, "accepted": False})
    if wanted == "persist":
        content = {"format": 2, "parts": _stored_parts(_contents(contents)), "metadata": message["metadata"]}
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
        "requestContext": dict(call.request_context),
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
