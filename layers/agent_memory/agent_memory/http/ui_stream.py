"""Events of a run as a page of the AI SDK (5 to 7) reads them: UI message stream, version 1."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from agent_memory.agent.events import RunEvent
from agent_memory.agent.tool_calls import approval_id
from agent_memory.messages.media import as_url

HEADERS: Final[Mapping[str, str]] = {"x-vercel-ai-ui-message-stream": "v1"}
_REASONS: Final = ("stop", "length", "content-filter", "tool-calls", "error", "other")

Chunk = dict[str, Any]


class UiEncoder:
    """Turns the events of one run into chunks of a page's stream.

    The page checks the order strictly: every block is closed before the step ends, a step that was opened is closed, and
    `finish` comes once, at the end. An event that has no place on a page is left out.

    Args:
        run_id: Of the run; approval ids are made of it.
    """

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._open: dict[tuple[str, str], None] = {}
        self._in_step = False
        self._finished = False

    def __call__(self, event: RunEvent) -> Iterator[Chunk]:
        """The chunks of one event."""
        kind, payload = event.type, event.payload
        if kind.startswith("data-"):
            yield _data(event)
        elif kind in ("text-start", "reasoning-start"):
            self._open[kind.removesuffix("-start"), payload["id"]] = None
            yield {"type": kind, "id": payload["id"]}
        elif kind in ("text-delta", "reasoning-delta"):
            yield {"type": kind, "id": payload["id"], "delta": payload["text"]}
        elif kind in ("text-end", "reasoning-end"):
            self._open.pop((kind.removesuffix("-end"), payload["id"]), None)
            yield {"type": kind, "id": payload["id"]}
        elif kind.startswith("tool-"):
            yield from self._tool(kind, payload)
        else:
            yield from self._other(kind, payload)

    def closing(self) -> Iterator[Chunk]:
        """What a stream that ended without a `finish` still needs: it waits for an approval."""
        if not self._finished:
            yield from self._end("tool-calls")

    def _other(self, kind: str, payload: Any) -> Iterator[Chunk]:
        match kind:
            case "start":
                yield {"type": "start", "messageId": payload["messageId"]}
            case "step-start":
                yield from self._close_blocks()
                if self._in_step:
                    yield {"type": "finish-step"}
                self._in_step = True
                yield {"type": "start-step"}
            case "step-finish":
                yield from self._close_blocks()
                self._in_step = False
                yield {"type": "finish-step"}
            case "finish":
                yield from self._end(payload["stepResult"]["reason"])
            case "error":
                yield from self._close_blocks()
                yield {"type": "error", "errorText": str(payload["error"]["message"])}
            case "tripwire":
                yield from self._close_blocks()
                data = {"reason": payload["reason"], "processorId": payload["processorId"]}
                yield {"type": "data-tripwire", "data": data}
                yield from self._end("other")
            case "abort":
                yield from self._close_blocks()
                yield {"type": "abort"}
            case "file":
                media_type = payload["mimeType"]
                yield {"type": "file", "url": as_url(payload["data"], media_type), "mediaType": media_type}
            case "source":
                yield from _source(payload["source"])

    def _tool(self, kind: str, payload: Any) -> Iterator[Chunk]:
        call = payload["toolCallId"]
        match kind:
            case "tool-call-input-streaming-start":
                yield {"type": "tool-input-start", "toolCallId": call, "toolName": payload["toolName"]}
            case "tool-call-delta":
                yield {"type": "tool-input-delta", "toolCallId": call, "inputTextDelta": payload["argsTextDelta"]}
            case "tool-call":
                # Before any step it is the call of an answer that goes on; the page has it already.
                if self._in_step:
                    yield _input_available(payload)
            case "tool-result":
                yield {"type": "tool-output-available", "toolCallId": call, "output": payload["result"]}
            case "tool-error":
                yield {"type": "tool-output-error", "toolCallId": call, "errorText": str(payload["error"]["message"])}
            case "tool-call-approval":
                wanted = approval_id(self._run_id, call)
                yield {"type": "tool-approval-request", "toolCallId": call, "approvalId": wanted}
            case "tool-output-denied":
                yield {"type": "tool-output-denied", "toolCallId": call}

    def _close_blocks(self) -> Iterator[Chunk]:
        for kind, block in list(self._open):
            yield {"type": f"{kind}-end", "id": block}
        self._open.clear()

    def _end(self, reason: str) -> Iterator[Chunk]:
        if self._finished:
            return
        self._finished = True
        yield from self._close_blocks()
        if self._in_step:
            self._in_step = False
            yield {"type": "finish-step"}
        yield {"type": "finish", "finishReason": reason if reason in _REASONS else "other"}


def _input_available(payload: Mapping[str, Any]) -> Chunk:
    chunk: Chunk = {
        "type": "tool-input-available",
        "toolCallId": payload["toolCallId"],
        "toolName": payload["toolName"],
        "input": payload["args"],
    }
    if payload.get("providerExecuted"):
        chunk["providerExecuted"] = True
    return chunk


def _data(event: RunEvent) -> Chunk:
    chunk: Chunk = {"type": event.type, "data": event.payload}
    if event.id is not None:
        chunk["id"] = event.id
    if event.transient:
        chunk["transient"] = True
    return chunk


def _source(source: Any) -> Iterator[Chunk]:
    """A source as the page knows it; one without the fields a page needs is left out."""
    if not isinstance(source, Mapping):
        return
    source_id = str(source.get("sourceId") or source.get("id") or source.get("url") or "")
    title = source.get("title")
    if isinstance(source.get("url"), str):
        chunk: Chunk = {"type": "source-url", "sourceId": source_id, "url": source["url"]}
        if isinstance(title, str):
            chunk["title"] = title
        yield chunk
    elif isinstance(source.get("mediaType"), str) and isinstance(title, str):
        chunk = {
            "type": "source-document",
            "sourceId": source_id,
            "mediaType": source["mediaType"],
            "title": title,
        }
        if isinstance(source.get("filename"), str):
            chunk["filename"] = source["filename"]
        yield chunk
