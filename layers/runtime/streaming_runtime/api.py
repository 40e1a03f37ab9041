"""Lambda's Runtime API, version 2018-06-01, over one kept connection."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

BASE: Final = "/2018-06-01/runtime"
ERROR_TYPE: Final = "Lambda-Runtime-Function-Error-Type"
ERROR_BODY: Final = "Lambda-Runtime-Function-Error-Body"
INTEGRATION: Final = "application/vnd.awslambda.http-integration-response"


class RuntimeApiError(Exception):
    """The Runtime API refused a request."""


@dataclass(frozen=True, slots=True)
class Invocation:
    """One event and what came with it. `deadline_ms` is in milliseconds since 1970."""

    request_id: str
    event: Any
    deadline_ms: int
    function_arn: str
    trace_id: str | None
    client_context: str | None
    identity: str | None


def describe(error: BaseException) -> dict[str, Any]:
    """An error in the form that Lambda reports."""
    return {
        "errorType": type(error).__name__,
        "errorMessage": str(error),
        "stackTrace": traceback.format_list(traceback.extract_tb(error.__traceback__)),
    }


class RuntimeApi:
    """The calls of a runtime.

    Args:
        address: Host and port, as in ``AWS_LAMBDA_RUNTIME_API``.
    """

    def __init__(self, address: str) -> None:
        self._connection = http.client.HTTPConnection(address)  # no timeout: `next` waits for as long as it takes

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def next(self) -> Invocation:
        """Wait for the next event."""
        headers, body = self._call("GET", f"{BASE}/invocation/next")
        return Invocation(
            request_id=headers["Lambda-Runtime-Aws-Request-Id"],
            event=json.loads(body),
            deadline_ms=int(headers.get("Lambda-Runtime-Deadline-Ms") or 0),
            function_arn=headers.get("Lambda-Runtime-Invoked-Function-Arn") or "",
            trace_id=headers.get("Lambda-Runtime-Trace-Id"),
            client_context=headers.get("Lambda-Runtime-Client-Context"),
            identity=headers.get("Lambda-Runtime-Cognito-Identity"),
        )

    def restore_next(self) -> None:
        """Say that a snapshot may be taken; returns when the process runs again after one."""
        self._call("GET", f"{BASE}/restore/next")

    def respond(self, request_id: str, body: bytes) -> None:
        """Answer with one JSON body."""
        self._call("POST", f"{BASE}/invocation/{request_id}/response", body, {"Content-Type": "application/json"})

    def fail(self, path: str, error: BaseException, *, error_type: str | None = None) -> None:
        """Report an error to ``init/error``, ``restore/error`` or ``invocation/{id}/error``."""
        report = describe(error)
        headers = {"Content-Type": "application/json", ERROR_TYPE: error_type or report["errorType"]}
        self._call("POST", f"{BASE}/{path}", json.dumps(report).encode(), headers)

    def stream(self, request_id: str) -> ResponseStream:
        """Begin a streamed answer."""
        return ResponseStream(self._connection, f"{BASE}/invocation/{request_id}/response")

    def _call(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[http.client.HTTPMessage, bytes]:
        try:
            self._connection.request(method, path, body=body, headers=dict(headers or {}))
            answer = self._connection.getresponse()
            content = answer.read()
        except BaseException:
            self._connection.close()
            raise
        if answer.status >= 300:
            raise RuntimeApiError(f"{method} {path}: expected success, found {answer.status} {content[:200]!r}")
        return answer.headers, content


class ResponseStream:
    """A streamed answer under way: chunks, then an end with or without an error.

    http.client writes no trailers, so the chunks are written here.
    """

    def __init__(self, connection: http.client.HTTPConnection, path: str) -> None:
        self._connection = connection
        try:
            connection.putrequest("POST", path, skip_accept_encoding=True)
            connection.putheader("Content-Type", INTEGRATION)
            connection.putheader("Lambda-Runtime-Function-Response-Mode", "streaming")
            connection.putheader("Transfer-Encoding", "chunked")
            connection.putheader("Trailer", f"{ERROR_TYPE}, {ERROR_BODY}")
            connection.endheaders()
        except BaseException:
            connection.close()
            raise

    def write(self, data: bytes) -> None:
        """Send one chunk now. Raises OSError when nobody reads any more."""
        if data:
            self._connection.send(b"%x\r\n%b\r\n" % (len(data), data))

    def end(self, error: BaseException | None = None, *, error_type: str | None = None) -> None:
        """Send the last chunk; an error goes into the trailers, because the status was sent long ago."""
        trailers = b""
        if error is not None:
            report = describe(error)
            encoded = base64.b64encode(json.dumps(report).encode())
            name = error_type or report["errorType"]
            trailers = f"{ERROR_TYPE}: {name}\r\n{ERROR_BODY}: ".encode() + encoded + b"\r\n"
        self._connection.send(b"0\r\n" + trailers + b"\r\n")
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status >= 300:
            raise RuntimeApiError(f"response: expected success, found {answer.status} {content[:200]!r}")

    def abandon(self) -> None:
        """Give up the connection; the next call makes a new one."""
        with contextlib.suppress(OSError):
            self._connection.close()
