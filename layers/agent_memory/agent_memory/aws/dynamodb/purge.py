"""The removal of what no live thread shows any more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from agent_memory import clock
from agent_memory.aws.dynamodb import keys
from agent_memory.aws.dynamodb.client import ConditionFailed, TransactionRefused
from agent_memory.aws.dynamodb.held import batches
from agent_memory.aws.dynamodb.items import StoredHeader
from agent_memory.aws.dynamodb.threads import Threads
from agent_memory.aws.dynamodb.values import Item, expression, to_item


class Purge(Threads):
    """Purges threads."""

    def purge_thread(self, resource_id: str, thread_id: str, *, limit: int | None = None) -> int:
        """See `MessageStore.purge_thread`. A tombstone goes last, a day after the deletion.

        For every 1,000 rows of 1 KB: 40 batches of 25, one or two reads of them, and one of the header.
        """
        stored = self._stored_header(resource_id, thread_id)
        now = self._clock()
        if stored is not None and stored.is_live(now):
            stored = self._retained(stored)
        if stored is not None and stored.state == "live" and not stored.is_live(now):
            stored = self._bury_expired(stored)
        if stored is not None and stored.state == "building":
            if stored.is_building(now):
                return 0
            self._abandon(stored.header)
            stored = self._stored_header(resource_id, thread_id)
        if stored is None:
            check = self._check(self._header_key(resource_id, thread_id), "attribute_not_exists(#pk)")
            return self._purge_checked(self._messages, list(self._rows_from(resource_id, thread_id, 0, limit)), check)
        removed = self._purge_below(stored, limit)
        if stored.state == "deleted" and (limit is None or removed < limit):
            removed += self._purge_tombstone(stored, None if limit is None else limit - removed)
        return removed

    def dead_threads(self, *, limit: int = 250, cursor: Any = None) -> tuple[tuple[tuple[str, str], ...], Any]:
        """Threads that wait for `purge_thread`: (resource, thread) pairs, and a cursor where there may be more.

        Deleted and expired threads, and those whose building was given up, found by a walk over the table that reads
        `limit` items at a time. For a janitor that runs once in a while.
        """
        request: dict[str, Any] = {} if cursor is None else {"ExclusiveStartKey": cursor}
        now = clock.to_ms(self._clock())
        given: dict[str, int] = {}
        unretained = "attribute_exists(#idle_s)"
        if self._retention_s is not None:
            given[":idle"] = self._retention_s
            unretained = "attribute_not_exists(#expires_at) OR (attribute_exists(#idle_s) AND #idle_s <> :idle)"
        answer = self._db.call(
            "scan",
            TableName=self._threads,
            Limit=limit,
            FilterExpression="#state = :deleted OR (#state = :building AND #until < :now) OR #expires_at <= :now "
            f"OR (#state = :live AND ({unretained}))",
            ProjectionExpression="#pk, #sk",
            ExpressionAttributeNames={
                name: name[1:] for name in ("#state", "#until", "#expires_at", "#idle_s", "#pk", "#sk")
            },
            ExpressionAttributeValues=to_item(
                {":deleted": "deleted", ":building": "building", ":live": "live", ":now": now, **given}
            ),
            **request,
        )
        found = tuple((keys.resource_of(row["pk"]["S"]), keys.thread_of(row["sk"]["S"])) for row in answer["Items"])
        return found, answer.get("LastEvaluatedKey") or None

    def _retained(self, stored: StoredHeader) -> StoredHeader | None:
        """A live thread as the deployment's retention asks for: it may have been made before that was set or changed."""
        thread, idle_s = stored.header.thread, stored.header.idle_s
        had = thread.expires_at is not None
        if idle_s == self._retention_s or (had and idle_s is None):
            return stored
        fields: dict[str, Any] = {"live": "live", "incarnation": stored.header.incarnation}
        fields["was"] = keys.date_key(thread.updated_at)
        update = "REMOVE #idle_s, #expires_at"
        if self._retention_s is not None:
            update = "SET #idle_s = :idle, #expires_at = :expires"
            fields["idle"] = self._retention_s
            fields["expires"] = clock.to_ms(thread.updated_at) + self._retention_s * 1000
        change = {
            "Update": {
                "TableName": self._threads,
                "Key": self._header_key(thread.resource_id, thread.id),
                **expression(
                    update=update,
                    condition="#state = :live AND #incarnation = :incarnation AND #updated_key = :was "
                    f"AND attribute_{'' if had else 'not_'}exists(#expires_at)",
                    **fields,
                ),
            }
        }
        more = int(self._retention_s is not None) - int(had)
        counted = [self._resource_change(thread.resource_id, threads=0, expiring=more)] if more else []
        try:
            self._db.transact([change, *counted])
        except TransactionRefused:
            return stored  # written to just now; the next round looks again
        return self._stored_header(thread.resource_id, thread.id)

    def _bury_expired(self, stored: StoredHeader) -> StoredHeader | None:
        thread = stored.header.thread
        try:
            self._db.transact(
                [
                    *self._burial(stored),
                    *self._release_claim(thread.resource_id, thread.id),
                    self._memory_removal(thread.resource_id, thread.id),
                ]
            )
        except TransactionRefused:
            pass  # somebody has used the id again: what is there now decides
        return self._stored_header(thread.resource_id, thread.id)

    def _purge_below(self, stored: StoredHeader, limit: int | None) -> int:
        """Remove rows whose numbers no thread under this id will show again; no check is needed for those."""
        thread = stored.header.thread
        end = stored.header.next_seq if stored.state == "deleted" else stored.header.first_seq
        rows = list(
            self._db.query(
                self._messages,
                limit=limit,
                ConsistentRead=True,
                KeyConditionExpression="#pk = :pk AND #sk < :end",
                ExpressionAttributeNames={"#pk": "pk", "#sk": "sk"},
                ExpressionAttributeValues=to_item(
                    {":pk": keys.messages_pk(thread.resource_id, thread.id), ":end": end}
                ),
                attributes=("pk", "sk", "body"),
            )
        )
        self._delete_rows(rows)
        return len(rows)

    def _purge_tombstone(self, stored: StoredHeader, limit: int | None) -> int:
        thread = stored.header.thread
        key = self._header_key(thread.resource_id, thread.id)
        grave: dict[str, Any] = {"incarnation": stored.header.incarnation, "deleted": "deleted"}
        condition = "#incarnation = :incarnation AND #state = :deleted"
        check = self._check(key, condition, **grave)
        ahead = list(self._rows_from(thread.resource_id, thread.id, stored.header.next_seq, limit))
        removed = self._purge_checked(self._messages, ahead, check)
        if limit is not None and removed >= limit:
            return removed
        self._purge_checked(self._threads, list(self._memory_versions(thread.resource_id, thread.id)), check)
        if stored.until + keys.TOMBSTONE_LIFETIME_MS <= clock.to_ms(self._clock()):
            try:
                self._db.call(
                    "delete_item", TableName=self._threads, Key=key, **expression(condition=condition, **grave)
                )
            except ConditionFailed:
                return removed
        return removed

    def _memory_versions(self, resource_id: str, thread_id: str) -> Iterator[Item]:
        return self._db.query(
            self._threads,
            ConsistentRead=True,
            KeyConditionExpression="#pk = :pk AND begins_with(#sk, :prefix)",
            ExpressionAttributeNames={"#pk": "pk", "#sk": "sk"},
            ExpressionAttributeValues=to_item(
                {":pk": keys.owner_pk(resource_id), ":prefix": keys.memory_history_prefix(thread_id)}
            ),
            attributes=("pk", "sk"),
        )

    def _purge_checked(self, table: str, rows: Sequence[Item], check: dict[str, Any]) -> int:
        """Remove rows as long as `check` holds; how many."""
        removed = 0
        for batch in batches([{"Delete": {"TableName": table, "Key": _key_of(row)}} for row in rows]):
            try:
                self._db.transact([check, *batch])
            except TransactionRefused:
                return removed
            removed += len(batch)
        self._drop_bodies(row.get("body", {}).get("S") for row in rows)
        return removed


def _key_of(row: Item) -> Item:
    return {"pk": row["pk"], "sk": row["sk"]}
