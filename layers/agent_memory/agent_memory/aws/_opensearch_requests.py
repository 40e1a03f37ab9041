"""Requests to OpenSearch as plain data: the mapping, the two searches, documents and their ids."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Final, Literal

from agent_memory import clock
from agent_memory.ports import IndexedMessage, IndexEntry, IndexQuery
from agent_memory.recall.indexing import query_text
from agent_memory.recall.tags import tags_of, wanted_tags

Engine = Literal["faiss", "lucene"]

SCHEMA: Final = 2
VECTOR: Final = "vector"
SOURCE: Final = ["resource", "thread", "message", "seq", "version", "order"]
MAX_HITS: Final = 1_000
OVER_FETCH: Final = 4  # a message has several chunks, and in a collection a repeat may have left it twice
MIN_HITS: Final = 24
VERSION_BITS: Final = 20
_MAX_QUERY_CHARS: Final = 1_000  # of Chinese each is a word, and one query holds 1,024


def index_body(identity: Mapping[str, Any], dimension: int, engine: Engine, *, serverless: bool) -> dict[str, Any]:
    """Settings and mapping of a new index. Unknown fields are refused, so nothing is stored under a guessed type."""
    settings: dict[str, Any] = {
        "index": {"knn": True},
        "analysis": {
            "analyzer": {
                "any_script": {
                    "type": "custom",
                    "tokenizer": "standard",
                    "filter": ["cjk_width", "lowercase", "asciifolding", "cjk_bigram"],
                }
            }
        },
    }
    # Of vectors of length 1 the inner product is the cosine. The space of cosines itself is refused for faiss by
    # collections and by domains before 2.19.
    method = {"name": "hnsw", "engine": engine, "space_type": "innerproduct"}
    if not serverless:
        settings["index"]["number_of_shards"] = 1
    keyword = {"type": "keyword"}
    number = {"type": "long"}
    return {
        "settings": settings,
        "mappings": {
            "dynamic": "strict",
            "_meta": dict(identity),
            "properties": {
                "resource": keyword,
                "thread": keyword,
                "message": keyword,
                "seq": number,
                "version": number,
                "order": number,
                "chunk": {"type": "integer"},
                "role": keyword,
                "created_at": {"type": "date", "format": "epoch_millis"},
                "tags": keyword,
                "text": {"type": "text", "analyzer": "any_script"},
                VECTOR: {"type": "knn_vector", "dimension": dimension, "method": method},
            },
        },
    }


def order_of(seq: int, version: int) -> int:
    """One number that grows with a message's place and version: what an older write must not replace."""
    return (seq << VERSION_BITS) | min(version, (1 << VERSION_BITS) - 1)


def documents(message: IndexedMessage) -> list[dict[str, Any]]:
    """A document per chunk. The first one carries the whole text, so that words count once per message."""
    shared = {
        "resource": message.resource_id,
        "thread": message.thread_id,
        "message": message.message_id,
        "seq": message.seq,
        "version": message.version,
        "order": order_of(message.seq, message.version),
        "role": message.role,
        "created_at": clock.to_ms(message.created_at),
        "tags": tags_of(message.metadata),
    }
    found: list[dict[str, Any]] = [
        {**shared, "chunk": number, **_vector(vector)} for number, vector in enumerate(message.vectors)
    ] or [{**shared, "chunk": 0}]
    found[0]["text"] = message.text.encode("utf-8", "replace").decode()
    return found


def _vector(vector: Sequence[float]) -> dict[str, list[float]]:
    """The field of a vector; none for a zero vector, which has no direction."""
    return {VECTOR: unit(vector)} if any(vector) else {}


def unit(vector: Sequence[float]) -> list[float]:
    """A vector's direction, as a vector of length 1."""
    length = math.hypot(*vector)
    return [value / length for value in vector]


def document_id(message: IndexedMessage, chunk: int) -> str:
    """The id of a chunk on a managed domain: the same for every write of it, and short whatever the ids are."""
    parts = (message.resource_id, message.thread_id, message.message_id)
    digest = hashlib.sha256("".join(f"{len(part)}:{part}" for part in parts).encode("utf-8", "surrogatepass"))
    return f"{digest.hexdigest()[:48]}-{chunk}"


def routing_of(resource_id: str) -> str:
    """What a domain places a resource's documents by. Not the id itself: in a parameter a comma would part it in two."""
    return hashlib.sha256(resource_id.encode()).hexdigest()[:16]


