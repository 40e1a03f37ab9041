"""Embeddings and the index of semantic recall."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol, runtime_checkable

from agent_memory.ports.records import DateRange


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors of one dimension. `id` names the model and belongs to the index's identity."""

    @property
    def id(self) -> str:
        """E.g. ``bedrock:amazon.titan-embed-text-v2:0``."""

    @property
    def dimension(self) -> int:
        """Length of every vector."""

    @property
    def max_chars(self) -> int:
        """The longest text (in characters) that one call embeds; longer text is chunked before."""

    def embed_passages(self, texts: Sequence[str]) -> list[list[float]]:
        """Vectors of stored texts, one each. Raises ModelError."""

    def embed_query(self, text: str) -> list[float]:
        """The vector of a question. Raises ModelError."""


@dataclass(frozen=True, slots=True)
class IndexedMessage:
    """A message as an index holds it: one vector per chunk of its text."""

    resource_id: str
    thread_id: str
    message_id: str
    seq: int
    version: int
    role: str
    created_at: datetime
    text: str
    metadata: Mapping[str, Any]
    vectors: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Hit:
    """A found message. `score` is the true cosine in mode ``vector``, a word score in ``text``, a fused one in ``hybrid``."""

    resource_id: str
    thread_id: str
    message_id: str
    seq: int
    score: float
    version: int = 0


@dataclass(frozen=True, slots=True)
class IndexQuery:
    """A search, always within one resource.

    `date_range` is compared to the millisecond, with both ends inside; who excludes an end looks at the rows.
    """

    resource_id: str
    limit: int
    thread_id: str | None = None
    vector: Sequence[float] | None = None
    text: str | None = None
    mode: Literal["vector", "text", "hybrid"] = "vector"
    metadata: Mapping[str, Any] | None = None
    threshold: float | None = None
    date_range: DateRange | None = None


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """What an index holds of a message, without its text.

    `whole` is False where something older, double or half written lies beside the newest; writing the message again
    mends it.
    """

    resource_id: str
    thread_id: str
    message_id: str
    seq: int
    version: int
    whole: bool = True


@dataclass(frozen=True, slots=True)
class IndexPage:
    """A page of `VectorIndex.scan`. `next` is where the next one goes on; None on the last."""

    entries: tuple[IndexEntry, ...]
    next: str | None


@runtime_checkable
class VectorIndex(Protocol):
    """Search over messages by meaning and by words, within a resource. One index holds one embedder's vectors."""

    @property
    def id(self) -> str:
        """The index's name, which rows are stamped with; holds the embedder and its dimension."""

    def ensure(self) -> None:
        """Create the index if needed; ConfigurationError naming expected and found where it is another embedder's."""

    def search(self, query: IndexQuery) -> tuple[Hit, ...]:
        """The best hits, one per message, best first. One request. Raises UnavailableError."""

    def upsert(self, messages: Sequence[IndexedMessage]) -> None:
        """Write messages; an older version never replaces a newer one. Writing the same again changes nothing."""

    def delete(self, resource_id: str, thread_id: str, message_ids: Sequence[str] | None = None) -> int:
        """Remove these messages, or the whole thread's. Returns how many entries went."""

    def delete_resource(self, resource_id: str, *, cursor: Any = None, limit: int = 1_000) -> tuple[int, Any]:
        """Remove about `limit` entries of a resource, from an index that is being built too.

        Returns how many were found, and a cursor where there may be more.
        """

    def entries(self, places: Sequence[tuple[str, str, str]]) -> tuple[IndexEntry, ...]:
        """What is there of these messages, named by resource, thread and message id. One request for 50 threads."""

    def scan(self, after: str | None, limit: int) -> IndexPage:
        """All messages of all resources, at most `limit` (and 1,000) at a time, in an order that stays. One request.

        A message that comes or goes meanwhile may be missed or shown; every other one is shown once.
        """


@runtime_checkable
class RebuildableIndex(VectorIndex, Protocol):
    """An index that can be built anew beside the one that is searched.

    Rows keep the stamp of the index they were first written for. `stamps` names those whose rows this index holds: its
    own, and after a change of the embedder those of the indexes before it. The stamps are kept in the index itself.
    """

    @property
    def stamps(self) -> frozenset[str]:
        """Stamps of the rows that belong here, as last read from the index."""

    @property
    def visible_after_s(self) -> float:
        """Seconds after which everything that was written is found, 0 where a deletion finds it at once."""

    def targets(self) -> tuple[RebuildableIndex, ...]:
        """What has to be written: this index if it is there, then the one being built in its place. Two requests."""

    def build(self, stamps: Iterable[str]) -> RebuildableIndex:
        """An empty index beside this one for rows of these stamps and its own, or the one that is being built for them.

        One that was begun for other rows is begun anew.
        """

    def switch(self) -> bool:
        """Put what was built in this index's place, at once for every search, and remove the old one.

        False where nothing was being built; a repeat finishes what was begun.
        """

    def drop(self, index_id: str) -> bool:
        """Remove another embedder's index for good, and what was being built in its place; False where there is none."""
