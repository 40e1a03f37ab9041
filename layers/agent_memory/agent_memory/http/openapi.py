"""The API's description (OpenAPI 3.1), written from the route table."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from agent_memory.http.call import Call
from agent_memory.http.router import Route
from agent_memory.http.routes import ROUTES
from agent_memory.http.shapes import Id, JsonText, Shape

_ERROR: Final = {
    "type": "object",
    "properties": {
        "error": {"type": "string"},
        "code": {"type": "string"},
        "issues": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"field": {"type": "string"}, "message": {"type": "string"}},
                "required": ["field", "message"],
            },
        },
    },
    "required": ["error"],
}
_ANSWERS: Final = {
    "json": {"application/json": {"schema": {}}},
    "events": {"text/event-stream": {"schema": {"type": "string"}}},
    "ui-events": {"text/event-stream": {"schema": {"type": "string"}}},
}


def document(_call: Call) -> Any:
    """The description."""
    return describe()


@cache
def describe() -> dict[str, Any]:
    """The description as an object."""
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.pattern, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "agent-memory",
            "version": "1",
            "description": "Memory for AI agents: threads, messages, recall, working memory, and runs of agents.",
        },
        "paths": paths,
        "components": {"schemas": {"Error": _ERROR}},
    }


def _operation(route: Route) -> dict[str, Any]:
    responses: dict[str, Any] = {
        "200": {"description": "OK", "content": _ANSWERS.get(route.answer, {})},
        "4XX": {
            "description": "Refused; a repeat does not help",
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
        },
        "5XX": {
            "description": "The model or the platform failed",
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
        },
    }
    if route.answer == "redirect":
        responses["302"] = {"description": "Found", "headers": {"location": {"schema": {"type": "string"}}}}
        del responses["200"]
    always_a_job = route.handler.startswith("personal_data:")
    if always_a_job or route.handler in ("threads:clone_thread", "threads:transfer_thread"):
        responses["202"] = {"description": "Left to the job whose id it carries", "content": _ANSWERS["json"]}
    if always_a_job:
        del responses["200"]
    if route.handler == "chat:resume_chat":
        responses["204"] = {"description": "Nothing runs"}
    operation: dict[str, Any] = {
        "summary": route.summary,
        "operationId": f"{route.method.lower()}{route.pattern}".translate(_NAMES),
        "tags": ["chat" if route.function == "chat" else "memory"],
        "parameters": [
            *(_parameter(name, Id(), "path") for name in route.params),
            *(_parameter(name, shape, "query", name in route.required) for name, shape in route.query.items()),
        ],
        "responses": responses,
    }
    if route.once:
        operation["parameters"].append(
            {
                "name": "Idempotency-Key",
                "in": "header",
                "required": False,
                "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
            }
        )
    if route.body is not None:
        content: dict[str, Any] = {"schema": route.body.schema()}
        if route.examples:
            content["examples"] = {f"example{n}": {"value": dict(v)} for n, v in enumerate(route.examples, 1)}
        operation["requestBody"] = {"required": route.body_required, "content": {"application/json": content}}
    return operation


def _parameter(name: str, shape: Shape, place: str, required: bool = True) -> dict[str, Any]:
    described = {"name": name, "in": place, "required": required, "schema": shape.schema()}
    if isinstance(shape, JsonText):
        described["description"] = "JSON text"
    return described


_NAMES: Final = str.maketrans({"/": "_", "{": "", "}": "", "-": "_", ".": "_"})
