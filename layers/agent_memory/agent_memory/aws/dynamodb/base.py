"""What the parts of the store share: tables, clock, headers, and message rows with their overflow bodies."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from agent_memory import clock as clock_module
from agent_memory.attachments import SCHEME, names_in
from agent_memory.aws._pool import together
from agent_memory.aws.dynamodb import keys
from agent_memory.aws.dynamodb.client import Dynamo
from agent_memory.aws.dynamodb.items import (
    StoredHeader,
    is_due,
    message_item,
    read_header,
    read_message,
    write_body,
    write_json,
)
from agent_memory.aws.dynamodb.uses import mark_item, use_items
from agent_memory.aws.dynamodb.values import Item, expression, to_item
from agent_memory.errors import ConflictError, InvalidInputError, NotFoundError, StorageError, TooLargeError
from agent_memory.messages import Message
from agent_memory.ports import BlobStore, TurnRecord
from agent_memory.ports.files import GRACE_S, FileMark

logger = logging.getLogger(__name__)


class Base:
    """Connection, names and helpers of the DynamoDB message store."""

    def __init__(
        self,
        client: Any,
        *,
        threads_table: str,
        messages_table: str,
        claims_table: str | None = None,
        runs_table: str | None = None,
        blobs: BlobStore | None = None,
        retention_days: float | None = None,
        clock: Callable[[], datetime] = clock_module.now,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Make a store; nothing is sent yet.

        Args:
            client: A boto3 ``dynamodb`` client (`agent_memory.aws.clients.dynamodb` makes one with timeouts).
            threads_table: Name of ThreadsTable.
            messages_table: Name of MessagesTable.
            claims_table: Name of ClaimsTable, where thread ids are unique in the deployment.
            runs_table: Name of RunsTable, where it is noted which messages use a file; None: that is not noted.
            blobs: Where parts of messages over 300 KB are kept; without it such a message is refused.
            retention_days: How long messages are kept at most, and threads after their last write; None: for good.
            clock: The current time.
            sleep: Waits between tries, in seconds.
        """
        self._db = Dynamo(client, sleep=sleep)
        self._threads = threads_table
        self._messages = messages_table
        self._claims = claims_table
        self._runs = runs_table
        self._blobs = blobs
        self._retention_s = None if retention_days is None else int(retention_days * 86_400)
        self._clock = clock

    # Headers.

    def _header_key(self, resource_id: str, thread_id: str) -> Item:
        return to_item({"pk": keys.owner_pk(resource_id), "sk": keys.thread_sk(thread_id)})

    def _stored_header(self, resource_id: str, thread_id: str) -> StoredHeader | None:
        item = self._db.get(self._threads, self._header_key(resource_id, thread_id))
        return None if item is None else read_header(item)

    def _live_header(self, resource_id: str, thread_id: str) -> StoredHeader:
        """The header of a thread that callers may see. Raises NotFoundError, ConflictError while a clone builds it."""
        stored = self._stored_header(resource_id, thread_id)
        if stored is not None and stored.is_building(self._clock()):
            raise being_built(thread_id)
        if stored is None or not stored.is_live(self._clock()):
            raise thread_not_found(thread_id)
        return stored

    def _resource_change(
        self, resource_id: str, *, threads: int, expiring: int = 0, new: bool = False
    ) -> dict[str, Any]:
        """Transaction action that adds to what the resource has in all. `new`: refused while the resource is erased."""
        update = "SET #v = :v ADD #threads :threads"
        if expiring:
            update += ", #expiring :expiring"
        return {
            "Update": {
                "TableName": self._threads,
                "Key": to_item({"pk": keys.owner_pk(resource_id), "sk": keys.RESOURCE_SK}),
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
                **expression(
                    update=update,
                    condition="attribute_not_exists(#locked)" if new else None,
                    v=keys.SCHEMA,
                    threads=threads,
                    expiring=expiring,
                ),
            }
        }

    def _unlocked(self, resource_id: str) -> dict[str, Any]:
        """Transaction action that refuses the rest while the resource is erased."""
        return {
            "ConditionCheck": {
                "TableName": self._threads,
                "Key": to_item({"pk": keys.owner_pk(resource_id), "sk": keys.RESOURCE_SK}),
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
                **expression(condition="attribute_not_exists(#locked)"),
            }
        }

    # Message rows.

    def _message_fields(self, resource_id: str, thread_id: str, message: Message) -> dict[str, Any]:
        """Fields of a message's item without its key; an overflow body is in storage when this returns."""
        body = write_body(message)
        files = names_in(message) if SCHEME in body.content else ()
        long_ids = keys.long_ids(resource_id, thread_id)
        if body.size <= keys.MAX_INLINE_BYTES:
            return {**message_item(message, body, files), **long_ids}
        if self._blobs is None:
            raise TooLargeError(
                f"message {message.id}: expected at most {keys.MAX_INLINE_BYTES} bytes, found {body.size}; "
                "give the store a place for overflow bodies or make the message smaller"
            )
        data = body.as_bytes()
        key = self._put_body(self._blobs, resource_id, thread_id, message.id, data)
        return {**message_item(message, None, files), "body": key, "body_bytes": len(data), **long_ids}

    def _put_body(self, blobs: BlobStore, resource_id: str, thread_id: str, message_id: str, data: bytes) -> str:
        """Write an overflow body and return its key. One that no row comes to point to is found by its mark."""
        key = keys.overflow_key(resource_id, thread_id, message_id, data)
        if self._runs is not None:
            due = clock_module.to_ms(self._clock()) + GRACE_S * 1000
            mark = FileMark(resource_id, key, due, thread_id, message_id)
            self._db.call("put_item", TableName=self._runs, Item=mark_item(mark))
        blobs.put(key, data, "application/json")
        return key

    def _expiry(self, message: Message, otherwise: datetime | None) -> datetime | None:
        """When a new row expires, in whole seconds: at its own time, or `otherwise`, or when retention ends."""
        own = message.expires_at if message.expires_at is not None else otherwise
        latest = None if self._retention_s is None else self._clock() + timedelta(seconds=self._retention_s)
        times = [time for time in (own, latest) if time is not None]
        return min(times).replace(microsecond=0) if times else None

    def _uses(
        self, resource_id: str, thread_id: str, message_id: str, fields: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """Actions that note which files a message with these fields uses; none for a message without files."""
        if self._runs is None or not fields.get("files"):
            return []
        rows = use_items(resource_id, thread_id, message_id, fields["files"])
        return [{"Put": {"TableName": self._runs, "Item": row}} for row in rows]

    def _read(self, items: Iterable[Item]) -> tuple[Message, ...]:
        """Messages of rows, without those that are due; overflow bodies are fetched at the same time."""
        now = self._clock()
        shown = [item for item in items if not is_due(item, now)]
        try:
            bodies = self._bodies(shown)
        except NotFoundError:
            # An edit or a deletion took a body away between the read of its row and ours: what holds now is read.
            shown = self._again(shown)
            bodies = self._bodies(shown)
        return tuple(read_message(item, bodies.get(item.get("body", {}).get("S", ""))) for item in shown)

    def _bodies(self, items: Sequence[Item]) -> Mapping[str, bytes]:
        wanted = list(dict.fromkeys(item["body"]["S"] for item in items if "body" in item))
        if not wanted:
            return {}
        if self._blobs is None:
            raise StorageError(
                "expected a place for overflow bodies, found none configured although a row points there; "
                "configure the bucket that these rows were written with"
            )
        return dict(zip(wanted, together([functools.partial(self._blobs.get, key) for key in wanted]), strict=True))

    def _again(self, items: Sequence[Item]) -> list[Item]:
        """The rows as they are now, without those that are gone. One request for those with overflow bodies."""
        places = [{"pk": item["pk"], "sk": item["sk"]} for item in items if "body" in item]
        found = {
            (row["pk"]["S"], row["sk"]["N"]): row
            for row in self._db.batch_get(self._messages, places)
            if not is_due(row, self._clock())
        }
        now = [found.get((item["pk"]["S"], item["sk"]["N"])) if "body" in item else item for item in items]
        # A number that has been given to another message since would be out of place.
        return [row for row, item in zip(now, items, strict=True) if row is not None and row["mid"] == item["mid"]]

    def _drop_bodies(self, wanted: Iterable[str | None]) -> None:
        """Remove overflow bodies that no row points to any more. Failing leaves an object behind and harms nobody."""
        found = [key for key in wanted if key]
        if not found or self._blobs is None:
            return
        try:
            self._blobs.delete(found)
        except Exception:
            logger.warning("overflow bodies were left behind", extra={"count": len(found)}, exc_info=True)

    def _numbers(
        self, resource_id: str, thread_id: str, message_ids: Sequence[str], *, first_seq: int = 0
    ) -> dict[str, int]:
        """Numbers of stored ids from `first_seq` up, by one strongly consistent query per id, together."""
        pk = keys.messages_pk(resource_id, thread_id)
        wanted = list(dict.fromkeys(message_ids))

        def find(message_id: str) -> int | None:
            rows = self._db.query(
                self._messages,
                IndexName=keys.BY_MID,
                ConsistentRead=True,
                KeyConditionExpression="#pk = :pk AND #mid = :mid",
                ExpressionAttributeNames={"#pk": "pk", "#mid": "mid"},
                ExpressionAttributeValues=to_item({":pk": pk, ":mid": message_id}),
            )
            return max((seq for row in rows if (seq := int(row["sk"]["N"])) >= first_seq), default=None)

        found = together([functools.partial(find, message_id) for message_id in wanted])
        return {message_id: seq for message_id, seq in zip(wanted, found, strict=True) if seq is not None}


def being_built(thread_id: str) -> ConflictError:
    """A clone is filling the thread."""
    return ConflictError(
        f"thread {thread_id}: expected a thread that can be used, found one that is being built; try again shortly",
        code="THREAD_BEING_BUILT",
    )


def resource_locked(resource_id: str) -> ConflictError:
    """The resource is being erased."""
    return ConflictError(
        f"resource {resource_id}: expected one that can be written to, found that it is being erased; "
        "it can be used again when the erasure has ended",
        code="RESOURCE_LOCKED",
    )


def deleted_meanwhile(thread_id: str) -> ConflictError:
    """The thread that a write was prepared for is gone."""
    return ConflictError(
        f"thread {thread_id}: expected the thread this write was prepared for, found that it was deleted meanwhile; "
        "nothing was written",
        code="THREAD_DELETED",
    )


def thread_not_found(thread_id: str) -> NotFoundError:
    """No such thread of this owner."""
    return NotFoundError(f"No thread found with id {thread_id}", code="THREAD_NOT_FOUND")


def metadata_text(metadata: Mapping[str, Any]) -> str:
    """A thread's metadata as it is stored. Raises InvalidInputError when it is over its limit."""
    text = write_json("metadata", metadata)
    size = len(text.encode())
    if size > keys.MAX_METADATA_BYTES:
        raise InvalidInputError(
            "metadata", f"expected at most {keys.MAX_METADATA_BYTES} bytes of JSON for a thread, found {size}"
        )
    return text


def title_text(title: str) -> str:
    """A title as it is stored. Raises InvalidInputError when it is over its limit."""
    size = len(title.encode(errors="replace"))
    if size > keys.MAX_TITLE_BYTES:
        raise InvalidInputError("title", f"expected at most {keys.MAX_TITLE_BYTES} UTF-8 bytes, found {size}")
    return title.encode(errors="replace").decode()


def dead_turns(turns: Sequence[TurnRecord], keep: str, now_ms: int) -> list[str]:
    """Keys of turn records that a commit drops: all but the newest few, and running ones past their deadline."""
    others = [turn for turn in turns if turn.key != keep]
    running = [turn for turn in others if turn.state == "running" and turn.deadline > now_ms]
    ended = [turn for turn in others if turn not in running]
    room = max(keys.KEPT_TURNS - 1, 0)
    return [turn.key for turn in (ended[:-room] if room else ended)]
