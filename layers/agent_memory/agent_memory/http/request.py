"""A request, read from the event of a front door."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote

from agent_memory._json import loads
from agent_memory.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class Request:
    """A request.

    Attributes:
        method: In upper case.
        path: As it came, percent-encoded, without the query.
        query: Values by key, in the order sent.
        headers: Values by lower-case name; several of one name are joined by commas.
        body: Bytes, base64 undone.
        authorizer: What the front door's authorizer said about the caller.
        stage: Name of the stage, which some front doors put before the path.
        decoded: Whether the front door has already decoded the path.
        id: Of the request, for logs.
    """

    method: str
    path: str
    query: Mapping[str, Sequence[str]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    authorizer: Mapping[str, Any] = field(default_factory=dict)
    stage: str = ""
    decoded: bool = False
    id: str = ""

    @classmethod
    def from_event(cls, event: Mapping[str, Any]) -> Request:
        """Read a proxy event of API Gateway (payload 1.0 or 2.0) or of a function URL.

        Raises InvalidInputError where the body is marked as base64 and is not.
        """
        return _from_v2(event) if "rawPath" in event else _from_v1(event)

    def header(self, name: str) -> str | None:
        """A header by its lower-case name."""
        return self.headers.get(name)

    def segments(self, path: str) -> tuple[str, ...]:
        """The segments of a path, each decoded once. Raises InvalidInputError for what is no UTF-8."""
        parts = path.split("/")[1:]
        if self.decoded:
            return tuple(parts)
        try:
            return tuple(unquote(part, errors="strict") if "%" in part else part for part in parts)
        except UnicodeDecodeError:
            raise InvalidInputError("path", "expected UTF-8 behind the percent signs", where="path") from None

    def json(self) -> Any:
        """The body as JSON; None for an empty one. Raises InvalidInputError that names ``body``."""
        if not self.body.strip():
            return None
        try:
            return loads(self.body)
        except (ValueError, RecursionError):
            raise InvalidInputError("body", "expected JSON in UTF-8") from None


def header_of(event: Mapping[str, Any], name: str) -> str | None:
    """A header of an event that may turn out to be no request, by its lower-case name."""
    single, many = event.get("headers"), event.get("multiValueHeaders")
    headers = {**single} if isinstance(single, Mapping) else {}
    for key, values in many.items() if isinstance(many, Mapping) else ():
        if values:
            headers[key] = values[-1]
    return next((str(value) for key, value in headers.items() if key.lower() == name), None)


def _from_v1(event: Mapping[str, Any]) -> Request:
    context = event.get("requestContext") or {}
    query: dict[str, list[str]] = {}
    many = event.get("multiValueQueryStringParameters") or {}
    single = event.get("queryStringParameters") or {}
    for name in {**single, **many}:
        values = many.get(name) or [single.get(name)]
        query[name] = [str(value) for value in values if value is not None]
    headers: dict[str, str] = {}
    for name, value in (event.get("headers") or {}).items():
        if value is not None:
            headers[name.lower()] = str(value)
    for name, values in (event.get("multiValueHeaders") or {}).items():
        if values:
            headers[name.lower()] = ", ".join(str(value) for value in values)
    return Request(
        method=str(event.get("httpMethod") or "GET").upper(),
        path=str(event.get("path") or "/"),
        query=query,
        headers=headers,
        body=_body(event),
        authorizer=context.get("authorizer") or {},
        stage=str(context.get("stage") or ""),
        id=str(context.get("requestId") or ""),
    )


def _from_v2(event: Mapping[str, Any]) -> Request:
    context = event.get("requestContext") or {}
    http = context.get("http") or {}
    query: dict[str, list[str]] = {}
    for name, value in parse_qsl(event.get("rawQueryString") or "", keep_blank_values=True):
        query.setdefault(name, []).append(value)
    authorizer: Mapping[str, Any] = context.get("authorizer") or {}
    # A function URL hands the path over as it came, an HTTP API decodes it.
    is_function_url = ".lambda-url." in str(context.get("domainName") or ".lambda-url.")
    return Request(
        method=str(http.get("method") or "GET").upper(),
        path=str(event.get("rawPath") or "/"),
        query=query,
        headers={name.lower(): str(value) for name, value in (event.get("headers") or {}).items() if value is not None},
        body=_body(event),
        authorizer=authorizer.get("lambda") or authorizer.get("jwt") or authorizer,
        stage=str(context.get("stage") or ""),
        decoded=not is_function_url,
        id=str(context.get("requestId") or ""),
    )


def _body(event: Mapping[str, Any]) -> bytes:
    body = event.get("body")
    if body is None:
        return b""
    if isinstance(body, bytes | bytearray):
        return bytes(body)
    text = str(body)
    if not event.get("isBase64Encoded"):
        return text.encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInputError("body", "expected base64, as the event says it is") from None
