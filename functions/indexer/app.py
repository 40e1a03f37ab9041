"""The indexer: takes the stream of the messages table and keeps the vector index and the files in step with it."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from agent_memory import clock, embedding_usage, observe
from agent_memory.aws.custom_resource import answer, is_request
from agent_memory.aws.stream import read_change, read_file_change
from agent_memory.errors import AgentMemoryError, ConfigurationError
from agent_memory.recall.indexer import Indexed, Indexer
from agent_memory.recall.later import looks_again
from agent_memory.recall.targets import targets_of
from agent_memory.runtime import Deployment, deployment

_log = logging.getLogger("agent_memory.indexer")
_indexed: set[str] = set()


@observe.function("indexer")
def handler(event: Mapping[str, Any], context: Any) -> dict[str, Any]:
    """Apply a batch of stream records, or make the index for CloudFormation.

    Answers with the numbers of the records that must come again; Lambda goes on from the first of them. Where neither index
    nor embedder is set only files are followed up.
    """
    if is_request(event):
        return answer(event, context, _make_index)
    records = {record["dynamodb"]["SequenceNumber"]: record for record in event.get("Records", ())}
    current = deployment()
    left = _release_files(current, records)
    if current.index is None or current.embedder is None:
        return _failures(records, left)

    def keep(numbers: Sequence[str]) -> None:
        _keep(current, [records[number] for number in numbers], "index")

    # A wrong index raises here, for every batch: the stream waits and the alarm on its age rings, and nothing is lost.
    targets = targets_of(current.index, current.embedder, current.next_index, current.next_embedder)
    indexer = Indexer(
        current.store,
        targets,
        keep=keep if current.blobs is not None else None,
        again=looks_again(current.blobs, targets),
    )
    changes = [change for record in records.values() if (change := read_change(record)) is not None]
    with embedding_usage.measure() as embedded:
        result = indexer.apply([change for change in changes if change.number not in _indexed])
    _indexed.difference_update(records)
    if left:
        # These come again for their files alone: embedding them a second time would be for nothing.
        _indexed.update(records.keys() - set(result.failed))
    _report(result, embedded.tokens)
    return _failures(records, {*left, *result.failed})


def _release_files(current: Deployment, records: Mapping[str, Any]) -> list[str]:
    """Follow up on files and bodies that messages lost. Numbers of the records that must come again."""
    changes = [change for record in records.values() if (change := read_file_change(record)) is not None]
    if not changes:
        return []
    from agent_memory.jobs import removed_files

    result = removed_files.apply(changes, current.store, current.files, current.blobs)
    failures = len(result.failed) + len(result.refused)
    counts = {"FileUsesReleased": result.uses, "BodiesRemoved": result.bodies, "FileFailures": failures}
    observe.metrics(**{name: count for name, count in counts.items() if count})
    if not result.refused:
        return result.failed
    try:
        # What no repeat mends must not hold up the index; a replay takes it up.
        _keep(current, [records[number] for number in result.refused], "files")
    except AgentMemoryError:
        return [*result.failed, *result.refused]
    return result.failed


def _failures(records: Mapping[str, Any], failed: Collection[str]) -> dict[str, Any]:
    """In the order of the stream, because delivery goes on from the first of them."""
    return {"batchItemFailures": [{"itemIdentifier": number} for number in records if number in failed]}


def _make_index() -> str:
    current = deployment()
    if current.index is None:
        raise ConfigurationError(
            "expected an embedder and a search service, found none; set EMBEDDER and OPENSEARCH_URL"
        )
    current.index.ensure()
    return current.index.id


def _keep(current: Deployment, records: Sequence[Mapping[str, Any]], refused_by: str) -> None:
    """Put refused records into the bucket, whole: a queue would hold only pointers into a stream that forgets.

    The key says who refused them, because the index and the files may each refuse others behind the same first one.
    """
    if current.blobs is None:
        return
    day = f"{clock.now():%Y/%m/%d}"
    key = f"indexer/refused/{day}/{records[0]['dynamodb']['SequenceNumber']}-{refused_by}.json"
    current.blobs.put(key, json.dumps(list(records), default=str).encode(), "application/json")


def _report(result: Indexed, tokens: int) -> None:
    counts = {
        "IndexedMessages": result.written,
        "IndexDeletions": result.deleted,
        "IndexFailures": len(result.failed),
        "IndexRefusals": len(result.refused),
        "EmbeddingTokens": tokens,
    }
    observe.metrics(IndexLag=round(result.lag_s, 3), **{name: count for name, count in counts.items() if count})
    more = {"lag_s": round(result.lag_s, 3), "skipped": result.skipped, "codes": sorted(result.codes)}
    _log.log(logging.WARNING if result.codes else logging.INFO, "a batch was indexed", extra={**more, **counts})
