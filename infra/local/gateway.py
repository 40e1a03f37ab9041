"""What API Gateway does to a request: finds the route and writes the proxy event (payload 1.0)."""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from infra.local.template import RouteSpec

STAGE = "local"
API = "local"
ACCOUNT = "000000000000"


@dataclass(frozen=True)
class Match:
    """A route and the values of its path parameters, percent-encoded as they came."""

    route: RouteSpec
    parameters: dict[str, str]


class Routes:
    """The API's routes. A literal segment wins over a parameter, a parameter over ``{proxy+}``."""

    def __init__(self, routes: Sequence[RouteSpec]) -> None:
        self._routes = routes

    def find(self, method: str, path: str) -> Match | None:
        """The route that serves a request, or None."""
        segments = path.strip("/").split("/")
        matches = []
        for route in self._routes:
            if route.method == method:
                found = _match(route.path.strip("/").split("/"), segments)
                if found is not None:
                    matches.append((found[0], Match(route, found[1])))
        return min(matches, key=lambda match: match[0])[1] if matches else None


def _match(pattern: list[str], segments: list[str]) -> tuple[tuple[int, ...], dict[str, str]] | None:
    rank: list[int] = []
    parameters: dict[str, str] = {}
    for index, part in enumerate(pattern):
        if part.endswith("+}"):
            rest = segments[index:]
            if not rest or not rest[0]:
                return None
            parameters[part[1:-2]] = "/".join(rest)
            return (*rank, 2), parameters
        if index >= len(segments):
            return None
        if part.startswith("{"):
            if not segments[index]:
                return None
            parameters[part[1:-1]] = segments[index]
            rank.append(1)
        elif part == segments[index]:
            rank.append(0)
        else:
            return None
    return (tuple(rank), parameters) if len(pattern) == len(segments) else None


def proxy_event(
    match: Match,
    target: str,
    headers: Iterable[tuple[str, str]],
    body: bytes,
    *,
    source_ip: str,
    authorizer: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The event of a request whose request line named `target` (path and query).

    `authorizer` is what the route's authorizer said about the caller.
    """
    path, _, query = target.partition("?")
    single: dict[str, str] = {}
    many: dict[str, list[str]] = {}
    for name, value in headers:
        single[name] = value
        many.setdefault(name, []).append(value)
    values: dict[str, list[str]] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        values.setdefault(name, []).append(value)
    try:
        text, encoded = body.decode("utf-8"), False
    except UnicodeDecodeError:
        text, encoded = base64.b64encode(body).decode("ascii"), True
    now = time.time()
    return {
        "resource": match.route.path,
        "path": path,
        "httpMethod": match.route.method,
        "headers": single,
        "multiValueHeaders": many,
        "queryStringParameters": {name: found[-1] for name, found in values.items()} or None,
        "multiValueQueryStringParameters": values or None,
        "pathParameters": match.parameters or None,
        "stageVariables": None,
        "requestContext": {
            "accountId": ACCOUNT,
            "apiId": API,
            "stage": STAGE,
            "resourcePath": match.route.path,
            "path": f"/{STAGE}{path}",
            "httpMethod": match.route.method,
            "protocol": "HTTP/1.1",
            "requestId": str(uuid.uuid4()),
            "requestTimeEpoch": int(now * 1000),
            "identity": {
                "sourceIp": source_ip,
                "userAgent": single.get("user-agent") or single.get("User-Agent"),
                "userArn": None if authorizer is not None else f"arn:aws:iam::{ACCOUNT}:user/local",
            },
            **({} if authorizer is None else {"authorizer": dict(authorizer)}),
        },
        "body": text if body else None,
        "isBase64Encoded": encoded,
    }
