"""What the HTTP layer does before any handler: events, bodies, CORS, methods, errors."""

from __future__ import annotations

import pytest

from agent_memory.http.routes import ROUTES
from tests.support.http_app import ORIGIN, event, event_v2

AGENT = {"agentId": "conformance"}
SAVE = "/api/memory/save-messages"


def saving(text):
    message = {"id": "m1", "role": "user", "content": text, "threadId": "t1", "resourceId": "ada"}
    return {"messages": [{**message, "createdAt": "2026-03-04T05:06:07.089Z"}]}


@pytest.mark.parametrize("text", ["plain", "ø漢😀"])
def test_base64_body_equals_the_plain_one_case_93(app, text):
    plain = app.call("POST", SAVE, query=AGENT, body=saving(text))
    encoded = app.call("POST", SAVE, query=AGENT, body=saving(text), encoded=True)
    assert plain.status == encoded.status == 200
    assert plain.json == encoded.json
    assert [said for _, said in app.said()] == [text]


@pytest.mark.parametrize("raw", [None, "", "[]", "null", "{", '"text"', "NaN", '{"messages": NaN}', "[" * 100_000])
def test_wrong_body_is_a_400_as_json_case_93(app, raw):
    answer = app.call("POST", SAVE, query=AGENT, raw=raw)
    assert answer.status == 400
    assert answer.json["error"] == "Invalid request body"
    assert answer.json["issues"][0]["field"] == "body" or answer.json["issues"][0]["field"].startswith("messages")


def test_wrong_base64_is_a_400_case_93(app):
    given = event("POST", SAVE, query=AGENT, raw="@@@")
    given["isBase64Encoded"] = True
    answer = app.handle(given)
    assert answer.status == 400 and answer.json["issues"][0]["field"] == "body"


def test_body_that_is_no_utf8_is_a_400_case_93(app):
    import base64

    given = event("POST", SAVE, query=AGENT)
    given |= {"body": base64.b64encode(b'{"messages": "\xff"}').decode(), "isBase64Encoded": True}
    assert app.handle(given).status == 400


def test_both_event_formats_and_paths_with_the_stage_are_taken(app):
    app.create("t 1")
    assert app.handle(event_v2("GET", "/api/memory/threads/t%201")).json["id"] == "t 1"
    assert app.handle(event_v2("GET", "/api/memory/threads", query={"resourceId": "ada"})).json["total"] == 1
    assert app.handle(event("GET", "/v1/api/memory/threads/t%201")).json["id"] == "t 1"
    assert app.handle(event("GET", "/api/memory/threads/t%201", stage="api")).json["id"] == "t 1"


def test_plus_in_a_path_is_a_plus_and_paths_are_decoded_once(app):
    app.create("a+b")
    app.create("100%25")
    assert app.get("/api/memory/threads/a+b").json["id"] == "a+b"
    assert app.get("/api/memory/threads/100%2525").json["id"] == "100%25"


def test_path_that_is_no_utf8_is_a_400(app):
    answer = app.get("/api/memory/threads/%ff")
    assert answer.status == 400 and answer.json["error"] == "Invalid path parameters"


def test_unknown_routes_are_404_and_other_methods_405(app):
    unknown = app.get("/api/nope")
    assert unknown.status == 404 and unknown.json["error"]
    wrong = app.call("PUT", "/api/memory/threads/t1")
    assert wrong.status == 405 and "PATCH" in wrong.headers["allow"]


@pytest.mark.parametrize(
    "path",
    [
        "generate-legacy",
        "stream-legacy",
        "network",
        "observe",
        "recover",
        "instructions/enhance",
        "voice/speak",
        "clone",
    ],
)
def test_routes_outside_the_scope_are_answered_quickly(app, path):
    answer = app.post(f"/api/agents/conformance/{path}", {"messages": "hi"})
    assert answer.status in (404, 501) and answer.json["error"]


def test_unknown_keys_are_ignored_everywhere(app):
    app.create("t1", madeUp=True)
    assert app.get("/api/memory/threads/t1", madeUp="yes", versionId="v", status="draft").status == 200


