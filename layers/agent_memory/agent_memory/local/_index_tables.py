"""The SQLite file of an embedded index: its tables, whose vectors they hold, and the tables that take their place."""

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
from typing import Any, Final, Self

from agent_memory.errors import ConfigurationError, InvalidInputError, UnavailableError
from agent_memory.recall.naming import name_of

BUSY_TIMEOUT_S: Final = 5.0
NEXT: Final = "_next"

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


class IndexTables:
    """An index's file. An index that is being built in its place lies in tables of its own; a rename puts it there."""

    def __init__(self, path: str | Path, embedder_id: str, dimension: int) -> None:
        self.id = name_of(embedder_id, dimension)
        self._identity = {"embedder": embedder_id, "dimension": str(dimension)}
        self._dimension = dimension
        self._lock = threading.RLock()
        self._checked = False
        self._stamps = frozenset({self.id})
        self._keeper: IndexTables | None = None
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

    # -- being built anew

    @property
    def stamps(self) -> frozenset[str]:
        """See `RebuildableIndex.stamps`."""
        return self._stamps

    @property
    def visible_after_s(self) -> float:
        """See `RebuildableIndex.visible_after_s`: what is written is there."""
        return 0.0

    def targets(self) -> tuple[Self, ...]:
        """See `RebuildableIndex.targets`."""
        with self._lock:
            self._set_up()
            with self._transaction() as db:
                names = self._described(db)
                found: list[Self] = []
                self._checked = self._exists(db)
                if self._checked:
                    self._stamps = self._read_stamps(names, "stamps")
                    found.append(self)
                if "stamps.next" in names:
                    found.append(self._next(names))
        return tuple(found)

    def build(self, stamps: Iterable[str]) -> Self:
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
            self._db.execute("PRAGMA secure_delete = ON")  # what is deleted leaves the file, not only the tables
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

    def _next(self, names: Mapping[str, str]) -> Self:
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

    def _rows(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        with self._lock, _translated(self._path):
            return self._db.execute(sql, values).fetchall()


def file_of(path: str | Path, index_id: str) -> Path:
    """The file of one of several indexes of `path`: its name with the index's id before the ending."""
    base = Path(path)
    return base.with_name(f"{base.stem}-{index_id}{base.suffix}")


def _number(names: Mapping[str, str]) -> int:
    return int(names.get("number", "1"))


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
