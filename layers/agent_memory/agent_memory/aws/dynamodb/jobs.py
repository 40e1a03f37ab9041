"""Jobs in RunsTable.

Rows::

    J#<job>    (partition of the owner, N#J for the deployment's)   a job
    <job>      (partition N#JO)                                     that it has not ended, and whose it is
    I          (partition I#<job>)                                  whose it is, for callers that name its id alone
"""

from __future__ import annotations

import base64
import time
import zlib
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from agent_memory import clock as clock_module
from agent_memory._json import EMPTY, freeze, loads
from agent_memory.aws.dynamodb import keys
from agent_memory.aws.dynamodb.client import ConditionFailed, Dynamo, TransactionRefused
from agent_memory.aws.dynamodb.items import write_json
from agent_memory.aws.dynamodb.values import Item, expression, from_item, to_item
from agent_memory.errors import ConflictError
from agent_memory.ports.jobs import FINISHED_LIFETIME_S, Job

_OPEN: Final = "N#JO"
PACKED_FROM_CHARS: Final = 50_000
_TEXTS: Final = ("params", "cursor", "progress", "result", "error")


class DynamoJobStore:
    """`JobStore` on RunsTable.

    Args:
        client: A boto3 ``dynamodb`` client.
        runs_table: Name of RunsTable.
        clock: The current time.
        sleep: Waits between tries, in seconds.
    """

    def __init__(
        self,
        client: Any,
        *,
        runs_table: str,
        clock: Callable[[], datetime] = clock_module.now,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._db = Dynamo(client, sleep=sleep)
        self._table = runs_table
        self._clock = clock

    def create(self, job: Job) -> Job:
        """See `JobStore.create`. One request, and one more where the job is there already."""
        puts = [
            {**_key(job.id, job.owner), **self._fields(job)},
            {**_open_key(job.id), "v": keys.SCHEMA, "resource": job.owner},
        ]
        if job.owner is not None:
            puts.append({**_owner_key(job.id), "v": keys.SCHEMA, "resource": job.owner})
        # A row past its time counts as none, whether or not DynamoDB has removed it.
        free = expression(condition="attribute_not_exists(#pk) OR #ttl <= :now", now=self._now_ms() // 1000)
        try:
            self._db.transact([{"Put": {"TableName": self._table, "Item": to_item(put), **free}} for put in puts])
        except TransactionRefused as refused:
            found = self.get(job.id, owner=job.owner)
            if found is None:
                raise ConflictError(
                    f"job {job.id}: expected an id that no job has, found that of another owner's; choose another",
                    code="JOB_ID_TAKEN",
                ) from refused
            return found
        return job

    def get(self, job_id: str, *, owner: str | None) -> Job | None:
        """See `JobStore.get`. One request."""
        item = self._db.get(self._table, to_item(_key(job_id, owner)))
        if item is None or ("ttl" in item and int(item["ttl"]["N"]) <= self._now_ms() // 1000):
            return None
        return _read(item, owner)

    def owner_of(self, job_id: str) -> str | None:
        """See `JobStore.owner_of`. One request."""
        item = self._db.get(self._table, to_item(_owner_key(job_id)))
        return None if item is None else str(item["resource"]["S"])

    def take(self, job_id: str, *, owner: str | None, holder: str, lease_s: float) -> Job | None:
        """See `JobStore.take`. One request."""
        now = self._now_ms()
        try:
            item = self._db.update(
                self._table,
                to_item(_key(job_id, owner)),
                returns="ALL_NEW",
                **expression(
                    update="SET #holder = :holder, #lease_until = :until, #state = :running, #updated_at = :now "
                    "ADD #tries :one",
                    condition="#state IN (:waiting, :running) AND (#lease_until <= :now OR #holder = :holder) "
                    "AND #not_before <= :now",
                    holder=holder,
                    until=now + int(lease_s * 1000),
                    running="running",
                    waiting="waiting",
                    now=now,
                    one=1,
                ),
            )
        except ConditionFailed:
            return None
        return _read(item, owner)

    def save(self, job: Job, *, lease_s: float | None = None) -> bool:
        """See `JobStore.save`. One request; two actions where the job ends."""
        fields = self._fields(job, lease_s=lease_s)
        gone = [name for name in ("result", "error", "ttl") if fields.get(name) is None]
        fields = {name: content for name, content in fields.items() if content is not None}
        sets = ", ".join(f"#{name} = :{name}" for name in fields)
        update = f"SET {sets}" + (f" REMOVE {', '.join(f'#{name}' for name in gone)}" if gone else "")
        write = {
            "TableName": self._table,
            "Key": to_item(_key(job.id, job.owner)),
            **expression(update=update, condition="#holder = :held_by", held_by=job.holder, **fields),
        }
        try:
            if not job.ended:
                self._db.call("update_item", **write)
            else:
                actions: list[Mapping[str, Any]] = [
                    {"Update": write},
                    {"Delete": {"TableName": self._table, "Key": to_item(_open_key(job.id))}},
                ]
                if job.owner is not None:
                    owned = {**_owner_key(job.id), "v": keys.SCHEMA, "resource": job.owner, "ttl": fields["ttl"]}
                    actions.append({"Put": {"TableName": self._table, "Item": to_item(owned)}})
                self._db.transact(actions)
        except (ConditionFailed, TransactionRefused):
            return False
        return True

    def reopen(self, job_id: str, *, owner: str | None) -> Job | None:
        """See `JobStore.reopen`. One request, and one to read it."""
        actions: list[Mapping[str, Any]] = [
            {
                "Update": {
                    "TableName": self._table,
                    "Key": to_item(_key(job_id, owner)),
                    **expression(
                        update="SET #state = :waiting, #tries = :none, #not_before = :none, #updated_at = :now REMOVE #ttl",
                        condition="#state = :failed",
                        waiting="waiting",
                        failed="failed",
                        none=0,
                        now=self._now_ms(),
                    ),
                }
            },
            {
                "Put": {
                    "TableName": self._table,
                    "Item": to_item({**_open_key(job_id), "v": keys.SCHEMA, "resource": owner}),
                }
            },
        ]
        if owner is not None:
            owned = {**_owner_key(job_id), "v": keys.SCHEMA, "resource": owner}
            actions.append({"Put": {"TableName": self._table, "Item": to_item(owned)}})
        try:
            self._db.transact(actions)
        except TransactionRefused:
            return None
        return self.get(job_id, owner=owner)

    def list_open(self, *, limit: int = 100, cursor: Any = None) -> tuple[tuple[tuple[str, str | None], ...], Any]:
        """See `JobStore.list_open`. One request."""
        more = {} if cursor is None else {"ExclusiveStartKey": cursor}
        answer = self._db.call(
            "query",
            TableName=self._table,
            Limit=limit,
            ConsistentRead=True,
            KeyConditionExpression="#pk = :pk",
            ExpressionAttributeNames={"#pk": "pk"},
            ExpressionAttributeValues=to_item({":pk": _OPEN}),
            **more,
        )
        found = tuple((row["sk"]["S"], row.get("resource", {}).get("S")) for row in answer["Items"])
        return found, answer.get("LastEvaluatedKey")

    def list_jobs(self, owner: str | None) -> tuple[Job, ...]:
        """See `JobStore.list_jobs`. One request per MB."""
        rows = self._db.query(
            self._table,
            ConsistentRead=True,
            KeyConditionExpression="#pk = :pk AND begins_with(#sk, :prefix)",
            ExpressionAttributeNames={"#pk": "pk", "#sk": "sk"},
            ExpressionAttributeValues=to_item({":pk": _partition(owner), ":prefix": "J#"}),
        )
        now_s = self._now_ms() // 1000
        jobs = [_read(row, owner) for row in rows if "ttl" not in row or int(row["ttl"]["N"]) > now_s]
        return tuple(sorted(jobs, key=lambda job: (job.created_at, job.id), reverse=True))

    def delete(self, job_id: str, *, owner: str | None) -> None:
        """See `JobStore.delete`. One request."""
        found = [_key(job_id, owner), _open_key(job_id)] + ([] if owner is None else [_owner_key(job_id)])
        self._db.transact([{"Delete": {"TableName": self._table, "Key": to_item(key)}} for key in found])

    # -- inside

    def _now_ms(self) -> int:
        return clock_module.to_ms(self._clock())

    def _fields(self, job: Job, *, lease_s: float | None = None) -> dict[str, Any]:
        now = self._now_ms()
        texts = {name: getattr(job, name) for name in _TEXTS}
        return {
            "v": keys.SCHEMA,
            "kind": job.kind,
            "state": job.state,
            **{name: None if text is None else _packed(write_json(name, dict(text))) for name, text in texts.items()},
            "tries": job.tries,
            "not_before": 0 if job.not_before is None else clock_module.to_ms(job.not_before),
            "created_at": clock_module.to_ms(job.created_at),
            "updated_at": now,
            # It stays when the job is given back, so that a save whose answer was lost can be sent again.
            "holder": job.holder,
            "lease_until": 0 if lease_s is None else now + int(lease_s * 1000),
            "correlation_id": job.correlation_id,
            "ttl": now // 1000 + FINISHED_LIFETIME_S if job.ended else None,
        }


def _packed(text: str) -> str:
    """A text as it is kept: a long one compressed, because the cursor of a large export would outgrow an item."""
    if len(text) <= PACKED_FROM_CHARS:
        return text
    return base64.b64encode(zlib.compress(text.encode())).decode()


def _unpacked(text: str) -> str:
    # JSON objects begin with a brace, which is no base64.
    return text if text.startswith("{") else zlib.decompress(base64.b64decode(text)).decode()


def _partition(owner: str | None) -> str:
    return "N#J" if owner is None else keys.owner_pk(owner)


def _key(job_id: str, owner: str | None) -> dict[str, Any]:
    return {"pk": _partition(owner), "sk": f"J#{keys.escape(job_id)}"}


def _open_key(job_id: str) -> dict[str, Any]:
    return {"pk": _OPEN, "sk": job_id}


def _owner_key(job_id: str) -> dict[str, Any]:
    # Not the row of a suspended run of that id, which has another sort key.
    return {"pk": f"I#{keys.escape(job_id)}", "sk": "J"}


def _read(item: Item, owner: str | None) -> Job:
    fields = from_item(item)
    texts = {name: freeze(loads(_unpacked(fields[name]))) if name in fields else None for name in _TEXTS}
    return Job(
        id=keys.unescape(fields["sk"][2:]),
        kind=fields["kind"],
        owner=owner,
        state=fields["state"],
        params=texts["params"] or EMPTY,
        cursor=texts["cursor"] or EMPTY,
        progress=texts["progress"] or EMPTY,
        result=texts["result"],
        error=texts["error"],
        tries=fields["tries"],
        not_before=clock_module.from_ms(fields["not_before"]) if fields["not_before"] else None,
        created_at=clock_module.from_ms(fields["created_at"]),
        updated_at=clock_module.from_ms(fields["updated_at"]),
        holder=fields.get("holder"),
        correlation_id=fields.get("correlation_id"),
    )