@pytest.mark.parametrize("context", ["eyJhIjoxfQ==", "not base64!", "bm90IGpzb24=", ""])
def test_request_context_never_fails_a_call(app, context):
    app.create("t1")
    assert app.get("/api/memory/threads/t1", requestContext=context).status == 200


def test_too_large_a_body_is_413_with_advice_case_97(app):
    body = {"messages": "x" * (7 * 1024 * 1024)}
    answer = app.post("/api/agents/conformance/generate", body)
    assert answer.status == 413 and "only new messages" in answer.json["error"]


def test_five_megabytes_are_taken(app):
    text = "x" * (5 * 1024 * 1024 - 2000)
    answer = app.post("/api/agents/forgetful/generate", {"messages": [{"role": "user", "content": "say ok " + text}]})
    assert answer.status == 200


@pytest.mark.parametrize("path", sorted({route.pattern.translate({123: None, 125: None}) for route in ROUTES}))
def test_preflight_is_answered_on_each_route_case_94(app, path):
    answer = app.call(
        "OPTIONS", path, headers={"origin": ORIGIN, "access-control-request-headers": "content-type,x-custom"}
    )
    assert answer.status == 204 and answer.body == b""
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    assert answer.headers["access-control-allow-credentials"] == "true"
    allowed = answer.headers["access-control-allow-headers"]
    assert "content-type" in allowed and "authorization" in allowed and "x-custom" in allowed
    for method in ("GET", "POST", "PATCH", "DELETE"):
        assert method in answer.headers["access-control-allow-methods"]
    foreign = app.call("OPTIONS", path, headers={"origin": "https://evil.example"})
    assert not [name for name in foreign.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/memory/threads?", 200),
        ("POST", "/api/memory/threads", 400),
        ("GET", "/api/memory/threads/none", 404),
        ("PUT", "/api/memory/threads", 405),
        ("GET", "/nowhere", 404),
        ("POST", "/api/agents/conformance/generate", 500),
    ],
)
def test_cors_headers_are_on_every_answer_case_94(app, method, path, status):
    body = {"messages": "fail boom"} if status == 500 else None
    answer = app.call(method, path.rstrip("?"), headers={"Origin": ORIGIN}, body=body)
    assert answer.status == status
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    assert answer.headers["vary"] == "Origin"
    foreign = app.call(method, path.rstrip("?"), headers={"Origin": "https://evil.example"}, body=body)
    assert "access-control-allow-origin" not in foreign.headers


def test_cors_headers_are_on_401_and_413_case_94(signed_in):
    signed_in.authorizer = {}
    refused = signed_in.call("GET", "/api/memory/threads", headers={"origin": ORIGIN})
    assert refused.status == 401 and refused.headers["access-control-allow-origin"] == ORIGIN
    signed_in.authorizer = {"resourceId": "ada"}
    raw = "x" * (7 * 1024 * 1024)
    large = signed_in.call("POST", "/api/memory/threads", headers={"origin": ORIGIN}, raw=raw)
    assert large.status == 413 and large.headers["access-control-allow-origin"] == ORIGIN


def test_unexpected_error_tells_nothing_of_itself(app, monkeypatch, caplog):
    words = " ".join(["secret", "words"])

    def explode(*_args, **_kwargs):
        raise RuntimeError(words)

    monkeypatch.setattr(app.deployment.store, "owner_of", explode)
    answer = app.get("/api/memory/threads/t1")
    assert answer.status == 500
    assert answer.json == {"error": "Internal error", "code": "INTERNAL"}
    line = next(record for record in caplog.records if record.getMessage() == "a call failed unexpectedly")
    assert (line.error, line.places[-1].rpartition(" ")[2]) == ("RuntimeError", "explode")
    assert words not in str([vars(record) for record in caplog.records])


def test_health_needs_no_identity(signed_in):
    signed_in.authorizer = {}
    assert signed_in.get("/health").json == {"status": "ok"}
