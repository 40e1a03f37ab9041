"""The removal of everything that the threads, messages and claims tables hold of a resource."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from agent_memory.aws._pool import together
from agent_memory.aws.dynamodb import keys
from agent_memory.aws.dynamodb.client import ConditionFailed
from agent_memory.aws.dynamodb.items import StoredHeader, read_header
from agent_memory.aws.dynamodb.purge import Purge
from agent_memory.aws.dynamodb.values import Item, expression, to_item

_THREADS_PAGE: Final = 25  # a transaction each
_ROWS_AT_ONCE: Final = 4  # batches of 25 rows under way at the same time


class Erasure(Purge):
    """Closes a resource and erases it."""

    def lock_of(self, resource_id: str) -> str | None:
        """See `ErasableStore.lock_of`."""
        item = self._db.get(self._threads, self._resource_key(resource_id), attributes=("locked",))
        return None if item is None or "locked" not in item else str(item["locked"]["S"])

    def lock_resource(self, resource_id: str, job_id: str, *, instead_of: str | None = None) -> str:
        """See `ErasableStore.lock_resource`."""
        try:
            self._db.update(
                self._threads,
                self._resource_key(resource_id),
                **expression(
                    update="SET #v = :v, #locked = :job",
                    condition="attribute_not_exists(#locked) OR #locked = :job OR #locked = :before",
                    v=keys.SCHEMA,
                    job=job_id,
                    before=instead_of or job_id,
                ),
            )
        except ConditionFailed as refused:
            return str((refused.item or {})["locked"]["S"])
        return job_id

    def unlock_resource(self, resource_id: str, job_id: str) -> None:
        """See `ErasableStore.unlock_resource`."""
        try:
            self._db.call(
                "delete_item",
                TableName=self._threads,
                Key=self._resource_key(resource_id),
                **expression(condition="#locked = :job", job=job_id),
            )
        except ConditionFailed:
            return  # it was unlocked before, and may be in use again

    def bury_threads(self, resource_id: str, *, cursor: Any = None) -> tuple[int, Any]:
        """See `ErasableStore.bury_threads`. A request for the page, and two for each thread that is not buried."""
        more = {} if cursor is None else {"ExclusiveStartKey": cursor}
        answer = self._db.call(
            "query",
            TableName=self._threads,
            Limit=_THREADS_PAGE,
            ConsistentRead=True,
            KeyConditionExpression="#pk = :pk AND begins_with(#sk, :prefix)",
            ExpressionAttributeNames={"#pk": "pk", "#sk": "sk"},
            ExpressionAttributeValues=to_item({":pk": keys.owner_pk(resource_id), ":prefix": "T#"}),
            **more,
        )
        found = [stored for item in answer["Items"] if (stored := read_header(item)).state != "deleted"]
        for stored in found:
            self._bury(stored)
        return len(found), answer.get("LastEvaluatedKey") or None

    def _bury(self, stored: StoredHeader) -> None:
        thread = stored.header.thread
        if stored.state == "building":
            self._abandon(stored.header)
        elif stored.is_live(self._clock()):
            self.delete_thread(thread.resource_id, thread.id)
        else:
            self._bury_expired(stored)

    # Rows under the resource's keys.

    def remove_resource(self, resource_id: str, *, limit: int = 1_000) -> Mapping[str, int]:
        """See `ErasableRows.remove_resource`. The resource item stays: it is the lock."""
        counts: Counter[str] = Counter()
        rows = self._db.query(
            self._threads,
            limit=_THREADS_PAGE * 4,
            ConsistentRead=True,
            KeyConditionExpression="#pk = :pk",
            ExpressionAttributeNames={"#pk": "pk"},
            ExpressionAttributeValues=to_item({":pk": keys.owner_pk(resource_id)}),
            attributes=("pk", "sk"),
        )
        ended: list[Item] = []
        for row in rows:
            sk = row["sk"]["S"]
            if sk == keys.RESOURCE_SK:
                continue
            if sk.startswith("T#"):
                left = limit - counts["messages"]
                removed = self._remove_thread_rows(resource_id, keys.thread_of(sk), left) if left > 0 else 0
                counts["messages"] += removed
                if removed >= left:
                    break  # its header goes when its last row has gone
                counts["claims"] += self._remove_claim(resource_id, keys.thread_of(sk))
                counts["threads"] += 1
            else:
                counts["workingMemory" if sk.startswith("W") else "others"] += 1
            ended.append({"pk": row["pk"], "sk": row["sk"]})
        self._remove(self._threads, ended)
        return +counts

    def _remove_thread_rows(self, resource_id: str, thread_id: str, limit: int) -> int:
        rows = list(
            self._db.query(
                self._messages,
                limit=limit,
                ConsistentRead=True,
                KeyConditionExpression="#pk = :pk",
                ExpressionAttributeNames={"#pk": "pk"},
                ExpressionAttributeValues=to_item({":pk": keys.messages_pk(resource_id, thread_id)}),
                attributes=("pk", "sk"),
            )
        )
        self._remove(self._messages, rows)
        return len(rows)

    def _remove_claim(self, resource_id: str, thread_id: str) -> int:
        if self._claims is None:
            return 0
        try:
            answer = self._db.call(
                "delete_item",
                TableName=self._claims,
                Key=to_item({"pk": keys.claim_pk(thread_id)}),
                ReturnValues="ALL_OLD",
                **expression(condition="attribute_not_exists(#pk) OR #resource = :resource", resource=resource_id),
            )
        except ConditionFailed:
            return 0
        return int(bool(answer.get("Attributes")))

    def _remove(self, table: str, rows: Sequence[Item]) -> None:
        requests = [{"DeleteRequest": {"Key": row}} for row in rows]
        size = keys.MAX_BATCH_WRITE
        together(
            [
                functools.partial(self._db.batch_write, table, requests[start : start + size])
                for start in range(0, len(requests), size)
            ]
        )

    # Rows that name the resource elsewhere.

    def remove_traces(
        self,
        resource_id: str,
        *,
        cursor: Any = None,
        spare: str | None = None,  # noqa: ARG002 - there are no jobs in these tables
    ) -> tuple[Mapping[str, int], Any]:
        """See `ErasableRows.remove_traces`: messages without a thread, then claims. One request and its removals."""
        walk = cursor or {"table": "messages", "key": None}
        in_messages = walk["table"] == "messages"
        table = self._messages if in_messages else self._claims
        if table is None:
            return {}, None
        condition, named = (
            ("begins_with(#pk, :named)", keys.messages_prefix(resource_id))
            if in_messages
            else ("#resource = :named", resource_id)
        )
        answer = self._db.call(
            "scan",
            TableName=table,
            ConsistentRead=True,
            FilterExpression=condition,
            ProjectionExpression="#pk, #sk" if in_messages else "#pk",
            ExpressionAttributeNames={
                "#pk": "pk",
                **({"#sk": "sk"} if in_messages else {"#resource": "resource"}),
            },
            ExpressionAttributeValues=to_item({":named": named}),
            **({"ExclusiveStartKey": walk["key"]} if walk["key"] else {}),
        )
        self._remove(table, answer["Items"])
        counts = {"messages" if in_messages else "claims": len(answer["Items"])} if answer["Items"] else {}
        last = answer.get("LastEvaluatedKey")
        if last:
            return counts, {**walk, "key": last}
        return counts, {"table": "claims", "key": None} if in_messages and self._claims is not None else None
