"""Feeds a function with the records of a table's stream, by the rules of an event source mapping.

Records of a shard are handed over in order; a batch that fails is tried again before anything after it; a partial
answer moves on to the first failed record; a batch may be halved; records whose tries are spent go to the dead
letters, and the stream goes on.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from infra.local.background import DeadLetters
from infra.local.template import StreamMapping

IDLE_S = 0.2
FIRST_RETRY_S = 0.2
MAX_RETRY_S = 30.0

_log = logging.getLogger("infra.local")


class Checkpoints:
    """The last record of each shard that is done with, in a file; `path` None keeps them in memory only."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._done: dict[str, str] = {}
        if path is not None and path.exists():
            self._done = json.loads(path.read_text(encoding="utf-8"))

    def get(self, shard: str) -> str | None:
        """The last sequence number done, or None."""
        return self._done.get(shard)

    def put(self, shard: str, sequence_number: str) -> None:
        """Note that everything up to this record is done."""
        self._done[shard] = sequence_number
        if self._path is not None:
            beside = self._path.with_suffix(".new")
            beside.write_text(json.dumps(self._done), encoding="utf-8")
            beside.replace(self._path)

    def keep(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Keep records that a stop left undone: the emulator forgets its streams when it ends."""
        if self._path is not None:
            left = [*self.take(), *records]
            self._left().write_text(json.dumps(left, default=_seconds), encoding="utf-8")

    def take(self) -> list[dict[str, Any]]:
        """The records that the last stop left undone; they are not kept any longer."""
        if self._path is None or not self._left().exists():
            return []
        left: list[dict[str, Any]] = json.loads(self._left().read_text(encoding="utf-8"))
        self._left().unlink()
        return left

    def _left(self) -> Path:
        assert self._path is not None
        return self._path.with_suffix(".left")


class StreamFeeder:
    """Polls one table's stream and calls one function.

    Args:
        client: A boto3 ``dynamodbstreams`` client.
        stream_arn: The stream.
        mapping: The rules.
        call: Calls a function with an event.
        checkpoints: Where reading goes on after a restart.
        dead: Where records go whose tries are spent.
    """

    def __init__(
        self,
        client: Any,
        stream_arn: str,
        mapping: StreamMapping,
        call: Callable[[str, Any], Any],
        checkpoints: Checkpoints,
        dead: DeadLetters,
    ) -> None:
        self._client = client
        self._arn = stream_arn
        self._mapping = mapping
        self._call = call
        self._checkpoints = checkpoints
        self._dead = dead
        self._iterators: dict[str, str] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Poll on a thread."""
        self._thread = threading.Thread(target=self._run, name=f"stream-{self._mapping.function}", daemon=True)
        self._thread.start()

    def stop(self, wait_s: float = 10.0) -> None:
        """Stop; what is in the stream by now is handed over first, because the emulator forgets it when it ends."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(wait_s)

    def _run(self) -> None:
        left = self._checkpoints.take()
        if left:
            self._deliver(None, left)
        while True:
            stopping = self._stop.is_set()
            try:
                moved = self.poll()
            except Exception as error:
                if stopping:
                    return
                _log.warning("the stream of %s could not be read: %s", self._mapping.table, type(error).__name__)
                moved = False
            if not moved:
                if stopping:
                    return
                self._stop.wait(IDLE_S)

    def poll(self) -> bool:
        """Read each shard once and hand over what is there; False when there was nothing."""
        moved = False
        for shard in self._shards():
            records = self._read(shard)
            if records:
                moved = True
                self._deliver(shard, records)
        return moved

    def _shards(self) -> list[str]:
        description = self._client.describe_stream(StreamArn=self._arn)["StreamDescription"]
        return [shard["ShardId"] for shard in description["Shards"]]

    def _read(self, shard: str) -> list[dict[str, Any]]:
        iterator = self._iterators.pop(shard, None) or self._iterator(shard)
        answer = self._client.get_records(ShardIterator=iterator, Limit=min(self._mapping.batch_size, 1000))
        following = answer.get("NextShardIterator")
        if following:
            self._iterators[shard] = following
        records: list[dict[str, Any]] = answer["Records"]
        return records

    def _iterator(self, shard: str) -> str:
        done = self._checkpoints.get(shard)
        if done is not None:
            try:
                answer = self._client.get_shard_iterator(
                    StreamArn=self._arn,
                    ShardId=shard,
                    ShardIteratorType="AFTER_SEQUENCE_NUMBER",
                    SequenceNumber=done,
                )
                return str(answer["ShardIterator"])
            except self._client.exceptions.ClientError:
                pass  # trimmed, or lost with a restart; records are safe to hand over twice
        answer = self._client.get_shard_iterator(StreamArn=self._arn, ShardId=shard, ShardIteratorType="TRIM_HORIZON")
        return str(answer["ShardIterator"])

    def _deliver(self, shard: str | None, records: list[dict[str, Any]]) -> None:
        """Hand over records of a shard (None: those of the last run) until all are done, given up, or the stack stops."""
        batches = [(records, 0)]
        while batches:
            batch, tries = batches.pop(0)
            error, left = self._try(batch)
            done = batch[: len(batch) - len(left)]
            if done:
                self._passed(shard, done)
                tries = 0 if error is None else tries
            if not left:
                continue
            tries += 1
            if self._mapping.retries is not None and tries > self._mapping.retries:
                self._give_up(left, error, tries)
                self._passed(shard, left)
                continue
            if error is not None and self._mapping.bisect and len(left) > 1:
                middle = len(left) // 2
                batches[:0] = [(left[:middle], tries), (left[middle:], 0)]
            else:
                batches.insert(0, (left, tries))
            if self._stop.wait(min(FIRST_RETRY_S * 2 ** (tries - 1), MAX_RETRY_S)) and tries > 1:
                rest = [record for waiting, _ in batches for record in waiting]
                self._checkpoints.keep(rest)
                self._passed(shard, rest)
                return

    def _passed(self, shard: str | None, records: Sequence[Mapping[str, Any]]) -> None:
        if shard is not None:
            self._checkpoints.put(shard, _sequence(records[-1]))

    def _try(self, batch: list[dict[str, Any]]) -> tuple[Exception | None, list[dict[str, Any]]]:
        """Call the function; the error if it raised, and the records that are left to do."""
        event = {"Records": [_record(record, self._arn) for record in batch]}
        try:
            answer = self._call(self._mapping.function, json.loads(json.dumps(event)))
        except Exception as error:
            _log.warning("%s failed on %d records: %s", self._mapping.function, len(batch), type(error).__name__)
            return error, batch
        failures = answer.get("batchItemFailures") if self._mapping.partial and isinstance(answer, Mapping) else None
        if not failures:
            return None, []
        numbers = {failure.get("itemIdentifier") for failure in failures}
        for index, record in enumerate(batch):
            if _sequence(record) in numbers:
                return None, batch[index:]
        return None, batch  # an identifier that is in no record fails the whole batch

    def _give_up(self, records: list[dict[str, Any]], error: Exception | None, tries: int) -> None:
        cause = error or RuntimeError("the function reported the record as failed")
        payload = [_record(record, self._arn) for record in records]
        self._dead.write(self._mapping.function, json.loads(json.dumps(payload)), cause, tries)
        _log.error("%s failed %d times; %d records were given up", self._mapping.function, tries, len(records))


def _seconds(value: Any) -> float:
    if isinstance(value, datetime):
        return value.timestamp()
    raise TypeError(f"expected a record as JSON, found {type(value).__name__} in it")


def _sequence(record: Mapping[str, Any]) -> str:
    return str(record["dynamodb"]["SequenceNumber"])


def _record(record: Mapping[str, Any], arn: str) -> dict[str, Any]:
    """A record as Lambda hands it over: the time as a number."""
    change = dict(record["dynamodb"])
    created = change.get("ApproximateCreationDateTime")
    if isinstance(created, datetime):
        change["ApproximateCreationDateTime"] = _seconds(created)
    own = {
        key: record[key]
        for key in ("eventID", "eventName", "eventVersion", "awsRegion", "userIdentity")
        if key in record
    }
    return {**own, "eventSource": "aws:dynamodb", "dynamodb": change, "eventSourceARN": arn}
