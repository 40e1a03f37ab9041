"""Keeps a vector index in step with the messages table, from the table's stream of changes.

A record only says that something about a message changed. What is written is read from the table again, so records that
come twice, late or out of order do no harm, and the index moves toward what the table holds now.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from agent_memory import clock
from agent_memory.errors import AgentMemoryError
from agent_memory.messages import Message
from agent_memory.ports import MessageStore
from agent_memory.recall.indexing import is_indexed, write_rows
from agent_memory.recall.rows import Place, rows_of
from agent_memory.recall.targets import Target


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
        written: Messages that the searched index holds now.
        deleted: Entries that went from it.
        skipped: Records of rows that belong to no index, or to another.
        failed: Numbers of the records to be delivered again.
        refused: Numbers of the records that were handed to `keep`.
        codes: Codes of the errors that were met.
        lag_s: Age of the oldest record of the batch, in seconds.
    """

    written: int = 0
    deleted: int = 0
    skipped: int = 0
    failed: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    codes: set[str] = field(default_factory=set)
    lag_s: float = 0.0


class Indexer:
    """Applies changes of rows to the indexes that they belong to.

    Args:
        store: Where rows are read again.
        targets: The indexes, see `agent_memory.recall.targets.targets_of`; rows with none of their stamps are left alone.
        keep: Takes the numbers of records that no repeat would mend, or that failed for an index which is not searched
            yet, so that their records can be kept and replayed. None: such records fail like any other.
        again: Takes messages that have to be looked at once more when the index shows all that was written: deleted and
            changed ones, because what was written just before may be invisible now and would stay.
    """

    def __init__(
        self,
        store: MessageStore,
        targets: Sequence[Target],
        *,
        keep: Callable[[Sequence[str]], None] | None = None,
        again: Callable[[Sequence[Place]], None] | None = None,
    ) -> None:
        self._store = store
        self._targets = targets
        self._keep = keep
        self._again = again

    def apply(self, changes: Sequence[Change]) -> Indexed:
        """Bring the indexes up to date for every message that a record names.

        Never raises for what the table, the embedder or the index answer: the records concerned come back in `failed`.
        """
        result = Indexed()
        dated = [change.at for change in changes if change.at is not None]
        if dated:
            result.lag_s = max((clock.now() - min(dated)).total_seconds(), 0.0)
        stamps = frozenset[str]().union(*(target.stamps for target in self._targets))
        numbers, seqs = _places(changes, stamps)
        named = {number for found in numbers.values() for number in found}
        result.skipped = sum(change.number not in named for change in changes)
        rows = self._rows(numbers, seqs, result)
        for target in self._targets:
            own = [place for place in _places(changes, target.stamps)[0] if place in rows]
            self._write(target, [row for place in own if _stays(row := rows[place])], numbers, result)
            self._delete(target, [place for place in own if not _stays(rows[place])], numbers, result)
        self._look_again(changes, rows, numbers, result)
        self._refuse(result)
        # The order of the stream, because delivery goes on from the first of them.
        order = {change.number: place for place, change in enumerate(changes)}
        result.failed = sorted(set(result.failed), key=lambda number: order[number])
        return result

    # -- inside

    def _rows(
        self, numbers: Mapping[Place, list[str]], seqs: Mapping[Place, int], result: Indexed
    ) -> dict[Place, Message | None]:
        """The row of each message, None where it is gone; messages whose table does not answer are left out."""
        by_owner: dict[str, list[Place]] = defaultdict(list)
        for place in numbers:
            by_owner[place[0]].append(place)
        found: dict[Place, Message | None] = {}
        for places in by_owner.values():
            try:
                rows = rows_of(self._store, places, seqs)
            except AgentMemoryError as error:
                result.codes.add(error.code)
                result.failed += _numbers(places, numbers)
            else:
                found |= {place: rows.get(place) for place in places}
        return found

    def _write(
        self, target: Target, rows: Sequence[Message | None], numbers: Mapping[Place, list[str]], result: Indexed
    ) -> None:
        written = write_rows(target.index, target.embedder, [row for row in rows if row is not None])
        if target.leading:
            result.written += written.written
        result.codes |= written.codes
        self._failed(target, _numbers(map(_place, written.failed), numbers), result)
        chosen = result.failed if self._keep is None else result.refused
        chosen += _numbers(map(_place, written.refused), numbers)

    def _delete(
        self, target: Target, places: Sequence[Place], numbers: Mapping[Place, list[str]], result: Indexed
    ) -> None:
        by_thread: dict[tuple[str, str], list[Place]] = defaultdict(list)
        for place in places:
            by_thread[place[:2]].append(place)
        for (owner, thread_id), gone in by_thread.items():
            try:
                deleted = target.index.delete(owner, thread_id, [place[2] for place in gone])
            except AgentMemoryError as error:
                result.codes.add(error.code)
                self._failed(target, _numbers(gone, numbers), result)
            else:
                result.deleted += deleted if target.leading else 0

    def _failed(self, target: Target, numbers: list[str], result: Indexed) -> None:
        # The stream waits for the index that is searched, and for no other.
        chosen = result.failed if target.leading or self._keep is None else result.refused
        chosen += numbers

    def _look_again(
        self,
        changes: Sequence[Change],
        rows: Mapping[Place, Message | None],
        numbers: Mapping[Place, list[str]],
        result: Indexed,
    ) -> None:
        if self._again is None or not any(target.visible_after_s for target in self._targets):
            return
        changed = {(change.resource_id, change.thread_id, change.old_id) for change in changes}
        places = [place for place, row in rows.items() if place in changed or not _stays(row)]
        if not places:
            return
        try:
            self._again(places)
        except AgentMemoryError as error:
            result.codes.add(error.code)
            result.failed += _numbers(places, numbers)

    def _refuse(self, result: Indexed) -> None:
        result.refused = sorted(set(result.refused) - set(result.failed))
        if result.refused and self._keep is not None:
            try:
                self._keep(result.refused)
            except AgentMemoryError as error:
                result.codes.add(error.code)
                result.failed += result.refused
                result.refused = []


def _places(changes: Sequence[Change], stamps: frozenset[str]) -> tuple[dict[Place, list[str]], dict[Place, int]]:
    """The messages that belong here, each with its records, and the last known number of those that have a row."""
    numbers: dict[Place, list[str]] = defaultdict(list)
    seqs: dict[Place, int] = {}
    for change in changes:
        named = []
        if change.new_id is not None and change.index in stamps:
            named.append(change.new_id)
        old_index = change.old_index if change.new_id is not None else change.index
        if change.old_id is not None and change.old_id != change.new_id and old_index in stamps:
            named.append(change.old_id)
        for message_id in named:
            place = (change.resource_id, change.thread_id, message_id)
            numbers[place].append(change.number)
            if message_id == change.new_id:
                seqs[place] = change.seq
    return dict(numbers), seqs


def _numbers(places: Iterable[Place], numbers: Mapping[Place, list[str]]) -> list[str]:
    return [number for place in places for number in numbers[place]]


def _place(row: Message) -> Place:
    return (row.resource_id or "", row.thread_id or "", row.id)


def _stays(row: Message | None) -> bool:
    return row is not None and is_indexed(row)
