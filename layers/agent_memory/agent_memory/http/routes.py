"""The route table: every route, what it takes, and the function that serves it."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from agent_memory.http import limits
from agent_memory.http.router import Route
from agent_memory.http.shapes import ANY, Date, Either, Flag, Id, JsonText, List, Object, Text, Whole

ID: Final = Id()
OBJECT: Final = Object()
METADATA: Final = Object(max_bytes=limits.MAX_METADATA_BYTES)
TITLE: Final = Text(max_chars=limits.MAX_TITLE_CHARS)

AGENT: Final = {"agentId": ID, "networkId": ID}
RESOURCE: Final = {"resourceId": ID}
PAGE: Final = {
    "page": Whole(0, limits.MAX_PAGE),
    "perPage": Whole(0, limits.MAX_PER_PAGE),
    "cursor": Text(max_chars=4_096),
}
FIELD: Final = Text(choices=("createdAt", "updatedAt"))
DIRECTION: Final = Text(choices=("ASC", "DESC"))
ORDER: Final = {
    "orderBy": JsonText(Object({"field": FIELD, "direction": DIRECTION}), plain=FIELD),
    "orderBy[field]": FIELD,
    "orderBy[direction]": DIRECTION,
    "sortDirection": DIRECTION,
}
MESSAGE_IDS: Final = Either(
    (ID, Object({"id": ID}, ("id",)), List(Either((ID, Object({"id": ID}, ("id",))), "an id"))), "ids"
)

_MESSAGE_FILTER: Final = Object({"dateRange": OBJECT, "metadata": OBJECT})
_INCLUDE: Final = List(
    Object(
        {"id": ID, "threadId": ID, "withPreviousMessages": Whole(0, 1_000), "withNextMessages": Whole(0, 1_000)},
        ("id",),
    ),
    max_items=limits.MAX_IDS,
)

# ------------------------------------------------------------------------------------------------------------ memory

_THREADS: Final = (
    Route(
        "GET",
        "/api/memory/threads",
        "threads:list_threads",
        "List threads",
        query={**AGENT, **RESOURCE, **PAGE, **ORDER, "metadata": JsonText(OBJECT)},
    ),
    Route(
        "POST",
        "/api/memory/threads",
        "threads:create_thread",
        "Create a thread",
        query=AGENT,
        body=Object(
            {**AGENT, "resourceId": ID, "threadId": ID, "title": TITLE, "metadata": METADATA, "expiresAt": Date()}
        ),
        once=True,
        examples=(
            {"resourceId": "ada", "threadId": "trip-42", "title": "Summer trip", "metadata": {"topic": "travel"}},
        ),
    ),
    Route(
        "GET",
        "/api/memory/threads/{threadId}",
        "threads:get_thread",
        "Get a thread",
        query={**AGENT, **RESOURCE},
    ),
    Route(
        "PATCH",
        "/api/memory/threads/{threadId}",
        "threads:update_thread",
        "Update a thread",
        query={**AGENT, **RESOURCE},
        body=Object({"title": TITLE, "metadata": METADATA, "resourceId": ID, "expiresAt": Date(clears=True)}),
        examples=({"title": "Winter trip", "metadata": {"topic": "skiing"}}, {"expiresAt": None}),
    ),
    Route(
        "DELETE",
        "/api/memory/threads/{threadId}",
        "threads:delete_thread",
        "Delete a thread",
        query={**AGENT, **RESOURCE},
    ),
    Route(
        "GET",
        "/api/memory/threads/{threadId}/messages",
        "messages:list_messages",
        "List messages",
        query={
            **AGENT,
            **RESOURCE,
            **PAGE,
            **ORDER,
            "filter": JsonText(_MESSAGE_FILTER),
            "include": JsonText(_INCLUDE),
        },
    ),
    Route(
        "POST",
        "/api/memory/save-messages",
        "messages:save_messages",
        "Save messages",
        query=AGENT,
        body=Object({**AGENT, "messages": List(OBJECT)}, ("messages",)),
        once=True,
        examples=(
            {
                "messages": [
                    {
                        "id": "msg-1",
                        "role": "user",
                        "content": "Will it rain?",
                        "threadId": "trip-42",
                        "resourceId": "ada",
                    }
                ]
            },
        ),
    ),
    Route(
        "POST",
        "/api/memory/messages/delete",
        "messages:delete_messages",
        "Delete messages",
        query={**AGENT, **RESOURCE},
        body=Object({"messageIds": MESSAGE_IDS, "threadId": ID, "resourceId": ID}),
        examples=({"messageIds": ["msg-1", "msg-2"]}, {"threadId": "trip-42"}),
    ),
)
_NETWORK_TWINS: Final = (
    *_THREADS,
    Route("GET", "/api/memory/status", "memory_settings:status", "Whether memory is on", query={**AGENT, **RESOURCE}),
)

MEMORY: Final = (
    *_NETWORK_TWINS,
    *(
        replace(route, pattern=route.pattern.replace("/api/memory/", "/api/memory/network/"))
        for route in _NETWORK_TWINS
    ),
    Route(
        "PATCH",
        "/api/memory/messages/{messageId}",
        "messages:update_message",
        "Update a message",
        query={**AGENT, **RESOURCE, "threadId": ID},
        body=Object({"content": Either((OBJECT, Text()), "an object or a text")}, ("content",)),
        examples=({"content": {"metadata": {"rating": 5}}},),
    ),
    Route(
        "POST",
        "/api/memory/threads/{threadId}/clone",
        "threads:clone_thread",
        "Clone a thread",
        query={**AGENT, **RESOURCE},
        body=Object(
            {
                "newThreadId": ID,
                "resourceId": ID,
                "title": TITLE,
                "metadata": METADATA,
                "options": Object(
                    {
                        "messageLimit": Whole(0),
                        "messageFilter": Object({"startDate": Text(), "endDate": Text(), "messageIds": List(ID)}),
                    }
                ),
            }
        ),
        body_required=False,
        once=True,
        examples=({"newThreadId": "trip-43", "options": {"messageLimit": 10}},),
    ),
    Route(
        "POST",
        "/api/memory/threads/{threadId}/transfer",
        "threads:transfer_thread",
        "Give a thread to another resource",
        query={**AGENT, **RESOURCE},
        body=Object({"resourceId": ID}, ("resourceId",)),
        examples=({"resourceId": "bob"},),
    ),
    Route(
        "GET",
        "/api/memory/threads/{threadId}/working-memory",
        "working_memory:get_working_memory",
        "Get working memory",
        query={**AGENT, **RESOURCE, "memoryConfig": JsonText(OBJECT)},
    ),
    Route(
        "POST",
        "/api/memory/threads/{threadId}/working-memory",
        "working_memory:update_working_memory",
        "Replace working memory",
        query={**AGENT, **RESOURCE},
        body=Object(
            {
                "workingMemory": Either((Text(), OBJECT), "a text or an object"),
                "resourceId": ID,
                "version": Whole(0),
            },
            ("workingMemory",),
        ),
        examples=({"workingMemory": "# User\n- Name: Ada\n", "resourceId": "ada"},),
    ),
    Route(
        "PATCH",
        "/api/memory/threads/{threadId}/working-memory",
        "working_memory:patch_working_memory",
        "Change a piece of working memory",
        query={**AGENT, **RESOURCE},
        body=Object({"patch": OBJECT, "version": Whole(0), "resourceId": ID}, ("patch",)),
        examples=({"version": 7, "patch": {"search": "- Name:", "replace": "- Name: Ada"}},),
    ),
    Route(
        "DELETE",
        "/api/memory/threads/{threadId}/working-memory",
        "working_memory:delete_working_memory",
        "Clear working memory",
        query={**AGENT, **RESOURCE, "version": Whole(0)},
    ),
    Route(
        "GET",
        "/api/memory/threads/{threadId}/working-memory/history",
        "working_memory:working_memory_history",
        "The last versions of working memory",
        query={**AGENT, **RESOURCE},
    ),
    Route(
        "GET",
        "/api/memory/search",
        "search:search",
        "Search messages",
        query={
            **AGENT,
            **RESOURCE,
            "searchQuery": Text(max_chars=limits.MAX_QUERY_CHARS, min_chars=1),
            "threadId": ID,
            "limit": Whole(1, limits.MAX_PER_PAGE),
            "memoryConfig": JsonText(OBJECT),
        },
        required=("searchQuery",),
    ),
    Route("GET", "/api/memory/config", "memory_settings:config", "The settings of an agent's memory", query=AGENT),
    Route(
        "GET",
        "/api/memory/observational-memory",
        "memory_settings:observational_memory",
        "Observational memory (not enabled)",
        query={**AGENT, **RESOURCE, "threadId": ID},
    ),
    Route(
        "POST",
        "/api/memory/observational-memory/buffer-status",
        "memory_settings:observational_memory",
        "Observational memory (not enabled)",
        query=AGENT,
        body=Object(AGENT),
        body_required=False,
    ),
)

# ------------------------------------------------------------------------------------------------------ personal data

PERSONAL_DATA: Final = (
    Route(
        "POST",
        "/api/memory/export",
        "personal_data:export_data",
        "Export everything of a resource; 202 with the job, which answers a link to the file",
        query=RESOURCE,
        body=Object(RESOURCE),
        body_required=False,
        once=True,
        examples=({"resourceId": "ada"},),
    ),
    Route(
        "POST",
        "/api/memory/import",
        "personal_data:import_data",
        "Import an export or another system's messages; 202 with the job, which answers what became of each row",
        query=RESOURCE,
        body=Object(
            {
                **RESOURCE,
                "messages": List(ANY),
                "export": Object({"resourceId": ID, "jobId": ID}, ("resourceId", "jobId")),
                "attachment": Text(max_chars=200),
                "threadId": ID,
                "rowsOf": ID,
            }
        ),
        once=True,
        examples=(
            {"resourceId": "ada", "threadId": "trip-42", "messages": [{"role": "user", "content": "Will it rain?"}]},
            {"resourceId": "bob", "export": {"resourceId": "ada", "jobId": "job-1"}},
        ),
    ),
    Route(
        "POST",
        "/api/memory/erase",
        "personal_data:erase_data",
        "Erase a resource from every store; 202 with the job, which answers a signed receipt",
        body=Object(RESOURCE, ("resourceId",)),
        examples=({"resourceId": "ada"},),
    ),
)

# --------------------------------------------------------------------------------------------------------------- jobs

JOBS: Final = (
    Route(
        "POST",
        "/api/jobs",
        "jobs:start_job",
        "Start a job of the deployment: replay kept records, compare the index with the messages, or build it anew",
        body=Object(
            {
                "kind": Text(choices=("drop-index", "reconcile", "reindex", "replay")),
                "stamps": List(Text(max_chars=200), max_items=20),
                "index": Text(max_chars=200),
            },
            ("kind",),
        ),
        once=True,
        examples=({"kind": "replay"}, {"kind": "drop-index", "index": "agent-memory-bedrock-a-model-1024"}),
    ),
    Route("GET", "/api/jobs/{jobId}", "jobs:get_job", "How far a job is", query=RESOURCE),
    Route("POST", "/api/jobs/{jobId}/retry", "jobs:retry_job", "Run a failed job again", query=RESOURCE),
)

# -------------------------------------------------------------------------------------------------------- attachments

ATTACHMENTS: Final = (
    Route(
        "POST",
        "/api/attachments",
        "attachments:create_attachment",
        "Promise a file; answers the request that uploads it",
        body=Object(
            {
                **RESOURCE,
                "filename": Text(max_chars=1_000),
                "contentType": Text(max_chars=200),
                "size": Whole(1, limits.MAX_UPLOAD_BYTES),
            },
            ("size",),
        ),
        once=True,
        examples=({"resourceId": "ada", "filename": "report.pdf", "contentType": "application/pdf", "size": 1048576},),
    ),
    Route(
        "POST",
        "/api/attachments/{name}/complete",
        "attachments:complete_attachment",
        "Check an uploaded file, so that messages may use it",
        query=RESOURCE,
        body=Object(RESOURCE),
        body_required=False,
        examples=({"resourceId": "ada"},),
    ),
    Route(
        "GET",
        "/api/attachments/{name}",
        "attachments:get_attachment",
        "A file: leads to a link that is signed now",
        query=RESOURCE,
        answer="redirect",
    ),
)

# ------------------------------------------------------------------------------------------------------------- agents

_MEMORY_ARGS: Final = Object(
    {
        "thread": Either((ID, Object({"id": ID, "title": TITLE, "metadata": METADATA}, ("id",))), "an id or an object"),
        "resource": ID,
        "options": OBJECT,
    }
)
_RUN_FIELDS: Final = {
    "memory": _MEMORY_ARGS,
    "threadId": ID,
    "resourceId": ID,
    "instructions": Either((Text(), List(ANY), OBJECT), "a text"),
    "system": Either((Text(), List(ANY), OBJECT), "a text or a list"),
    "context": List(ANY),
    "maxSteps": Whole(1, limits.MAX_STEPS),
    "toolChoice": Either((Text(), OBJECT), "a text or an object"),
    "activeTools": List(Text()),
    "clientTools": Object(),
    "structuredOutput": Object({"schema": OBJECT}, ("schema",)),
    "requireToolApproval": Flag(),
    "runId": ID,
    "modelSettings": OBJECT,
    "providerOptions": OBJECT,
    "requestContext": OBJECT,
}
_MESSAGES: Final = Either((Text(min_chars=1), List(ANY), OBJECT), "a text or a list of messages")
# Beside a place of its own, so ids in it count for nothing.
_LATER: Final = Object(
    {name: shape for name, shape in _RUN_FIELDS.items() if name not in ("memory", "threadId", "resourceId", "runId")}
    | {"memory": Object({"options": OBJECT})}
)
RUN: Final = Object({**_RUN_FIELDS, "messages": _MESSAGES}, ("messages",))
_DECISION: Final = {**_RUN_FIELDS, "runId": ID, "toolCallId": ID, "reason": Text()}
DECIDE: Final = Object(_DECISION, ("runId",))
RESUME: Final = Object(
    {**_DECISION, "resumeData": Object({"approved": Flag(), "reason": Text()}, ("approved",))}, ("runId", "resumeData")
)
PLACE: Final = {"resourceId": ID, "threadId": ID}
_RUN_EXAMPLE: Final = {
    "messages": "What should I pack?",
    "memory": {"thread": "trip-42", "resource": "ada", "options": {"lastMessages": 5}},
}
_IF_IDLE: Final = Object({"behavior": Text(choices=("wake", "persist", "discard")), "streamOptions": _LATER})
_TO_THREAD: Final = Object(
    {
        **PLACE,
        "message": Either((Text(), List(ANY), OBJECT), "a text, parts or an object"),
        "ifIdle": _IF_IDLE,
        "ifActive": OBJECT,
    },
    ("message", "resourceId", "threadId"),
)
_MESSAGE_EXAMPLE: Final = {"message": "It is raining", "resourceId": "ada", "threadId": "trip-42"}


def _agent_post(path: str, handler: str, summary: str, body: Object, **more: object) -> Route:
    fields = {"once": True, **more}
    return Route("POST", f"/api/agents/{{agentId}}/{path}", handler, summary, "chat", body=body, **fields)  # type: ignore[arg-type]


AGENTS: Final = (
    Route("GET", "/api/agents", "agents:list_agents", "All agents", "chat"),
    Route("GET", "/api/agents/{agentId}", "agents:get_agent", "One agent", "chat"),
    Route("GET", "/api/agents/{agentId}/tools/{toolId}", "agents:get_tool", "One tool of an agent", "chat"),
    _agent_post(
        "tools/{toolId}/execute",
        "agents:execute_tool",
        "Run a tool",
        Object({"data": ANY, "requestContext": OBJECT}),
        examples=({"data": {"city": "Oslo"}},),
    ),
    Route("GET", "/api/tools", "agents:list_tools", "All tools", "chat"),
    _agent_post("generate", "runs:generate", "Answer as JSON", RUN, examples=(_RUN_EXAMPLE,)),
    _agent_post("stream", "runs:stream", "Answer as a stream", RUN, answer="events", examples=(_RUN_EXAMPLE,)),
    _agent_post(
        "stream-until-idle",
        "runs:stream",
        "Answer as a stream, background work included",
        RUN,
        answer="events",
        examples=(_RUN_EXAMPLE,),
    ),
    *(
        _agent_post(
            f"{name}-tool-call{ending}", f"approvals:{name}{ending}".replace("-", "_"), summary, DECIDE, answer=answer
        )
        for name, ending, summary, answer in (
            ("approve", "", "Approve a tool call; answers as a stream", "events"),
            ("decline", "", "Decline a tool call; answers as a stream", "events"),
            ("approve", "-generate", "Approve a tool call; answers as JSON", "json"),
            ("decline", "-generate", "Decline a tool call; answers as JSON", "json"),
        )
    ),
    *(
        _agent_post(path, "approvals:resume", "Go on with a suspended run", RESUME, answer="events")
        for path in ("resume-stream", "resume-stream-until-idle")
    ),
    _agent_post(
        "send-tool-approval",
        "approvals:send_tool_approval",
        "Decide on a tool call; the run goes on in the background",
        Object(
            {
                **PLACE,
                "toolCallId": ID,
                "approved": Flag(),
                "reason": Text(),
                "messages": List(ANY),
                "streamOptions": _LATER,
            },
            ("toolCallId", "approved"),
        ),
    ),
    Route(
        "GET",
        "/api/agents/{agentId}/suspended-runs",
        "approvals:suspended_runs",
        "Runs that wait for approval",
        "chat",
        query={**PLACE, **PAGE, "fromDate": Text(), "toDate": Text()},
    ),
    _agent_post(
        "send-message",
        "thread_messages:send_message",
        "Send a message to a thread, into the running turn if there is one",
        _TO_THREAD,
        examples=(_MESSAGE_EXAMPLE,),
    ),
    _agent_post(
        "queue-message",
        "thread_messages:queue_message",
        "Send a message to a thread, after the running turn if there is one",
        _TO_THREAD,
        examples=(_MESSAGE_EXAMPLE,),
    ),
    _agent_post(
        "signals",
        "thread_messages:send_signal",
        "Send a signal to a thread",
        Object(
            {**PLACE, "signal": OBJECT, "ifIdle": _IF_IDLE, "ifActive": OBJECT}, ("signal", "resourceId", "threadId")
        ),
    ),
    _agent_post(
        "threads/subscribe",
        "subscriptions:subscribe",
        "The chunks of every run on a thread",
        Object(PLACE, ("threadId",)),
        answer="events",
        once=False,
    ),
    _agent_post(
        "threads/abort",
        "subscriptions:abort",
        "Stop the run on a thread",
        Object({**PLACE, "expectedRunId": ID}, ("threadId",)),
        once=False,
        examples=({"resourceId": "ada", "threadId": "trip-42"},),
    ),
)

# --------------------------------------------------------------------------------------------------------------- chat

_PAGE_FIELDS: Final = {
    **_RUN_FIELDS,
    "id": ID,
    "agentId": ID,
    "messageId": ID,
    "trigger": Text(choices=("submit-message", "regenerate-message")),
    "messages": List(OBJECT, min_items=1),
}
_CHAT: Final = Object(_PAGE_FIELDS, ("messages",))
_PAGE_MESSAGE: Final = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Will it rain?"}]}

CHAT: Final = (
    Route(
        "POST",
        "/api/chat",
        "chat:post_chat",
        "One turn, as useChat sends it",
        "chat",
        body=_CHAT,
        answer="ui-events",
        once=True,
        examples=({"id": "trip-42", "trigger": "submit-message", "resourceId": "ada", "messages": [_PAGE_MESSAGE]},),
    ),
    Route(
        "POST",
        "/chat/{agentId}",
        "chat:post_chat",
        "One turn, with memory in the body",
        "chat",
        body=_CHAT,
        answer="ui-events",
        once=True,
        examples=({"memory": {"thread": "trip-42", "resource": "ada"}, "messages": [_PAGE_MESSAGE]},),
    ),
    Route(
        "GET",
        "/api/chat/{threadId}",
        "chat:get_chat",
        "A thread as page messages",
        "chat",
        query={**AGENT, **RESOURCE},
    ),
    Route(
        "GET",
        "/api/chat/{threadId}/stream",
        "chat:resume_chat",
        "Rejoin a running answer; 204 when nothing runs",
        "chat",
        query={**AGENT, **RESOURCE},
        answer="ui-events",
    ),
)

_HEALTH: Final = Route("GET", "/health", "memory_settings:health", "Whether the function answers", public=True)
_OPENAPI: Final = Route("GET", "/api/openapi.json", "openapi:document", "This description", public=True)

MEMORY_ROUTES: Final = (*MEMORY, *PERSONAL_DATA, *ATTACHMENTS, *JOBS, _OPENAPI, _HEALTH)
CHAT_ROUTES: Final = (*AGENTS, *CHAT, replace(_HEALTH, function="chat"))
ROUTES: Final = (*MEMORY, *PERSONAL_DATA, *ATTACHMENTS, *JOBS, *AGENTS, *CHAT, _OPENAPI, _HEALTH)
