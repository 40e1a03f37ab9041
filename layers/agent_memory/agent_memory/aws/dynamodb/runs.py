"""Short-lived state of runs in RunsTable. Everything expires, and is invisible when due.

Rows of a resource lie in its partition; those of a run without memory in one of their own::

    S#<run>                 a suspended run, with the decisions on its calls
    C#<hash of both>#<n>    a batch of events of a running answer
    A#<thread>              the run that is running on the thread, and messages that it may take in
    K#<hash of the key>     a call with an idempotency key, and what it answered
    I                       (partition I#<run>) the owner of a suspended run
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from agent_memory import clock as clock_module
from agent_memory._json import dumps, loads
from agent_memory.aws.dynamodb import keys
from agent_memory.aws.dynamodb.client import ConditionFailed, Dynamo
from agent_memory.aws.dynamodb.items import write_json
from agent_memory.aws.dynamodb.run_traces import RunTraces
from agent_memory.aws.dynamodb.values import Item, expression, from_item, to_item
from agent_memory.errors import NotFoundError, TooLargeError
from agent_memory.ports import BlobStore, SuspendedRun

SUSPENDED_S: Final = 7 * 86_400
CHUNK_S: Final = 3_600
RESULT_S: Final = 86_400
MAX_HANDED_IN: Final = 5
MAX_HANDED_IN_BYTES: Final = 60_000  # each; all of them and the row's own fields fit an item of 400 KB
CLAIM_S: Final = 900  # a function runs for 15 minutes at most, so an unfinished call of that age is dead


class DynamoRunStore(RunTraces):
    """`RunStore` on one DynamoDB table. It erases what the table holds of a resource, jobs included.

    Args:
        client: A boto3 ``dynamodb`` client.
        runs_table: Name of RunsTable.
        claims_table: Set where trusted callers name resources; only then is a suspended run also found without its owner.
        blobs: Where a run's state or a result over 300 KB is kept; without it such a one is refused.
        clock: The current time.
        sleep: Waits between tries, in seconds.
    """

    def __init__(
        self,
        client: Any,
        *,
        runs_table: str,
        claims_table: str | None = None,
        blobs: BlobStore | None = None,
        clock: Callable[[], datetime] = clock_module.now,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._db = Dynamo(client, sleep=sleep)
        self._table = runs_table
        self._owners_known = claims_table is not None
        self._blobs = blobs
        self._clock = clock

    # Suspended runs.

    def suspend(self, run: SuspendedRun) -> None:
        """See `RunStore.suspend`. One request."""
        fields = {
            **self._suspended_key(run.run_id, run.resource_id),
            "v": keys.SCHEMA,
            "ttl": self._due(SUSPENDED_S),
            "run_id": run.run_id,
            "agent_id": run.agent_id,
            "thread_id": run.thread_id,
            "suspended_at": clock_module.to_ms(run.suspended_at),
            "tool_calls": write_json("tool_calls", [dict(call) for call in run.tool_calls]),
            "decisions": {},
            **self._text("state", write_json("state", dict(run.state)), run.resource_id, run.run_id),
        }
        puts = [fields]
        if self._owners_known and run.resource_id is not None:
            puts.append({**_owner_key(run.run_id), "v": keys.SCHEMA, "ttl": fields["ttl"], "resource": run.resource_id})
        self._db.transact([{"Put": {"TableName": self._table, "Item": to_item(put)}} for put in puts])

    def find_suspended(self, run_id: str, *, owner: str | None) -> SuspendedRun | None:
        """See `RunStore.find_suspended`. One request, two or three without an owner."""
        item = self._get(self._suspended_key(run_id, owner))
        if item is None and owner is None and self._owners_known:
            known = self._get(_owner_key(run_id))
            if known is not None:
                owner = known["resource"]["S"]
                item = self._get(self._suspended_key(run_id, owner))
        return None if item is None else self._read_run(item, owner)

    def decide(self, run: SuspendedRun, tool_call_id: str, decision: Mapping[str, Any]) -> SuspendedRun | None:
        """See `RunStore.decide`. One request."""
        nonce = uuid.uuid4().hex
        slot = keys.turn_slot(tool_call_id)
        entry = {"id": tool_call_id, "decision": write_json("decision", dict(decision)), "by": nonce}
        try:
            item = self._db.update(
                self._table,
                to_item(self._suspended_key(run.run_id, run.resource_id)),
                returns="ALL_NEW",
                **expression(
                    update="SET #decisions.#slot = :entry",
                    condition="attribute_not_exists(#decisions.#slot) AND #ttl > :now",
                    given={"slot": slot},
                    entry=entry,
                    now=self._due(0),
                ),
            )
        except ConditionFailed as refused:
            there = None if refused.item is None else from_item(refused.item).get("decisions", {}).get(slot)
            if refused.item is None or there is None or there["by"] != nonce:
                return None
            item = refused.item  # a try of this call, whose answer was lost, has recorded it
        return self._read_run(item, run.resource_id)

    def finish_suspended(self, run: SuspendedRun) -> None:
        """See `RunStore.finish_suspended`. One request."""
        key = self._suspended_key(run.run_id, run.resource_id)
        deletes = [key]
        if self._owners_known and run.resource_id is not None:
            deletes.append(_owner_key(run.run_id))
        self._db.transact([{"Delete": {"TableName": self._table, "Key": to_item(each)}} for each in deletes])
        if self._blobs is not None:
            self._blobs.delete([_blob_key(run.resource_id, "state", run.run_id)])

    def list_suspended(self, owner: str, *, thread_id: str | None = None) -> tuple[SuspendedRun, ...]:
        """See `RunStore.list_suspended`. One request per MB."""
        runs = [self._read_run(item, owner) for item in self._rows(keys.owner_pk(owner), "S#")]
        chosen = [run for run in runs if thread_id is None or run.thread_id == thread_id]
        return tuple(sorted(chosen, key=lambda run: (run.suspended_at, run.run_id), reverse=True))

    # A running answer.

    def append_chunk(self, owner: str, thread_id: str, run_id: str, number: int, events: Sequence[str]) -> None:
        """See `RunStore.append_chunk`. One request."""
        item = {
            "pk": keys.owner_pk(owner),
            "sk": f"{_chunks(thread_id, run_id)}{number:010d}",
            "v": keys.SCHEMA,
            "ttl": self._due(CHUNK_S),
            "events": write_json("events", list(events)),
        }
        self._db.call("put_item", TableName=self._table, Item=to_item(item))

    def read_chunks(
        self, owner: str, thread_id: str, run_id: str, after: int
    ) -> tuple[tuple[int, tuple[str, ...]], ...]:
        """See `RunStore.read_chunks`. One request per MB."""
        prefix = _chunks(thread_id, run_id)
        rows = self._rows(keys.owner_pk(owner), prefix, first=f"{prefix}{max(after + 1, 0):010d}")
        return tuple((int(row["sk"]["S"][len(prefix) :]), tuple(loads(row["events"]["S"]))) for row in rows)

    def set_active(self, owner: str, thread_id: str, run_id: str, *, agent_id: str, expires_at: int) -> None:
        """See `RunStore.set_active`. One request."""
        self._db.update(
            self._table,
            _active_key(owner, thread_id),
            **expression(
                update="SET #v = :v, #run_id = :run_id, #agent_id = :agent_id, #expires_at = :expires_at, #ttl = :ttl, "
                "#inbox = :empty REMOVE #abort",
                empty={},
                v=keys.SCHEMA,
                run_id=run_id,
                agent_id=agent_id,
                expires_at=expires_at,
                ttl=expires_at // 1000 + 1,
            ),
        )

    def get_active(self, owner: str, thread_id: str) -> Mapping[str, Any] | None:
        """See `RunStore.get_active`. One request."""
        item = self._db.get(self._table, _active_key(owner, thread_id))
        if item is None or int(item["expires_at"]["N"]) <= clock_module.to_ms(self._clock()):
            return None
        fields = from_item(item)
        return {
            "run_id": fields["run_id"],
            "agent_id": fields["agent_id"],
            "abort": fields.get("abort", False),
            "waiting": len(fields.get("inbox", ())),
        }

    def clear_active(self, owner: str, thread_id: str, run_id: str) -> None:
        """See `RunStore.clear_active`. One request."""
        try:
            self._db.call(
                "delete_item",
                TableName=self._table,
                Key=_active_key(owner, thread_id),
                **expression(condition="#run_id = :run", run=run_id),
            )
        except ConditionFailed:
            return  # another run has begun since, or it was cleared before

    def request_abort(self, owner: str, thread_id: str, run_id: str | None) -> bool:
        """See `RunStore.request_abort`. One request."""
        condition = "#expires_at > :now" + ("" if run_id is None else " AND #run_id = :run")
        try:
            self._db.update(
                self._table,
                _active_key(owner, thread_id),
                **expression(
                    update="SET #abort = :true",
                    condition=condition,
                    true=True,
                    now=clock_module.to_ms(self._clock()),
                    run=run_id,
                ),
            )
        except ConditionFailed:
            return False
        return True

    # Messages for a running answer.

    def hand_in(
        self, owner: str, thread_id: str, run_id: str, message: Mapping[str, Any], *, agent_id: str, at: int
    ) -> bool:
        """See `RunStore.hand_in`. One request. A run holds 5 messages of 60 KB at most."""
        text = write_json("message", dict(message))
        if len(text.encode()) > MAX_HANDED_IN_BYTES:
            return False
        slot = keys.turn_slot(str(message["id"]))
        try:
            self._db.update(
                self._table,
                _active_key(owner, thread_id),
                **expression(
                    update="SET #inbox.#slot = :entry",
                    condition="#run_id = :run AND #agent_id = :agent AND #expires_at > :now "
                    "AND (size(#inbox) < :most OR attribute_exists(#inbox.#slot))",
                    given={"slot": slot},
                    entry={"id": message["id"], "at": at, "message": text},
                    run=run_id,
                    agent=agent_id,
                    now=clock_module.to_ms(self._clock()),
                    most=MAX_HANDED_IN,
                ),
            )
        except ConditionFailed:
            return False
        return True

    def take_in(self, owner: str, thread_id: str, run_id: str) -> tuple[Mapping[str, Any], ...]:
        """See `RunStore.take_in`. One request. What is lost with its answer counts as taken."""
        try:
            before = self._db.update(
                self._table,
                _active_key(owner, thread_id),
                returns="ALL_OLD",
                **expression(
                    update="SET #inbox = :empty",
                    condition="#run_id = :run AND size(#inbox) > :none",
                    empty={},
                    run=run_id,
                    none=0,
                ),
            )
        except ConditionFailed:
            return ()
        entries = from_item(before)["inbox"].values()
        return tuple(loads(each["message"]) for each in sorted(entries, key=lambda each: (each["at"], each["id"])))

    def hand_back(self, owner: str, thread_id: str, run_id: str, message_id: str) -> bool:
        """See `RunStore.hand_back`. One request."""
        try:
            self._db.update(
                self._table,
                _active_key(owner, thread_id),
                **expression(
                    update="REMOVE #inbox.#slot",
                    condition="#run_id = :run AND attribute_exists(#inbox.#slot)",
                    given={"slot": keys.turn_slot(message_id)},
                    run=run_id,
                ),
            )
        except ConditionFailed:
            return False
        return True

    # Results by idempotency key.

    def remember(
        self, owner: str | None, key: str, body_hash: str, result: Mapping[str, Any] | None, *, run_id: str
    ) -> Mapping[str, Any] | None:
        """See `RunStore.remember`. One request. A call that was claimed and never answered counts as dead after 15 minutes."""
        place = self._result_key(owner, key)
        if result is not None:
            text: dict[str, Any] = self._text("result", write_json("result", dict(result)), owner, key)
            others = [name for name in ("result", "result_blob") if name not in text]
            self._db.update(
                self._table,
                to_item(place),
                **expression(
                    update="SET #v = :v, #hash = :hash, #run_id = :run, #ttl = :ttl, "
                    + ", ".join(f"#{name} = :{name}" for name in text)
                    + f" REMOVE {', '.join(f'#{name}' for name in others)}",
                    v=keys.SCHEMA,
                    hash=body_hash,
                    run=run_id,
                    ttl=self._due(RESULT_S),
                    **text,
                ),
            )
            return None
        claim = {**place, "v": keys.SCHEMA, "hash": body_hash, "run_id": run_id, "ttl": self._due(CLAIM_S)}
        try:
            self._db.call(
                "put_item",
                TableName=self._table,
                Item=to_item(claim),
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
                **expression(condition="attribute_not_exists(#pk) OR #ttl <= :now", now=self._due(0)),
            )
        except ConditionFailed as refused:
            item = refused.item or self._db.get(self._table, to_item(place))
            if item is None:
                return None
            found = self._read_text(item, "result")
            if found is None and item["run_id"]["S"] == run_id:
                return None  # a try of this call, whose answer was lost, has claimed it
            return {
                "hash": item["hash"]["S"],
                "result": None if found is None else loads(found),
                "run_id": item["run_id"]["S"],
            }
        return None

    def forget(self, owner: str | None, key: str) -> None:
        """See `RunStore.forget`. One request."""
        self._db.call("delete_item", TableName=self._table, Key=to_item(self._result_key(owner, key)))

    # Rows.

    def _due(self, seconds: int) -> int:
        return clock_module.to_ms(self._clock()) // 1000 + seconds

    def _suspended_key(self, run_id: str, owner: str | None) -> dict[str, Any]:
        pk = f"N#{keys.escape(run_id)}" if owner is None else keys.owner_pk(owner)
        return {"pk": pk, "sk": f"S#{keys.escape(run_id)}"}

    def _result_key(self, owner: str | None, key: str) -> dict[str, Any]:
        digest = hashlib.sha256(key.encode()).hexdigest()
        return {"pk": f"N#K{digest}" if owner is None else keys.owner_pk(owner), "sk": f"K#{digest}"}

    def _get(self, key: Mapping[str, Any]) -> Item | None:
        item = self._db.get(self._table, to_item(key))
        return None if item is None or int(item["ttl"]["N"]) <= self._due(0) else item

    def _rows(self, pk: str, prefix: str, *, first: str | None = None) -> list[Item]:
        # "$" follows "#", so it ends the range of everything that begins with the prefix.
        last = prefix[:-1] + "$"
        rows = self._db.query(
            self._table,
            ConsistentRead=True,
            KeyConditionExpression="#pk = :pk AND #sk BETWEEN :first AND :last",
            ExpressionAttributeNames={"#pk": "pk", "#sk": "sk"},
            ExpressionAttributeValues=to_item({":pk": pk, ":first": first or prefix, ":last": last}),
        )
        now = self._due(0)
        return [row for row in rows if int(row["ttl"]["N"]) > now]

    def _read_run(self, item: Item, owner: str | None) -> SuspendedRun:
        fields = from_item(item)
        text = self._read_text(item, "state")
        if text is None:
            raise NotFoundError(f"run {fields['run_id']}: expected its state, found none")
        state = loads(text)
        decisions = {entry["id"]: loads(entry["decision"]) for entry in fields.get("decisions", {}).values()}
        if decisions:
            state["decisions"] = decisions
        return SuspendedRun(
            run_id=fields["run_id"],
            agent_id=fields["agent_id"],
            resource_id=owner,
            thread_id=fields.get("thread_id"),
            suspended_at=clock_module.from_ms(fields["suspended_at"]),
            tool_calls=tuple(loads(fields["tool_calls"])),
            state=state,
        )

    # Texts that may be too large for an item.

    def _text(self, name: str, text: str, owner: str | None, id: str) -> dict[str, str]:
        data = text.encode()
        if len(data) <= keys.MAX_INLINE_BYTES:
            return {name: text}
        if self._blobs is None:
            raise TooLargeError(
                f"{name} of a run: expected at most {keys.MAX_INLINE_BYTES} bytes, found {len(data)}; "
                "give the run store a place for large ones"
            )
        key = _blob_key(owner, name, id)
        self._blobs.put(key, data, "application/json")
        return {f"{name}_blob": key}

    def _read_text(self, item: Item, name: str) -> str | None:
        if name in item:
            return str(item[name]["S"])
        key = item.get(f"{name}_blob", {}).get("S")
        if key is None or self._blobs is None:
            return None
        return self._blobs.get(key).decode()


def _owner_key(run_id: str) -> dict[str, Any]:
    return {"pk": f"I#{keys.escape(run_id)}", "sk": "I"}


def _active_key(owner: str, thread_id: str) -> Item:
    return to_item({"pk": keys.owner_pk(owner), "sk": f"A#{keys.escape(thread_id)}"})


def _chunks(thread_id: str, run_id: str) -> str:
    # Hashed, because two escaped ids and a number may be longer than a sort key.
    digest = hashlib.sha256(dumps([thread_id, run_id]).encode()).hexdigest()[:32]
    return f"C#{digest}#"


def _blob_key(owner: str | None, name: str, id: str) -> str:
    prefix = "n/" if owner is None else keys.blob_prefix(owner)
    return f"{prefix}runs/{name}-{hashlib.sha256(id.encode()).hexdigest()[:40]}"
