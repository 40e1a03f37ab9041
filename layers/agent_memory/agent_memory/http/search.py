"""The search route."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_memory import clock
from agent_memory.errors import AccessDeniedError, InvalidInputError
from agent_memory.http.call import Call
from agent_memory.http.limits import MAX_SEARCH_LIMIT

if TYPE_CHECKING:
    from agent_memory.messages import Message

NEIGHBOURS = 2
DEFAULT_LIMIT = 20  # where the agent has no recall, whose topK would say


def search(call: Call) -> Any:
    """The best hits, then listed newest first, each with its neighbours and its score."""
    memory, text = call.memory(), call.query["searchQuery"]
    resource = call.required_owner()
    options = memory.options.merged(call.query.get("memoryConfig"), strict=False)
    recall = options.semantic_recall
    thread_id = call.query.get("threadId")
    scope = "resource" if recall is None else recall.scope
    if scope == "thread" and thread_id is None:
        raise InvalidInputError("threadId", "expected a thread: recall has scope thread", where="query")
    if thread_id is not None and memory.storage.owner_of(thread_id) not in (None, resource):
        raise AccessDeniedError("Access denied: thread belongs to a different resource")
    if memory.vector is None:
        raise InvalidInputError("agentId", "search needs a vector index", where="query", code="NOT_ENABLED")
    limit = call.query.get("limit") or (DEFAULT_LIMIT if recall is None else recall.top_k)
    mode = "word" if recall is None else "meaning" if recall.mode == "vector" else "both"
    found = memory.search(
        text,
        resource,
        mode=mode,  # type: ignore[arg-type]
        limit=min(limit, MAX_SEARCH_LIMIT),
        neighbours=NEIGHBOURS,
        thread_id=thread_id if scope == "thread" else None,
        thread_config=options,
    )
    results = [
        {
            **_brief(hit.message),
            "threadId": hit.thread_id,
            "threadTitle": hit.thread_title or hit.thread_id,
            "score": hit.score,
            "context": {
                "before": [_brief(message) for message in hit.before],
                "after": [_brief(message) for message in hit.after],
            },
        }
        for hit in sorted(found, key=lambda hit: (hit.message.created_at, hit.message.seq or 0), reverse=True)
    ]
    return {
        "results": results,
        "count": len(results),
        "query": text,
        "searchScope": scope,
        "searchType": "text" if recall is None else "semantic",
    }


def _brief(message: Message) -> dict[str, Any]:
    return {
        "id": message.id,
        "role": message.role,
        "content": message.text,
        "createdAt": clock.to_iso(message.created_at),
    }
