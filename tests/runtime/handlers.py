"""Handlers that the runtime tests run."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Response:
    status: int
    body: Any
    headers: Any = field(default_factory=lambda: {"content-type": "text/event-stream"})


def _pieces(event):
    for number in range(event.get("count", 3)):
        yield f"data: {number} ø漢\n\n".encode()
        time.sleep(event.get("pause_s", 0))
    if "raise_after" in event:
        raise RuntimeError(event["raise_after"])
    if "mark" in event:
        Path(event["mark"]).write_text("ran to its end")
    yield b"data: [DONE]\n\n"


def handler(event, context):
    kind = event.get("kind", "stream")
    if kind == "stream":
        return Response(200, _pieces(event))
    if kind == "cookies":
        return Response(201, b"made\0", [("set-cookie", "a=1"), ("set-cookie", "b=2"), ("x-odd", "a\0b")])
    if kind == "gateway":
        return {"statusCode": 404, "headers": {"content-type": "application/json"}, "body": '{"error":"ø"}'}
    if kind == "plain":
        return {
            "trace": os.environ.get("_X_AMZN_TRACE_ID"),
            "id": context.aws_request_id,
            "left": context.get_remaining_time_in_millis(),
        }
    if kind == "raise":
        raise KeyError("thread")
    return object()
