"""Compares an index with the table and mends what differs.

The indexer follows changes; this finds what it was never told: documents whose row is gone, rows that never reached the
index, leftovers of writes that were cut off. Nothing here relies on the order in which the indexer works beside it: rows are
read consistently before anything is written or deleted, and once more after.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from agent_memory.errors import ConflictError
from agent_memory.messages import Message
from agent_memory.ports import IndexEntry, MessageStore
from agent_memory.recall.indexing import is_indexed, write_rows
from agent_memory.recall.rows import Place, rows_at, rows_of
from agent_memory.recall.targets import Target

_ROLES = ("user", "assistant")


class Upkeep:
    """Upkeep of one index.

    Args:
        store: The table.
        target: The index.
        again: Takes messages to be looked at once more when the index shows what was written.

    Attributes:
        counts: ``read`` (entries and rows), ``written``, ``deleted`` (entries) and ``refused`` (messages that the embedder
            refuses for good).
    """

    def __init__(
        self, store: MessageStore, target: Target, *, again: Callable[[Sequence[Place]], None] | None = None
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._store = store
        self._target = target
        self._again = again

    def entries(self, after: str | None, limit: int) -> str | None:
        """Hold one page of the index against the table. Returns where the next page goes on, None behind the last.

        Raises UnavailableError, or ModelError where the embedder does not answer; a repeat of the page is harmless.
        """
        page = self._target.index.scan(after, limit)
        known = {_place_of(entry): entry for entry in page.entries}
        self.counts["read"] += len(known)
        by_owner: dict[str, dict[Place, int]] = defaultdict(dict)
        for place, entry in known.items():
            by_owner[place[0]][place] = entry.seq
        rows: dict[Place, Message] = {}
        for owner, seqs in by_owner.items():
            # At half the price; what looks wrong is read again, consistently.
            rows |= rows_at(self._store, owner, seqs, live_only=True, consistent=False)
        wrong = {
            place: entry
            for place, entry in known.items()
            if (row := rows.get(place)) is None or not is_indexed(row) or not _holds(entry, row.seq, row.version)
        }
        self._mend(list(wrong), wrong, {place: entry.seq for place, entry in wrong.items()})
        return page.next

    def rows(self, cursor: Any, limit: int, *, before: datetime | None = None, consistent: bool = False) -> Any:
        """Hold one page of the table against the index. Returns the next page's cursor, None behind the last.

        Args:
            cursor: From the call before.
            limit: Rows that one request reads.
            before: Leave out messages of that time and later, which the indexer may still have before it.
            consistent: Whether rows of this moment must be seen.

        Raises UnavailableError, or ModelError where the embedder does not answer; a repeat of the page is harmless.
        """
        found, following = self._store.scan_messages(limit=limit, cursor=cursor, consistent=consistent)
        self.counts["read"] += len(found)
        mine = {
            (row.resource_id, row.thread_id, row.message_id): row
            for row in found
            if row.index in self._target.stamps and row.role in _ROLES and (before is None or row.created_at < before)
        }
        known = self._known(list(mine))
        wrong = [
            place
            for place, row in mine.items()
            if (entry := known.get(place)) is None or not _holds(entry, row.seq, row.version)
        ]
        self._mend(wrong, known, {place: mine[place].seq for place in wrong})
        return following

    def look(self, places: Sequence[Place]) -> None:
        """Hold these messages against the table."""
        known = self._known(places)
        self._mend(places, known, {place: entry.seq for place, entry in known.items()})

    # -- inside

    def _known(self, places: Sequence[Place]) -> dict[Place, IndexEntry]:
        return {_place_of(entry): entry for entry in self._target.index.entries(places)}

    def _mend(self, places: Sequence[Place], known: Mapping[Place, IndexEntry], seqs: Mapping[Place, int]) -> None:
        if not places:
            return
        rows = rows_of(self._store, places, seqs, live_only=True)
        rows |= self._coming([place for place in places if place not in rows], seqs)
        kept = {place: row for place, row in rows.items() if is_indexed(row)}
        self._write(
            [
                row
                for place, row in kept.items()
                if (entry := known.get(place)) is None or not _holds(entry, row.seq, row.version)
            ]
        )
        self._delete([place for place in places if place in known and place not in kept])

    def _write(self, rows: Sequence[Message]) -> None:
        written = write_rows(self._target.index, self._target.embedder, rows)
        self.counts["written"] += written.written
        self.counts["refused"] += len(written.refused)
        if written.error is not None:
            raise written.error
        places = {(row.resource_id or "", row.thread_id or "", row.id): row.seq or 0 for row in rows}
        # The indexer may have deleted one of them while it was embedded here.
        there = rows_of(self._store, list(places), places)
        vanished = [place for place in places if place not in there]
        self._delete(vanished)
        if vanished and self._again is not None and self._target.visible_after_s:
            self._again(vanished)

    def _delete(self, places: Sequence[Place]) -> None:
        by_thread: dict[tuple[str, str], list[str]] = defaultdict(list)
        for owner, thread_id, message_id in places:
            by_thread[owner, thread_id].append(message_id)
        for (owner, thread_id), ids in by_thread.items():
            self.counts["deleted"] += self._target.index.delete(owner, thread_id, ids)

    def _coming(self, places: Sequence[Place], seqs: Mapping[Place, int]) -> dict[Place, Message]:
        """Rows that will be shown in a moment, by no further change of them: a copy or an import writes its rows first."""
        hidden = rows_of(self._store, places, seqs)
        ends = {place[:2]: self._end_of(*place[:2]) for place in hidden}
        return {place: row for place, row in hidden.items() if (row.seq or 0) >= ends[place[:2]]}

    def _end_of(self, owner: str, thread_id: str) -> float:
        """The number from which on a thread's rows are still to be shown."""
        try:
            header = self._store.begin_turn(owner, thread_id, None).header
        except ConflictError:
            return 0
        return float("inf") if header is None else header.next_seq


def _holds(entry: IndexEntry, seq: int | None, version: int | None) -> bool:
    return entry.whole and (entry.seq, entry.version) == (seq, version)


def _place_of(entry: IndexEntry) -> Place:
    return (entry.resource_id, entry.thread_id, entry.message_id)
