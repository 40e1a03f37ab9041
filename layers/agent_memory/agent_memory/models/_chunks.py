"""Writes a model's answer as chunks in the order the port asks for, whatever order the provider keeps."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from agent_memory._json import loads
from agent_memory.ids import new_id
from agent_memory.ports import ModelChunk, ModelRequest, Usage

if TYPE_CHECKING:
    from agent_memory.ports import ChunkType

FinishReason = Literal["stop", "length", "tool-calls", "content-filter", "error", "other"]


@dataclass(slots=True)
class _Call:
    id: str
    name: str
    pieces: list[str] = field(default_factory=list)


class ChunkWriter:
    """Turns pieces of an answer into chunks: opens a block before its first piece and closes it before the next kind.

    One writer serves one answer. Calls are told apart by `key`, whatever the provider numbers them by.
    """

    def __init__(self) -> None:
        self._answer = new_id()[-12:]
        self._blocks = 0
        self._open: tuple[str, str] | None = None
        self._metadata: Any = None
        self._calls: dict[object, _Call] = {}
        self._call_ids: set[str] = set()

    @property
    def called_tools(self) -> bool:
        """Whether the answer holds a tool call."""
        return bool(self._call_ids)

    def response(self, response_id: str | None, model_id: str) -> ModelChunk:
        """The chunk that names the answer and the model that gave it."""
        return ModelChunk("response-metadata", {"id": response_id or new_id("response-"), "modelId": model_id})

    def text(self, text: str) -> Iterator[ModelChunk]:
        """A piece of text."""
        return self._piece("text", text)

    def reasoning(self, text: str) -> Iterator[ModelChunk]:
        """A piece of reasoning."""
        return self._piece("reasoning", text)

    def sign_reasoning(self, metadata: Any) -> Iterator[ModelChunk]:
        """Provider metadata (a signature) for the open reasoning block; opens one where the provider sends no text."""
        if self._open is None or self._open[0] != "reasoning":
            yield from self._start("reasoning")
        self._metadata = metadata

    def end_block(self) -> Iterator[ModelChunk]:
        """Close the open text or reasoning block, if there is one."""
        if self._open is None:
            return
        kind, block = self._open
        payload: dict[str, Any] = {"id": block}
        if kind == "reasoning" and self._metadata is not None:
            payload["providerMetadata"] = self._metadata
        self._open, self._metadata = None, None
        yield ModelChunk("text-end" if kind == "text" else "reasoning-end", payload)

    def call_start(self, key: object, call_id: str | None, name: str) -> Iterator[ModelChunk]:
        """A tool call begins. A missing id, or one already used in this answer, is replaced by a fresh one."""
        yield from self.end_block()
        if not call_id or call_id in self._call_ids:
            call_id = new_id("call-")
        self._call_ids.add(call_id)
        self._calls[key] = _Call(call_id, name)
        yield ModelChunk("tool-call-input-streaming-start", {"toolCallId": call_id, "toolName": name})

    def call_delta(self, key: object, text: str) -> Iterator[ModelChunk]:
        """A piece of a call's arguments, as JSON text."""
        call = self._calls[key]
        if text:
            call.pieces.append(text)
            payload = {"toolCallId": call.id, "toolName": call.name, "argsTextDelta": text}
            yield ModelChunk("tool-call-delta", payload)

    def call_end(self, key: object) -> Iterator[ModelChunk]:
        """A call is complete. Arguments that are no JSON object go along as `rawInput`, for the model to be told."""
        call = self._calls.pop(key)
        yield ModelChunk("tool-call-input-streaming-end", {"toolCallId": call.id})
        payload: dict[str, Any] = {"toolCallId": call.id, "toolName": call.name}
        yield ModelChunk("tool-call", payload | read_arguments("".join(call.pieces)))

    def end_calls(self) -> Iterator[ModelChunk]:
        """Complete all calls that are still open, in the order they began."""
        for key in list(self._calls):
            yield from self.call_end(key)

    def finish(self, reason: FinishReason, usage: Usage) -> Iterator[ModelChunk]:
        """Close the open block and end the answer. Calls that are still open were cut off and are dropped."""
        yield from self.end_block()
        for call in self._calls.values():
            yield ModelChunk("tool-call-input-streaming-end", {"toolCallId": call.id})
        self._calls.clear()
        yield ModelChunk("finish", {"reason": reason}, usage)

    def _piece(self, kind: Literal["text", "reasoning"], text: str) -> Iterator[ModelChunk]:
        if not text:
            return
        if self._open is None or self._open[0] != kind:
            yield from self._start(kind)
        assert self._open is not None
        delta: ChunkType = "text-delta" if kind == "text" else "reasoning-delta"
        yield ModelChunk(delta, {"id": self._open[1], "text": text})

    def _start(self, kind: Literal["text", "reasoning"]) -> Iterator[ModelChunk]:
        yield from self.end_block()
        self._blocks += 1
        self._open = (kind, f"{kind}-{self._answer}-{self._blocks}")
        yield ModelChunk("text-start" if kind == "text" else "reasoning-start", {"id": self._open[1]})


def read_arguments(text: str) -> dict[str, Any]:
    """``{"args"}`` from JSON text; text that is no JSON object stays beside empty arguments as ``rawInput``."""
    if not text.strip():
        return {"args": {}}
    try:
        args = loads(text)
    except ValueError:
        return {"args": {}, "rawInput": text}
    if args is None:
        return {"args": {}}
    return {"args": args} if isinstance(args, dict) else {"args": {}, "rawInput": text}


def must_end(request: ModelRequest) -> bool:
    """Whether the caller asked to stop, or the request's time is over."""
    if request.deadline is not None and time.monotonic() >= request.deadline:
        return True
    return request.should_stop is not None and request.should_stop()
