"""Routes and events as API Gateway makes them."""

from __future__ import annotations

import base64

import pytest

from infra.local.gateway import Routes, proxy_event
from infra.local.template import RouteSpec

ROUTES = Routes(
    [
        RouteSpec("GET", "/api/{proxy+}", "Memory", False),
        RouteSpec("GET", "/api/agents", "Chat", True),
        RouteSpec("GET", "/api/agents/{proxy+}", "Chat", True),
        RouteSpec("POST", "/chat/{agentId}", "Chat", True),
    ]
)


@pytest.mark.parametrize(
    ("method", "path", "served_by", "parameters"),
    [
        ("GET", "/api/agents", "/api/agents", {}),
        ("GET", "/api/agents/helper/tools/x", "/api/agents/{proxy+}", {"proxy": "helper/tools/x"}),
        ("GET", "/api/memory/threads/a%2Fb", "/api/{proxy+}", {"proxy": "memory/threads/a%2Fb"}),
        ("POST", "/chat/caf%C3%A9%20x", "/chat/{agentId}", {"agentId": "caf%C3%A9%20x"}),
    ],
)
def test_the_most_literal_route_serves(method, path, served_by, parameters):
    match = ROUTES.find(method, path)

    assert match is not None
    assert (match.route.path, match.parameters) == (served_by, parameters)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/agents"),
        ("GET", "/"),
        ("GET", "/api"),
        ("GET", "/api/"),
        ("POST", "/chat"),
        ("POST", "/chat/a/b"),
    ],
)
def test_what_no_route_names_is_not_served(method, path):
    assert ROUTES.find(method, path) is None


def event(target, headers=(), body=b""):
    match = ROUTES.find("GET", target.partition("?")[0])
    return proxy_event(match, target, headers, body, source_ip="127.0.0.1")


def test_queries_are_decoded_and_every_value_is_kept():
    found = event("/api/memory/x?orderBy%5Bfield%5D=createdAt&a=1&a=2&plus=a+b&empty=&t=%E6%BC%A2")

    assert found["queryStringParameters"] == {
        "orderBy[field]": "createdAt",
        "a": "2",
        "plus": "a b",
        "empty": "",
        "t": "漢",
    }
    assert found["multiValueQueryStringParameters"]["a"] == ["1", "2"]
    assert found["path"] == "/api/memory/x"


def test_a_request_without_query_or_body_has_nulls_as_on_aws():
    found = event("/api/memory/x")

    assert found["queryStringParameters"] is None
    assert found["multiValueQueryStringParameters"] is None
    assert found["body"] is None
    assert found["isBase64Encoded"] is False


def test_text_travels_as_text_and_bytes_as_base64_case_93():
    assert event("/api/memory/x", body="ø漢😀".encode())["body"] == "ø漢😀"
    binary = event("/api/memory/x", body=b"\xff\x00")

    assert binary["isBase64Encoded"] is True
    assert base64.b64decode(binary["body"]) == b"\xff\x00"


def test_repeated_headers_are_kept():
    found = event("/api/memory/x", [("X-A", "1"), ("X-A", "2")])

    assert found["headers"]["X-A"] == "2"
    assert found["multiValueHeaders"]["X-A"] == ["1", "2"]
