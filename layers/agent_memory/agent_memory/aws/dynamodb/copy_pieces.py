"""The rows of a thread that is built or moved, a bounded piece at a time, under a header that hides them until the end."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from agent_memory import clock
from agent_memory.aws._pool import together
from agent_memory.aws.dynamodb import keys
from agent_memory.aws.dynamodb.base import being_built
from agent_memory.aws.dynamodb.client import ConditionFailed, TransactionRefused
from agent_memory.aws.dynamodb.items import StoredHeader, is_due
from agent_memory.aws.dynamodb.pages import Pages
from agent_memory.aws.dynamodb.threads import Threads
from agent_memory.aws.dynamodb.uses import uses_of_rows
from agent_memory.aws.dynamodb.values import Item, expression, size_of, to_item
from agent_memory.errors import ConflictError, NotFoundError, StorageError, UnavailableError
from agent_memory.ids import derived_id
from agent_memory.messages import Message
from agent_memory.ports import Thread, ThreadCopy, ThreadHeader

ROWS = 1_000  # of a piece
_BYTES = 8_000_000  # of a piece, overflow bodies included

Carry = Callable[[Sequence[Message]], None]


class CopyPieces(Pages, Threads):
    """Writes copies of rows in the place of a thread that nobody sees yet."""

    def copy_rows(self, copy: ThreadCopy, *, again: bool = False, carry: Carry | None = None) -> ThreadCopy:
        """See `MessageStore.copy_rows`. For 1,000 rows of 1 KB: 40 batches of 25, and one or two reads of them.

        One or two more where it looks again.
        """
        if copy.all_read:
            return copy
        between = self._between(self._source_header(copy), copy.bottom, copy.at)
        rows: list[Item] = []
        size = 0
        reached = copy.bottom
        for row in self._db.query(self._messages, page_limit=ROWS, ScanIndexForward=False, **between):
            rows.append(row)
            size += size_of(row) + int(row.get("body_bytes", {"N": "0"})["N"])
            if len(rows) >= ROWS or size >= _BYTES:
                reached = int(row["sk"]["N"])
                break
        return self._copy_piece(copy, rows, reached, again=again or copy.looks_again, carry=carry)

    def keep_copy(self, copy: ThreadCopy) -> ThreadCopy:
        """See `MessageStore.keep_copy`. One request."""
        try:
            self._db.update(
                self._threads,
                self._header_key(copy.resource_id, copy.thread_id),
                **expression(
                    update="SET #until = :until, #next_seq = :next",
                    condition="#incarnation = :incarnation AND #state = :building",
                    until=clock.to_ms(self._clock()) + keys.COPY_LIFETIME_MS,
                    next=copy.first_seq + copy.high - copy.low,
                    incarnation=copy.incarnation,
                    building="building",
                ),
            )
        except ConditionFailed as refused:
            raise build_lost(copy.thread_id) from refused
        return copy

    def copied_thread(self, copy: ThreadCopy) -> Thread:
        """See `MessageStore.copied_thread`. One request."""
        return self._building(copy).header.thread

    def abandon_copy(self, copy: ThreadCopy) -> None:
        """See `MessageStore.abandon_copy`. One request."""
        epoch = clock.EPOCH
        thread = Thread(copy.thread_id, copy.resource_id, epoch, epoch)
        self._abandon(ThreadHeader(thread, copy.first_seq, copy.first_seq, 0, copy.incarnation))

    def _copy_piece(
        self, copy: ThreadCopy, rows: Sequence[Item], reached: int, *, again: bool = False, carry: Carry | None = None
    ) -> ThreadCopy:
        """Write `rows`, the newest first, which are all of the source with ``reached <= number < copy.at``."""
        kept = [row for row in rows if self._is_chosen(copy, row)]
        left = None if copy.choice.limit is None else copy.choice.limit - copy.rows
        if left is not None and len(kept) >= left:
            kept = kept[:left]
            reached = int(kept[-1]["sk"]["N"]) if kept else reached
        there = self._written(copy, reached) if again else {}
        offset = copy.first_seq - copy.low
        changed = [row for row in kept if not self._is_equal(copy, row, there.get(int(row["sk"]["N"]) + offset))]
        if changed and carry is not None:
            carry(self._read(reversed(changed)))
        bodies = self._copied_bodies(copy, [row for row in changed if "body" in row])
        items = [self._copied_row(copy, row, offset, bodies) for row in changed]
        self._put_rows(items)
        kept_numbers = {int(row["sk"]["N"]) + offset for row in kept}
        self._delete_rows([row for number, row in there.items() if number not in kept_numbers])
        written = {item["sk"]["N"] for item in items}
        self._drop_bodies(row.get("body", {}).get("S") for row in there.values() if row["sk"]["N"] in written)
        expiring = copy.seed is not None and self._retention_s is not None
        return _after(copy, kept, reached, enough=left is not None and len(kept) >= left, expiring=expiring)

    def _is_chosen(self, copy: ThreadCopy, row: Item) -> bool:
        # Rows before the first one stand there until they are purged.
        if is_due(row, self._clock()) or int(row["sk"]["N"]) < copy.source_first:
            return False
        dates, ids = copy.choice.dates, copy.choice.ids
        if ids is not None and row["mid"]["S"] not in ids:
            return False
        return dates is None or dates.contains(clock.from_ms(int(row["created"]["N"])))

    def _written(self, copy: ThreadCopy, reached: int) -> dict[int, Item]:
        """What an earlier try or an earlier look has written in the place of the piece."""
        offset = copy.first_seq - copy.low
        rows = self._db.query(
            self._messages,
            ConsistentRead=True,
            KeyConditionExpression="#pk = :pk AND #sk BETWEEN :first AND :last",
            ExpressionAttributeNames={"#pk": "pk", "#sk": "sk"},
            ExpressionAttributeValues=to_item(
                {
                    ":pk": keys.messages_pk(copy.resource_id, copy.thread_id),
                    ":first": reached + offset,
                    ":last": max(copy.at - 1, reached) + offset,
                }
            ),
            attributes=("pk", "sk", "mid", "ver", "body"),
        )
        return {int(row["sk"]["N"]): row for row in rows}

    def _is_equal(self, copy: ThreadCopy, row: Item, there: Item | None) -> bool:
        # One with files is written again, because it may have been written without its uses.
        if there is None or "files" in row:
            return False
        return (self._new_id(copy, row), row["ver"]) == (there["mid"]["S"], there["ver"])

    @staticmethod
    def _new_id(copy: ThreadCopy, row: Item) -> str:
        own: str = row["mid"]["S"]
        return own if copy.seed is None else derived_id(copy.seed, own)

    def _copied_row(self, copy: ThreadCopy, row: Item, offset: int, bodies: Mapping[str, str]) -> Item:
        """The whole item under its new key, with what this store does not know, and the time when it expires."""
        item = {name: content for name, content in row.items() if name not in ("rid", "tid")}
        item |= {
            "pk": {"S": keys.messages_pk(copy.resource_id, copy.thread_id)},
            "sk": {"N": str(int(row["sk"]["N"]) + offset)},
            "mid": {"S": self._new_id(copy, row)},
            **to_item(keys.long_ids(copy.resource_id, copy.thread_id)),
        }
        if copy.seed is not None:
            item.pop("index", None)
            item |= to_item({} if copy.index is None else {"index": copy.index})
            if "ttl" not in row and self._retention_s is not None:
                item["ttl"] = {"N": str(clock.to_ms(self._clock()) // 1000 + self._retention_s)}
        if "body" in row:
            item["body"] = {"S": bodies[row["body"]["S"]]}
        return item

    def _copied_bodies(self, copy: ThreadCopy, rows: Sequence[Item]) -> dict[str, str]:
        """Keys of copies of the rows' overflow bodies, by the keys of these; a copy is there before a row names it."""
        blobs = self._blobs
        if not rows:
            return {}
        if blobs is None:
            raise StorageError("expected a place for overflow bodies, found none configured; configure the bucket")

        def put(row: Item) -> str:
            try:
                data = blobs.get(row["body"]["S"])
            except NotFoundError as error:
                # Its row was changed or removed since it was read; another try reads it again.
                raise UnavailableError(
                    f"thread {copy.source_thread}: expected its messages to rest while they are copied, found that one was "
                    "changed; try again"
                ) from error
            return self._put_body(blobs, copy.resource_id, copy.thread_id, self._new_id(copy, row), data)

        copied = together([functools.partial(put, row) for row in rows])
        return {row["body"]["S"]: key for row, key in zip(rows, copied, strict=True)}

    def _source_header(self, copy: ThreadCopy) -> ThreadHeader:
        """As much of the source's header as names its rows."""
        thread = Thread(copy.source_thread, copy.source_resource, clock.EPOCH, clock.EPOCH)
        return ThreadHeader(thread, copy.high, copy.low, 0, copy.source_incarnation)

    def _building(self, copy: ThreadCopy) -> StoredHeader:
        stored = self._stored_header(copy.resource_id, copy.thread_id)
        if stored is None or stored.state != "building" or stored.header.incarnation != copy.incarnation:
            raise build_lost(copy.thread_id)
        return stored

    # Headers and rows.

    def _reserve(self, thread: Thread, **header_fields: Any) -> ThreadHeader:
        """Take the id of a thread that is about to be built. Raises ConflictError when it is taken."""
        title_source = header_fields.pop("title_source", "given" if thread.title else "none")
        backoff = self._db.backoff(f"the building of thread {thread.id}")
        dead: StoredHeader | None = None
        while True:
            header = self._new_header(thread, title_source=title_source, dead=dead, **header_fields)
            until = self._clock() + timedelta(milliseconds=keys.BUILD_LIFETIME_MS)
            try:
                self._db.transact(self._creation(header, dead=dead, state="building", until=until))
                return header
            except TransactionRefused as refused:
                now = self._clock()
                stored = self._stored_header(thread.resource_id, thread.id)
                if stored is not None and stored.is_building(now):
                    raise being_built(thread.id) from refused
                if stored is not None and stored.is_live(now):
                    raise taken(thread.id) from refused
                if not refused.reasons[0].failed:
                    self._explain_creation(thread.resource_id, thread.id, refused.reasons)
                dead = stored
                backoff.wait(refused)

    def _publish_or_explain(self, header: ThreadHeader) -> None:
        try:
            self._publish(header)
        except TransactionRefused as refused:
            self._explain_publish(header, refused)

    def _explain_publish(self, header: ThreadHeader, refused: TransactionRefused) -> None:
        if not refused.reasons[0].failed:
            self._explain_creation(header.thread.resource_id, header.thread.id, refused.reasons)
        raise build_lost(header.thread.id) from refused

    def _put_rows(self, items: Sequence[Mapping[str, Any]]) -> None:
        self._write_rows([{"PutRequest": {"Item": item}} for item in items])
        # After the rows: a use whose row is not there is taken for one that a removed message left.
        if self._runs is not None:
            self._db.batch_write(self._runs, [{"PutRequest": {"Item": use}} for use in uses_of_rows(items)])


