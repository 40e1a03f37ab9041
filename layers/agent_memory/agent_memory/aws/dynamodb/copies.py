"""Threads made or moved as a whole: hidden until the last row is written.

A copy goes through its source from the newest row to the oldest, a bounded piece at a time, and gives every row the
number that it has in the source plus an offset. So a piece can be written again after a crash: the same rows come to
the same places.

A clone shows its source as it was when it was begun. Only an import can move a stored row to another number, and it
moves at most those that one transaction holds; so the newest rows are copied at once, between two equal readings of
the header, and the others stay where they are. A transfer adds what was added meanwhile, goes through all rows again
where others were changed, and moves the thread in one transaction on condition that nothing has.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from agent_memory import clock
from agent_memory.aws._pool import together
from agent_memory.aws.dynamodb import keys
from agent_memory.aws.dynamodb.actions import stamps
from agent_memory.aws.dynamodb.base import being_built, deleted_meanwhile, resource_locked
from agent_memory.aws.dynamodb.client import ConditionFailed, TransactionRefused
from agent_memory.aws.dynamodb.items import StoredHeader, is_due
from agent_memory.aws.dynamodb.pages import Pages
from agent_memory.aws.dynamodb.threads import Threads
from agent_memory.aws.dynamodb.uses import uses_of_rows
from agent_memory.aws.dynamodb.values import Item, expression, from_item, size_of, to_item
from agent_memory.errors import ConflictError, NotFoundError, StorageError, UnavailableError
from agent_memory.ids import derived_id
from agent_memory.messages import Message
from agent_memory.ports import CopyChoice, Thread, ThreadCopy, ThreadHeader, with_last_message
from agent_memory.ports.copies import LOOKS, never_rests

_NEWEST = 100  # rows that a clone copies when it begins: more than an import can move
_ROWS = 1_000  # of a piece
_BYTES = 8_000_000  # of a piece, overflow bodies included

Carry = Callable[[Sequence[Message]], None]


class Copies(Pages, Threads):
    """Builds and moves threads."""

    def build_thread(self, thread: Thread, messages: Sequence[Message], *, index: str | None = None) -> ThreadHeader:
        """See `MessageStore.build_thread`. Two requests and one for every 25 messages."""
        dates = [message.created_at for message in messages]
        header = self._reserve(
            thread,
            rows=len(messages),
            last_created=max(dates, default=None),
            in_date_order=all(earlier <= later for earlier, later in itertools.pairwise(dates)),
            rows_expire=any(self._expiry(message, None) is not None for message in messages),
        )
        pk = keys.messages_pk(thread.resource_id, thread.id)
        try:
            for start in range(0, len(messages), _NEWEST):
                group = messages[start : start + _NEWEST]
                self._put_rows(
                    [
                        to_item(
                            {
                                "pk": pk,
                                "sk": header.first_seq + start + number,
                                **self._message_fields(thread.resource_id, thread.id, message.replace(version=1)),
                                **stamps(index, self._expiry(message, None)),
                            }
                        )
                        for number, message in enumerate(group)
                    ]
                )
            self._publish_or_explain(header)
        except BaseException:
            self._abandon(header)
            raise
        return header

    # Clones.

    def begin_clone(
        self,
        resource_id: str,
        thread_id: str,
        make: Callable[[ThreadHeader], Thread],
        *,
        seed: str,
        index: str | None = None,
        choice: CopyChoice | None = None,
        carry: Carry | None = None,
    ) -> ThreadCopy:
        """See `MessageStore.begin_clone`. Four requests, and four for up to 100 rows."""
        choice = choice or CopyChoice()
        source, (low, high), rows = self._newest_rows(resource_id, thread_id, choice)
        thread = make(source.header)
        header = self._reserve(thread, rows=high - low)
        copy = ThreadCopy(
            source_resource=resource_id,
            source_thread=thread_id,
            source_incarnation=source.header.incarnation,
            source_first=source.header.first_seq,
            revision=source.revision,
            resource_id=thread.resource_id,
            thread_id=thread.id,
            incarnation=header.incarnation,
            first_seq=header.first_seq,
            low=low,
            high=high,
            at=high,
            seed=seed,
            index=index,
            choice=choice,
        )
        try:
            return self._copy_piece(copy, rows, max(low, min(high, source.header.next_seq - _NEWEST)), carry=carry)
        except BaseException:
            self.abandon_copy(copy)
            raise

    def finish_clone(self, copy: ThreadCopy) -> ThreadHeader:
        """See `MessageStore.finish_clone`. Three requests."""
        building = self._building(copy)
        count, span = copy.rows, copy.high - copy.low
        first = copy.first_seq + (copy.at - copy.low if count else span)
        header = replace(
            building.header,
            first_seq=first,
            next_seq=copy.first_seq + span,
            message_count=count,
            last_created_at=None if copy.last_created is None else clock.from_ms(copy.last_created),
            in_date_order=copy.in_date_order,
            rows_expire=copy.rows_expire,
        )
        if copy.last_id is not None:
            header = replace(header, thread=with_last_message(header.thread, copy.last_id))
        # Rows of a source that is deleted or emptied are removed, so what was read of them may have been too little.
        source = self._check(
            self._header_key(copy.source_resource, copy.source_thread),
            "#state = :live AND #incarnation = :incarnation AND #first_seq = :first",
            live="live",
            incarnation=copy.source_incarnation,
            first=copy.source_first,
        )
        memory = self._copied_memory(copy)
        try:
            self._publish(header, *memory, source)
        except TransactionRefused as refused:
            if refused.reasons[-1].failed:
                raise ConflictError(
                    f"thread {copy.source_thread}: expected it to stay while it is copied, found that it was deleted or "
                    "emptied meanwhile; nothing was kept of the copy",
                    code="SOURCE_GONE",
                ) from refused
            self._explain_publish(header, refused)
        return header

    def _newest_rows(
        self, resource_id: str, thread_id: str, choice: CopyChoice
    ) -> tuple[StoredHeader, tuple[int, int], list[Item]]:
        """The source, the chosen range of its rows, and the newest ones of these, as they were at one moment."""
        backoff = self._db.backoff(f"the reading of thread {thread_id}")
        source = self._live_header(resource_id, thread_id)
        while True:
            low, high = span = self._chosen_span(source.header, choice)
            newest = max(low, source.header.next_seq - _NEWEST)
            rows = list(self._range(source.header, newest, high, newest_first=True))
            if not rows:
                return source, span, rows
            again = self._live_header(resource_id, thread_id)
            if (again.revision, again.header.incarnation) == (source.revision, source.header.incarnation):
                return source, span, rows
            source = again
            backoff.wait()

    def _chosen_span(self, header: ThreadHeader, choice: CopyChoice) -> tuple[int, int]:
        if choice.dates is None or not header.in_date_order:
            return header.first_seq, header.next_seq
        return self._span_of(header, choice.dates)

    # Transfers.

    def begin_transfer(self, resource_id: str, thread_id: str, new_resource_id: str) -> ThreadCopy:
        """See `MessageStore.begin_transfer`. Two requests."""
        source = self._live_header(resource_id, thread_id)
        old = source.header
        header = self._reserve(
            replace(old.thread, resource_id=new_resource_id),
            title_source=old.title_source,
            rows=old.next_seq - old.first_seq,
        )
        return ThreadCopy(
            source_resource=resource_id,
            source_thread=thread_id,
            source_incarnation=old.incarnation,
            source_first=old.first_seq,
            revision=source.revision,
            edits=source.edits,
            resource_id=new_resource_id,
            thread_id=thread_id,
            incarnation=header.incarnation,
            first_seq=header.first_seq,
            low=old.first_seq,
            high=old.next_seq,
            at=old.next_seq,
        )

    def finish_transfer(self, copy: ThreadCopy, *, carry: Carry | None = None) -> Thread | ThreadCopy:
        """See `MessageStore.finish_transfer`. Four requests, two more with working memory.

        For rows that were added meanwhile it is tried again, at most 8 times.
        """
        backoff = self._db.backoff(f"the transfer of thread {copy.thread_id}")
        offset = copy.first_seq - copy.low
        while True:
            source = self._stored_header(copy.source_resource, copy.source_thread)
            gone = source is None or not source.is_live(self._clock())
            if source is None or gone or source.header.incarnation != copy.source_incarnation:
                raise deleted_meanwhile(copy.source_thread)
            if source.revision != copy.revision:
                added = source.header.next_seq - copy.high
                as_before = (source.edits, source.header.first_seq) == (copy.edits, copy.source_first)
                if not as_before or added > _ROWS:
                    return _another_look(copy, source)
                copy = self._catch_up(copy, source, carry)
            header = replace(
                source.header,
                thread=replace(source.header.thread, resource_id=copy.resource_id),
                first_seq=source.header.first_seq + offset,
                next_seq=source.header.next_seq + offset,
                incarnation=copy.incarnation,
                turns=(),
            )
            goodbye = self._burial(
                source,
                condition=" AND #revision = :revision AND #next_seq = :was AND #metadata_version = :metadata_was"
                " AND #updated_key = :updated_was",
                revision=source.revision,
                was=source.header.next_seq,
                metadata_was=source.header.metadata_version,
                updated_was=keys.date_key(source.header.thread.updated_at),
            )
            try:
                self._publish(header, *goodbye, *self._moved_memory(copy), claimed_by=copy.source_resource)
                return header.thread
            except TransactionRefused as refused:
                if refused.reasons[0].failed:
                    raise build_lost(copy.thread_id) from refused
                if any(reason.failed and "locked" in (reason.item or {}) for reason in refused.reasons[1:]):
                    raise resource_locked(copy.resource_id) from refused
                backoff.wait(refused)

    def _catch_up(self, copy: ThreadCopy, source: StoredHeader, carry: Carry | None) -> ThreadCopy:
        """Copy the rows that were added since the last look; the others are as they were."""
        end = source.header.next_seq
        copy = replace(copy, revision=source.revision, floor=copy.high, high=end, at=end, looks_again=True)
        self.keep_copy(copy)
        while not copy.all_read:
            copy = self.copy_rows(copy, carry=carry)
        return copy

    def transfer_thread(
        self, resource_id: str, thread_id: str, new_resource_id: str, *, carry: Carry | None = None
    ) -> Thread:
        """See `MessageStore.transfer_thread`."""
        if resource_id == new_resource_id:
            return self._live_header(resource_id, thread_id).header.thread
        copy = self.begin_transfer(resource_id, thread_id, new_resource_id)
        try:
            for _ in range(LOOKS):
                while not copy.all_read:
                    copy = self.copy_rows(copy, carry=carry)
                moved = self.finish_transfer(copy, carry=carry)
                if isinstance(moved, Thread):
                    return moved
                copy = self.keep_copy(moved)
            raise never_rests(thread_id)
        except BaseException:
            self.abandon_copy(copy)
            raise

    # Both.

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
        for row in self._db.query(self._messages, page_limit=_ROWS, ScanIndexForward=False, **between):
            rows.append(row)
            size += size_of(row) + int(row.get("body_bytes", {"N": "0"})["N"])
            if len(rows) >= _ROWS or size >= _BYTES:
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

    # Working memory of the thread.

    def _copied_memory(self, copy: ThreadCopy) -> list[dict[str, Any]]:
        """Actions that give the copy what its source knows now, as version 1."""
        key = to_item({"pk": keys.owner_pk(copy.source_resource), "sk": keys.memory_sk(copy.source_thread)})
        current = self._db.get(self._threads, key)
        text = None if current is None else from_item(current).get("text")
        if not text:
            return []
        fields = {"v": keys.SCHEMA, "ver": 1, "updated": clock.to_ms(self._clock()), "text": text}
        pk = keys.owner_pk(copy.resource_id)
        places = (keys.memory_sk(copy.thread_id), keys.memory_version_sk(copy.thread_id, 1))
        return [{"Put": {"TableName": self._threads, "Item": to_item({"pk": pk, "sk": sk, **fields})}} for sk in places]

    def _moved_memory(self, copy: ThreadCopy) -> list[dict[str, Any]]:
        """Copies the versions of the thread's working memory, and returns the actions that move the current one."""
        key = to_item({"pk": keys.owner_pk(copy.source_resource), "sk": keys.memory_sk(copy.source_thread)})
        current = self._db.get(self._threads, key)
        if current is None:
            return [self._check(key, "attribute_not_exists(#pk)")]
        new_pk = {"S": keys.owner_pk(copy.resource_id)}
        history = self._db.query(
            self._threads,
            ConsistentRead=True,
            KeyConditionExpression="#pk = :pk AND begins_with(#sk, :prefix)",
            ExpressionAttributeNames={"#pk": "pk", "#sk": "sk"},
            ExpressionAttributeValues=to_item(
                {":pk": keys.owner_pk(copy.source_resource), ":prefix": keys.memory_history_prefix(copy.source_thread)}
            ),
        )
        self._db.batch_write(self._threads, [{"PutRequest": {"Item": {**row, "pk": new_pk}}} for row in history])
        return [
            {
                "Delete": {
                    "TableName": self._threads,
                    "Key": key,
                    **expression(condition="#ver = :ver", ver=int(current["ver"]["N"])),
                }
            },
            {"Put": {"TableName": self._threads, "Item": {**current, "pk": new_pk}}},
        ]

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


def _another_look(copy: ThreadCopy, source: StoredHeader) -> ThreadCopy:
    """The copy at the beginning of another look at all rows, because some of them changed."""
    return replace(
        copy,
        revision=source.revision,
        edits=source.edits,
        source_first=source.header.first_seq,
        high=source.header.next_seq,
        at=source.header.next_seq,
        floor=None,
        rows=0,
        looks_again=True,
    )


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
