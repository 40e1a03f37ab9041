"""The indexer: takes the stream of the messages table and keeps the vector index in step with it."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from agent_memory import clock
from agent_memory.aws.stream import read_change
from agent_memory.recall.indexer import LAG_METRIC, Indexed, Indexer
from agent_memory.runtime import Deployment, deployment

_log = logging.getLogger("agent_memory.indexer")
_log.setLevel(logging.INFO)


def handler(event: Mapping[str, Any], _context: Any) -> dict[str, Any]:
    """Apply a batch of stream records.

    Answers with the numbers of the records that must come again; Lambda goes on from the first of them. Where neither index
    nor embedder is set there is nothing to do.
    """
    records = {record["dynamodb"]["SequenceNumber"]: record for record in event.get("Records", ())}
    current = deployment()
    if current.index is None or current.embedder is None:
        return {"batchItemFailures": []}
    _ensure(current)

    def keep(numbers: Sequence[str]) -> None:
        _keep(current, [records[number] for number in numbers])

    indexer = Indexer(current.store, current.index, current.embedder, keep=keep if current.blobs is not None else None)
    result = indexer.apply([change for record in records.values() if (change := read_change(record)) is not None])
    _report(result)
    return {"batchItemFailures": [{"itemIdentifier": number} for number in result.failed]}


@cache
def _ensure(current: Deployment) -> None:
    # A wrong index raises here, for every batch: the stream waits and the alarm on its age rings, and nothing is lost.
    if current.index is not None:
        current.index.ensure()


def _keep(current: Deployment, records: Sequence[Mapping[str, Any]]) -> None:
    """Put refused records into the bucket, whole: a queue would hold only pointers into a stream that forgets."""
    if current.blobs is None:
        return
    day = f"{clock.now():%Y/%m/%d}"
    key = f"indexer/refused/{day}/{records[0]['dynamodb']['SequenceNumber']}.json"
    current.blobs.put(key, json.dumps(list(records), default=str).encode(), "application/json")


def _report(result: Indexed) -> None:
    """One line of CloudWatch's embedded metric format: its metrics cost no call."""
    values = {
        LAG_METRIC: round(result.lag_s, 3),
        "IndexedMessages": result.written,
        "IndexDeletions": result.deleted,
        "IndexFailures": len(result.failed),
        "IndexRefusals": len(result.refused),
    }
    units = {LAG_METRIC: "Seconds"}
    metrics = [{"Name": name, "Unit": units.get(name, "Count")} for name in values]
    directive = {"Namespace": "AgentMemory", "Dimensions": [["service"]], "Metrics": metrics}
    line = {"_aws": {"Timestamp": clock.now_ms(), "CloudWatchMetrics": [directive]}, "service": "indexer", **values}
    print(json.dumps(line))  # noqa: T201 - the format is read from standard output
