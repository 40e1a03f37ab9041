"""Keeps a vector index in step with the messages table, from the table's stream of changes.

A record only says that something about a message changed. What is written is read from the table again, so records that
come twice, late or out of order do no harm, and the index moves toward what the table holds now.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeAlias

from agent_memory import clock
from agent_memory.errors import AgentMemoryError, ModelError, UnavailableError
from agent_memory.messages import Message
from agent_memory.ports import Embedder, MessageStore, VectorIndex
from agent_memory.recall.indexing import index_messages, is_indexed

Place: TypeAlias = tuple[str, str, str]
"""Resource, thread and message id."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one row, as its stream record tells it.

    Attributes:
        number: The record's sequence number.
        resource_id, thread_id, seq: The row's place.
        new_id, old_id: Id of the message that stands there after and before; None for no row.
        index: The index that the row is stamped with (the new row's stamp, else the old one's); None when recall was off.
        at: When the row changed; None where the record does not say.
    """

    number: str
    resource_id: str
    thread_id: str
    seq: int
    new_id: str | None
    old_id: str | None
    index: str | None
    old_index: str | None = None
    at: datetime | None = None


@dataclass(slots=True)
class Indexed:
    """What one batch came to.

    Attributes:
        written: Messages that the index holds now.
        deleted: Entries that went from it.
        skipped: Records of rows that belong to no index, or to another.
        failed: Numbers of the records to be delivered again.
        refused: Numbers of the records that no repeat would mend; they were handed to `keep`.
        lag_s: Age of the oldest record of the batch, in seconds.
    """

    written: int = 0
    deleted: int = 0
    skipped: int = 0
    failed: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    lag_s: float = 0.0


class Indexer:
    """Applies changes of rows to an index.

    Args:
        store: Where rows are read again.
        index: The index; rows stamped with another one's id are left alone.
        embedder: The embedder of that index.
        keep: Takes the numbers of records that were refused for good, so that their records can be kept. None: such
            records fail like any other, and the stream's own rules end them.
    """

    def __init__(
        self,
        store: MessageStore,
        index: VectorIndex,
        embedder: Embedder,
        *,
        keep: Callable[[Sequence[str]], None] | None = None,
    ) -> None:
        self._store = store
        self._index = index
        self._embedder = embedder
        self._keep = keep

    def apply(self, changes: Sequence[Change]) -> Indexed:
        """Bring the index up to date for every message that a record names.

        Never raises for what the table, the embedder or the index answer: the records concerned come back in `failed`.
        """
        result = Indexed()
        dated = [change.at for change in changes if change.at is not None]
        if dated:
            result.lag_s = max((clock.now() - min(dated)).total_seconds(), 0.0)
        numbers, seqs = self._places(changes, result)
        by_owner: dict[str, list[Place]] = defaultdict(list)
        for place in numbers:
            by_owner[place[0]].append(place)
        for owner, places in by_owner.items():
            try:
                rows = self._rows(owner, places, seqs)
            except AgentMemoryError:
                result.failed += [number for place in places for number in numbers[place]]
                continue
            self._write([row for row in rows.values() if is_indexed(row)], numbers, result)
            self._delete([place for place in places if not _stays(rows.get(place))], numbers, result)
        self._refuse(result)
        # The order of the stream, because delivery goes on from the first of them.
        order = {change.number: place for place, change in enumerate(changes)}
        result.failed = sorted(set(result.failed), key=lambda number: order[number])
        return result

    # -- inside

    def _places(self, changes: Sequence[Change], result: Indexed) -> tuple[dict[Place, list[str]], dict[Place, int]]:
        """The messages that are named, each with its records, and the last known number of those that have a row."""
        numbers: dict[Place, list[str]] = defaultdict(list)
        seqs: dict[Place, int] = {}
        for change in changes:
            named = []
            if change.new_id is not None and change.index == self._index.id:
                named.append(change.new_id)
            old_index = change.old_index if change.new_id is not None else change.index
            if change.old_id is not None and change.old_id != change.new_id and old_index == self._index.id:
                named.append(change.old_id)
            if not named:
                result.skipped += 1
            for message_id in named:
                place = (change.resource_id, change.thread_id, message_id)
                numbers[place].append(change.number)
                if message_id == change.new_id:
                    seqs[place] = change.seq
        return numbers, seqs

    def _rows(self, owner: str, places: Sequence[Place], seqs: Mapping[Place, int]) -> dict[Place, Message]:
        """The rows as they are now. A message that left its place is looked for by id: an import may have moved it."""
        known = [place for place in places if place in seqs]
        rows = self._at(owner, known, seqs)
        lost = [place for place in places if place not in rows]
        by_thread: dict[str, list[str]] = defaultdict(list)
        for _, thread_id, message_id in lost:
            by_thread[thread_id].append(message_id)
        moved: dict[Place, int] = {}
        for thread_id, ids in by_thread.items():
            for message_id, seq in self._store.find(owner, thread_id, ids).items():
                moved[owner, thread_id, message_id] = seq
        return rows | self._at(owner, list(moved), moved)

    def _at(self, owner: str, places: Sequence[Place], seqs: Mapping[Place, int]) -> dict[Place, Message]:
        if not places:
            return {}
        found = self._store.get_messages(owner, list(dict.fromkeys((place[1], seqs[place]) for place in places)))
        wanted = set(places)
        named = {(owner, message.thread_id or "", message.id): message for message in found}
        return {place: message for place, message in named.items() if place in wanted}

    def _write(self, rows: Sequence[Message], numbers: Mapping[Place, list[str]], result: Indexed) -> None:
        if not rows:
            return
        try:
            result.written += index_messages(self._index, self._embedder, rows)
            return
        except AgentMemoryError as error:
            if len(rows) == 1 or _is_passing(error):
                chosen = result.failed if _is_passing(error) or self._keep is None else result.refused
                chosen += [number for row in rows for number in numbers[_place(row)]]
                return
        # One message that the provider refuses must not hold up the rest.
        for row in rows:
            self._write([row], numbers, result)

    def _delete(self, places: Sequence[Place], numbers: Mapping[Place, list[str]], result: Indexed) -> None:
        by_thread: dict[tuple[str, str], list[Place]] = defaultdict(list)
        for place in places:
            by_thread[place[:2]].append(place)
        for (owner, thread_id), gone in by_thread.items():
            try:
                result.deleted += self._index.delete(owner, thread_id, [place[2] for place in gone])
            except AgentMemoryError:
                result.failed += [number for place in gone for number in numbers[place]]

    def _refuse(self, result: Indexed) -> None:
        result.refused = sorted(set(result.refused) - set(result.failed))
        if result.refused and self._keep is not None:
            try:
                self._keep(result.refused)
            except AgentMemoryError:
                result.failed += result.refused
                result.refused = []


def _place(row: Message) -> Place:
    return (row.resource_id or "", row.thread_id or "", row.id)


def _stays(row: Message | None) -> bool:
    return row is not None and is_indexed(row)


def _is_passing(error: AgentMemoryError) -> bool:
    return isinstance(error, UnavailableError) or (isinstance(error, ModelError) and error.retryable)


LAG_METRIC: Final = "IndexLag"
"""Name of the metric that shows `Indexed.lag_s`, in seconds."""
