"""The one log line of a request, written when its answer has ended."""

from __future__ import annotations

import contextvars
import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent_memory import observe
from agent_memory.http.request import header_of
from agent_memory.http.response import Response
from agent_memory.ids import new_id

_log = logging.getLogger("agent_memory.http")


def ids_of(event: Mapping[str, Any], context: Any = None) -> dict[str, str]:
    """The ids of a request's log lines.

    ``correlation_id`` is the caller's `x-request-id`, else the front door's id of the request. Calls with one
    `Idempotency-Key` share a mark of it, because a caller's retries have nothing else in common.
    """
    door = event.get("requestContext")
    request_id = observe.known_id(door.get("requestId") if isinstance(door, Mapping) else None)
    request_id = request_id or observe.known_id(getattr(context, "aws_request_id", None))
    own = observe.known_id(header_of(event, "x-request-id"))
    ids = {
        "request_id": request_id,
        "correlation_id": own or request_id or new_id("req-"),
        "idempotency": observe.pseudonym(header_of(event, "idempotency-key")),
    }
    return {name: id for name, id in ids.items() if id}


@dataclass(slots=True)
class RequestLine:
    """What is known of a request so far. `route` is the route's pattern, never the path, which holds ids and text."""

    method: str = ""
    route: str | None = None
    code: str | None = None
    started: float = field(default_factory=time.monotonic)

    def watch(self, response: Response) -> Response:
        """Write the line: now for an answer that is complete, else when its last piece was taken."""
        if isinstance(response.body, bytes):
            self._write(response.status, len(response.body))
        else:
            response.body = self._pieces(response.status, response.body)
        return response

    def _pieces(self, status: int, pieces: Iterable[bytes]) -> Iterator[bytes]:
        # Pieces are made later, maybe on another thread: in a copy of this context their lines keep the request's ids.
        return _counted(self, status, iter(pieces), contextvars.copy_context())

    def _write(self, status: int, sent: int) -> None:
        fields = {
            "method": self.method,
            "route": self.route,
            "status": status,
            "code": self.code,
            "duration_ms": round((time.monotonic() - self.started) * 1000),
            "bytes": sent,
        }
        level = logging.WARNING if status >= 500 else logging.INFO
        _log.log(
            level, "a request was answered", extra={name: value for name, value in fields.items() if value is not None}
        )


def _counted(line: RequestLine, status: int, pieces: Iterator[bytes], context: contextvars.Context) -> Iterator[bytes]:
    sent = 0
    try:
        while (piece := context.run(next, pieces, None)) is not None:
            sent += len(piece)
            yield piece
    finally:
        close = getattr(pieces, "close", None)
        if close is not None:
            context.run(close)
        context.run(line._write, status, sent)
