"""A real HTTP server on a free local port that gives written-down answers in turn and keeps what it was asked."""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Canned:
    """One answer. `pieces` leave one by one, `pause_s` apart; `broken` ends the connection without the last chunk."""

    pieces: list[bytes] = field(default_factory=list)
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    pause_s: float = 0.0
    broken: bool = False
    chunked: bool = True


@dataclass
class Asked:
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int

    @property
    def json(self):
        return json.loads(self.body)


class _QuietServer(ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        pass  # a client that hangs up is what some tests are about


class CannedServer:
    def __init__(self) -> None:
        self.answers: list[Canned] = []
        self.asked: list[Asked] = []
        self.hung_up = threading.Event()
        self._http = _QuietServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=lambda: self._http.serve_forever(0.02), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(5)

    def _handler(server):
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                server.asked.append(Asked(self.path, headers, body, id(self.connection)))
                answer = server.answers.pop(0) if len(server.answers) > 1 else server.answers[0]
                try:
                    self._give(answer)
                except (BrokenPipeError, ConnectionResetError):
                    server.hung_up.set()
                    self.close_connection = True

            def _give(self, answer):
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                whole = b"".join(answer.pieces)
                if answer.chunked:
                    self.send_header("transfer-encoding", "chunked")
                else:
                    self.send_header("content-length", str(len(whole)))
                self.end_headers()
                for number, piece in enumerate(answer.pieces):
                    if number and answer.pause_s:
                        time.sleep(answer.pause_s)
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if answer.chunked else piece)
                    self.wfile.flush()
                if answer.broken:
                    self.close_connection = True
                elif answer.chunked:
                    self.wfile.write(b"0\r\n\r\n")

            def log_message(self, *args):
                pass

        return Handler


@contextmanager
def canned_server(*answers: Canned):
    server = CannedServer()
    server.answers = list(answers)
    try:
        yield server
    finally:
        server.close()
