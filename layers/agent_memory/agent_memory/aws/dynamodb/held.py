"""Writes that are too large for one transaction: rows first, under a hold on the thread, and the header last.

A hold is a token in the header of a live thread, or the state `building` of a new one. Rows are written in
transactions of their own that check the hold, so a writer that lost it cannot write any more. Others who commit
meanwhile wait; a hold past its time is taken away, and the rows behind it are removed.
"""

from __future__ import annotations

import functools
import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from agent_memory import clock
from agent_memory.aws._pool import together
from agent_memory.aws.dynamodb import keys
from agent_memory.aws.dynamodb.actions import action_bytes
from agent_memory.aws.dynamodb.client import ConditionFailed, TransactionRefused
from agent_memory.aws.dynamodb.headers import FORGOTTEN, HeaderChange, Headers
from agent_memory.aws.dynamodb.items import StoredHeader
from agent_memory.aws.dynamodb.turns import LIVE
from agent_memory.aws.dynamodb.values import Item, expression, to_item
from agent_memory.ports import ThreadHeader

_AT_ONCE = 4  # batches of 25 rows under way at the same time

logger = logging.getLogger(__name__)


class Held(Headers):
    """Writes in batches behind a hold."""

    def _append_in_batches(
        self,
        header: ThreadHeader,
        change: HeaderChange,
        puts: Sequence[Mapping[str, Any]],
        others: Sequence[Mapping[str, Any]],
        now: datetime,
    ) -> ThreadHeader:
        """Append more rows than one transaction takes. Raises TransactionRefused when the thread moved on."""
        token = uuid.uuid4().hex
        thread = header.thread
        key = self._header_key(thread.resource_id, thread.id)
        until = clock.to_ms(now) + keys.HOLD_LIFETIME_MS
        hold = {
            "Update": {
                "TableName": self._threads,
                "Key": key,
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
                **expression(
                    update="SET #hold = :token, #hold_until = :until",
                    condition=f"{LIVE} AND #incarnation = :incarnation AND #next_seq = :was "
                    "AND attribute_not_exists(#hold)",
                    token=token,
                    until=until,
                    live="live",
                    now=clock.to_ms(now),
                    incarnation=header.incarnation,
                    was=header.next_seq,
                ),
            }
        }
        self._db.transact([hold])
        try:
            check = self._check(key, "#hold = :token", token=token)
            for batch in batches(puts):
                self._db.transact([check, *batch])
            action, after = self._change(header, replace(change, hold=token), now)
            self._db.transact([action, *others])
        except BaseException:
            self._give_up_hold(header, token)
            raise
        return after

    def _create_in_batches(
        self, header: ThreadHeader, dead: StoredHeader | None, puts: Sequence[Mapping[str, Any]]
    ) -> None:
        """Make a new thread with more rows than one transaction takes, hidden until the last one is written."""
        now = self._clock()
        thread = header.thread
        key = self._header_key(thread.resource_id, thread.id)
        until = now + timedelta(milliseconds=keys.BUILD_LIFETIME_MS)
        self._db.transact([*self._creation(header, dead=dead, state="building", until=until)])
        check = self._check(key, "#incarnation = :incarnation", incarnation=header.incarnation)
        try:
            for batch in batches(puts):
                self._db.transact([check, *batch])
            self._publish(header)
        except BaseException:
            self._abandon(header)
            raise

    def _publish(self, header: ThreadHeader, *others: Mapping[str, Any], claimed_by: str | None = None) -> None:
        """Show a thread that was built. `header` says what it holds, `claimed_by` who gives the claim on its id away."""
        thread = header.thread
        values = {
            name: content for name, content in self._fields_of(header, state="live").items() if content is not None
        }
        update = "SET " + ", ".join(f"#{name} = :{name}" for name in values)
        gone = [*(name for name in FORGOTTEN if name not in values), "hidden_created", "hidden_updated"]
        action = {
            "Update": {
                "TableName": self._threads,
                "Key": self._header_key(thread.resource_id, thread.id),
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
                **expression(
                    update=f"{update} REMOVE {', '.join(f'#{name}' for name in gone)}",
                    condition="#incarnation = :incarnation AND #state = :building",
                    building="building",
                    **values,
                ),
            }
        }
        self._db.transact([action, *self._going_live(thread, claimed_by=claimed_by), *others])

    def _abandon(self, header: ThreadHeader) -> None:
        """Turn a thread that could not be built into a tombstone. Failing leaves it to its time limit."""
        try:
            self._db.update(
                self._threads,
                self._header_key(header.thread.resource_id, header.thread.id),
                **expression(
                    update="SET #state = :deleted, #until = :now REMOVE #title, #metadata, #turns, #hidden_created, "
                    "#hidden_updated",
                    condition="#incarnation = :incarnation AND #state = :building",
                    deleted="deleted",
                    building="building",
                    now=clock.to_ms(self._clock()),
                    incarnation=header.incarnation,
                ),
            )
        except ConditionFailed:
            return
        except Exception:
            logger.warning("a thread that could not be built was left to its time limit", exc_info=True)

    def _give_up_hold(self, header: ThreadHeader, token: str) -> None:
        """Remove rows written ahead and the hold. Failing leaves both to the hold's time limit."""
        thread = header.thread
        try:
            stored = self._stored_header(thread.resource_id, thread.id)
            if stored is not None and stored.hold == token:
                self._release_hold(stored)
        except Exception:
            logger.warning("a hold on a thread was left to its time limit", exc_info=True)

    def _release_hold(self, stored: StoredHeader) -> None:
        """Take a hold away, and the rows that were written ahead under it."""
        thread = stored.header.thread
        fence = uuid.uuid4().hex
        key = self._header_key(thread.resource_id, thread.id)
        try:
            # A hold of our own first: from here on its writer's checks fail, and nobody appends.
            self._db.update(
                self._threads,
                key,
                **expression(
                    update="SET #hold = :fence, #hold_until = :until",
                    condition="#hold = :hold",
                    fence=fence,
                    until=clock.to_ms(self._clock()) + keys.HOLD_LIFETIME_MS,
                    hold=stored.hold,
                ),
            )
            self._delete_from(thread.resource_id, thread.id, stored.header.next_seq)
            self._db.update(
                self._threads,
                key,
                **expression(update="REMOVE #hold, #hold_until", condition="#hold = :fence", fence=fence),
            )
        except ConditionFailed:
            return

    def _clear_ahead(self, resource_id: str, thread_id: str, dead: StoredHeader | None) -> None:
        """Remove rows in the way of a thread that is about to be made; `dead` is what is in its place."""
        if dead is not None and dead.state == "live":
            return
        check = (
            self._check(self._header_key(resource_id, thread_id), "attribute_not_exists(#pk)")
            if dead is None
            else self._check(
                self._header_key(resource_id, thread_id),
                "#incarnation = :incarnation AND #state = :state",
                incarnation=dead.header.incarnation,
                state=dead.state,
            )
        )
        self._delete_checked(resource_id, thread_id, 1 if dead is None else dead.header.next_seq, check)

    def _clear_ahead_of(self, header: ThreadHeader) -> None:
        """Remove rows at and above a live header's next number, as long as that is its next number."""
        thread = header.thread
        check = self._check(
            self._header_key(thread.resource_id, thread.id),
            "#incarnation = :incarnation AND #next_seq = :next AND attribute_not_exists(#hold)",
            incarnation=header.incarnation,
            next=header.next_seq,
        )
        self._delete_checked(thread.resource_id, thread.id, header.next_seq, check)

    def _delete_checked(self, resource_id: str, thread_id: str, first: int, check: Mapping[str, Any]) -> None:
        rows = list(self._rows_from(resource_id, thread_id, first))
        for batch in batches([{"Delete": {"TableName": self._messages, "Key": _key_of(row)}} for row in rows]):
            try:
                self._db.transact([check, *batch])
            except TransactionRefused:
                return
        self._drop_bodies(row.get("body", {}).get("S") for row in rows)

    def _delete_from(self, resource_id: str, thread_id: str, first: int) -> None:
        self._delete_rows(list(self._rows_from(resource_id, thread_id, first)))

    def _delete_rows(self, rows: Sequence[Item]) -> None:
        """Remove rows and their overflow bodies, 25 a request and some requests at a time."""
        requests = [{"DeleteRequest": {"Key": _key_of(row)}} for row in rows]
        self._write_rows(requests)
        self._drop_bodies(row.get("body", {}).get("S") for row in rows)

    def _write_rows(self, requests: Sequence[Mapping[str, Any]]) -> None:
        """Put and delete requests on message rows, a few batches of 25 at a time."""
        size = keys.MAX_BATCH_WRITE
        write = functools.partial(self._db.batch_write, self._messages)
        for start in range(0, len(requests), size * _AT_ONCE):
            group = requests[start : start + size * _AT_ONCE]
            together([functools.partial(write, group[at : at + size]) for at in range(0, len(group), size)])

    def _rows_from(self, resource_id: str, thread_id: str, first: int, limit: int | None = None) -> Iterator[Item]:
        return self._db.query(
            self._messages,
            limit=limit,
            ConsistentRead=True,
            KeyConditionExpression="#pk = :pk AND #sk >= :first",
            ExpressionAttributeNames={"#pk": "pk", "#sk": "sk"},
            ExpressionAttributeValues=to_item({":pk": keys.messages_pk(resource_id, thread_id), ":first": first}),
            attributes=("pk", "sk", "body"),
        )

    def _check(self, key: Item, condition: str, **values: Any) -> dict[str, Any]:
        return {"ConditionCheck": {"TableName": self._threads, "Key": key, **expression(condition=condition, **values)}}


def batches(actions: Sequence[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """Actions in groups that one transaction takes, with room for a check."""
    batch: list[Mapping[str, Any]] = []
    size = 0
    for action in actions:
        own = action_bytes(action)
        if batch and (len(batch) >= keys.MAX_TRANSACTION_ITEMS or size + own > keys.MAX_TRANSACTION_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(action)
        size += own
    if batch:
        yield batch


def _key_of(row: Item) -> Item:
    return {"pk": row["pk"], "sk": row["sk"]}
