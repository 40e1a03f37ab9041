"""The one place where errors become answers."""

from __future__ import annotations

import logging
from typing import Any, Final

from agent_memory import observe
from agent_memory.errors import AccessDeniedError, AgentMemoryError, InvalidInputError, NotFoundError
from agent_memory.http.response import Response
from agent_memory.http.router import MethodNotAllowedError
from agent_memory.http.shapes import RequestError

_log = logging.getLogger("agent_memory.http")

_TITLES: Final = {
    "body": "Invalid request body",
    "query": "Invalid query parameters",
    "path": "Invalid path parameters",
}
# The library's names of fields, where the wire has others
_WIRE_NAMES: Final = {
    "date_range": "dateRange",
    "expires_at": "expiresAt",
    "message_ids": "messageIds",
    "new_resource_id": "resourceId",
    "new_thread_id": "newThreadId",
    "order_by": "orderBy",
    "per_page": "perPage",
    "resource_id": "resourceId",
    "thread_id": "threadId",
    "vector_search_string": "searchQuery",
}


def to_response(error: Exception, *, method: str = "POST", signed_in: bool = False) -> Response:
    """The answer to an error.

    Args:
        error: What was raised.
        method: Of the request: calls without a body have wrong fields in their query.
        signed_in: Whether the caller is an end user, for whom what belongs to others does not exist.
    """
    if isinstance(error, InvalidInputError):
        where = "query" if error.where == "body" and method in ("GET", "DELETE") else error.where
        issues = error.issues if isinstance(error, RequestError) else ((error.field, error.detail),)
        body: dict[str, Any] = {
            "error": _TITLES[where],
            "issues": [{"field": wire_name(field), "message": message} for field, message in issues],
        }
        if error.code != InvalidInputError.default_code:
            body["code"] = error.code
        return Response.json(body, 400)
    if signed_in and _tells_of_others(error):
        error = NotFoundError("Thread not found", code="THREAD_NOT_FOUND")
    if not isinstance(error, AgentMemoryError):
        return _unexpected(error)
    headers: dict[str, str] = {}
    retry_after_s = getattr(error, "retry_after_s", None)
    if retry_after_s is not None:
        headers["retry-after"] = str(retry_after_s)
    if isinstance(error, MethodNotAllowedError):
        headers["allow"] = ", ".join(error.allowed)
    content: dict[str, Any] = {"error": error.message, "code": error.code}
    current = getattr(error, "current", None)
    if current is not None:
        content["current"] = current
    return Response.json(content, error.status, headers)


def _unexpected(error: Exception) -> Response:
    _log.error("a call failed unexpectedly", extra=observe.described(error))
    return Response.json({"error": "Internal error", "code": "INTERNAL"}, 500)


def wire_name(field: str) -> str:
    """A dotted field as callers know it. Keys of metadata are the application's own and stay."""
    named, metadata, rest = field.partition(".metadata.")
    return ".".join(_WIRE_NAMES.get(part, part) for part in named.split(".")) + metadata + rest


def _tells_of_others(error: Exception) -> bool:
    """Whether an error tells an end user that something of somebody else's exists."""
    return isinstance(error, AccessDeniedError) and error.code == AccessDeniedError.default_code
