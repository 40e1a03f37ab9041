"""Requests to DynamoDB: tried again where that helps, followed to their end, and their errors translated once."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from botocore.exceptions import ClientError, ConnectionError, HTTPClientError

from agent_memory.aws.dynamodb import keys
from agent_memory.aws.dynamodb.values import Item
from agent_memory.errors import AgentMemoryError, StorageError, TooLargeError, UnavailableError

MAX_TRIES: Final = 8
FIRST_DELAY_S: Final = 0.05
MAX_DELAY_S: Final = 2.0

_BUSY: Final = frozenset(
    {
        "InternalServerError",
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "RequestTimeout",
        "ServiceUnavailable",
        "SlowDown",
        "ThrottlingException",
        "TransactionConflictException",
        "TransactionInProgressException",
        "TooManyRequestsException",
    }
)
_BUSY_REASONS: Final = frozenset({"TransactionConflict", "ProvisionedThroughputExceeded", "ThrottlingError"})
CONDITION_FAILED: Final = "ConditionalCheckFailed"


class ConditionFailed(Exception):
    """A write's condition did not hold. `item` is the item as it is, None where there is none."""

    def __init__(self, item: Item | None) -> None:
        super().__init__("the condition of a write did not hold")
        self.item = item


@dataclass(frozen=True, slots=True)
class Reason:
    """Why one action of a transaction was refused (`code` is "None" for those that were not), and its item."""

    code: str
    item: Item | None = None

    @property
    def failed(self) -> bool:
        """Whether this action's condition did not hold."""
        return self.code == CONDITION_FAILED


class TransactionRefused(Exception):
    """At least one condition of a transaction did not hold; nothing was written. Reasons are in the actions' order."""

    def __init__(self, reasons: Sequence[Reason]) -> None:
        super().__init__("a condition of a transaction did not hold")
        self.reasons = tuple(reasons)


class Backoff:
    """Full jitter: each wait is a random part of a bound that doubles, so that losers of a race spread out."""

    def __init__(self, what: str, *, tries: int = MAX_TRIES, sleep: Callable[[float], None] = time.sleep) -> None:
        self._what = what
        self._left = tries
        self._tries = tries
        self._bound = FIRST_DELAY_S
        self._sleep = sleep

    def wait(self, cause: BaseException | None = None) -> None:
        """Wait before the next try. Raises UnavailableError when the tries are spent."""
        self._left -= 1
        if self._left <= 0:
            raise UnavailableError(
                f"expected {self._what} to succeed within {self._tries} tries, found storage still busy; call again later"
            ) from cause
        self._sleep(random.uniform(0, self._bound))
        self._bound = min(self._bound * 2, MAX_DELAY_S)


