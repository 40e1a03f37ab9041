"""A model whose answers a test writes down, and which keeps every prompt it is given."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from agent_memory.errors import ModelError
from agent_memory.ports import ModelChunk, ModelRequest, Usage


def say(text: str, *, reason: str = "stop") -> list[ModelChunk]:
    """Chunks of a text answer, word by word."""
    words = [word + " " for word in text.split(" ")]
    words[-1] = words[-1][:-1]
    return [
        ModelChunk("text-start", {"id": "t"}),
        *(ModelChunk("text-delta", {"id": "t", "text": word}) for word in words),
        ModelChunk("text-end", {"id": "t"}),
        ModelChunk("finish", {"reason": reason}, Usage(10, len(words))),
    ]


def call(*calls: tuple[str, str, Any], text: str = "") -> list[ModelChunk]:
    """Chunks of tool calls: (tool call id, tool name, args)."""
    chunks = say(text)[:-1] if text else []
    for call_id, name, args in calls:
        chunks.append(ModelChunk("tool-call", {"toolCallId": call_id, "toolName": name, "args": args}))
    return [*chunks, ModelChunk("finish", {"reason": "tool-calls"}, Usage(10, 5))]


class FakeModel:
    """Answers from a list, in turn; the last answer repeats. An answer may be chunks, an error, or a function."""

    provider = "fake"
    model_id = "fake-1"

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers) or [say("ok")]
        self.requests: list[ModelRequest] = []

    def stream(self, request: ModelRequest) -> Iterator[ModelChunk]:
        self.requests.append(request)
        answer = self.answers[min(len(self.requests), len(self.answers)) - 1]
        if isinstance(answer, Callable):  # type: ignore[arg-type]
            answer = answer(request)
        if isinstance(answer, Exception):
            raise answer
        for chunk in answer:
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk

    def prompt(self, number: int = -1) -> list[tuple[str, str]]:
        """Role and text of one prompt's messages, system left out."""
        return [(m.role, _text(m)) for m in self.requests[number].messages if m.role != "system"]

    def system(self, number: int = -1) -> str:
        """All system text of one prompt."""
        return "\n".join(m.text for m in self.requests[number].messages if m.role == "system")


def _text(message: Any) -> str:
    from agent_memory.ports import PromptToolCall, PromptToolResult

    said = message.text
    for part in message.content:
        if isinstance(part, PromptToolCall):
            said += f"[call {part.tool_call_id} {part.tool_name}]"
        elif isinstance(part, PromptToolResult):
            said += f"[result {part.tool_call_id} {part.output}]"
    return said


__all__ = ["FakeModel", "ModelError", "call", "say"]
