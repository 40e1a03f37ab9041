"""A vector index in one SQLite file: exact cosine with numpy, words with FTS5."""

from __future__ import annotations

import copy
import json
import sqlite3
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from re import fullmatch
from typing import TYPE_CHECKING, Any, Final

from agent_memory import clock
from agent_memory.errors import ConfigurationError, InvalidInputError, UnavailableError
from agent_memory.ports import Hit, IndexedMessage, IndexEntry, IndexPage, IndexQuery
from agent_memory.recall.fusion import best, candidates, fuse
from agent_memory.recall.naming import name_of
from agent_memory.recall.tags import tags_of, wanted_tags
from agent_memory.recall.words import words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BUSY_TIMEOUT_S: Final = 5.0
MAX_SCAN: Final = 1_000
NEXT: Final = "_next"
SCORE_DECIMALS: Final = 6  # float32 holds no more, and a score on the threshold must not fall below it
_MAX_QUERY_WORDS: Final = 64

_IDENTITY: Final = "CREATE TABLE IF NOT EXISTS identity (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID"
# Ids are compared byte by byte: SQLite's default collation of TEXT.
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS messages{suffix} (
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
CREATE VIRTUAL TABLE IF NOT EXISTS terms{suffix} USING fts5(words, tokenize = 'porter unicode61');
"""


class EmbeddedIndex:
    """Semantic and word search in one process, or in several on one machine that share the file.

    A search by meaning reads the vectors of the resource (or thread): below 1 ms for a thread of 200 messages,
    about 25 ms for a resource of 5,000.

    An index that is being built in place of this one lies in tables of its own beside it; a rename puts it in place.

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
        self._stamps = frozenset({self.id})
        self._keeper: EmbeddedIndex | None = None
        self._building: int | None = None  # number of the index that is being built, where this is a handle on it
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
            self._set_up()
            with self._transaction() as db:
                names = self._described(db)
                if "stamps.next" in names and not self._exists(db):
                    raise UnavailableError(
                        f"index {self.id} is being built by a re-index, which has to finish first",
                        code="INDEX_BEING_BUILT",
                    )
                self._create(db, "")
                self._stamps = self._read_stamps(names, "stamps")
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
        return removed, True if removed >= limit else None

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

    # -- being built anew

    @property
    def stamps(self) -> frozenset[str]:
        """See `RebuildableIndex.stamps`."""
        return self._stamps

    @property
    def visible_after_s(self) -> float:
        """See `RebuildableIndex.visible_after_s`: what is written is there."""
        return 0.0

    def targets(self) -> tuple[EmbeddedIndex, ...]:
        """See `RebuildableIndex.targets`."""
        with self._lock:
            self._set_up()
            with self._transaction() as db:
                names = self._described(db)
                found: list[EmbeddedIndex] = []
                self._checked = self._exists(db)
                if self._checked:
                    self._stamps = self._read_stamps(names, "stamps")
                    found.append(self)
                if "stamps.next" in names:
                    found.append(self._next(names))
        return tuple(found)

    def build(self, stamps: Iterable[str]) -> EmbeddedIndex:
        """See `RebuildableIndex.build`."""
        with self._lock:
            self._set_up()
            with self._transaction() as db:
                names = self._described(db)
                wanted = {self.id, *stamps}
                if "stamps.next" not in names or not wanted <= self._read_stamps(names, "stamps.next"):
                    for table in ("messages", "terms"):
                        db.execute(f"DROP TABLE IF EXISTS {table}{NEXT}")
                    self._create(db, NEXT)
                    names["stamps.next"] = json.dumps(sorted(wanted))
                    db.execute("INSERT OR REPLACE INTO identity VALUES (?, ?)", ("stamps.next", names["stamps.next"]))
                return self._next(names)

    def switch(self) -> bool:
        """See `RebuildableIndex.switch`. One transaction."""
        with self._lock:
            self._set_up()
            with self._transaction() as db:
                names = self._described(db)
                stamps = names.get("stamps.next")
                if stamps is None:
                    return False
                for table in ("messages", "terms"):
                    db.execute(f"DROP TABLE IF EXISTS {table}")
                    db.execute(f"ALTER TABLE {table}{NEXT} RENAME TO {table}")
                db.execute("DELETE FROM identity WHERE name = 'stamps.next'")
                changed = {"stamps": stamps, "number": str(_number(names) + 1)}
                db.executemany("INSERT OR REPLACE INTO identity VALUES (?, ?)", changed.items())
                self._stamps = frozenset(json.loads(stamps))
            self._checked = True
        return True

    def drop(self, index_id: str) -> bool:
        """See `RebuildableIndex.drop`: removes the file that `file_of` gives the other index."""
        own = Path(self._path)
        if index_id == self.id or self._path == ":memory:" or not own.stem.endswith(f"-{self.id}"):
            raise InvalidInputError("index", f"expected an index beside {self._path}, found {index_id:.80}")
        if not fullmatch(r"[a-z0-9-]+", index_id):
            raise InvalidInputError("index", f"expected the id of an index, found {index_id:.80}")
        other = own.with_name(f"{own.stem.removesuffix(self.id)}{index_id}{own.suffix}")
        if not other.exists():
            return False
        for file in (other, other.with_name(f"{other.name}-wal"), other.with_name(f"{other.name}-shm")):
            file.unlink(missing_ok=True)
        return True

    # -- inside

    def _set_up(self) -> None:
        """Make the file what it must be, and check whose vectors it holds."""
        with _translated(self._path):
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
        with self._transaction() as db:
            db.execute(_IDENTITY)
            db.executemany("INSERT OR IGNORE INTO identity VALUES (?, ?)", self._identity.items())
            found = self._described(db)
        if {name: found.get(name) for name in self._identity} != self._identity:
            raise ConfigurationError(
                f"expected {self._path} to hold vectors of {self._identity['embedder']} with "
                f"{self._identity['dimension']} dimensions, found those of {found.get('embedder')} with "
                f"{found.get('dimension')}; give each embedder a file of its own and index again",
                code="INDEX_MISMATCH",
            )

    def _create(self, db: sqlite3.Connection, suffix: str) -> None:
        # executescript would commit the transaction that keeps two processes apart.
        for statement in _SCHEMA.format(suffix=suffix).split(";\n"):
            if statement.strip():
                db.execute(statement)

    def _described(self, db: sqlite3.Connection) -> dict[str, str]:
        return dict(db.execute("SELECT name, value FROM identity"))

    def _exists(self, db: sqlite3.Connection) -> bool:
        return bool(db.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'messages'").fetchone())

    def _read_stamps(self, names: Mapping[str, str], name: str) -> frozenset[str]:
        return frozenset(json.loads(names[name])) if name in names else frozenset({self.id})

    def _next(self, names: Mapping[str, str]) -> EmbeddedIndex:
        """A handle on the index that is being built. It keeps this one, whose end closes the file."""
        made = copy.copy(self)
        made._keeper = self
        made._building = _number(names) + 1
        made._stamps = self._read_stamps(names, "stamps.next")
        made._checked = True
        return made

    def _suffix(self) -> str:
        """What the names of the tables end with: nothing again once what was being built is in its place."""
        if self._building is None:
            return ""
        rows = self._rows("SELECT value FROM identity WHERE name = 'number'", ())
        return NEXT if self._building > (int(rows[0][0]) if rows else 1) else ""

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
        asked = list(dict.fromkeys(words(query.text)))[:_MAX_QUERY_WORDS]
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

    def _rows(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        with self._lock, _translated(self._path):
            return self._db.execute(sql, values).fetchall()


def file_of(path: str | Path, index_id: str) -> Path:
    """The file of one of several indexes of `path`: its name with the index's id before the ending."""
    base = Path(path)
    return base.with_name(f"{base.stem}-{index_id}{base.suffix}")


def _number(names: Mapping[str, str]) -> int:
    return int(names.get("number", "1"))


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
