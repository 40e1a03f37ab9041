"""Whole histories out of the tables and back: threads row by row, and working memory with its versions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from agent_memory import clock
from agent_memory.aws.dynamodb import keys
from agent_memory.aws.dynamodb.actions import stamps
from agent_memory.aws.dynamodb.base import resource_locked
from agent_memory.aws.dynamodb.client import ConditionFailed, TransactionRefused
from agent_memory.aws.dynamodb.copies import Copies
from agent_memory.aws.dynamodb.copy_pieces import build_lost
from agent_memory.aws.dynamodb.values import Item, expression, from_item, size_of, to_item
from agent_memory.messages import Message
from agent_memory.ports import Thread, ThreadHeader, TitleSource
from agent_memory.ports.portable import ThreadRestore, WorkingMemoryHistory, WorkingMemoryVersion

_MEMORIES_PAGE: Final = 10  # each may have 20 versions of 300 KB
_FEW_IDS: Final = 8
_LONG_FOR_AN_ID: Final = 40  # rows of the index of ids that cost about as much as a query for one id


class Restores(Copies):
    """Reads and writes whole histories."""

    # Threads.

    def read_rows(self, header: ThreadHeader, *, after: int, most_bytes: int) -> tuple[tuple[Message, ...], int | None]:
        """See `PortableStore.read_rows`."""
        first = max(after + 1, header.first_seq)
        items: list[Item] = []
        size, reached = 0, None
        if first < header.next_seq:
            for item in self._rows_between(header, first, header.next_seq - 1):
                items.append(item)
                size += size_of(item) + int(item.get("body_bytes", {"N": "0"})["N"])
                if size >= most_bytes:
                    reached = int(item["sk"]["N"])
                    break
        return self._read(items), reached

    def _rows_between(self, header: ThreadHeader, first: int, last: int) -> Iterator[Item]:
        thread = header.thread
        return self._db.query(
            self._messages,
            page_limit=1_000,
            ConsistentRead=True,
            KeyConditionExpression="#pk = :pk AND #sk BETWEEN :first AND :last",
            ExpressionAttributeNames={"#pk": "pk", "#sk": "sk"},
            ExpressionAttributeValues=to_item(
                {":pk": keys.messages_pk(thread.resource_id, thread.id), ":first": first, ":last": last}
            ),
        )

    def known_messages(self, resource_id: str, thread_id: str, ids: Sequence[str]) -> frozenset[str]:
        """See `PortableStore.known_messages`. Many ids are looked up by a walk over those of the thread, unless it is long."""
        header = self.get_thread(resource_id, thread_id)
        if header is None or not header.message_count or not ids:
            return frozenset()
        if len(ids) <= _FEW_IDS or header.message_count > _LONG_FOR_AN_ID * len(ids):
            numbers = self._numbers(resource_id, thread_id, ids, first_seq=header.first_seq)
            return frozenset(id for id, seq in numbers.items() if seq < header.next_seq)
        wanted = set(ids)
        rows = self._db.query(
            self._messages,
            IndexName=keys.BY_MID,
            ConsistentRead=True,
            KeyConditionExpression="#pk = :pk",
            ExpressionAttributeNames={"#pk": "pk"},
            ExpressionAttributeValues=to_item({":pk": keys.messages_pk(resource_id, thread_id)}),
        )
        return frozenset(
            row["mid"]["S"]
            for row in rows
            if row["mid"]["S"] in wanted and header.first_seq <= int(row["sk"]["N"]) < header.next_seq
        )

    def begin_restore(self, thread: Thread, *, title_source: TitleSource) -> ThreadRestore:
        """See `PortableStore.begin_restore`."""
        header = self._reserve(thread, title_source=title_source)
        return ThreadRestore(thread.resource_id, thread.id, header.incarnation, header.first_seq)

    def restore_rows(
        self, restore: ThreadRestore, rows: Sequence[Message], *, index: str | None = None
    ) -> ThreadRestore:
        """See `PortableStore.restore_rows`. One request, and one for every 25 messages."""
        after = restore
        for message in rows:
            created = clock.to_ms(message.created_at)
            after = replace(
                after,
                rows=after.rows + 1,
                last_created=created if after.last_created is None else max(after.last_created, created),
                in_date_order=after.in_date_order and (after.last_created is None or after.last_created <= created),
                rows_expire=after.rows_expire or self._expiry(message, None) is not None,
            )
        # First, so that what is written is removed with the thread should it be given up, and that others see it is at work.
        self._keep_building(restore, restore.first_seq + after.rows)
        pk = keys.messages_pk(restore.resource_id, restore.thread_id)
        self._put_rows(
            [
                to_item(
                    {
                        "pk": pk,
                        "sk": restore.first_seq + restore.rows + number,
                        **self._message_fields(restore.resource_id, restore.thread_id, message.replace(version=1)),
                        **stamps(index, self._expiry(message, None)),
                    }
                )
                for number, message in enumerate(rows)
            ]
        )
        return after

    def _keep_building(self, restore: ThreadRestore, next_seq: int) -> None:
        try:
            self._db.update(
                self._threads,
                self._header_key(restore.resource_id, restore.thread_id),
                **expression(
                    update="SET #until = :until, #next_seq = :next",
                    condition="#incarnation = :incarnation AND #state = :building",
                    until=clock.to_ms(self._clock()) + keys.COPY_LIFETIME_MS,
                    next=next_seq,
                    incarnation=restore.incarnation,
                    building="building",
                ),
            )
        except ConditionFailed as refused:
            raise build_lost(restore.thread_id) from refused

    def finish_restore(self, restore: ThreadRestore, thread: Thread, *, title_source: TitleSource) -> ThreadHeader:
        """See `PortableStore.finish_restore`."""
        header = replace(
            self._new_header(
                thread,
                title_source=title_source,
                dead=None,
                last_created=None if restore.last_created is None else clock.from_ms(restore.last_created),
                rows_expire=restore.rows_expire,
                in_date_order=restore.in_date_order,
            ),
            next_seq=restore.first_seq + restore.rows,
            first_seq=restore.first_seq,
            message_count=restore.rows,
            incarnation=restore.incarnation,
        )
        self._publish_or_explain(header)
        return header

    def abandon_restore(self, restore: ThreadRestore) -> None:
        """See `PortableStore.abandon_restore`."""
        thread = Thread(restore.thread_id, restore.resource_id, clock.EPOCH, clock.EPOCH)
        self._abandon(ThreadHeader(thread, restore.first_seq, restore.first_seq, 0, restore.incarnation))

    # Working memory.

    def list_working_memory(
        self, resource_id: str, *, cursor: Any = None
    ) -> tuple[tuple[WorkingMemoryHistory, ...], Any]:
        """See `PortableStore.list_working_memory`. One request, and one for each of them."""
        more = {} if cursor is None else {"ExclusiveStartKey": cursor}
        answer = self._db.call(
            "query",
            TableName=self._threads,
            Limit=_MEMORIES_PAGE,
            ConsistentRead=True,
            # "$" follows "#": W itself and every W#…, and no WV#….
            KeyConditionExpression="#pk = :pk AND #sk BETWEEN :first AND :last",
            ProjectionExpression="#pk, #sk, #ver",
            ExpressionAttributeNames={"#pk": "pk", "#sk": "sk", "#ver": "ver"},
            ExpressionAttributeValues=to_item({":pk": keys.owner_pk(resource_id), ":first": "W", ":last": "W$"}),
            **more,
        )
        found = []
        for item in answer["Items"]:
            thread_id = keys.memory_thread_of(item["sk"]["S"])
            if thread_id is not None and self._is_gone(resource_id, thread_id):
                continue
            versions = self._versions(resource_id, thread_id, int(item["ver"]["N"]))
            found.append(WorkingMemoryHistory(thread_id, tuple(map(_version, versions))))
        return tuple(found), answer.get("LastEvaluatedKey") or None

    def _is_gone(self, resource_id: str, thread_id: str) -> bool:
        """Whether the thread has expired; one that was never made may have working memory too."""
        stored = self._stored_header(resource_id, thread_id)
        return stored is not None and not stored.is_live(self._clock())

    def _versions(self, resource_id: str, thread_id: str | None, current: int) -> Iterator[Item]:
        return self._db.query(
            self._threads,
            ConsistentRead=True,
            KeyConditionExpression="#pk = :pk AND #sk BETWEEN :first AND :last",
            ExpressionAttributeNames={"#pk": "pk", "#sk": "sk"},
            ExpressionAttributeValues=to_item(
                {
                    ":pk": keys.owner_pk(resource_id),
                    ":first": keys.memory_version_sk(thread_id, max(current - keys.WORKING_MEMORY_VERSIONS + 1, 0)),
                    ":last": keys.memory_version_sk(thread_id, current),
                }
            ),
        )

    def restore_working_memory(self, resource_id: str, history: WorkingMemoryHistory) -> bool:
        """See `PortableStore.restore_working_memory`. The current one goes last, and shows the others."""
        if not history.versions:
            return True
        pk, thread_id = keys.owner_pk(resource_id), history.thread_id
        key = to_item({"pk": pk, "sk": keys.memory_sk(thread_id)})
        there = self._db.get(self._threads, key)
        if there is not None:
            return _version(there) == history.versions[-1]
        items = [
            to_item({"pk": pk, "sk": keys.memory_version_sk(thread_id, version.version), **_fields(version)})
            for version in history.versions
        ]
        self._db.batch_write(self._threads, [{"PutRequest": {"Item": item}} for item in items[:-1]])
        current = to_item({"pk": pk, "sk": keys.memory_sk(thread_id), **_fields(history.versions[-1])})
        try:
            self._db.transact(
                [
                    self._unlocked(resource_id),
                    {
                        "Put": {
                            "TableName": self._threads,
                            "Item": current,
                            **expression(condition="attribute_not_exists(#pk)"),
                        }
                    },
                    {"Put": {"TableName": self._threads, "Item": items[-1]}},
                ]
            )
        except TransactionRefused as refused:
            if refused.reasons[0].failed:
                raise resource_locked(resource_id) from refused
            return False
        return True


def _version(item: Item) -> WorkingMemoryVersion:
    fields = from_item(item)
    return WorkingMemoryVersion(fields["ver"], fields.get("text"), clock.from_ms(fields["updated"]))


def _fields(version: WorkingMemoryVersion) -> dict[str, Any]:
    return {
        "v": keys.SCHEMA,
        "ver": version.version,
        "updated": clock.to_ms(version.updated_at),
        "text": version.text,
    }
