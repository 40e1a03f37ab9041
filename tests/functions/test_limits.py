"""Limits as a caller meets them: through the deployed handlers, with a look that nothing was written."""

from __future__ import annotations

import base64
import importlib.util
import json

import pytest

from infra.local.template import ROOT
from streaming_runtime import Streamed
from tests.support.http_app import Answer, Tables, event, serve

AGENT = {"agentId": "assistant"}
SAVE = "/api/memory/save-messages"
THREADS = "/api/memory/threads"
PICTURE_BYTES = 1_500_000


def load(name):
    spec = importlib.util.spec_from_file_location(f"{name}_limits", ROOT / "functions" / name / "app.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.handler


@pytest.fixture(scope="module")
def shared_tables():
    made = Tables()
    yield made
    made.stop()


@pytest.fixture
def app(shared_tables):
    with serve(shared_tables) as app:
        yield app


@pytest.fixture(scope="module")
def ask():
    """Calls a function's handler with a proxy event."""
    handlers = {name: load(name) for name in ("chat", "memory")}

    def call(name, method, path, **more):
        streamed = Streamed.of(handlers[name](event(method, path, **more), None))
        return Answer(streamed.status, dict(streamed.headers), b"".join(streamed.body))

    return call


def everything(app):
    """All items of all tables."""
    tables = ("threads", "messages", "runs", "claims")
    return {table: sorted(json.dumps(row, sort_keys=True, default=str) for row in app.rows(table)) for table in tables}


@pytest.mark.parametrize(
    ("method", "path", "query", "body"),
    [
        ("GET", THREADS, {"resourceId": "ada", "perPage": "-1"}, None),
        ("GET", THREADS, {"resourceId": "ada", "perPage": "1000000000"}, None),
        ("GET", THREADS, {"resourceId": "ada", "perPage": "abc"}, None),
        ("GET", THREADS, {"resourceId": "ada", "page": "-1"}, None),
        ("GET", f"{THREADS}/t1/messages", {"perPage": "-1"}, None),
        ("GET", f"{THREADS}/t1/messages", {"perPage": "1000000000"}, None),
        ("GET", f"{THREADS}/t1/messages", {"page": "-1"}, None),
        ("GET", f"{THREADS}/t1/messages", {"page": "1e3"}, None),
        ("GET", f"{THREADS}/t1/messages", {"perPage": "false"}, None),
        ("POST", THREADS, {}, {"resourceId": "ada", "threadId": "t2", "title": "x" * 10_000}),
        ("POST", THREADS, {}, {"resourceId": "ada", "threadId": "t2", "metadata": {"a": "x" * 1_000_000}}),
        ("PATCH", f"{THREADS}/t1", {}, {"title": "x" * 10_000}),
        ("PATCH", f"{THREADS}/t1", {}, {"metadata": {"a": "x" * 1_000_000}}),
        ("POST", SAVE, {}, {"messages": [{"id": "x" * 513, "threadId": "t1", "resourceId": "ada", "content": "a"}]}),
        ("POST", SAVE, {}, {"messages": [{"id": "m", "threadId": "t1", "resourceId": "ada", "role": "pope"}]}),
        ("POST", f"{THREADS}/t1/working-memory", {}, {"resourceId": "ada", "workingMemory": 7}),
    ],
)
def test_what_is_over_a_limit_is_refused_and_writes_nothing_case_104(app, ask, method, path, query, body):
    app.create("t1", "ada")
    before = everything(app)

    answer = ask("memory", method, path, query={"agentId": "conformance", **query}, body=body)

    assert 400 <= answer.status < 500, answer.body
    assert answer.json["error"]
    assert everything(app) == before


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/agents/conformance/generate", {"messages": "hi", "maxSteps": 1_000_000}),
        ("/api/agents/conformance/stream", {"messages": "hi", "memory": {"thread": "x" * 513, "resource": "ada"}}),
        ("/api/agents/conformance/stream", {"messages": 7, "memory": {"thread": "t1", "resource": "ada"}}),
        ("/api/chat", {"id": "", "resourceId": "ada", "messages": []}),
        ("/api/chat", {"id": "t1", "resourceId": "", "messages": [{"id": "u1", "role": "user", "parts": []}]}),
    ],
)
def test_a_turn_over_a_limit_is_refused_before_its_first_byte_and_writes_nothing_case_104(app, ask, path, body):
    before = everything(app)

    answer = ask("chat", "POST", path, body=body)

    assert 400 <= answer.status < 500, answer.body
    assert answer.json["error"]
    assert everything(app) == before


