"""Answers of handlers, in the one form that the adapters send."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

PRELUDE_END = b"\0" * 8


@dataclass(frozen=True, slots=True)
class Streamed:
    """An HTTP answer whose body comes piece by piece. Header names may repeat."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: Iterable[bytes]

    @classmethod
    def of(cls, answer: Any) -> Streamed | None:
        """The answer of a handler in this form, or None where it is not an HTTP answer."""
        if isinstance(answer, Streamed):
            return answer
        if isinstance(answer, Mapping):
            return _from_gateway(answer) if "statusCode" in answer else None
        status = getattr(answer, "status", None)
        if not isinstance(status, int) or not hasattr(answer, "body"):
            return None
        headers = getattr(answer, "headers", None) or {}
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        return cls(status, tuple((str(name), str(value)) for name, value in pairs), _pieces(answer.body))

    @property
    def is_event_stream(self) -> bool:
        """Whether comments may be put between the pieces."""
        return any(
            name.lower() == "content-type" and value.lower().startswith("text/event-stream")
            for name, value in self.headers
        )

    def prelude(self) -> bytes:
        """Status and headers as a front door reads them before the body, with the eight NULs that end them."""
        single: dict[str, str] = {}
        repeated: dict[str, list[str]] = {}
        for name, value in self.headers:
            if name in repeated:
                repeated[name].append(value)
            elif name in single:
                repeated[name] = [single.pop(name), value]
            else:
                single[name] = value
        content: dict[str, Any] = {"statusCode": self.status, "headers": single}
        if repeated:
            content["multiValueHeaders"] = repeated
        # ASCII JSON escapes every control character, so no NUL can end the prelude early.
        return json.dumps(content, separators=(",", ":")).encode("ascii") + PRELUDE_END


def buffered(handler: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The same handler for a runtime that cannot stream: the whole body at once, in API Gateway's form.

    An answer is then bound by Lambda's 6 MB and by the front door's time limit.
    """

    def collect(event: Any, context: Any) -> Any:
        answer = handler(event, context)
        streamed = Streamed.of(answer)
        if streamed is None or isinstance(answer, Mapping):
            return answer
        body = b"".join(streamed.body)
        try:
            text, encoded = body.decode("utf-8"), False
        except UnicodeDecodeError:
            text, encoded = base64.b64encode(body).decode("ascii"), True
        values: dict[str, list[str]] = {}
        for name, value in streamed.headers:
            values.setdefault(name, []).append(value)
        return {
            "statusCode": streamed.status,
            "headers": {name: many[-1] for name, many in values.items()},
            "multiValueHeaders": values,
            "body": text,
            "isBase64Encoded": encoded,
        }

    return collect


def _from_gateway(answer: Mapping[str, Any]) -> Streamed:
    many: Mapping[str, Iterable[Any]] = answer.get("multiValueHeaders") or {}
    pairs = [(str(name), str(value)) for name, values in many.items() for value in values]
    named = {name.lower() for name, _ in pairs}
    single: Mapping[str, Any] = answer.get("headers") or {}
    pairs += [(str(name), str(value)) for name, value in single.items() if name.lower() not in named]
    body = answer.get("body") or ""
    data = base64.b64decode(body) if answer.get("isBase64Encoded") else _bytes(body)
    return Streamed(int(answer["statusCode"]), tuple(pairs), (data,) if data else ())


def _pieces(body: Any) -> Iterable[bytes]:
    if body is None:
        return ()
    if isinstance(body, str | bytes | bytearray):
        data = _bytes(body)
        return (data,) if data else ()
    pieces: Iterable[bytes] = body
    return pieces


def _bytes(text: str | bytes | bytearray) -> bytes:
    return text.encode() if isinstance(text, str) else bytes(text)
