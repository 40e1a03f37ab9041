"""Answers of OpenAI-compatible services on the wire, in the shapes that OpenAI's own and llama.cpp's server send."""

from __future__ import annotations

import json

from tests.support.canned_server import Canned


def event(**fields) -> bytes:
    piece = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_770_000_000, "model": "model-1"}
    return b"data: " + json.dumps(piece | fields).encode() + b"\n\n"


def delta(finish_reason: str | None = None, **fields) -> bytes:
    return event(choices=[{"index": 0, "delta": fields, "finish_reason": finish_reason}])


def texts(*pieces: str) -> list[bytes]:
    return [delta(role="assistant", content=""), *(delta(content=piece) for piece in pieces)]


def reasoning(*pieces: str) -> list[bytes]:
    return [delta(reasoning_content=piece) for piece in pieces]


def tool_call(index: int, call_id: str, name: str, *pieces: str) -> list[bytes]:
    start = {"index": index, "id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}
    return [
        delta(tool_calls=[start]),
        *(delta(tool_calls=[{"index": index, "function": {"arguments": piece}}]) for piece in pieces),
    ]


def answer(*blocks: list[bytes], reason: str = "stop", usage: dict | None = None, **fields) -> Canned:
    counted = usage or {"prompt_tokens": 30, "completion_tokens": 7, "total_tokens": 37}
    pieces = [
        *(piece for block in blocks for piece in block),
        delta(reason),
        event(choices=[], usage=counted),
        b"data: [DONE]\n\n",
    ]
    return Canned(pieces, headers={"content-type": "text/event-stream"}, **fields)


def refusal(status: int, message: str, **headers: str) -> Canned:
    body = {"error": {"message": message, "type": "some_error", "code": None}}
    return Canned([json.dumps(body).encode()], status, {"content-type": "application/json", **headers}, chunked=False)