def test_unknown_fields_are_left_alone_and_not_stored_case_104(app, ask):
    """Clients send fields of their own, and newer ones more of them; refusing them would break a client with each release."""
    given = {"resourceId": "ada", "threadId": "t1", "admin": True, "__proto__": {"owner": "bob"}}

    answer = ask("memory", "POST", THREADS, query={"agentId": "conformance"}, body=given)

    assert answer.status == 200
    assert "bob" not in str(everything(app))
    assert "admin" not in str(everything(app))


@pytest.mark.parametrize("raw", [None, "", "[]", "null", "{", "7"])
def test_a_body_that_is_none_is_a_400_of_both_functions_case_93(app, ask, raw):
    for name, path in (("memory", SAVE), ("chat", "/api/chat"), ("chat", "/api/agents/conformance/stream")):
        answer = ask(name, "POST", path, query={"agentId": "conformance"}, raw=raw)
        assert answer.status == 400, (path, answer.body)
        assert answer.json["error"]


@pytest.mark.parametrize(
    ("path", "query", "status"),
    [
        (THREADS, {"perPage": "0"}, (200, 400)),
        (THREADS, {"perPage": "false"}, (200, 400)),
        (THREADS, {"page": "1e3"}, (400,)),
        (f"{THREADS}/t1/messages", {"perPage": "0"}, (200, 400)),
        (f"{THREADS}/t1/messages", {"perPage": "abc"}, (400,)),
    ],
)
def test_odd_page_parameters_never_fail_the_function_case_93(app, ask, path, query, status):
    app.create("t1", "ada")
    answer = ask("memory", "GET", path, query={"agentId": "conformance", "resourceId": "ada", **query})
    assert answer.status in status, answer.body


def picture(number):
    return "data:image/png;base64," + base64.b64encode(bytes([number]) * PICTURE_BYTES).decode()


def asking(number, *, url):
    parts = [{"type": "text", "text": "say seen"}, {"type": "file", "mediaType": "image/png", "url": url}]
    return {"id": f"u{number}", "role": "user", "parts": parts}


def test_pictures_that_a_page_sends_again_and_again_end_in_advice_not_in_a_dead_thread_case_97(app, ask):
    """The page keeps the pictures as data and echoes all of them; from the third one on its body is too large."""
    body = {"id": "t1", "agentId": "conformance", "resourceId": "ada"}
    sent, statuses = [], []
    for number in range(5):
        message = asking(number, url=picture(number))
        answer = ask("chat", "POST", "/api/chat", body={**body, "messages": [*sent, message]})
        statuses.append(answer.status)
        if answer.status == 413:
            assert "send only new messages" in answer.json["error"]
            answer = ask("chat", "POST", "/api/chat", body={**body, "messages": [message]})
            assert answer.status == 200
        assert answer.said == "seen"
        sent.append(message)
    assert statuses == [200, 200, 413, 413, 413]
    stored = ask("memory", "GET", f"{THREADS}/t1/messages", query={"agentId": "conformance", "resourceId": "ada"})
    assert [message["role"] for message in stored.json["messages"]] == ["user", "assistant"] * 5

    large = asking(9, url="data:image/png;base64," + "A" * 8_000_000)
    refused = ask("chat", "POST", "/api/chat", body={**body, "messages": [large]})
    assert refused.status == 413 and "upload" in refused.json["error"]
    assert ask("chat", "POST", "/api/chat", body={**body, "messages": [asking(10, url=picture(10))]}).said == "seen"


def test_a_thread_that_is_far_larger_than_an_answer_is_read_page_by_page_case_96(app, ask):
    """120 messages of 50 KB: where Lambda answers with 6 MB at most, and the gateway with an error that tells nothing."""
    for start in range(0, 120, 40):
        given = [
            {"id": f"m{n}", "role": "user", "content": "x" * 50_000, "threadId": "t1", "resourceId": "ada"}
            for n in range(start, start + 40)
        ]
        answer = ask("memory", "POST", SAVE, query={"agentId": "conformance"}, body={"messages": given})
        assert answer.status == 200
    path, query = f"{THREADS}/t1/messages", {"agentId": "conformance", "resourceId": "ada", "perPage": "200"}
    assert ask("memory", "GET", path, query={**query, "page": "0"}).status == 413
    seen = []
    while True:
        page = ask("memory", "GET", path, query=query)
        assert page.status == 200
        assert len(page.body) <= 5_767_168
        seen[:0] = [message["id"] for message in page.json["messages"]]
        if not page.json["hasMore"]:
            break
        query["cursor"] = page.json["nextCursor"]
    assert seen == [f"m{n}" for n in range(120)]
