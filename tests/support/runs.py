"""Runs the input side of processors without an agent, the way an agent does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent_memory.messages.from_input import messages_from_input
from agent_memory.messages.list import MessageList
from agent_memory.options import MemoryOptions
from agent_memory.processors.base import RunContext
from agent_memory.processors.pipeline import Pipeline


def make_run(store: Any, raw: Any = (), *, thread: str = "trip-42", resource: str = "ada", **fields: Any) -> RunContext:
    """A run on a thread with its header read and its input in the list."""
    made: list[str] = []

    def fresh() -> str:
        made.append(f"made-{len(made)}")
        return made[-1]

    given = messages_from_input(raw, new_id=fresh)
    messages = MessageList(thread_id=thread, resource_id=resource)
    messages.add(given.messages, "input")
    run = RunContext(
        run_id="run-1",
        agent_id="helper",
        messages=messages,
        thread_id=thread,
        resource_id=resource,
        store=store,
        header=store.begin_turn(resource, thread, None).header if store is not None else None,
        tool_outcomes=given.tool_outcomes,
        answer_id="answer-1",
        **{"options": MemoryOptions(), **fields},
    )
    run.shared["made_ids"] = frozenset(made)
    return run


def process_input(run: RunContext, *processors: Any) -> RunContext:
    """Load and process as a run does before its first model call."""
    pipeline = Pipeline(processors, (), run)
    pipeline.process_input(pipeline.start_loads())
    return run


def shown(run: RunContext) -> list[tuple[str, str]]:
    """Id and text of all messages of a run, in order."""
    return [(message.id, message.text) for message in run.messages.all()]


def user(text: str, id: str | None = None, **fields: Any) -> dict[str, Any]:
    """A page message of a user."""
    return {"role": "user", "parts": [{"type": "text", "text": text}], **({"id": id} if id else {}), **fields}


def assistant(*parts: Any, id: str | None = None, **fields: Any) -> dict[str, Any]:
    """An assistant message in the stored shape; strings become text parts."""
    read = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
    body = {"format": 2, "parts": read, **fields}
    return {"role": "assistant", "content": body, **({"id": id} if id else {})}


def seed(store: Any, messages: Sequence[Any], *, thread: str = "trip-42", resource: str = "ada") -> None:
    """Store messages."""
    store.save_messages(resource, thread, messages)
