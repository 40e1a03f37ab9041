"""Threads made or moved as a whole: hidden until the last row is written."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from agent_memory.aws._pool import together
from agent_memory.aws.dynamodb import keys
from agent_memory.aws.dynamodb.actions import stamps
from agent_memory.aws.dynamodb.base import being_built
from agent_memory.aws.dynamodb.client import TransactionRefused
from agent_memory.aws.dynamodb.items import StoredHeader
from agent_memory.aws.dynamodb.threads import Threads
from agent_memory.aws.dynamodb.uses import uses_of_rows
from agent_memory.aws.dynamodb.values import Item, expression, to_item
from agent_memory.errors import ConflictError, StorageError
from agent_memory.messages import Message
from agent_memory.ports import Thread, ThreadHeader

_AT_ONCE = 4  # batches of 25 rows under way at the same time
_TRIES = 3


class Copies(Threads):
    """Builds and moves threads."""

    def build_thread(self, thread: Thread, messages: Sequence[Message], *, index: str | None = None) -> ThreadHeader:
        """See `MessageStore.build_thread`. Two requests and one for every 25 messages."""
        dates = [message.created_at for message in messages]
        header = self._reserve(
            thread,
            rows=len(messages),
            last_created=max(dates, default=None),
            in_date_order=all(earlier <= later for earlier, later in itertools.pairwise(dates)),
        )
        pk = keys.messages_pk(thread.resource_id, thread.id)
        try:
            for start in range(0, len(messages), keys.MAX_BATCH_WRITE * _AT_ONCE):
                group = messages[start : start + keys.MAX_BATCH_WRITE * _AT_ONCE]
                self._put_rows(
                    [
                        to_item(
                            {
                                "pk": pk,
                                "sk": header.first_seq + start + number,
                                **self._message_fields(thread.resource_id, thread.id, message.replace(version=1)),
                                **stamps(index, None),
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

    def transfer_thread(self, resource_id: str, thread_id: str, new_resource_id: str) -> Thread:
        """See `MessageStore.transfer_thread`. What changes in the thread meanwhile makes it start again, three times."""
        if resource_id == new_resource_id:
            return self._live_header(resource_id, thread_id).header.thread
        for _ in range(_TRIES):
            source = self._live_header(resource_id, thread_id)
            moved = self._transfer(source, new_resource_id)
            if moved is not None:
                return moved
        raise ConflictError(
            f"thread {thread_id}: expected one that rests while it is moved, found that it changed {_TRIES} times; "
            "try again later"
        )

    def _transfer(self, source: StoredHeader, new_resource_id: str) -> Thread | None:
        """One try: the moved thread, or None where the source changed meanwhile."""
        old = source.header.thread
        rows = list(
            self._db.query(
                self._messages,
                ConsistentRead=True,
                KeyConditionExpression="#pk = :pk AND #sk BETWEEN :first AND :last",
                ExpressionAttributeNames={"#pk": "pk", "#sk": "sk"},
                ExpressionAttributeValues=to_item(
                    {
                        ":pk": keys.messages_pk(old.resource_id, old.id),
                        ":first": source.header.first_seq,
                        ":last": max(source.header.next_seq - 1, source.header.first_seq),
                    }
                ),
            )
        )
        rows = [row for row in rows if int(row["sk"]["N"]) < source.header.next_seq]
        header = self._reserve(
            replace(old, resource_id=new_resource_id),
            rows=len(rows),
            last_created=source.header.last_created_at,
            in_date_order=source.header.in_date_order,
            title_source=source.header.title_source,
            rows_expire=source.header.rows_expire,
        )
        try:
            pk = {"S": keys.messages_pk(new_resource_id, old.id)}
            items = [
                {
                    **{name: content for name, content in row.items() if name not in ("rid", "tid")},
                    **self._own_body(row, new_resource_id, old.id),
                    **to_item(keys.long_ids(new_resource_id, old.id)),
                    "pk": pk,
                    "sk": {"N": str(header.first_seq + number)},
                }
                for number, row in enumerate(rows)
            ]
            for start in range(0, len(items), keys.MAX_BATCH_WRITE * _AT_ONCE):
                self._put_rows(items[start : start + keys.MAX_BATCH_WRITE * _AT_ONCE])
            memory = self._move_memory(old, new_resource_id)
            goodbye = self._burial(
                source,
                condition=" AND #revision = :revision AND #next_seq = :was AND #metadata_version = :metadata_was"
                " AND #updated_key = :updated_was",
                revision=source.revision,
                was=source.header.next_seq,
                metadata_was=source.header.metadata_version,
                updated_was=keys.date_key(old.updated_at),
            )
            try:
                self._publish(header, *goodbye, *memory, claimed_by=old.resource_id)
            except TransactionRefused:
                self._abandon(header)
                return None
        except BaseException:
            self._abandon(header)
            raise
        self._drop_bodies(row.get("body", {}).get("S") for row in rows)
        return header.thread

    def _own_body(self, row: Item, resource_id: str, thread_id: str) -> Item:
        """The pointer to a copy of the row's overflow body under the new owner's prefix; nothing where it has none."""
        if "body" not in row:
            return {}
        if self._blobs is None:
            raise StorageError("expected a place for overflow bodies, found none configured; configure the bucket")
        data = self._blobs.get(row["body"]["S"])
        key = keys.overflow_key(resource_id, thread_id, row["mid"]["S"], data)
        self._blobs.put(key, data, "application/json")
        return {"body": {"S": key}}

    def _move_memory(self, old: Thread, new_resource_id: str) -> list[dict[str, Any]]:
        """Copies the versions of a thread's working memory, and returns the actions that move the current one."""
        key = to_item({"pk": keys.owner_pk(old.resource_id), "sk": keys.memory_sk(old.id)})
        current = self._db.get(self._threads, key)
        if current is None:
            return [
                {
                    "ConditionCheck": {
                        "TableName": self._threads,
                        "Key": key,
                        **expression(condition="attribute_not_exists(#pk)"),
                    }
                }
            ]
        new_pk = {"S": keys.owner_pk(new_resource_id)}
        history = self._db.query(
            self._threads,
            ConsistentRead=True,
            KeyConditionExpression="#pk = :pk AND begins_with(#sk, :prefix)",
            ExpressionAttributeNames={"#pk": "pk", "#sk": "sk"},
            ExpressionAttributeValues=to_item(
                {":pk": keys.owner_pk(old.resource_id), ":prefix": keys.memory_history_prefix(old.id)}
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
            self._explain_creation(header.thread.resource_id, header.thread.id, refused.reasons)
            raise ConflictError(
                f"thread {header.thread.id}: expected to finish building it, found that it took too long and was given up"
            ) from refused

    def _put_rows(self, items: Sequence[Mapping[str, Any]]) -> None:
        requests = [{"PutRequest": {"Item": item}} for item in items]
        together(
            [
                functools.partial(self._db.batch_write, self._messages, requests[start : start + keys.MAX_BATCH_WRITE])
                for start in range(0, len(requests), keys.MAX_BATCH_WRITE)
            ]
        )
        # After the rows: a use whose row is not there is taken for one that a removed message left.
        if self._runs is not None:
            self._db.batch_write(self._runs, [{"PutRequest": {"Item": use}} for use in uses_of_rows(items)])


def taken(thread_id: str) -> ConflictError:
    """The id of a thread to be built belongs to another."""
    return ConflictError(f"Thread with id {thread_id} already exists", code="THREAD_EXISTS")