class Dynamo:
    """A thin layer over the low-level client. Items go in and come out as attribute values."""

    def __init__(self, client: Any, *, sleep: Callable[[float], None] = time.sleep) -> None:
        """Wrap a boto3 ``dynamodb`` client. `sleep` takes seconds."""
        self.client = client
        self.sleep = sleep

    def backoff(self, what: str) -> Backoff:
        """Waits between the tries of `what`."""
        return Backoff(what, sleep=self.sleep)

    def call(self, operation: str, **request: Any) -> dict[str, Any]:
        """One request, tried again while storage is busy.

        Raises ConditionFailed, TransactionRefused, UnavailableError, TooLargeError, StorageError.
        """
        backoff = self.backoff(operation)
        while True:
            try:
                answer: dict[str, Any] = getattr(self.client, operation)(**request)
                return answer
            except ClientError as error:
                failure = _failure(operation, error)
                if failure is not None:
                    raise failure from error
                backoff.wait(error)
            except (ConnectionError, HTTPClientError) as error:
                backoff.wait(error)

    def get(self, table: str, key: Item, *, consistent: bool = True, attributes: Sequence[str] = ()) -> Item | None:
        """One item, or None."""
        answer = self.call("get_item", TableName=table, Key=key, ConsistentRead=consistent, **_projection(attributes))
        item: Item | None = answer.get("Item")
        return item

    def query(
        self,
        table: str,
        *,
        limit: int | None = None,
        page_limit: int | None = None,
        attributes: Sequence[str] = (),
        **request: Any,
    ) -> Iterator[Item]:
        """Items of a query, page after page, at most `limit`. `page_limit` bounds what one request evaluates."""
        for page in self.pages("query", table, limit=limit, page_limit=page_limit, attributes=attributes, **request):
            yield from page

    def pages(
        self,
        operation: str,
        table: str,
        *,
        limit: int | None = None,
        page_limit: int | None = None,
        attributes: Sequence[str] = (),
        **request: Any,
    ) -> Iterator[list[Item]]:
        """Pages of a query or scan, to the end or to `limit` items. A page may be empty and not the last."""
        left = limit
        names = {**request.pop("ExpressionAttributeNames", {})}
        projection = _projection(attributes)
        names |= projection.pop("ExpressionAttributeNames", {})
        if names:
            request["ExpressionAttributeNames"] = names
        request |= projection
        while left is None or left > 0:
            sizes = [size for size in (left, page_limit) if size is not None]
            if sizes:
                request["Limit"] = min(sizes)
            answer = self.call(operation, TableName=table, **request)
            items: list[Item] = answer.get("Items", [])
            if left is not None:
                left -= len(items)
            yield items
            last = answer.get("LastEvaluatedKey")
            if not last:
                return
            request["ExclusiveStartKey"] = last

    def count(self, table: str, **request: Any) -> int:
        """How many items a query matches, followed to its end."""
        total = 0
        while True:
            answer = self.call("query", TableName=table, Select="COUNT", **request)
            total += int(answer["Count"])
            last = answer.get("LastEvaluatedKey")
            if not last:
                return total
            request["ExclusiveStartKey"] = last

    def batch_get(
        self, table: str, wanted: Sequence[Item], *, consistent: bool = True, attributes: Sequence[str] = ()
    ) -> list[Item]:
        """Items of up to any number of different keys, in no order; missing ones are left out. 100 a request."""
        found: list[Item] = []
        for start in range(0, len(wanted), keys.MAX_BATCH_GET):
            batch = {
                "Keys": list(wanted[start : start + keys.MAX_BATCH_GET]),
                "ConsistentRead": consistent,
                **_projection(attributes),
            }
            found += self.batch_get_tables({table: batch})[table]
        return found

    def batch_get_tables(self, wanted: Mapping[str, Any]) -> dict[str, list[Item]]:
        """Items of several tables in one request (100 keys together at most), by table, in no order."""
        found: dict[str, list[Item]] = {table: [] for table in wanted}
        left: Any = dict(wanted)
        backoff = self.backoff("batch_get_item")
        while left:
            answer = self.call("batch_get_item", RequestItems=left)
            came = 0
            for table, items in answer.get("Responses", {}).items():
                found[table] += items
                came += len(items)
            left = answer.get("UnprocessedKeys")
            if left and not came:
                backoff.wait()
        return found

    def batch_write(self, table: str, requests: Sequence[Mapping[str, Any]]) -> None:
        """Put and delete requests of different keys, without conditions. 25 a request."""
        for start in range(0, len(requests), keys.MAX_BATCH_WRITE):
            left: Any = {table: list(requests[start : start + keys.MAX_BATCH_WRITE])}
            backoff = self.backoff("batch_write_item")
            while left:
                sent = sum(len(batch) for batch in left.values())
                left = self.call("batch_write_item", RequestItems=left).get("UnprocessedItems")
                if left and sum(len(batch) for batch in left.values()) == sent:
                    backoff.wait()

    def update(self, table: str, key: Item, *, returns: str = "NONE", **parameters: Any) -> Item:
        """One conditional update; the attributes that `returns` asks for. Raises ConditionFailed with the item."""
        answer = self.call(
            "update_item",
            TableName=table,
            Key=key,
            ReturnValues=returns,
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
            **parameters,
        )
        attributes: Item = answer.get("Attributes", {})
        return attributes

    def transact(self, actions: Sequence[Mapping[str, Any]]) -> None:
        """All actions or none. One token for all tries, so a try whose answer was lost is not applied twice.

        Raises TransactionRefused when a condition did not hold.
        """
        self.call("transact_write_items", TransactItems=list(actions), ClientRequestToken=uuid.uuid4().hex)


def _projection(attributes: Sequence[str]) -> dict[str, Any]:
    if not attributes:
        return {}
    return {
        "ProjectionExpression": ", ".join(f"#{name}" for name in attributes),
        "ExpressionAttributeNames": {f"#{name}": name for name in attributes},
    }


def _failure(operation: str, error: ClientError) -> Exception | None:
    """What to raise for `error`, or None where another try may help."""
    response: Any = error.response
    code = response.get("Error", {}).get("Code", "")
    message = response.get("Error", {}).get("Message", "")
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code == "ConditionalCheckFailedException":
        return ConditionFailed(response.get("Item") or None)
    if code == "TransactionCanceledException":
        reasons = [
            Reason(reason.get("Code") or "None", reason.get("Item") or None)
            for reason in response.get("CancellationReasons", [])
        ]
        if any(reason.failed for reason in reasons):
            return TransactionRefused(reasons)
        if any(reason.code in _BUSY_REASONS for reason in reasons):
            return None
        codes = sorted({reason.code for reason in reasons if reason.code != "None"})
        return _too_large(operation, " ".join(codes)) or StorageError(
            f"{operation}: expected the transaction to be accepted, found {', '.join(codes) or 'no reason'}; "
            "check the request against the table's definition"
        )
    if code in _BUSY or status >= 500:
        return None
    return _too_large(operation, f"{code} {message}") or StorageError(
        f"{operation}: expected success, found {code or status}; check the table's name, its definition and the "
        "permissions of the role"
    )


def _too_large(operation: str, found: str) -> AgentMemoryError | None:
    sizes = (
        "size has exceeded",
        "size exceeded",
        "ItemCollectionSizeLimitExceeded",
        "exceeds the maximum allowed size",
    )
    if not any(text in found for text in sizes):
        return None
    return TooLargeError(
        f"{operation}: expected an item of at most 400 KB and at most 10 GB per resource, found more; make it smaller"
    )
