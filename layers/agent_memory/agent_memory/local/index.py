"""A vector index in one SQLite file: exact cosine with numpy, words with FTS5."""

from __future__ import annotations

import json
import sqlite3
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agent_memory import clock
from agent_memory.errors import ConfigurationError, InvalidInputError, UnavailableError
from agent_memory.ports import Hit, IndexedMessage, IndexQuery
from agent_memory.recall.fusion import best, candidates, fuse
from agent_memory.recall.naming import name_of
from agent_memory.recall.tags import tags_of, wanted_tags
from agent_memory.recall.words import words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BUSY_TIMEOUT_S: Final = 5.0
SCORE_DECIMALS: Final = 6  # float32 holds no more, and a score on the threshold must not fall below it
_MAX_QUERY_WORDS: Final = 64

# Ids are compared byte by byte: SQLite's default collation of TEXT.
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS identity (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS messages (
    row INTEGER PRIMARY KEY,
    resource TEXT NOT NULL,
    thread TEXT NOT NULL,
    message TEXT NOT NULL,
    seq INTEGER NOT NULL,
    version INTEGER NOT NULL,
    role TEXT NOT NULL,
    created INTEGER NOT NULL,
    tags TEXT NOT NULL,
    vectors BLOB NOT NULL,
    UNIQUE (resource, thread, message)
);
CREATE VIRTUAL TABLE IF NOT EXISTS terms USING fts5(words, tokenize = 'porter unicode61');
"""


class EmbeddedIndex:
    """Semantic and word search in one process, or in several on one machine that share the file.

    A search by meaning reads the vectors of the resource (or thread): below 1 ms for a thread of 200 messages,
    about 25 ms for a resource of 5,000.

    Args:
        path: The file, made with its folder if needed; ``:memory:`` keeps nothing.
        embedder_id: The embedder's id.
        dimension: Length of its vectors.
    """

    def __init__(self, path: str | Path, embedder_id: str, dimension: int) -> None:
        self.id = name_of(embedder_id, dimension)
        self._identity = {"embedder": embedder_id, "dimension": str(dimension)}
        self._dimension = dimension
        self._lock = threading.RLock()
        self._checked = False
        if str(path) != ":memory:":
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        self._path = str(path)
        self._db = sqlite3.connect(self._path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        self._closing = weakref.finalize(self, self._db.close)

    def close(self) -> None:
        """Close the file. The index is of no use after it."""
        with self._lock:
            self._closing()

    def ensure(self) -> None:
        """Create the tables if needed. Raises ConfigurationError where the file holds another embedder's vectors."""
        with self._lock:
            if self._checked:
                return
            with _translated(self._path):
                self._db.execute("PRAGMA journal_mode = WAL")
                self._db.execute("PRAGMA synchronous = NORMAL")
            with self._transaction() as db:
                # executescript would commit the transaction that keeps two processes apart.
                for statement in _SCHEMA.split(";\n"):
                    if statement.strip():
                        db.execute(statement)
                db.executemany("INSERT OR IGNORE INTO identity VALUES (?, ?)", self._identity.items())
                found = dict(db.execute("SELECT name, value FROM identity"))
            if found != self._identity:
                raise ConfigurationError(
                    f"expected {self._path} to hold vectors of {self._identity['embedder']} with "
                    f"{self._identity['dimension']} dimensions, found those of {found.get('embedder')} with "
                    f"{found.get('dimension')}; give each embedder a file of its own and index again",
                    code="INDEX_MISMATCH",
                )
            self._checked = True

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
            for message, blob in rows:
                self._put(db, message, blob)

    def delete(self, resource_id: str, thread_id: str, message_ids: Sequence[str] | None = None) -> int:
        """See `VectorIndex.delete`."""
        self.ensure()
        with self._transaction() as db:
            place = "SELECT row FROM messages WHERE resource = ? AND thread = ?"
            if message_ids is None:
                rows = [row for (row,) in db.execute(place, (resource_id, thread_id))]
            else:
                rows = []
                for message_id in dict.fromkeys(message_ids):
                    rows += [
                        row for (row,) in db.execute(f"{place} AND message = ?", (resource_id, thread_id, message_id))
                    ]
            for row in rows:
                db.execute("DELETE FROM terms WHERE rowid = ?", (row,))
                db.execute("DELETE FROM messages WHERE row = ?", (row,))
        return len(rows)

    # -- inside

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, _translated(self._path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def _put(self, db: sqlite3.Connection, message: IndexedMessage, blob: bytes) -> None:
        key = (message.resource_id, message.thread_id, message.message_id)
        stored = db.execute(
            "SELECT row, seq, version FROM messages WHERE resource = ? AND thread = ? AND message = ?", key
        ).fetchone()
        if stored is not None:
            row, seq, version = stored
            # A message that is stored again after a deletion, or moved by an import, has a higher number.
            if (seq, version) > (message.seq, message.version):
                return
            db.execute("DELETE FROM terms WHERE rowid = ?", (row,))
            db.execute("DELETE FROM messages WHERE row = ?", (row,))
        tags = json.dumps(tags_of(message.metadata))
        fields = (*key, message.seq, message.version, message.role, clock.to_ms(message.created_at), tags, blob)
        row = db.execute(
            "INSERT INTO messages (resource, thread, message, seq, version, role, created, tags, vectors) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            fields,
        ).lastrowid
        db.execute("INSERT INTO terms (rowid, words) VALUES (?, ?)", (row, _storable(" ".join(words(message.text)))))

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
        rows = self._rows(f"SELECT thread, message, seq, version, vectors FROM messages m WHERE {where}", values)
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
        asked = list(dict.fromkeys(words(query.text)))[:_MAX_QUERY_WORDS]
        if not asked:
            return []
        where, values = _where(query, tags)
        match = " OR ".join(f'"{_storable(word)}"' for word in asked)
        rows = self._rows(
            "SELECT m.thread, m.message, m.seq, m.version, -bm25(terms) AS score FROM terms "
            f"JOIN messages m ON m.row = terms.rowid WHERE terms MATCH ? AND {where} ORDER BY score DESC LIMIT ?",
            (match, *values, limit),
        )
        return [
            Hit(query.resource_id, thread, message, seq, float(score), version)
            for thread, message, seq, version, score in rows
        ]

    def _rows(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        with self._lock, _translated(self._path):
            return self._db.execute(sql, values).fetchall()


def _where(query: IndexQuery, tags: Sequence[str]) -> tuple[str, list[Any]]:
    conditions, values = ["m.resource = ?"], [query.resource_id]
    if query.thread_id is not None:
        conditions.append("m.thread = ?")
        values.append(query.thread_id)
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


@contextmanager
def _translated(path: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise UnavailableError(
            f"the vector index at {path} does not answer: {error}", code="INDEX_UNAVAILABLE"
        ) from error
    except sqlite3.DatabaseError as error:
        raise ConfigurationError(
            f"expected {path} to be a vector index of this library, found another file: {error}", code="INDEX_MISMATCH"
        ) from error
