"""What requests to DynamoDB and S3 cost, counted by a botocore hook.

Read units are computed from the sizes of requests and answers by the published rules (steps of 4 KB, half for
eventually consistent reads, double in transactions, at least one step a request and in a batch at least one an item);
the units that the service reports are taken where they are more. Write units are those it reports, indexes included;
for a refused condition, which reports none, they follow from the item that it returns.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from agent_memory.aws.dynamodb.values import size_of

READ_STEP_BYTES: Final = 4_096
WRITE_STEP_BYTES: Final = 1_024
_WRITES: Final = frozenset({"PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "TransactWriteItems"})
_READS: Final = frozenset({"GetItem", "Query", "Scan", "BatchGetItem", "TransactGetItems"})
_NOTE: Final = "agent_memory_meter"


@dataclass(slots=True)
class Cost:
    """What was counted.

    `requests` are DynamoDB's, tries included; `bytes_read` are items and objects that came back. `partition_gb` is the
    least size that the service told of the largest partition written to; partitions of tables with local indexes end at
    10 GB, and the size is told with answers to writes and nowhere else.
    """

    requests: int = 0
    s3_requests: int = 0
    read_units: float = 0.0
    write_units: float = 0.0
    bytes_read: int = 0
    partition_gb: float = 0.0
    by_operation: dict[str, int] = field(default_factory=dict)


class Meter:
    """Counts the requests of the clients it is attached to, for those who measure at the time.

    A measurement belongs to a context (`contextvars`): work that is handed to a pool with a copy of the context is
    counted where it was asked for, and parallel runs do not see each other's.
    """

    def __init__(self) -> None:
        self._costs: contextvars.ContextVar[tuple[Cost, ...]] = contextvars.ContextVar("costs", default=())
        self._lock = threading.Lock()

    def attach(self, client: Any) -> None:
        """Count this boto3 client's requests from now on. Attaching twice counts once."""
        events = client.meta.events
        service = client.meta.service_model.service_id.hyphenize()
        events.register(f"provide-client-params.{service}.*", self._before, unique_id=f"{_NOTE}-{id(self)}-before")
        events.register(f"after-call.{service}.*", self._after, unique_id=f"{_NOTE}-{id(self)}-after")
        events.register(f"after-call-error.{service}.*", self._failed, unique_id=f"{_NOTE}-{id(self)}-failed")

    def begin(self) -> Cost:
        """Count what is requested from now on in this context (and in its copies), for as long as the context lives."""
        cost = Cost()
        self._costs.set((*self._costs.get(), cost))
        return cost

    @contextlib.contextmanager
    def measure(self) -> Iterator[Cost]:
        """Count what is requested inside the block, in this context and in its copies."""
        cost = Cost()
        token = self._costs.set((*self._costs.get(), cost))
        try:
            yield cost
        finally:
            self._costs.reset(token)

    def _before(self, params: dict[str, Any], model: Any, context: dict[str, Any], **_: Any) -> dict[str, Any] | None:
        costs = self._costs.get()
        if not costs:
            return None
        context[_NOTE] = (costs, params)
        if model.service_model.service_name == "dynamodb" and model.name in _WRITES | _READS:
            asked = {"ReturnItemCollectionMetrics": "SIZE"} if model.name in _WRITES else {}
            return {"ReturnConsumedCapacity": "INDEXES", **asked, **params}
        return None

    def _failed(self, context: dict[str, Any], **_: Any) -> None:
        note = context.get(_NOTE)
        if note is not None:
            self._count(note[0], "no answer", 0.0, 0.0, 0, s3=False)

    def _after(self, parsed: Mapping[str, Any], model: Any, context: dict[str, Any], **_: Any) -> None:
        note = context.get(_NOTE)
        if note is None:
            return
        costs, params = note
        if model.service_model.service_name == "s3":
            self._count(costs, model.name, 0.0, 0.0, _object_bytes(model.name, parsed), s3=True)
            return
        read = written = 0.0
        size = 0
        failed = "Error" in parsed
        if model.name in _WRITES:
            partition_gb = _largest_partition(parsed)
            for cost in costs:
                cost.partition_gb = max(cost.partition_gb, partition_gb)
            written = _refused_units(parsed) if failed else _reported(parsed)
        elif model.name in _READS and not failed:
            computed, size = _read(model.name, params, parsed)
            read = max(computed, _reported(parsed))
        self._count(costs, model.name, read, written, size, s3=False)

    def _count(
        self, costs: tuple[Cost, ...], operation: str, read: float, written: float, size: int, *, s3: bool
    ) -> None:
        with self._lock:
            for cost in costs:
                cost.requests += not s3
                cost.s3_requests += s3
                cost.read_units += read
                cost.write_units += written
                cost.bytes_read += size
                cost.by_operation[operation] = cost.by_operation.get(operation, 0) + 1


