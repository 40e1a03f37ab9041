"""A vector index in one SQLite file: exact cosine with numpy, words with FTS5."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from agent_memory import clock
from agent_memory.errors import ConfigurationError, InvalidInputError
from agent_memory.local._index_tables import IndexTables, file_of
from agent_memory.ports import Hit, IndexedMessage, IndexEntry, IndexPage, IndexQuery
from agent_memory.recall.fusion import best, candidates, fuse
from agent_memory.recall.tags import tags_of, wanted_tags
from agent_memory.recall.words import words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["EmbeddedIndex", "file_of"]

MAX_SCAN: Final = 1_000
SCORE_DECIMALS: Final = 6  # float32 holds no more, and a score on the threshold must not fall below it
_MAX_QUERY_WORDS: Final = 64


class EmbeddedIndex(IndexTables):
    """Semantic and word search in one process, or in several on one machine that share the file.

    A search by meaning reads the vectors of the resource (or thread): below 1 ms for a thread of 200 messages,
    about 25 ms for a resource of 5,000.

    Args:
        path: The file, made with its folder if needed; ``:memory:`` keeps nothing.
        embedder_id: The embedder's id.
        dimension: Length of its vectors.
    """

    def search(self, query: IndexQuery) -> tuple[Hit, ...]:
        """See `VectorIndex.search`. `threshold` applies to the cosine, in mode ``vector``."""
        if not query.resource_id:
            raise InvalidInputError("resource_id", "expected the owner of the messages, found none")
        tags = wanted_tags(query.metadata)
        if query.limit < 1:
            return ()
        self.ensure()
        if query.mode == "vector":
            hits = self._by_vector(query, tags)
            if query.threshold is not None:
                hits = [hit for hit in hits if hit.score >= query.threshold]
            return best(hits, query.limit)
        if query.mode == "text":
            return best(self._by_words(query, tags, query.limit), query.limit)
        depth = candidates(query.limit)
        near = best(self._by_vector(query, tags), depth) if query.vector is not None else ()
        return fuse(near, self._by_words(query, tags, depth), query.limit)

    def upsert(self, messages: Sequence[IndexedMessage]) -> None:
        """See `VectorIndex.upsert`. Raises ConfigurationError for vectors of another length."""
        import numpy as np

        self.ensure()
        rows = []
        for message in messages:
            self._check(message)
            vectors = np.asarray(message.vectors, dtype=np.float32).reshape(-1, self._dimension)
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
            rows.append((message, (vectors / np.where(lengths == 0, 1, lengths)).astype("<f4").tobytes()))
        with self._transaction() as db:
            suffix = self._suffix()
            for message, blob in rows:
                self._put(db, message, blob, suffix)

    def delete(self, resource_id: str, thread_id: str, message_ids: Sequence[str] | None = None) -> int:
        """See `VectorIndex.delete`."""
        self.ensure()
        with self._transaction() as db:
            suffix = self._suffix()
            place = f"SELECT row FROM messages{suffix} WHERE resource = ? AND thread = ?"
            if message_ids is None:
                rows = [row for (row,) in db.execute(place, (resource_id, thread_id))]
            else:
                rows = []
                for message_id in dict.fromkeys(message_ids):
                    rows += [
                        row for (row,) in db.execute(f"{place} AND message = ?", (resource_id, thread_id, message_id))
                    ]
            for row in rows:
                db.execute(f"DELETE FROM terms{suffix} WHERE rowid = ?", (row,))
                db.execute(f"DELETE FROM messages{suffix} WHERE row = ?", (row,))
        return len(rows)

    def delete_resource(
        self,
        resource_id: str,
        *,
        cursor: Any = None,  # noqa: ARG002 - what is gone tells the next call where to go on
        limit: int = 1_000,
    ) -> tuple[int, Any]:
        """See `VectorIndex.delete_resource`."""
        removed = 0
        for index in self.targets():
            with index._transaction() as db:
                suffix = index._suffix()
                found = db.execute(
                    f"SELECT row FROM messages{suffix} WHERE resource = ? LIMIT ?", (resource_id, limit - removed)
                ).fetchall()
                db.executemany(f"DELETE FROM terms{suffix} WHERE rowid = ?", found)
                db.executemany(f"DELETE FROM messages{suffix} WHERE row = ?", found)
            removed += len(found)
        if removed >= limit:
            return removed, True
        if removed:
            for index in self.targets():
                index._forget()
        return removed, None

    def entries(self, places: Sequence[tuple[str, str, str]]) -> tuple[IndexEntry, ...]:
        """See `VectorIndex.entries`."""
        self.ensure()
        with self._lock:
            columns = f"SELECT resource, thread, message, seq, version FROM messages{self._suffix()}"
            where = "WHERE resource = ? AND thread = ? AND message = ?"
            return tuple(
                IndexEntry(*row) for place in dict.fromkeys(places) for row in self._rows(f"{columns} {where}", place)
            )

    def scan(self, after: str | None, limit: int) -> IndexPage:
        """See `VectorIndex.scan`."""
        self.ensure()
        place = ("", "", "") if after is None else json.loads(after)
        size = min(limit, MAX_SCAN)
        with self._lock:
            rows = self._rows(
                f"SELECT resource, thread, message, seq, version FROM messages{self._suffix()} "
                "WHERE (resource, thread, message) > (?, ?, ?) ORDER BY resource, thread, message LIMIT ?",
                (*place, size),
            )
        return IndexPage(
            tuple(IndexEntry(*row) for row in rows), json.dumps(rows[-1][:3]) if len(rows) == size else None
        )

    # -- inside

    def _forget(self) -> None:
        """Take the words of deleted rows out of the file: the word index keeps them until its segments are merged."""
        with self._transaction() as db:
            suffix = self._suffix()
            db.execute(f"INSERT INTO terms{suffix} (terms{suffix}) VALUES ('optimize')")
        with self._lock:
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _put(self, db: sqlite3.Connection, message: IndexedMessage, blob: bytes, suffix: str) -> None:
        key = (message.resource_id, message.thread_id, message.message_id)
        stored = db.execute(
            f"SELECT row, seq, version FROM messages{suffix} WHERE resource = ? AND thread = ? AND message = ?", key
        ).fetchone()
        if stored is not None:
            row, seq, version = stored
            # A message that is stored again after a deletion, or moved by an import, has a higher number.
            if (seq, version) > (message.seq, message.version):
                return
            db.execute(f"DELETE FROM terms{suffix} WHERE rowid = ?", (row,))
            db.execute(f"DELETE FROM messages{suffix} WHERE row = ?", (row,))
        tags = json.dumps(tags_of(message.metadata))
        fields = (*key, message.seq, message.version, message.role, clock.to_ms(message.created_at), tags, blob)
        row = db.execute(
            f"INSERT INTO messages{suffix} (resource, thread, message, seq, version, role, created, tags, vectors) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            fields,
        ).lastrowid
        text = _storable(" ".join(words(message.text)))
        db.execute(f"INSERT INTO terms{suffix} (rowid, words) VALUES (?, ?)", (row, text))

    def _check(self, message: IndexedMessage) -> None:
        wrong = next((len(vector) for vector in message.vectors if len(vector) != self._dimension), None)
        if wrong is not None:
            raise _other_dimension(self.id, self._dimension, wrong)

    def _by_vector(self, query: IndexQuery, tags: Sequence[str]) -> list[Hit]:
        import numpy as np

        if query.vector is None:
            raise InvalidInputError("vector", f"expected a vector for a search in mode {query.mode}, found none")
        if len(query.vector) != self._dimension:
            raise _other_dimension(self.id, self._dimension, len(query.vector))
        wanted = np.asarray(query.vector, dtype=np.float32)
        length = float(np.linalg.norm(wanted))
        where, values = _where(query, tags)
        with self._lock:
            rows = self._rows(
                f"SELECT thread, message, seq, version, vectors FROM messages{self._suffix()} m WHERE {where}", values
            )
        rows = [row for row in rows if row[4]]
        if not rows:
            return []
        scores = self._cosines([row[4] for row in rows], wanted / (length or 1.0))
        return [
            Hit(query.resource_id, thread, message, seq, round(float(score), SCORE_DECIMALS), version)
            for (thread, message, seq, version, _), score in zip(rows, scores, strict=True)
        ]

    def _cosines(self, blobs: Sequence[bytes], wanted: NDArray[np.float32]) -> NDArray[np.float32]:
        """The cosine of each message's best chunk."""
        import numpy as np

        chunk_scores = np.frombuffer(b"".join(blobs), dtype="<f4").reshape(-1, self._dimension) @ wanted
        ends = np.cumsum([len(blob) // (4 * self._dimension) for blob in blobs])
        starts = np.concatenate(([0], ends[:-1]))
        found: NDArray[np.float32] = np.maximum.reduceat(chunk_scores, starts)
        return found

    def _by_words(self, query: IndexQuery, tags: Sequence[str], limit: int) -> list[Hit]:
        if query.text is None:
            raise InvalidInputError("text", f"expected a text for a search in mode {query.mode}, found none")
        asked = list(dict.fromkeys(words(query.text)))
        if len(asked) > _MAX_QUERY_WORDS:  # of a long question its beginning and its end, where the request stands
            asked = asked[: _MAX_QUERY_WORDS // 2] + asked[-_MAX_QUERY_WORDS // 2 :]
        if not asked:
            return []
        where, values = _where(query, tags)
        match = " OR ".join(f'"{_storable(word)}"' for word in asked)
        with self._lock:
            suffix = self._suffix()
            terms = f"terms{suffix}"
            rows = self._rows(
                f"SELECT m.thread, m.message, m.seq, m.version, -bm25({terms}) AS score FROM {terms} "
                f"JOIN messages{suffix} m ON m.row = {terms}.rowid WHERE {terms} MATCH ? AND {where} "
                "ORDER BY score DESC LIMIT ?",
                (match, *values, limit),
            )
        return [
            Hit(query.resource_id, thread, message, seq, float(score), version)
            for thread, message, seq, version, score in rows
        ]


def _where(query: IndexQuery, tags: Sequence[str]) -> tuple[str, list[Any]]:
    conditions = ["m.resource = ?"]
    values: list[Any] = [query.resource_id]
    if query.thread_id is not None:
        conditions.append("m.thread = ?")
        values.append(query.thread_id)
    if query.date_range is not None:
        for compared, end in ((">=", query.date_range.start), ("<=", query.date_range.end)):
            if end is not None:
                conditions.append(f"m.created {compared} ?")
                values.append(clock.to_ms(end))
    for tag in tags:
        conditions.append("EXISTS (SELECT 1 FROM json_each(m.tags) WHERE json_each.value = ?)")
        values.append(tag)
    return " AND ".join(conditions), values


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()  # a lone surrogate has no form in the file


def _other_dimension(name: str, expected: int, found: int) -> ConfigurationError:
    return ConfigurationError(
        f"expected vectors of {expected} dimensions for index {name}, found {found}; "
        "use the embedder that the index was made for, or an index of its own for this one",
        code="INDEX_MISMATCH",
    )
