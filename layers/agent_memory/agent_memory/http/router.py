"""The route table's entries, and which of them a request means."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal

from agent_memory.errors import AgentMemoryError, NotFoundError
from agent_memory.http.shapes import Object, Shape

if TYPE_CHECKING:
    from agent_memory.http.call import Call
    from agent_memory.http.request import Request

Handler = Callable[["Call"], Any]
_PARAM: Final = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Route:
    """One route.

    Attributes:
        method: In upper case.
        pattern: Path with ``{name}`` for segments that vary.
        handler: ``module:function`` below `agent_memory.http`; imported when the route is first called, so that a cold start
            pays for the routes it serves and no others.
        summary: One line for the API description.
        function: Which deployed function serves it.
        query: Shapes of the query's keys.
        required: Keys that the query must have.
        body: Shape of the body; None: no body is read.
        body_required: Whether an empty body is refused; without it, it counts as an object without keys.
        answer: What a success carries: ``json``, ``events`` (agent chunks), ``ui-events`` (page chunks), ``empty``, or
            ``redirect`` (nothing, and a location).
        public: Whether it is answered without an identity.
        once: Whether `Idempotency-Key` is honoured.
        examples: Example bodies for the API description.
    """

    method: str
    pattern: str
    handler: str
    summary: str
    function: Literal["memory", "chat"] = "memory"
    query: Mapping[str, Shape] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    body: Object | None = None
    body_required: bool = True
    answer: Literal["json", "events", "ui-events", "empty", "redirect"] = "json"
    public: bool = False
    once: bool = False
    examples: tuple[Mapping[str, Any], ...] = ()

    @property
    def params(self) -> tuple[str, ...]:
        """Names of the segments that vary."""
        return tuple(_PARAM.findall(self.pattern))

    def load(self) -> Handler:
        """The handler."""
        module, _, function = self.handler.partition(":")
        handler: Handler = getattr(import_module(f"agent_memory.http.{module}"), function)
        return handler


class MethodNotAllowedError(AgentMemoryError):
    """The path is known and takes other methods (405)."""

    default_code = "METHOD_NOT_ALLOWED"
    status = 405

    def __init__(self, allowed: Iterable[str]) -> None:
        self.allowed = tuple(sorted({*allowed, "OPTIONS"}))
        super().__init__(f"expected one of the methods {', '.join(self.allowed)}")


class Router:
    """Finds routes by path and method. Fixed segments win over ``{…}``, earlier routes over later ones."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self.routes = tuple(routes)
        self._by_length: dict[int, list[tuple[tuple[str, ...], Route]]] = {}
        for route in routes:
            parts = tuple(route.pattern.split("/")[1:])
            self._by_length.setdefault(len(parts), []).append((parts, route))
        for found in self._by_length.values():
            found.sort(key=lambda item: [part.startswith("{") for part in item[0]])

    def match(self, request: Request) -> tuple[Route, dict[str, str]]:
        """The route of a request and its path parameters. Raises NotFoundError, MethodNotAllowedError."""
        found = self.find(request)
        for route, params in found:
            if route.method == request.method:
                return route, params
        if found:
            raise MethodNotAllowedError(route.method for route, _ in found)
        raise NotFoundError("Not found: this server has no such route", code="ROUTE_NOT_FOUND")

    def find(self, request: Request) -> list[tuple[Route, dict[str, str]]]:
        """All routes of a request's path, whatever its method, with and without the stage before it."""
        found = self._find(request.segments(request.path))
        prefix = f"/{request.stage}/"
        if not found and request.stage and request.path.startswith(prefix):
            found = self._find(request.segments(request.path[len(prefix) - 1 :]))
        return found

    def _find(self, segments: tuple[str, ...]) -> list[tuple[Route, dict[str, str]]]:
        found: list[tuple[Route, dict[str, str]]] = []
        winner: tuple[str, ...] | None = None
        for parts, route in self._by_length.get(len(segments), ()):
            if winner not in (None, parts):
                continue
            params: dict[str, str] = {}
            for part, segment in zip(parts, segments, strict=True):
                if part.startswith("{"):
                    params[part[1:-1]] = segment
                elif part != segment:
                    break
            else:
                winner = parts
                found.append((route, params))
        return found
