"""An answer, in the one form that every adapter sends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from agent_memory._json import dumps

JSON: Final = "application/json"
EVENT_STREAM: Final[Mapping[str, str]] = {
    "content-type": "text/event-stream",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}


@dataclass(slots=True)
class Response:
    """Status, headers and body.

    `body` is the bytes of a finished answer, or an iterable whose pieces are sent as they come.
    """

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | Iterable[bytes] = b""

    @classmethod
    def json(cls, value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
        """An answer of JSON."""
        return cls(status, {"content-type": JSON, **(headers or {})}, dumps(value).encode())

    @classmethod
    def events(cls, pieces: Iterable[bytes], headers: Mapping[str, str] | None = None) -> Response:
        """A stream of events."""
        return cls(200, {**EVENT_STREAM, **(headers or {})}, pieces)

    @classmethod
    def empty(cls, status: int = 204) -> Response:
        """An answer without a body."""
        return cls(status)

    def read(self) -> bytes:
        """The whole body; a stream is run to its end."""
        if not isinstance(self.body, bytes):
            self.body = b"".join(self.body)
        return self.body

    def to_gateway(self) -> dict[str, Any]:
        """The answer as a buffered function returns it to API Gateway."""
        return {
            "statusCode": self.status,
            "headers": dict(self.headers),
            "body": self.read().decode(),
            "isBase64Encoded": False,
        }
