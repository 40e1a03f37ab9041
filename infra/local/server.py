"""The front door of the local stack: HTTP in, the functions' events out, answers streamed as they come."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from infra.local.authorizers import Authorizers, Refused
from infra.local.gateway import Match, Routes, proxy_event
from streaming_runtime import Pump, Streamed

MAX_REQUEST_BYTES: Final = 10 * 1024 * 1024  # API Gateway's limit
MAX_EVENT_BYTES: Final = 6 * 1024 * 1024  # Lambda's limit for a synchronous event
LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "[::1]", "::1")

_log = logging.getLogger("infra.local")

Invoke = Callable[[str, Any], Any]
"""Calls a function by name with an event."""

Page = Callable[[str], tuple[str, bytes] | None]
"""Content type and bytes of a page of ours by path, or None."""


class PortInUseError(Exception):
    """Another program listens on the port."""


class Server(ThreadingHTTPServer):
    """Serves the API on loopback.

    Args:
        port: Port to listen on; 0 takes a free one.
        routes: The API's routes.
        invoke: Calls a function.
        health: What ``GET /health`` answers.
        page: Pages outside the API, such as the studio.
        silence_s: Seconds without a piece after which an event stream gets a comment.
        origins: Pages that may read the answers that this server gives by itself.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        port: int,
        routes: Routes,
        invoke: Invoke,
        *,
        health: Callable[[], Mapping[str, Any]] = dict,
        page: Page | None = None,
        silence_s: float = 15.0,
        origins: Sequence[str] = (),
    ) -> None:
        self.routes = routes
        self.invoke = invoke
        self.health = health
        self.page = page
        self.silence_s = silence_s
        self.origins = tuple(origins)
        self.authorizers = Authorizers(invoke)
        self._running = 0
        self._idle = threading.Condition()
        try:
            super().__init__(("127.0.0.1", port), _Handler)
        except OSError as error:
            raise PortInUseError(
                f"expected port {port} to be free, found it taken ({error.strerror}); "
                f"stop the program that listens there or choose another: make dev PORT={port + 1 if port < 65535 else 8000}"
            ) from error

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def start(self) -> None:
        """Serve on a thread."""
        threading.Thread(target=self.serve_forever, args=(0.1,), name="server", daemon=True).start()

    def stop(self, wait_s: float = 10.0) -> bool:
        """Take no more requests and let the running ones end; False when some were still running after `wait_s`."""
        self.shutdown()
        self.server_close()
        with self._idle:
            return self._idle.wait_for(lambda: self._running == 0, wait_s)

    def begin(self) -> None:
        """A request started."""
        with self._idle:
            self._running += 1

    def end(self) -> None:
        """A request ended."""
        with self._idle:
            self._running -= 1
            self._idle.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """A connection broke; clients go away all the time."""
        error = sys.exception()
        if not isinstance(error, ConnectionError | TimeoutError):
            _log.error("a request could not be handled", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # one event, one packet
    timeout = 120  # seconds that a kept connection may be idle

    def do_any(self) -> None:
        started = time.monotonic()
        status = 500
        self.server.begin()
        try:
            status = self._serve()
        except Refused as refused:
            status = refused.status
            self.close_connection = True
            self._send_json(refused.status, {"error": refused.error})
        finally:
            self.server.end()
            path = self.path.partition("?")[0]  # a query may hold what somebody searches for
            _log.info("%s %s %d %.0f ms", self.command, path, status, (time.monotonic() - started) * 1000)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_HEAD = do_any

    def log_message(self, format: str, *args: Any) -> None:
        """The line above is the log."""

    def _serve(self) -> int:
        self._check_host()
        body = self._read_body()
        path = self.path.partition("?")[0]
        match = self.server.routes.find(self.command, path)
        if match is not None:
            return self._invoke(match, body)
        if self.command in ("GET", "HEAD"):
            if path == "/health":
                return self._send_json(200, dict(self.server.health()))
            page = self.server.page(path) if self.server.page is not None else None
            if page is not None:
                return self._send(200, [("content-type", page[0]), ("cache-control", "no-cache")], page[1])
        return self._send_json(404, {"error": "Not found"})

    def _check_host(self) -> None:
        # A page of another site can make its own name point at loopback; the name in the request gives it away.
        host = (self.headers.get("Host") or "").strip().lower()
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        if name not in LOCAL_NAMES:
            raise Refused(421, f"expected a request to localhost, found one to {name[:100]!r}")

    def _read_body(self) -> bytes:
        if (self.headers.get("Transfer-Encoding") or "").lower() == "chunked":
            return b"".join(self._chunks())
        text = self.headers.get("Content-Length") or "0"
        if not text.isdigit():
            raise Refused(400, "expected a Content-Length in bytes")
        if int(text) > MAX_REQUEST_BYTES:
            self._discard(int(text))
            raise Refused(413, "Request Too Long")
        return self.rfile.read(int(text))

    def _discard(self, size: int) -> None:
        # Many clients read the answer only after they have sent everything.
        left = min(size, 10 * MAX_REQUEST_BYTES)
        while left > 0:
            piece = self.rfile.read(min(left, 1 << 20))
            if not piece:
                return
            left -= len(piece)

    def _chunks(self) -> Iterator[bytes]:
        total = 0
        while True:
            try:
                size = int(self.rfile.readline().split(b";")[0], 16)
            except ValueError:
                raise Refused(400, "expected a chunked body") from None
            if size == 0:
                while self.rfile.readline().strip():
                    pass
                return
            total += size
            if total > MAX_REQUEST_BYTES:
                raise Refused(413, "Request Too Long")
            yield self.rfile.read(size)
            self.rfile.readline()

    def _invoke(self, match: Match, body: bytes) -> int:
        spec = match.route.authorizer
        caller = None
        if spec is not None:
            path = self.path.partition("?")[0]
            caller = self.server.authorizers.context(spec, match, path, self.headers.get("Authorization"))
        event = proxy_event(
            match, self.path, self.headers.items(), body, source_ip=str(self.client_address[0]), authorizer=caller
        )
        if len(event["body"] or "") > MAX_EVENT_BYTES:
            raise Refused(413, "Request Too Long")
        try:
            answer = Streamed.of(self.server.invoke(match.route.function, event))
            if answer is None:
                raise TypeError(f"expected an HTTP answer from {match.route.function}, found another value")
        except Exception:
            _log.exception("%s failed before its answer", match.route.function)
            return self._send_json(502, {"error": "Internal server error"})
        if match.route.streams:
            return self._stream(answer)
        return self._send(answer.status, list(answer.headers), b"".join(answer.body))

    def _stream(self, answer: Streamed) -> int:
        pump = Pump(answer.body)
        try:
            if _has_no_body(answer.status) or isinstance(answer.body, tuple):
                body = b"".join(iter(pump.next, None))
                return self._send(answer.status, list(answer.headers), body)
            self._send_head(answer.status, list(answer.headers), ("transfer-encoding", "chunked"))
            pieces = pump.with_comments(self.server.silence_s) if answer.is_event_stream else iter(pump.next, None)
            for piece in pieces:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            self.wfile.write(b"0\r\n\r\n")
        except (ConnectionError, TimeoutError):
            self.close_connection = True
            pump.drain()  # nobody reads any more; the turn is stored by running it to its end
        except Exception:
            # The status was sent long ago. A missing last chunk is how the reader learns of it, as on AWS.
            self.close_connection = True
            _log.exception("an answer failed after its first byte")
        return answer.status

    def _send(self, status: int, headers: list[tuple[str, str]], body: bytes) -> int:
        if _has_no_body(status):
            self._send_head(status, headers)
        else:
            self._send_head(status, headers, ("content-length", str(len(body))))
            if self.command != "HEAD":
                self.wfile.write(body)
        return status

    def _send_json(self, status: int, value: Any) -> int:
        headers = [("content-type", "application/json")]
        origin = self.headers.get("Origin")
        if origin in self.server.origins:
            headers += [("access-control-allow-origin", origin), ("vary", "Origin")]
        return self._send(status, headers, json.dumps(value).encode())

    def _send_head(self, status: int, headers: list[tuple[str, str]], framing: tuple[str, str] | None = None) -> None:
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        if framing is not None:
            self.send_header(*framing)
        if self.close_connection:
            self.send_header("connection", "close")
        self.end_headers()


def _has_no_body(status: int) -> bool:
    return status in (204, 304) or status < 200
