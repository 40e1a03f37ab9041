"""Turns the pieces of an OpenAI-compatible answer into chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from agent_memory._json import dumps, loads
from agent_memory.errors import ModelError
from agent_memory.models._chunks import ChunkWriter, FinishReason
from agent_memory.models._errors import cut_off, refused
from agent_memory.ports import ModelChunk, Usage

DONE: Final = "[DONE]"
_REASONS: Final[dict[str, FinishReason]] = {
    "stop": "stop",
    "eos": "stop",
    "length": "length",
    "tool_calls": "tool-calls",
    "function_call": "tool-calls",
    "content_filter": "content-filter",
    "error": "error",
}


@dataclass(slots=True)
class _Call:
    id: str | None = None
    name: str | None = None
    early: list[str] = field(default_factory=list)  # arguments that came before the name
    started: bool = False


class Answer:
    """One answer while it arrives.

    Args:
        name: Of the model, for errors.
        model_id: Stands in where the service does not name the model that answered.
        estimate: Makes the usage where the service tells none, from the text so far.
    """

    def __init__(self, name: str, model_id: str, estimate: Callable[[str], Usage]) -> None:
        self._name = name
        self._model_id = model_id
        self._estimate = estimate
        self._writer = ChunkWriter()
        self._calls: dict[object, _Call] = {}
        self._places: dict[object, object] = {}
        self._said: list[str] = []
        self._usage: Usage | None = None
        self._reason: FinishReason | None = None
        self._named = False
        self.done = False

    def take(self, data: str) -> Iterator[ModelChunk]:
        """Read one event's data. Raises ModelError for an error that comes inside the stream."""
        if data.strip() == DONE:
            self.done = True
            return
        try:
            piece = loads(data)
        except ValueError:
            piece = None
        if not isinstance(piece, dict):
            raise ModelError(f"{self._name} sent an event that is no JSON object", code="MODEL_STREAM_INVALID")
        if piece.get("error"):
            raise stream_error(self._name, piece["error"])
        if not self._named:
            self._named = True
            yield self._writer.response(_text(piece.get("id")), _text(piece.get("model")) or self._model_id)
        if isinstance(piece.get("usage"), dict):
            self._usage = _usage(piece["usage"])
        for choice in (piece.get("choices") or [])[:1]:
            # A service that cannot stream answers with a whole message.
            yield from self._delta(choice.get("delta") or choice.get("message") or {})
            if choice.get("finish_reason"):
                self._reason = _REASONS.get(choice["finish_reason"], "other")

    def end(self, *, early: bool) -> Iterator[ModelChunk]:
        """Complete the answer. `early`: the caller stopped. Raises ModelError where the stream broke off."""
        usage = self._usage or self._estimate("".join(self._said))
        if early:
            yield from self._writer.finish("other", usage)
            return
        if self._reason is None and not self.done:
            raise cut_off(self._name)
        yield from self._writer.end_block()
        yield from self._writer.end_calls()
        reason = self._reason or "stop"
        # Some services call tools and say "stop".
        if self._writer.called_tools and reason == "stop":
            reason = "tool-calls"
        yield from self._writer.finish(reason, usage)

    def _delta(self, delta: Mapping[str, Any]) -> Iterator[ModelChunk]:
        # Two spellings are in use for the reasoning of models that show it.
        reasoning = _text(delta.get("reasoning_content")) or _text(delta.get("reasoning"))
        if reasoning:
            self._said.append(reasoning)
            yield from self._writer.reasoning(reasoning)
        text = _text(delta.get("content")) or _text(delta.get("refusal"))
        if text:
            self._said.append(text)
            yield from self._writer.text(text)
        for number, raw in enumerate(delta.get("tool_calls") or []):
            yield from self._call(raw, number)

    def _call(self, raw: Mapping[str, Any], number: int) -> Iterator[ModelChunk]:
        function = raw.get("function") or {}
        call_id, name = _text(raw.get("id")), _text(function.get("name"))
        index = raw.get("index")
        place = number if index is None else index
        key = self._places.get(place)
        # Some services number all calls 0: another id, or a name without any id, begins another call.
        if key is None or (call_id and name and self._calls[key].id not in (None, call_id)):
            key = self._places[place] = len(self._calls)
            self._calls[key] = _Call()
        call = self._calls[key]
        call.id, call.name = call.id or call_id, call.name or name
        arguments = function.get("arguments")
        text = arguments if isinstance(arguments, str) else "" if arguments is None else dumps(arguments)
        self._said.append(text)
        if call.name is None:
            call.early.append(text)
            return
        if not call.started:
            call.started = True
            yield from self._writer.call_start(key, call.id, call.name)
            text = "".join(call.early) + text
        yield from self._writer.call_delta(key, text)


def stream_error(name: str, error: Any) -> ModelError:
    """The ModelError for an ``error`` object, whatever a service puts in it."""
    fields: Mapping[str, Any] = error if isinstance(error, Mapping) else {"message": str(error)}
    code = fields.get("code")
    status = code if isinstance(code, int) and 400 <= code < 600 else fields.get("status")
    detail = str(fields.get("message") or fields.get("type") or "")
    return refused(name, status if isinstance(status, int) else 500, detail)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _usage(raw: Mapping[str, Any]) -> Usage:
    asked, answered = raw.get("prompt_tokens_details") or {}, raw.get("completion_tokens_details") or {}
    return Usage(
        raw.get("prompt_tokens") or 0,
        raw.get("completion_tokens") or 0,
        reasoning_tokens=answered.get("reasoning_tokens") or 0,
        cached_input_tokens=asked.get("cached_tokens") or 0,
    )
