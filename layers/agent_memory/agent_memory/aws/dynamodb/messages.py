"""Reading, changing and deleting single messages."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agent_memory import clock
from agent_memory.aws._pool import together
from agent_memory.aws.dynamodb import keys
from agent_memory.aws.dynamodb.actions import change_row, delete_row
from agent_memory.aws.dynamodb.base import thread_not_found
from agent_memory.aws.dynamodb.client import ConditionFailed, TransactionRefused
from agent_memory.aws.dynamodb.commits import Commits
from agent_memory.aws.dynamodb.headers import HeaderChange
from agent_memory.aws.dynamodb.items import is_due, message_key, read_header
from agent_memory.aws.dynamodb.turns import LIVE
from agent_memory.aws.dynamodb.uses import names_of
from agent_memory.aws.dynamodb.values import Item, expression, from_item, to_item
from agent_memory.errors import InvalidInputError, NotFoundError, StorageError
from agent_memory.messages import Message
from agent_memory.ports import FileUse, MessageRef, MessageRow

_USES_PAGE = 250  # rows, each of which may use 20 files, and every use takes its caller two requests


class Messages(Commits):
    """Single messages."""

    def latest(
        self, resource_id: str, thread_id: str, limit: int, *, before_seq: int | None = None
    ) -> tuple[Message, ...]:
        """See `MessageStore.latest`."""
        if limit <= 0:
            return ()
        names = {"#pk": "pk"}
        values = {":pk": keys.messages_pk(resource_id, thread_id)}
        condition = "#pk = :pk"
        bounds: dict[str, int] = {}
        if before_seq is not None:
            condition += " AND #sk < :before"
            names["#sk"] = "sk"
            bounds[":before"] = before_seq
        rows = self._db.query(
            self._messages,
            limit=limit,
            ConsistentRead=True,
            ScanIndexForward=False,
            KeyConditionExpression=condition,
            ExpressionAttributeNames=names,
            ExpressionAttributeValues=to_item({**values, **bounds}),
        )
        return self._read(reversed(list(rows)))

    def find(self, resource_id: str, thread_id: str, message_ids: Sequence[str]) -> Mapping[str, int]:
        """See `MessageStore.find`."""
        return self._numbers(resource_id, thread_id, message_ids)

    def buried_uses(self, resource_id: str, thread_id: str, *, cursor: Any = None) -> tuple[tuple[FileUse, ...], Any]:
        """See `MessageStore.buried_uses`."""
        stored = self._stored_header(resource_id, thread_id)
        if stored is not None and stored.state != "deleted":
            return (), None
        more = {} if cursor is None else {"ExclusiveStartKey": cursor}
        answer = self._db.call(
            "query",
            TableName=self._messages,
            ConsistentRead=True,
            KeyConditionExpression="#pk = :pk",
            FilterExpression="attribute_exists(#files)",
            Limit=_USES_PAGE,
            ProjectionExpression="#mid, #files",
            ExpressionAttributeNames={"#pk": "pk", "#mid": "mid", "#files": "files"},
            ExpressionAttributeValues=to_item({":pk": keys.messages_pk(resource_id, thread_id)}),
            **more,
        )
        found = [FileUse(name, thread_id, row["mid"]["S"]) for row in answer["Items"] for name in names_of(row)]
        return tuple(found), answer.get("LastEvaluatedKey") or None

    def references(self, resource_id: str, thread_id: str, message_ids: Sequence[str]) -> Mapping[str, frozenset[str]]:
        """See `MessageStore.references`."""
        pk = keys.messages_pk(resource_id, thread_id)

        def places(message_id: str) -> list[Item]:
            # All of them: rows that no thread shows yet, or any more, refer to files too.
            return list(
                self._db.query(
                    self._messages,
                    IndexName=keys.BY_MID,
                    ConsistentRead=True,
                    KeyConditionExpression="#pk = :pk AND #mid = :mid",
                    ExpressionAttributeNames={"#pk": "pk", "#mid": "mid"},
                    ExpressionAttributeValues=to_item({":pk": pk, ":mid": message_id}),
                )
            )

        referred: dict[str, set[str]] = {}
        left = list(dict.fromkeys(message_ids))
        backoff = self._db.backoff(f"the look at rows of thread {thread_id}")
        while left:
            found = {
                (row["mid"]["S"], row["sk"]["N"]): {"pk": row["pk"], "sk": row["sk"]}
                for rows in together([functools.partial(places, id) for id in left])
                for row in rows
            }
            for row in self._db.batch_get(
                self._messages, list(found.values()), attributes=("sk", "mid", "files", "body")
            ):
                names = [*names_of(row), *([row["body"]["S"]] if "body" in row else [])]
                referred.setdefault(row["mid"]["S"], set()).update(names)
                found.pop((row["mid"]["S"], row["sk"]["N"]), None)
            # A row that has left its place meanwhile may stand at another one: an import has moved it.
            left = list(dict.fromkeys(id for id, _ in found))
            if left:
                backoff.wait()
        return {id: frozenset(names) for id, names in referred.items()}

    def locate(self, resource_id: str | None, message_ids: Sequence[str]) -> tuple[MessageRef, ...]:
        """See `MessageStore.locate`. Reads a global index, so a message of the last moments may be missing."""
        prefix = keys.ALL_MESSAGES_PREFIX if resource_id is None else keys.messages_prefix(resource_id)

        def rows(message_id: str) -> list[Item]:
            return list(
                self._db.query(
                    self._messages,
                    IndexName=keys.BY_ID,
                    KeyConditionExpression="#mid = :mid AND begins_with(#pk, :prefix)",
                    ExpressionAttributeNames={"#mid": "mid", "#pk": "pk"},
                    ExpressionAttributeValues=to_item({":mid": message_id, ":prefix": prefix}),
                )
            )

        found: list[MessageRef] = []
        wanted = list(dict.fromkeys(message_ids))
        for items in together([functools.partial(rows, message_id) for message_id in wanted]):
            for row in items:
                place = keys.owner_and_thread(row["pk"]["S"]) or self._place_of(row)
                if place is not None:
                    found.append(MessageRef(*place, row["mid"]["S"], int(row["sk"]["N"])))
        return self._shown(found)

    def scan_messages(
        self, *, limit: int = 500, cursor: Any = None, consistent: bool = False
    ) -> tuple[tuple[MessageRow, ...], Any]:
        """See `MessageStore.scan_messages`. A request ends at 1 MB too, whatever `limit` says."""
        request: dict[str, Any] = {} if cursor is None else {"ExclusiveStartKey": cursor}
        fields = ("pk", "sk", "mid", "ver", "role", "created", "index", "ttl", "rid", "tid")
        answer = self._db.call(
            "scan",
            TableName=self._messages,
            Limit=limit,
            ConsistentRead=consistent,
            ProjectionExpression=", ".join(f"#{name}" for name in fields),
            ExpressionAttributeNames={f"#{name}": name for name in fields},
            **request,
        )
        now = self._clock()
        found = tuple(_row(item) for item in answer["Items"] if not is_due(item, now))
        return found, answer.get("LastEvaluatedKey") or None

    def _place_of(self, row: Item) -> tuple[str, str] | None:
        """Resource and thread of a row whose key holds only their hashes."""
        item = self._db.get(self._messages, {"pk": row["pk"], "sk": row["sk"]}, attributes=("pk", "rid", "tid"))
        if item is None:
            return None
        ids = {name: item[name]["S"] for name in ("rid", "tid") if name in item}
        return keys.owner_and_thread(row["pk"]["S"], **ids)

    def _shown(self, refs: Sequence[MessageRef]) -> tuple[MessageRef, ...]:
        """Those refs that a live thread shows; one request per 100 threads."""
        threads = list(dict.fromkeys((ref.resource_id, ref.thread_id) for ref in refs))
        if not threads:
            return ()
        now = self._clock()
        headers = {
            (stored.header.thread.resource_id, stored.header.thread.id): stored.header
            for item in self._db.batch_get(self._threads, [self._header_key(*thread) for thread in threads])
            if (stored := read_header(item)).is_live(now)
        }
        return tuple(
            ref
            for ref in refs
            if (header := headers.get((ref.resource_id, ref.thread_id))) is not None
            and header.first_seq <= ref.seq < header.next_seq
        )

    def update_message(
        self, resource_id: str, thread_id: str, message_id: str, change: Callable[[Message], Message]
    ) -> Message:
        """See `MessageStore.update_message`. Three requests."""
        backoff = self._db.backoff(f"the change of message {message_id}")
        pk = keys.messages_pk(resource_id, thread_id)
        while True:
            header = self._live_header(resource_id, thread_id).header
            seq = self._numbers(resource_id, thread_id, [message_id], first_seq=header.first_seq).get(message_id)
            item = None
            if seq is not None and seq < header.next_seq:
                item = self._db.get(self._messages, message_key(resource_id, thread_id, seq))
            shown = () if item is None else self._read([item])
            if item is None or not shown or shown[0].id != message_id:
                raise message_not_found(message_id)
            old = shown[0]
            new = change(old)
            if new.id != old.id:
                raise InvalidInputError("id", f"expected the message to keep its id {old.id}, found another")
            fields = self._message_fields(resource_id, thread_id, new)
            action, _ = self._change(
                header, HeaderChange(rows_changed=True, out_of_order=new.created_at != old.created_at), self._clock()
            )
            row = change_row(self._messages, pk, old.seq or 0, fields, version=old.version or 1)
            before = item.get("body", {}).get("S")
            try:
                self._db.transact([action, *self._uses(resource_id, thread_id, message_id, fields), row])
            except TransactionRefused as refused:
                self._drop_bodies([fields.get("body")])
                backoff.wait(refused)
                continue
            if before != fields.get("body"):
                self._drop_bodies([before])
            return new.replace(
                seq=old.seq, version=(old.version or 1) + 1, thread_id=thread_id, resource_id=resource_id
            )

    def delete_messages(self, resource_id: str, refs: Sequence[MessageRef]) -> int:
        """See `MessageStore.delete_messages`. Three requests for up to 96 messages of a thread."""
        by_thread: dict[str, dict[str, int]] = {}
        for ref in refs:
            if ref.resource_id == resource_id:
                by_thread.setdefault(ref.thread_id, {})[ref.message_id] = ref.seq
        deleted = 0
        for thread_id, wanted in by_thread.items():
            left = list(wanted.items())
            for start in range(0, len(left), keys.MAX_TRANSACTION_ITEMS):
                batch = dict(left[start : start + keys.MAX_TRANSACTION_ITEMS])
                deleted += self._delete_batch(resource_id, thread_id, batch)
        return deleted

    def _delete_batch(self, resource_id: str, thread_id: str, wanted: Mapping[str, int]) -> int:
        backoff = self._db.backoff(f"the deletion of messages of thread {thread_id}")
        pk = keys.messages_pk(resource_id, thread_id)
        while True:
            stored = self._stored_header(resource_id, thread_id)
            if stored is None or not stored.is_live(self._clock()):
                return 0
            header = stored.header
            rows = self._rows_of(resource_id, thread_id, wanted, header.first_seq, header.next_seq)
            if not rows:
                return 0
            action, _ = self._change(header, HeaderChange(removed=len(rows)), self._clock())
            deletes = [delete_row(self._messages, pk, int(row["sk"]["N"]), row["mid"]["S"]) for row in rows]
            try:
                self._db.transact([action, *deletes])
            except TransactionRefused as refused:
                backoff.wait(refused)
                continue
            self._drop_bodies(row.get("body", {}).get("S") for row in rows)
            return len(rows)

    def _rows_of(
        self, resource_id: str, thread_id: str, wanted: Mapping[str, int], first_seq: int, next_seq: int
    ) -> list[Item]:
        """Rows of the wanted ids; those that an import has renumbered are found by their id."""
        fields = ("pk", "sk", "mid", "body")

        def read(numbers: Mapping[str, int]) -> dict[str, Item]:
            asked = {seq: id for id, seq in numbers.items() if first_seq <= seq < next_seq}
            rows = self._db.batch_get(
                self._messages, [message_key(resource_id, thread_id, seq) for seq in asked], attributes=fields
            )
            return {row["mid"]["S"]: row for row in rows if asked[int(row["sk"]["N"])] == row["mid"]["S"]}

        found = read(wanted)
        missing = [id for id in wanted if id not in found]
        if missing:
            found |= read(self._numbers(resource_id, thread_id, missing, first_seq=first_seq))
        return list(found.values())

    def clear_thread(self, resource_id: str, thread_id: str) -> int:
        """See `MessageStore.clear_thread`. One request."""
        now = self._clock()
        try:
            before = self._db.update(
                self._threads,
                self._header_key(resource_id, thread_id),
                returns="ALL_OLD",
                **expression(
                    update="SET #first_seq = #next_seq, #message_count = :zero, #updated_key = :updated "
                    "ADD #revision :one, #edits :one REMOVE #last_created, #out_of_order",
                    condition=LIVE,
                    zero=0,
                    one=1,
                    updated=keys.date_key(now),
                    live="live",
                    now=clock.to_ms(now),
                ),
            )
        except ConditionFailed as refused:
            raise thread_not_found(thread_id) from refused
        return read_header(before).header.message_count


def _row(item: Item) -> MessageRow:
    fields = from_item(item)
    place = keys.owner_and_thread(fields["pk"], rid=fields.get("rid"), tid=fields.get("tid"))
    if place is None:
        raise StorageError(f"message {fields['mid']}: expected the ids that its key holds a hash of, found none")
    return MessageRow(
        *place,
        message_id=fields["mid"],
        seq=fields["sk"],
        version=fields.get("ver", 1),
        role=fields["role"],
        created_at=clock.from_ms(fields["created"]),
        index=fields.get("index"),
    )


def message_not_found(message_id: str) -> NotFoundError:
    """No such message in the thread."""
    return NotFoundError(f"No message found with id {message_id}", code="MESSAGE_NOT_FOUND")
