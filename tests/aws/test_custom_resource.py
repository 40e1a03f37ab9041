"""The index as a resource of a stack."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from agent_memory.aws.custom_resource import answer, is_request
from agent_memory.errors import ConfigurationError, UnavailableError


class Context:
    def __init__(self, seconds: float = 120) -> None:
        self.seconds = seconds

    def get_remaining_time_in_millis(self) -> int:
        return int(self.seconds * 1000)

    def sleep(self, seconds: float) -> None:
        self.seconds -= seconds


def request(kind: str, address: str = "https://answers.example/x", **more):
    fields = {"StackId": "arn:stack", "RequestId": "r1", "LogicalResourceId": "SearchIndex", **more}
    return {"RequestType": kind, "ResponseURL": address, **fields}


@pytest.mark.parametrize("kind", ["Create", "Update"])
def test_the_index_is_made_and_cloudformation_told(kind):
    sent = []
    told = answer(request(kind), Context(), lambda: "titan-1024", send=lambda url, body: sent.append((url, body)))
    assert sent == [("https://answers.example/x", json.dumps(told, separators=(",", ":")).encode())]
    assert told == {
        "Status": "SUCCESS",
        "PhysicalResourceId": "search-index",
        "StackId": "arn:stack",
        "RequestId": "r1",
        "LogicalResourceId": "SearchIndex",
        "Data": {"Index": "titan-1024"},
    }


def test_a_delete_touches_nothing_and_succeeds_whatever_state_the_search_service_is_in():
    def broken() -> str:
        raise AssertionError("a delete must not reach the service")

    told = answer(request("Delete"), Context(), broken, send=lambda *_: None)
    assert (told["Status"], told["PhysicalResourceId"]) == ("SUCCESS", "search-index")


def test_a_service_that_is_not_ready_is_asked_again_until_the_time_is_nearly_over():
    context, tries = Context(120), []

    def late() -> str:
        tries.append(context.seconds)
        if len(tries) < 4:
            raise UnavailableError("not yet")
        return "index"

    assert answer(request("Create"), context, late, sleep=context.sleep, send=lambda *_: None)["Status"] == "SUCCESS"
    assert tries == [120, 110, 100, 90]

    def never() -> str:
        raise UnavailableError("expected an answer, found none")

    told = answer(request("Create"), context, never, sleep=context.sleep, send=lambda *_: None)
    assert (told["Status"], told["Reason"]) == ("FAILED", "expected an answer, found none")
    assert context.seconds >= 20


def test_a_wrong_index_fails_the_deployment_at_once_with_both_names():
    def wrong() -> str:
        raise ConfigurationError("expected dimension 1024, found 768")

    context = Context()
    told = answer(request("Update"), context, wrong, sleep=context.sleep, send=lambda *_: None)
    assert (told["Status"], told["Reason"], context.seconds) == ("FAILED", "expected dimension 1024, found 768", 120)


def test_a_fault_of_ours_is_told_without_its_text():
    told = answer(request("Create"), Context(), lambda: 1 / 0, send=lambda *_: None)  # type: ignore[arg-type, return-value]
    assert (told["Status"], told["Reason"]) == ("FAILED", "ZeroDivisionError")


def test_the_answer_is_put_to_the_signed_address_without_a_content_type():
    seen = {}

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self):
            seen.update(path=self.path, type=self.headers.get("content-type"))
            seen["body"] = json.loads(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.handle_request)
    thread.start()
    answer(request("Create", f"http://127.0.0.1:{server.server_address[1]}/a?sig=1"), Context(), lambda: "i")
    thread.join()
    server.server_close()
    assert seen["path"] == "/a?sig=1"
    assert not seen["type"]
    assert seen["body"]["Status"] == "SUCCESS"


def test_only_requests_of_cloudformation_are_taken_for_such():
    assert is_request(request("Create"))
    assert not is_request({"Records": []})
    assert not is_request(None)
