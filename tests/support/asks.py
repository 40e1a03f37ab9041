"""One example call for every route, with a marked place for each id that a caller can put anywhere."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent_memory.http.router import Route
from agent_memory.http.shapes import Either, Id, JsonText, List, Object, Shape
from tests.support.worlds import AGENT, WORD


@dataclass(frozen=True)
class Ref:
    """A place for an id of a kind (see `worlds.Owner.ids`)."""

    kind: str


THREAD, WAITING, RESOURCE, MESSAGE = Ref("thread"), Ref("waiting"), Ref("resource"), Ref("message")
RUN, CALL, JOB, FILE = Ref("run"), Ref("call"), Ref("job"), Ref("file")


@dataclass(frozen=True)
class Ask:
    """A call.

    Attributes:
        path, query, body: With `Ref`s in place of ids.
        own: Status of the call with ids of one's own, of a trusted caller and of an end user.
        trusted: What a trusted server gets that names itself and, at that place, an id of somebody else's. By default 403 for
            threads and resources, 403 or 404 for everything else. 200 says: the id means nothing there, and nothing is read or
            changed by it.
        alike: Whether an end user's answer to a stranger's id must be that to an unknown one. False for texts that no one
            can make up.
    """

    path: Mapping[str, Any] = field(default_factory=dict)
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    own: tuple[int, int] = (200, 200)
    trusted: Mapping[str, int] = field(default_factory=dict)
    alike: bool = True

    def places(self) -> dict[str, str]:
        """Dotted place of every id to its kind, ``body.messages.0.threadId``."""
        return dict(_walk({"path": self.path, "query": self.query, "body": self.body}, ""))

    def request(self, route: Route, ids: Callable[[str, str], str]) -> dict[str, Any]:
        """The call, with `ids(place, kind)` at each place."""
        given = copy.deepcopy({"path": dict(self.path), "query": dict(self.query), "body": self.body})
        filled = _fill(given, "", ids)
        path = re.sub(r"\{(\w+)\}", lambda match: filled["path"][match[1]], route.pattern)
        return {"method": route.method, "path": path, "query": filled["query"], "body": filled["body"]}


def _walk(value: Any, at: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Ref):
        yield at, value.kind
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _walk(item, f"{at}.{key}" if at else key)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _walk(item, f"{at}.{number}")


def _fill(value: Any, at: str, ids: Callable[[str, str], str]) -> Any:
    if isinstance(value, Ref):
        return ids(at, value.kind)
    if isinstance(value, Mapping):
        return {key: _fill(item, f"{at}.{key}" if at else key, ids) for key, item in value.items()}
    if isinstance(value, list):
        return [_fill(item, f"{at}.{number}", ids) for number, item in enumerate(value)]
    return value


# ------------------------------------------------------------------------------------------- which ids a route can take

NO_OWNER = ("agentId", "networkId", "toolId")  # ids of what belongs to the deployment


def id_places(route: Route) -> set[str]:
    """Where the route table says that an id may be, list numbers left out: ``body.messages.threadId``."""
    found = {f"path.{name}" for name in route.params}
    for name, shape in route.query.items():
        found |= set(_ids_in(shape, f"query.{name}"))
    if route.body is not None:
        found |= set(_ids_in(route.body, "body"))
    return {place for place in found if place.rsplit(".", 1)[-1] not in NO_OWNER}


def _ids_in(shape: Shape, at: str) -> Iterator[str]:
    match shape:
        case Id():
            yield at
        case Object():
            for name, inner in (shape.fields or {}).items():
                yield from _ids_in(inner, f"{at}.{name}")
        case List():
            yield from _ids_in(shape.item, at)
        case Either():
            for inner in shape.shapes:
                yield from _ids_in(inner, at)
        case JsonText():
            yield from _ids_in(shape.inner, at)


# ------------------------------------------------------------------------------------------------------------ the table

A = {"agentId": AGENT}
Q = {**A, "resourceId": RESOURCE}
ON_THREAD = {"threadId": THREAD}
MEMORY = {"thread": THREAD, "resource": RESOURCE}
PLACE = {"threadId": THREAD, "resourceId": RESOURCE}
RECALL = f"recall {WORD}"
PARTS = [{"type": "text", "text": RECALL}]
PICTURE = {"type": "file", "url": FILE, "mediaType": "text/plain", "filename": "a.txt"}
PAGE = [{"id": "page-u1", "role": "user", "parts": [*PARTS, PICTURE]}]
MESSAGES = [{"role": "user", "content": RECALL}]
# A run id, and ids beside `memory`, name no stored thing of a new turn.
NEW_RUN = {"body.runId": 200, "body.threadId": 200, "body.id": 200, "body.messageId": 200}
ANY_FILE = {"body.messages.0.parts.1.url": 200}
RUN_ASKS = (
    Ask(A, body={"messages": MESSAGES, "memory": MEMORY, **PLACE, "runId": RUN}, trusted=NEW_RUN),
    Ask(A, body={"messages": PAGE, "memory": {**MEMORY, "thread": {"id": THREAD}}}, trusted=ANY_FILE),
    Ask(A, body={"messages": MESSAGES, **PLACE}),
    Ask(
        A,
        body={
            "messages": [
                {
                    "role": "tool",
                    "content": [{"type": "tool-result", "toolCallId": CALL, "toolName": "x", "result": 1}],
                },
                *MESSAGES,
            ],
            "memory": {"thread": WAITING, "resource": RESOURCE},
        },
        trusted={"body.messages.0.content.0.toolCallId": 200},
    ),
    Ask(
        A,
        body={"messages": f'tool get_weather {{"city":"{WORD}"}}', "memory": MEMORY, "requestContext": PLACE},
        trusted={"body.requestContext.threadId": 200, "body.requestContext.resourceId": 200},
    ),
)
CHAT_ASKS = (
    Ask(
        body={**A, "id": THREAD, "messages": PAGE, "resourceId": RESOURCE},
        trusted=ANY_FILE,
    ),
    Ask(body={**A, "messages": MESSAGES, "memory": {**MEMORY, "thread": {"id": THREAD}}}),
    Ask(
        body={**A, "id": THREAD, "messages": PAGE, "memory": MEMORY, **PLACE, "runId": RUN, "messageId": MESSAGE},
        trusted=NEW_RUN | ANY_FILE,
    ),
    Ask(
        body={
            **A,
            "id": THREAD,
            "trigger": "regenerate-message",
            "messageId": MESSAGE,
            "messages": PAGE,
            "resourceId": RESOURCE,
        },
        trusted=NEW_RUN | ANY_FILE | {"body.id": 403},
    ),
    Ask(
        body={
            **A,
            "id": WAITING,
            "resourceId": RESOURCE,
            "messages": [
                {
                    "id": MESSAGE,
                    "role": "assistant",
                    "parts": [
                        {
                            "type": "tool-delete_record",
                            "toolCallId": CALL,
                            "state": "approval-responded",
                            "approval": {"id": CALL, "approved": True},
                            "input": {},
                        }
                    ],
                }
            ],
        },
        trusted={
            "body.messages.0.id": 200,
            "body.messages.0.parts.0.toolCallId": 200,
            "body.messages.0.parts.0.approval.id": 200,
        },
    ),
)
DECISION = {
    "threadId": WAITING,
    "resourceId": RESOURCE,
    "memory": {"thread": WAITING, "resource": RESOURCE},
    "runId": RUN,
    "toolCallId": CALL,
}
DECIDE_ASKS = (Ask(A, body=DECISION), Ask(A, body={**DECISION, "memory": {"thread": {"id": WAITING}}}))
RESUME_ASKS = tuple(Ask(A, body={**ask.body, "resumeData": {"approved": True}}) for ask in DECIDE_ASKS)
WORKING_MEMORY = {"workingMemory": "# User\n- Name: new\n"}
PATCH = {"patch": {"search": "- Name:", "replace": "- Name: new"}}


def _saved(**more: Any) -> dict[str, Any]:
    return {"id": "new-1", "role": "user", "content": "hello", **PLACE, **more}


ASKS: dict[str, tuple[Ask, ...]] = {
    "GET /api/memory/threads": (
        Ask(query=Q, trusted={"query.resourceId": 0}),
        Ask(
            query={**Q, "perPage": 1, "cursor": Ref("threads_cursor")},
            trusted={"query.resourceId": 0, "query.cursor": 200},
            alike=False,
        ),
    ),
    "POST /api/memory/threads": (Ask(query=A, body={**PLACE, "title": "new"}),),
    "GET /api/memory/threads/{threadId}": (Ask(ON_THREAD, Q),),
    "PATCH /api/memory/threads/{threadId}": (
        Ask(ON_THREAD, Q, {"title": "new", "resourceId": RESOURCE}),
        Ask(ON_THREAD, A, {"title": "new", "resourceId": RESOURCE}),
        Ask(ON_THREAD, Q, {"resourceId": RESOURCE}),
    ),
    "DELETE /api/memory/threads/{threadId}": (Ask(ON_THREAD, Q),),
    "GET /api/memory/threads/{threadId}/messages": (
        Ask(ON_THREAD, Q),
        Ask(
            ON_THREAD,
            {
                **Q,
                "perPage": 0,
                "include": [{"id": MESSAGE, "threadId": THREAD, "withPreviousMessages": 5, "withNextMessages": 5}],
            },
            trusted={"query.include.0.id": 200, "query.include.0.threadId": 200},
        ),
        Ask(ON_THREAD, {**Q, "perPage": 1, "cursor": Ref("cursor")}, trusted={"query.cursor": 200}, alike=False),
    ),
    "POST /api/memory/save-messages": (
        Ask(query=A, body={"messages": [_saved()]}),
        Ask(query=A, body={"messages": [_saved(id=MESSAGE)]}, trusted={"body.messages.0.id": 200}),
        Ask(query=A, body={"messages": [_saved(), _saved(id="new-2")]}),
        Ask(
            query=A,
            body={
                "messages": [
                    _saved(content={"format": 2, "parts": [{"type": "file", "data": FILE, "mimeType": "text/plain"}]})
                ]
            },
            trusted={"body.messages.0.content.parts.0.data": 200},
        ),
    ),
    "POST /api/memory/messages/delete": (
        # Ids of messages are unique in a thread only: one that no thread of the named owner holds is an unknown one.
        Ask(query=Q, body={"messageIds": [MESSAGE], **PLACE}, trusted={"body.messageIds.0": 200}),
        Ask(
            query=A,
            body={"messageIds": {"id": MESSAGE}, "resourceId": RESOURCE},
            trusted={"body.messageIds.id": 200, "body.resourceId": 200},
        ),
        Ask(query=A, body={"messageIds": [{"id": MESSAGE}], **PLACE}, trusted={"body.messageIds.0.id": 200}),
        Ask(query=Q, body={"threadId": THREAD}),
    ),
    "GET /api/memory/status": (Ask(query={**Q}, trusted={"query.resourceId": 200}),),
    "PATCH /api/memory/messages/{messageId}": (
        Ask({"messageId": MESSAGE}, {**Q, "threadId": THREAD}, {"content": {"metadata": {"rating": 5}}}),
        Ask({"messageId": MESSAGE}, Q, {"content": "changed"}, trusted={"query.resourceId": 404}),
    ),
    "POST /api/memory/threads/{threadId}/clone": (
        Ask(
            ON_THREAD,
            Q,
            {"newThreadId": "copy", "resourceId": RESOURCE, "options": {"messageFilter": {"messageIds": [MESSAGE]}}},
            # A trusted server may copy to anybody it names.
            trusted={"body.resourceId": 0, "body.options.messageFilter.messageIds.0": 200},
        ),
        Ask(ON_THREAD, Q, {"newThreadId": WAITING}, own=(409, 409)),
    ),
    "POST /api/memory/threads/{threadId}/transfer": (
        # A trusted server may give a thread to anybody it names; an end user to nobody.
        Ask(ON_THREAD, Q, {"resourceId": RESOURCE}, own=(200, 403), trusted={"body.resourceId": 0}),
    ),
    "GET /api/memory/threads/{threadId}/working-memory": (
        Ask(ON_THREAD, Q),
        Ask(ON_THREAD, {**Q, "agentId": "conformance-thread"}),
        Ask(ON_THREAD, {**Q, "memoryConfig": {"workingMemory": {"scope": "thread", "enabled": True}}}),
    ),
    "POST /api/memory/threads/{threadId}/working-memory": (
        Ask(ON_THREAD, Q, {**WORKING_MEMORY, "resourceId": RESOURCE}),
        Ask(ON_THREAD, A, {**WORKING_MEMORY, "resourceId": RESOURCE}),
        Ask(ON_THREAD, {**Q, "agentId": "conformance-thread"}, WORKING_MEMORY),
    ),
    "PATCH /api/memory/threads/{threadId}/working-memory": (
        Ask(ON_THREAD, Q, {**PATCH, "resourceId": RESOURCE}),
        Ask(ON_THREAD, {**Q, "agentId": "conformance-thread"}, PATCH),
    ),
    "DELETE /api/memory/threads/{threadId}/working-memory": (
        Ask(ON_THREAD, Q),
        Ask(ON_THREAD, {**Q, "agentId": "conformance-thread"}),
    ),
    "GET /api/memory/threads/{threadId}/working-memory/history": (
        Ask(ON_THREAD, Q),
        Ask(ON_THREAD, {**Q, "agentId": "conformance-thread"}),
    ),
    "GET /api/memory/search": (
        Ask(query={**Q, "searchQuery": WORD, "threadId": THREAD}),
        Ask(query={**Q, "searchQuery": WORD}, trusted={"query.resourceId": 0}),
        Ask(
            query={
                **Q,
                "searchQuery": WORD,
                "threadId": THREAD,
                "memoryConfig": {"semanticRecall": {"scope": "thread"}},
            }
        ),
    ),
    "GET /api/memory/config": (Ask(query=A),),
    "GET /api/memory/observational-memory": (
        Ask(query={**Q, "threadId": THREAD}, own=(400, 400), trusted={"query.resourceId": 400, "query.threadId": 400}),
    ),
    "POST /api/memory/observational-memory/buffer-status": (Ask(query=A, body=A, own=(400, 400)),),
    "POST /api/memory/export": (
        # A packed file has another size at another time.
        Ask({}, {"resourceId": RESOURCE}, {"resourceId": RESOURCE}, own=(202, 202), alike=False),
        Ask({}, {}, {"resourceId": RESOURCE}, own=(202, 202), trusted={"body.resourceId": 0}, alike=False),
    ),
    "POST /api/memory/import": (
        Ask(
            {},
            {"resourceId": RESOURCE},
            {**PLACE, "messages": [{"role": "user", "content": RECALL}], "rowsOf": RESOURCE},
            own=(202, 403),
            trusted={"body.rowsOf": 0},
        ),
        Ask(
            {},
            {},
            {"resourceId": RESOURCE, "export": {"resourceId": RESOURCE, "jobId": JOB}},
            own=(404, 403),
            trusted={"body.resourceId": 404, "body.export.resourceId": 404},
        ),
    ),
    "POST /api/memory/erase": (Ask(body={"resourceId": RESOURCE}, own=(202, 403), trusted={"body.resourceId": 0}),),
    "GET /api/jobs/{jobId}": (Ask({"jobId": JOB}, {"resourceId": RESOURCE}, trusted={"query.resourceId": 404}),),
    "POST /api/jobs": (Ask(body={"kind": "drop-index"}, own=(400, 403)),),  # names nobody; the others walk over all
    "POST /api/jobs/{jobId}/retry": (
        Ask({"jobId": JOB}, {"resourceId": RESOURCE}, own=(409, 403), trusted={"query.resourceId": 404}),
    ),
    "POST /api/attachments": (
        Ask(
            body={"resourceId": RESOURCE, "filename": "a.txt", "contentType": "text/plain", "size": 5},
            trusted={"body.resourceId": 0},
        ),
    ),
    "POST /api/attachments/{name}/complete": (
        Ask({"name": Ref("upload")}, {"resourceId": RESOURCE}, {"resourceId": RESOURCE}),
        Ask({"name": Ref("upload")}, {}, {"resourceId": RESOURCE}, trusted={"body.resourceId": 404}),
    ),
    "GET /api/attachments/{name}": (
        Ask({"name": Ref("name")}, {"resourceId": RESOURCE}, own=(302, 302), trusted={"query.resourceId": 404}),
        Ask({"name": Ref("upload")}, {"resourceId": RESOURCE}, own=(404, 404), trusted={"query.resourceId": 404}),
    ),
    "GET /api/agents": (Ask(),),
    "GET /api/agents/{agentId}": (Ask(A),),
    "GET /api/agents/{agentId}/tools/{toolId}": (Ask({**A, "toolId": "get_weather"}),),
    "POST /api/agents/{agentId}/tools/{toolId}/execute": (
        Ask(
            {"agentId": "prober", "toolId": "who"},
            body={"data": {"thread": THREAD, "resource": RESOURCE}, "requestContext": PLACE},
            trusted={
                f"body.{place}": 200
                for place in ("data.thread", "data.resource", "requestContext.threadId", "requestContext.resourceId")
            },
        ),
    ),
    "GET /api/tools": (Ask(),),
    "POST /api/agents/{agentId}/generate": RUN_ASKS,
    "POST /api/agents/{agentId}/stream": RUN_ASKS,
    "POST /api/agents/{agentId}/stream-until-idle": RUN_ASKS[:1] + RUN_ASKS[1:2],
    "POST /api/agents/{agentId}/approve-tool-call": DECIDE_ASKS,
    "POST /api/agents/{agentId}/decline-tool-call": DECIDE_ASKS,
    "POST /api/agents/{agentId}/approve-tool-call-generate": DECIDE_ASKS,
    "POST /api/agents/{agentId}/decline-tool-call-generate": DECIDE_ASKS,
    "POST /api/agents/{agentId}/resume-stream": RESUME_ASKS,
    "POST /api/agents/{agentId}/resume-stream-until-idle": RESUME_ASKS,
    "POST /api/agents/{agentId}/send-tool-approval": (
        Ask(A, body={"threadId": WAITING, "resourceId": RESOURCE, "toolCallId": CALL, "approved": True}),
    ),
    "GET /api/agents/{agentId}/suspended-runs": (
        Ask(A, {"resourceId": RESOURCE, "threadId": WAITING}),
        Ask(A, {"resourceId": RESOURCE}, trusted={"query.resourceId": 0}),
    ),
    "POST /api/agents/{agentId}/send-message": (
        Ask(A, body={"message": RECALL, **PLACE}),
        Ask(A, body={"message": RECALL, **PLACE, "ifIdle": {"behavior": "persist"}}),
        Ask(A, body={"message": RECALL, **PLACE, "ifIdle": {"behavior": "discard"}}),
        Ask(
            A,
            body={
                "message": [{"type": "file", "data": FILE, "mediaType": "text/plain"}],
                **PLACE,
                "ifIdle": {"behavior": "persist"},
            },
            trusted={"body.message.0.data": 200},
        ),
    ),
    "POST /api/agents/{agentId}/queue-message": (Ask(A, body={"message": RECALL, **PLACE}),),
    "POST /api/agents/{agentId}/signals": (Ask(A, body={"signal": {"contents": RECALL}, **PLACE}),),
    "POST /api/agents/{agentId}/threads/subscribe": (Ask({"agentId": "resumable"}, body=PLACE),),
    "POST /api/agents/{agentId}/threads/abort": (
        Ask(A, body={**PLACE, "expectedRunId": RUN}, trusted={"body.expectedRunId": 200}),
    ),
    "POST /api/chat": CHAT_ASKS,
    "POST /chat/{agentId}": tuple(
        Ask(A, ask.query, {key: value for key, value in ask.body.items() if key != "agentId"}, ask.own, ask.trusted)
        for ask in CHAT_ASKS
    ),
    "GET /api/chat/{threadId}": (Ask(ON_THREAD, Q),),
    "GET /api/chat/{threadId}/stream": (Ask(ON_THREAD, {**Q, "agentId": "resumable"}, own=(204, 204)),),
}


def asks_of(route: Route) -> tuple[Ask, ...]:
    """The example calls of a route; none where nobody wrote any."""
    key = f"{route.method} {route.pattern}"
    twin = key.replace("/api/memory/network/", "/api/memory/")
    if key == twin:
        return ASKS.get(key, ())
    return tuple(
        Ask(ask.path, _network(ask.query), ask.body, ask.own, ask.trusted, ask.alike) for ask in ASKS.get(twin, ())
    )


def _network(query: Mapping[str, Any]) -> dict[str, Any]:
    return {"networkId" if key == "agentId" else key: value for key, value in query.items()}
