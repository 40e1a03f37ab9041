"""The application: finds the route of a request, checks it, calls the handler, and answers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from agent_memory import observe, runtime
from agent_memory.acting import act_for, acting_for
from agent_memory.errors import AgentMemoryError, InvalidInputError, TooLargeError
from agent_memory.http.call import Call, deadline_of
from agent_memory.http.errors import to_response
from agent_memory.http.identity import TRUSTED, Identity, identify
from agent_memory.http.limits import MAX_KEY_CHARS
from agent_memory.http.permitted import check_route
from agent_memory.http.request import Request, header_of
from agent_memory.http.request_line import RequestLine, ids_of
from agent_memory.http.response import Response
from agent_memory.http.router import Route, Router
from agent_memory.http.shapes import read_body, read_query
from agent_memory.settings import Settings

ALLOWED_METHODS: Final = "GET, POST, PATCH, DELETE, OPTIONS"
ALLOWED_HEADERS: Final = "content-type, authorization, idempotency-key"
EXPOSED_HEADERS: Final = "retry-after, x-request-id"
_HEADER_NAMES: Final = re.compile(r"[A-Za-z0-9_\-]+(\s*,\s*[A-Za-z0-9_\-]+)*")
PREFLIGHT_SECONDS: Final = 600


class Application:
    """Serves routes.

    Args:
        routes: The route table, or the part of it that a function serves.
    """

    def __init__(self, routes: Sequence[Route]) -> None:
        self._router = Router(routes)

    def handle(self, event: Mapping[str, Any], context: Any = None) -> Response:
        """Answer an event of a front door. Never raises; a streamed body tells of its own failures.

        `context` is Lambda's; its remaining time bounds the runs that the call starts. Every answer names the id under
        which its log lines are found (`x-request-id`): the caller's own where it sent one.
        """
        ids = ids_of(event, context)
        with observe.scope(**ids), acting_for(None):
            line = RequestLine()
            response = self._handle(event, context, line)
            response.headers["x-request-id"] = ids["correlation_id"]
            return line.watch(response)

    def _handle(self, event: Mapping[str, Any], context: Any, line: RequestLine) -> Response:
        method, origin, identity = "POST", None, TRUSTED
        try:
            settings = runtime.deployment().settings
            origin = _origin(event, settings)
            request = Request.from_event(event)
            method = line.method = request.method
            if method == "OPTIONS":
                response = self._preflight(request, origin)
            else:
                route, params = self._router.match(request)
                line.route = route.pattern
                if not route.public:
                    identity = identify(settings.auth_mode, request.authorizer)
                    check_route(identity, route.handler)
                    act_for(identity.resource_id)
                response = _answer(_call(request, route, params, identity, settings, context))
        except Exception as error:
            line.code = error.code if isinstance(error, AgentMemoryError) else "INTERNAL"
            response = to_response(error, method=method, signed_in=not identity.trusted)
        _add_cors(response, origin)
        return response

    def _preflight(self, request: Request, origin: str | None) -> Response:
        """What a browser asks before a call from another origin. Reads and writes nothing."""
        if not self._router.find(request):
            self._router.match(request)
        response = Response.empty()
        if origin is not None:
            asked = request.header("access-control-request-headers") or ""
            more = f", {asked}" if _HEADER_NAMES.fullmatch(asked) and len(asked) <= 1000 else ""
            response.headers |= {
                "access-control-allow-methods": ALLOWED_METHODS,
                "access-control-allow-headers": ALLOWED_HEADERS + more,
                "access-control-max-age": str(PREFLIGHT_SECONDS),
            }
        return response


def _call(
    request: Request, route: Route, params: dict[str, str], identity: Identity, settings: Settings, context: Any
) -> Call:
    """Check everything that the route table describes."""
    if len(request.body) > settings.max_body_bytes:
        raise TooLargeError(
            f"expected a body of at most {settings.max_body_bytes} bytes, found {len(request.body)}; "
            "send only new messages, and upload large files first"
        )
    key = request.header("idempotency-key")
    if key is not None and not 1 <= len(key) <= MAX_KEY_CHARS:
        raise InvalidInputError("Idempotency-Key", f"expected 1 to {MAX_KEY_CHARS} characters, found {len(key)}")
    query = read_query(route.query, request.query, route.required)
    body: dict[str, Any] = {}
    if route.body is not None:
        value = request.json() if request.body.strip() or route.body_required else {}
        body = read_body(route.body, value)
    return Call(request, route, settings, identity, params, query, body, deadline_of(context, settings))


def _answer(call: Call) -> Response:
    handler = call.route.load()
    if call.route.once and call.idempotency_key is not None:
        from agent_memory.http.once import run_once

        return run_once(call, handler)
    value = handler(call)
    return value if isinstance(value, Response) else Response.json(value)


# ------------------------------------------------------------------------------------------------------------- CORS


def _origin(event: Mapping[str, Any], settings: Settings) -> str | None:
    """The origin of the calling page, if it is one of those that may call."""
    origin = header_of(event, "origin")
    return origin if origin in settings.cors_origins else None


def _add_cors(response: Response, origin: str | None) -> None:
    response.headers["vary"] = "Origin"
    if origin is not None:
        # Named, never `*`: calls carry credentials.
        response.headers |= {
            "access-control-allow-origin": origin,
            "access-control-allow-credentials": "true",
            "access-control-expose-headers": EXPOSED_HEADERS,
        }