def of_message(resource_id: str, thread_id: str, message_ids: Sequence[str] | None) -> dict[str, Any]:
    """The query for all documents of these messages, or of the thread."""
    filters: list[dict[str, Any]] = [{"term": {"resource": resource_id}}, {"term": {"thread": thread_id}}]
    if message_ids is not None:
        filters.append({"terms": {"message": list(message_ids)}})
    return {"bool": {"filter": filters}}


def older_than(message: IndexedMessage, order: int) -> dict[str, Any]:
    """The query for documents that earlier writes of a message left."""
    own = of_message(message.resource_id, message.thread_id, [message.message_id])
    return {"bool": {"filter": [own, {"range": {"order": {"lt": order}}}]}}


def of_resource(resource_id: str) -> dict[str, Any]:
    """The query for all documents of a resource."""
    return {"bool": {"filter": [{"term": {"resource": resource_id}}]}}


_PLACE: Final = ("resource", "thread", "message")
_LAST: Final = (2**63 - 1, 2**31 - 1)  # behind every document of a message


def page(query: Mapping[str, Any], size: int, after: Sequence[Any] | None = None) -> dict[str, Any]:
    """The search for documents in the order of resource, thread and message, behind the values of `after`.

    Neither a scroll nor a point in time, which collections refuse.
    """
    body: dict[str, Any] = {
        "size": size,
        "_source": ["seq", "version"],
        "query": dict(query),
        "sort": [{name: "asc"} for name in (*_PLACE, "order", "chunk")],
    }
    return body if after is None else {**body, "search_after": list(after)}


def behind(place: Sequence[str]) -> list[Any]:
    """The value of `after` that goes on behind all documents of a message."""
    return [*place, *_LAST]


def entries(hits: Sequence[Mapping[str, Any]]) -> list[IndexEntry]:
    """One entry per message from the sorted hits of `page`; the newest of its documents say number and version."""
    found = []
    for (resource_id, thread_id, message_id), group in groupby(hits, key=lambda hit: tuple(hit["sort"][:3])):
        documents = list(group)
        newest = documents[-1]
        chunks = [hit["sort"][4] for hit in documents]
        one_write = all(hit["sort"][3] == newest["sort"][3] for hit in documents)
        source = newest["_source"]
        whole = one_write and chunks == list(range(len(chunks)))
        found.append(IndexEntry(resource_id, thread_id, message_id, source["seq"], source["version"], whole))
    return found


def hit_count(limit: int) -> int:
    """How many documents to ask for, so that `limit` messages are left when chunks are folded together."""
    return min(max(limit * OVER_FETCH, MIN_HITS), MAX_HITS)


def vector_search(query: IndexQuery, vector: Sequence[float], size: int) -> dict[str, Any]:
    """The search by meaning. The filter is inside the k-NN clause: behind it, others' vectors would use up the k."""
    clause = {"vector": unit(vector), "k": size, "filter": {"bool": {"filter": _filters(query)}}}
    return {"size": size, "_source": SOURCE, "query": {"knn": {VECTOR: clause}}}


def word_search(query: IndexQuery, text: str, size: int) -> dict[str, Any]:
    """The search by words."""
    asked = query_text(text, _MAX_QUERY_CHARS).encode("utf-8", "replace").decode()
    words = {"match": {"text": {"query": asked, "operator": "or"}}}
    return {"size": size, "_source": SOURCE, "query": {"bool": {"must": [words], "filter": _filters(query)}}}


def cosine_of(score: float) -> float:
    """The cosine in a k-NN score of space ``innerproduct``, the same for both engines.

    That is 1 + product for products above 0, and 1 / (1 - product) for the others.
    """
    return score - 1.0 if score >= 1.0 else 1.0 - 1.0 / score


def _filters(query: IndexQuery) -> list[dict[str, Any]]:
    filters: list[dict[str, Any]] = [{"term": {"resource": query.resource_id}}]
    if query.thread_id is not None:
        filters.append({"term": {"thread": query.thread_id}})
    filters += [{"term": {"tags": tag}} for tag in wanted_tags(query.metadata)]
    if query.date_range is not None:
        ends = {"gte": query.date_range.start, "lte": query.date_range.end}
        bounds = {name: clock.to_ms(end) for name, end in ends.items() if end is not None}
        filters.append({"range": {"created_at": bounds}})
    return filters