def _read(operation: str, params: Mapping[str, Any], parsed: Mapping[str, Any]) -> tuple[float, int]:
    """Read units of an answer, and the bytes of its items."""
    if operation == "BatchGetItem":
        units, total = 0.0, 0
        left = parsed.get("UnprocessedKeys") or {}
        for table, wanted in params["RequestItems"].items():
            items = parsed.get("Responses", {}).get(table, [])
            sizes = [size_of(item) for item in items]
            missing = len(wanted["Keys"]) - len(left.get(table, {}).get("Keys", [])) - len(items)
            steps = sum(map(_steps, sizes)) + max(missing, 0)
            units += steps * (1.0 if wanted.get("ConsistentRead") else 0.5)
            total += sum(sizes)
        return units, total
    if operation == "TransactGetItems":
        sizes = [size_of(answer["Item"]) for answer in parsed.get("Responses", []) if answer.get("Item")]
        missing = len(params["TransactItems"]) - len(sizes)
        return 2.0 * (sum(map(_steps, sizes)) + missing), sum(sizes)
    factor = 1.0 if params.get("ConsistentRead") else 0.5
    if operation == "GetItem":
        size = size_of(parsed["Item"]) if parsed.get("Item") else 0
        return _steps(size) * factor, size
    items = parsed.get("Items", [])
    size = sum(map(size_of, items))
    # What a filter dropped was read all the same; its size is not told, so it counts as large as what came back.
    evaluated = size * parsed["ScannedCount"] // len(items) if items and "ScannedCount" in parsed else size
    return _steps(evaluated) * factor, size


def _steps(size: int) -> int:
    return max(1, -(-size // READ_STEP_BYTES))


def _reported(parsed: Mapping[str, Any]) -> float:
    consumed = parsed.get("ConsumedCapacity") or []
    entries = [consumed] if isinstance(consumed, dict) else consumed
    return sum(float(entry.get("CapacityUnits", 0.0)) for entry in entries)


def _largest_partition(parsed: Mapping[str, Any]) -> float:
    """Lower bound in GB of the largest partition among those that an answer tells the size of."""
    told = parsed.get("ItemCollectionMetrics") or {}
    # One of a single write; of batches and transactions lists of them by table.
    entries = [told] if "ItemCollectionKey" in told else [entry for table in told.values() for entry in table]
    return max((float(entry["SizeEstimateRangeGB"][0]) for entry in entries), default=0.0)


def _refused_units(parsed: Mapping[str, Any]) -> float:
    """Units of a write that a condition refused: the size of the item as it is, whole for every action that was tried."""
    code = parsed["Error"].get("Code")
    if code == "ConditionalCheckFailedException":
        return float(_write_steps(parsed.get("Item")))
    if code == "TransactionCanceledException":
        return 2.0 * sum(_write_steps(reason.get("Item")) for reason in parsed.get("CancellationReasons", []))
    return 0.0


def _write_steps(item: Mapping[str, Any] | None) -> int:
    return max(1, -(-size_of(item or {}) // WRITE_STEP_BYTES))


def _object_bytes(operation: str, parsed: Mapping[str, Any]) -> int:
    return int(parsed.get("ContentLength") or 0) if operation == "GetObject" else 0
