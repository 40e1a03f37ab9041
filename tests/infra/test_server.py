"""The local front door, over real sockets."""

from __future__ import annotations

import http.client
import itertools
import json
import socket
import time
from dataclasses import dataclass, field
from typing import Any

import pytest

from infra.local.gateway import Routes
from infra.local.server import PortInUseError, Server
from infra.local.template import RouteSpec


@dataclass
class Response:
    status: int
    body: Any = b""
    headers: dict[str, str] = field(default_factory=lambda: {"content-type": "text/event-stream"})


class App:
    """Two functions: Chat streams what it is told to, Memory echoes its event."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    def __call__(self, function: str, event: dict[str, Any]) -> Any:
        if function == "Memory":
            if "fail" in event["path"]:
                raise RuntimeError("inside")
            return {"statusCode": 200, "headers": {"content-type": "application/json"}, "body": json.dumps(event)}
        return getattr(self, event["path"].rsplit("/", 1)[-1])()

    def slow(self) -> Response:
        def body():
            for number in range(4):
                yield f"data: {number}\n\n".encode()
                time.sleep(0.3)
            self.ended.append("slow")

        return Response(200, body())

    def silent(self) -> Response:
        def body():
            yield b"data: 0\n\n"
            time.sleep(0.8)
            yield b"data: 1\n\n"

        return Response(200, body())

    def broken(self) -> Response:
        def body():
            yield b"data: 0\n\n"
            raise RuntimeError("inside")

        return Response(200, body())

    def nothing(self) -> Response:
        return Response(204, b"", {})

    def json(self) -> Response:
        return Response(400, b'{"error":"no"}', {"content-type": "application/json"})


@pytest.fixture
def app():
    return App()


@pytest.fixture
def server(app):
    routes = [
        RouteSpec("GET", "/api/agents/{proxy+}", "Chat", True),
        RouteSpec("GET", "/api/{proxy+}", "Memory", False),
        RouteSpec("POST", "/api/{proxy+}", "Memory", False),
    ]
    server = Server(0, Routes(routes), app, health=lambda: {"status": "ok"}, silence_s=0.2)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def connection(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=10)
    yield connection
    connection.close()


def ask(connection, method, path, body=None, headers=None):
    connection.request(method, path, body=body, headers=headers or {})
    answer = connection.getresponse()
    return answer, answer.read()


def test_events_arrive_one_by_one_as_they_are_made(connection):
    connection.request("GET", "/api/agents/slow")
    answer = connection.getresponse()
    times = []
    while line := answer.readline():
        if line.startswith(b"data:"):
            times.append(time.monotonic())

    assert answer.headers["transfer-encoding"] == "chunked"
    assert len(times) == 4
    assert min(later - earlier for earlier, later in itertools.pairwise(times)) > 0.1


def test_a_silent_stream_gets_comments(connection):
    _, body = ask(connection, "GET", "/api/agents/silent")

    assert body.startswith(b"data: 0\n\n: keep-alive\n\n")
    assert body.endswith(b"data: 1\n\n")


def test_a_stream_that_fails_is_cut_short(connection):
    connection.request("GET", "/api/agents/broken")
    answer = connection.getresponse()

    with pytest.raises(http.client.IncompleteRead) as caught:
        answer.read()
    assert caught.value.partial == b"data: 0\n\n"


def test_an_answer_runs_to_its_end_when_its_reader_goes_away(server, app):
    with socket.create_connection(server.server_address[:2]) as client:
        client.sendall(b"GET /api/agents/slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
        client.recv(10)
    end = time.monotonic() + 60
    while not app.ended and time.monotonic() < end:
        time.sleep(0.05)

    assert app.ended == ["slow"]


def test_answers_without_a_body_keep_the_connection(connection):
    answer, body = ask(connection, "GET", "/api/agents/nothing")
    after, _ = ask(connection, "GET", "/health")

    assert (answer.status, body, answer.headers["content-length"]) == (204, b"", None)
    assert after.status == 200


def test_json_of_a_streaming_route_has_its_status(connection):
    answer, body = ask(connection, "GET", "/api/agents/json")

    assert (answer.status, body) == (400, b'{"error":"no"}')


def test_a_chunked_request_body_is_read(connection):
    connection.request(
        "POST",
        "/api/x",
        body=iter([b'{"a":', b'"\xc3\xb8"}']),
        encode_chunked=True,
        headers={"Transfer-Encoding": "chunked"},
    )
    event = json.loads(connection.getresponse().read())

    assert event["body"] == '{"a":"ø"}'


def test_bodies_over_the_clouds_limits_are_refused_as_there(connection):
    over_lambda, body = ask(connection, "POST", "/api/x", b"x" * (6 * 1024 * 1024 + 1))
    connection.close()
    over_gateway, _ = ask(connection, "POST", "/api/x", b"x" * (10 * 1024 * 1024 + 1))

    assert (over_lambda.status, over_gateway.status) == (413, 413)
    assert json.loads(body) == {"error": "Request Too Long"}


@pytest.mark.parametrize(("origin", "named"), [("https://app.example", True), ("https://other.example", False)])
def test_what_the_front_door_refuses_by_itself_can_be_read_by_the_pages_that_may_call(app, origin, named):
    server = Server(
        0, Routes([RouteSpec("POST", "/api/{proxy+}", "Memory", False)]), app, origins=["https://app.example"]
    )
    server.start()
    try:
        for method, path, body, status in (
            ("POST", "/api/x", b"x" * (6 * 1024 * 1024 + 1), 413),
            ("POST", "/api/x", b"x" * (10 * 1024 * 1024 + 1), 413),
            ("GET", "/nowhere", None, 404),
        ):
            connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=10)
            answer, _ = ask(connection, method, path, body, headers={"Origin": origin})
            connection.close()
            assert answer.status == status
            assert answer.headers["access-control-allow-origin"] == (origin if named else None)
            assert answer.headers["vary"] == ("Origin" if named else None)
    finally:
        server.stop()


def test_a_failing_function_is_a_502_without_its_text(connection):
    answer, body = ask(connection, "GET", "/api/fail")

    assert answer.status == 502
    assert b"inside" not in body


def test_unknown_routes_are_json_404s(connection):
    answer, body = ask(connection, "GET", "/nowhere")

    assert (answer.status, json.loads(body)) == (404, {"error": "Not found"})


def test_a_page_of_another_name_that_points_here_is_refused(connection):
    answer, _ = ask(connection, "GET", "/health", headers={"Host": "evil.example"})

    assert answer.status == 421


def test_a_busy_port_gives_one_sentence_that_says_what_to_do(server):
    port = server.server_address[1]

    with pytest.raises(PortInUseError, match=f"expected port {port} to be free.*make dev PORT="):
        Server(port, Routes([]), lambda *_: None)


def test_stopping_waits_for_running_answers(server, app):
    with socket.create_connection(server.server_address[:2]) as client:
        client.sendall(b"GET /api/agents/slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
        client.recv(10)
        assert server.stop() is True

    assert app.ended == ["slow"]


def test_it_listens_on_loopback_only(server):
    assert server.server_address[0] == "127.0.0.1"