def _after(copy: ThreadCopy, kept: Iterable[Item], reached: int, *, enough: bool, expiring: bool) -> ThreadCopy:
    """The copy with a piece more. `kept` comes the newest first."""
    rows, last_id, last, oldest = copy.rows, copy.last_id, copy.last_created, copy.oldest
    in_order, expire = copy.in_date_order, copy.rows_expire
    for row in kept:
        created = int(row["created"]["N"])
        rows += 1
        last_id = last_id or row["mid"]["S"]
        last = created if last is None else max(last, created)
        in_order = in_order and (oldest is None or created <= oldest)
        oldest = created
        expire = expire or expiring or "ttl" in row
    return replace(
        copy,
        at=reached,
        rows=rows,
        last_id=last_id,
        last_created=last,
        oldest=oldest,
        in_date_order=in_order,
        rows_expire=expire,
        enough=enough,
    )


def taken(thread_id: str) -> ConflictError:
    """The id of a thread to be built belongs to another."""
    return ConflictError(f"Thread with id {thread_id} already exists", code="THREAD_EXISTS")


def build_lost(thread_id: str) -> ConflictError:
    """The thread that was being built is no longer ours."""
    return ConflictError(
        f"thread {thread_id}: expected to finish building it, found that it took too long and was given up",
        code="BUILD_LOST",
    )
