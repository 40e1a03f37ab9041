"""An embedder and a vector index that hold everything in memory, and the step that feeds rows to the index."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any
from zlib import crc32

from agent_memory.messages import Message
from agent_memory.ports import Hit, IndexedMessage, IndexEntry, IndexPage, IndexQuery, MessageQuery, MessageStore

DIMENSION = 64


class WordEmbedder:
    """A vector per text: each word counts in one of 64 places. Texts that share words are near each other."""

    id = "words"
    dimension = DIMENSION
    max_chars = 2_000

    def __init__(self) -> None:
        self.embedded: list[str] = []

    def embed_passages(self, texts: Sequence[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        self.embedded.append(text)
        vector = [0.0] * DIMENSION
        for word in re.findall(r"\w+", text.lower()):
            vector[crc32(word.encode()) % DIMENSION] += 1.0
        return vector


def _entry(row: IndexedMessage) -> IndexEntry:
    return IndexEntry(row.resource_id, row.thread_id, row.message_id, row.seq, row.version)


class ListIndex:
    """Exact search over a list."""

    id = "words-64"

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str, str], IndexedMessage] = {}
        self.queries: list[IndexQuery] = []

    def ensure(self) -> None:
        pass

    def search(self, query: IndexQuery) -> tuple[Hit, ...]:
        self.queries.append(query)
        hits = [
            Hit(row.resource_id, row.thread_id, row.message_id, row.seq, score, row.version)
            for row in self.rows.values()
            if row.resource_id == query.resource_id
            and query.thread_id in (None, row.thread_id)
            and (query.date_range is None or query.date_range.contains(row.created_at))
            and all(row.metadata.get(key) == value for key, value in (query.metadata or {}).items())
            and (score := self._score(query, row)) > 0
            and (query.threshold is None or score >= query.threshold)
        ]
        return tuple(sorted(hits, key=lambda hit: -hit.score)[: query.limit])

    def upsert(self, messages: Sequence[IndexedMessage]) -> None:
        for message in messages:
            self.rows[message.resource_id, message.thread_id, message.message_id] = message

    def delete(self, resource_id: str, thread_id: str, message_ids: Sequence[str] | None = None) -> int:
        gone = [
            key
            for key in self.rows
            if key[:2] == (resource_id, thread_id) and (message_ids is None or key[2] in message_ids)
        ]
        for key in gone:
            del self.rows[key]
        return len(gone)

    def delete_resource(self, resource_id: str, *, cursor: Any = None, limit: int = 1_000) -> tuple[int, Any]:
        gone = [key for key in self.rows if key[0] == resource_id][:limit]
        for key in gone:
            del self.rows[key]
        return len(gone), True if len(gone) == limit else None

    def entries(self, places: Sequence[tuple[str, str, str]]) -> tuple[IndexEntry, ...]:
        return tuple(_entry(self.rows[place]) for place in dict.fromkeys(places) if place in self.rows)

    def scan(self, after: str | None, limit: int) -> IndexPage:
        rest = [key for key in sorted(self.rows) if after is None or list(key) > json.loads(after)]
        found = tuple(_entry(self.rows[key]) for key in rest[:limit])
        return IndexPage(found, json.dumps(rest[limit - 1]) if len(rest) > limit else None)

    def _score(self, query: IndexQuery, row: IndexedMessage) -> float:
        word = 0.0
        if query.text is not None:
            wanted = set(re.findall(r"\w+", query.text.lower()))
            word = len(wanted & set(re.findall(r"\w+", row.text.lower()))) / max(len(wanted), 1)
        near = 0.0
        if query.vector is not None:
            near = max((cosine(query.vector, vector) for vector in row.vectors), default=0.0)
        return {"text": word, "vector": near, "hybrid": 0.7 * word + 0.3 * near}[query.mode]


def cosine(a: Sequence[float], b: Sequence[float]) -> float:
    size = math.hypot(*a) * math.hypot(*b)
    return sum(x * y for x, y in zip(a, b, strict=True)) / size if size else 0.0


def index_thread(
    store: MessageStore, index: ListIndex, embedder: WordEmbedder, resource_id: str, thread_id: str
) -> None:
    """Write a thread's messages to the index, as the indexer would."""
    header = store.get_thread(resource_id, thread_id)
    assert header is not None
    messages = store.list_messages(header, MessageQuery(per_page=None)).messages
    index.upsert([indexed(message, embedder) for message in messages])


def indexed(message: Message, embedder: WordEmbedder) -> IndexedMessage:
    return IndexedMessage(
        resource_id=message.resource_id or "",
        thread_id=message.thread_id or "",
        message_id=message.id,
        seq=message.seq or 0,
        version=message.version or 0,
        role=message.role,
        created_at=message.created_at,
        text=message.text,
        metadata=message.metadata,
        vectors=(tuple(embedder.embed_query(message.text)),),
    )
