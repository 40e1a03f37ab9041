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

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from agent_memory import clock
from agent_memory.aws.dynamodb import copy_pieces, keys
from agent_memory.aws.dynamodb.actions import stamps
from agent_memory.aws.dynamodb.base import deleted_meanwhile, resource_locked
from agent_memory.aws.dynamodb.client import TransactionRefused
from agent_memory.aws.dynamodb.copy_pieces import Carry, CopyPieces, build_lost
from agent_memory.aws.dynamodb.items import StoredHeader
from agent_memory.aws.dynamodb.values import Item, expression, from_item, to_item
from agent_memory.errors import ConflictError
from agent_memory.messages import Message
from agent_memory.ports import CopyChoice, Thread, ThreadCopy, ThreadHeader, with_last_message
from agent_memory.ports.copies import LOOKS, never_rests

_NEWEST = 100  # rows that a clone copies when it begins: more than an import can move


class Copies(CopyPieces):
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
                if not as_before or added > copy_pieces.ROWS:
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
