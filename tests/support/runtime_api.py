"""A stand-in for Lambda's Runtime API that hands out events and records, byte by byte, how they are answered."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import queue
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

NULS = b"\0" * 8


@dataclass
class Answer:
    """How one event was answered. `chunks` are transfer chunks with the time each arrived (monotonic seconds)."""

    request_id: str
    headers: dict[str, str] = field(default_factory=dict)
    chunks: list[tuple[float, bytes]] = field(default_factory=list)
    trailers: dict[str, str] = field(default_factory=dict)
    error: dict[str, Any] | None = None
    complete: bool = False
    done: threading.Event = field(default_factory=threading.Event)

    def wait(self, timeout_s: float = 20) -> Answer:
        """Wait until it is over."""
        assert self.done.wait(timeout_s), f"no answer to {self.request_id} within {timeout_s} s"
        return self

    @property
    def body(self) -> bytes:
        """All bytes sent."""
        return b"".join(data for _, data in self.chunks)

    @property
    def json(self) -> Any:
        """A buffered answer."""
        return json.loads(self.body)

    @property
    def prelude(self) -> dict[str, Any]:
        """Status and headers of a streamed answer."""
        return json.loads(self.body.split(NULS, 1)[0])

    @property
    def payload(self) -> bytes:
        """What follows the prelude of a streamed answer."""
        return self.body.split(NULS, 1)[1]

    @property
    def pieces(self) -> list[tuple[float, bytes]]:
        """The chunks after the prelude's."""
        return self.chunks[1:]

    @property
    def trailing_error(self) -> dict[str, Any]:
        """The error in the trailers."""
        return json.loads(base64.b64decode(self.trailers["lambda-runtime-function-error-body"]))


@dataclass
class _Pending:
    event: bytes
    headers: dict[str, str]
    answer: Answer
    hang_up_after: int | None


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: Any) -> None:
        """A process that was killed is no news."""


class RuntimeApiServer:
    """One function's Runtime API on loopback."""

    def __init__(self) -> None:
        self._pending: queue.Queue[_Pending | None] = queue.Queue()
        self._running: dict[str, _Pending] = {}
        self._numbers = itertools.count(1)
        self.init_error: dict[str, Any] | None = None
        self.init_failed = threading.Event()
        self.asked = threading.Event()  # the process has started and waits for events
        self.restores = 0
        self.restore = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def invoke(
        self,
        event: Any,
        *,
        timeout_s: float = 30,
        trace_id: str | None = None,
        hang_up_after: int | None = None,
    ) -> Answer:
        """Queue an event. `hang_up_after`: close the connection after that many chunks of the answer."""
        request_id = f"request-{next(self._numbers)}"
        headers = {
            "Content-Type": "application/json",  # the genuine client ignores an event without it
            "Lambda-Runtime-Aws-Request-Id": request_id,
            "Lambda-Runtime-Deadline-Ms": str(int((time.time() + timeout_s) * 1000)),
            "Lambda-Runtime-Invoked-Function-Arn": "arn:aws:lambda:eu-west-1:123456789012:function:chat",
        }
        if trace_id:
            headers["Lambda-Runtime-Trace-Id"] = trace_id
        answer = Answer(request_id)
        pending = _Pending(json.dumps(event).encode(), headers, answer, hang_up_after)
        self._running[request_id] = pending
        self._pending.put(pending)
        return answer

    def close(self) -> None:
        """Let a waiting runtime go and stop."""
        self._pending.put(None)
        self.restore.set()
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> RuntimeApiServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _handler(api: RuntimeApiServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *args: Any) -> None:
            pass

        def _answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            if self.path.endswith("/restore/next"):
                api.restores += 1
                api.restore.wait()
                self._answer(200)
                return
            assert self.path == "/2018-06-01/runtime/invocation/next", self.path
            api.asked.set()
            pending = api._pending.get()
            if pending is None:
                self.close_connection = True
                return
            with contextlib.suppress(OSError):
                self._answer(200, pending.event, pending.headers)

        def do_POST(self) -> None:
            path = self.path.removeprefix("/2018-06-01/runtime/")
            if path == "init/error":
                api.init_error = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                api.init_failed.set()
                self._answer(202)
                return
            _, request_id, kind = path.split("/")
            pending = api._running[request_id]
            answer = pending.answer
            answer.headers = {name.lower(): value for name, value in self.headers.items()}
            if self.headers.get("Transfer-Encoding") == "chunked":
                if not self._chunked(answer, pending.hang_up_after):
                    answer.done.set()
                    self.close_connection = True
                    return
            else:
                answer.chunks.append((time.monotonic(), self.rfile.read(int(self.headers["Content-Length"]))))
            if kind == "error":
                answer.error = answer.json
            answer.complete = True
            self._answer(202)
            answer.done.set()

        def _chunked(self, answer: Answer, hang_up_after: int | None) -> bool:
            while True:
                line = self.rfile.readline()
                if not line:
                    return False
                size = int(line, 16)
                if size == 0:
                    break
                answer.chunks.append((time.monotonic(), self.rfile.read(size)))
                assert self.rfile.read(2) == b"\r\n"
                if hang_up_after is not None and len(answer.chunks) >= hang_up_after:
                    return False
            while (line := self.rfile.readline().strip()) != b"":
                name, _, value = line.decode().partition(":")
                answer.trailers[name.strip().lower()] = value.strip()
            return True

    return Handler
