"""A small evaluator of IAM policies for DynamoDB: which permissions a request needs, and whether a policy gives them.

It knows what the policies here use: Allow and Deny, wildcards in actions and resources, and the condition operators
``ForAllValues:StringLike`` and ``Null`` on ``dynamodb:LeadingKeys``. Anything else is an error, never a pass.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

TABLE = "arn:aws:dynamodb:eu-west-1:123456789012:table/"
_SINGLE = {
    "get_item": "GetItem",
    "put_item": "PutItem",
    "update_item": "UpdateItem",
    "delete_item": "DeleteItem",
}
_IN_TRANSACTION = {
    "Put": "PutItem",
    "Update": "UpdateItem",
    "Delete": "DeleteItem",
    "ConditionCheck": "ConditionCheckItem",
    "Get": "GetItem",
}


@dataclass(frozen=True)
class Need:
    """A permission that a request needs. `keys` are its leading keys; none for a request that names no partition."""

    action: str
    resource: str
    keys: frozenset[str]


def needs_of(operation: str, request: Mapping[str, Any]) -> list[Need]:
    """What a request of boto3's low-level client needs: one permission for each action and table or index."""
    found: dict[tuple[str, str], set[str]] = {}
    for action, resource, key in _parts(operation, request):
        found.setdefault((action, resource), set()).update(() if key is None else (key,))
    return [Need(f"dynamodb:{action}", TABLE + resource, frozenset(keys)) for (action, resource), keys in found.items()]


def needs_together(operation: str, request: Mapping[str, Any]) -> list[Need]:
    """The same where a transaction's keys of one table are looked at together, whatever is done to each."""
    needs = needs_of(operation, request)
    return [
        Need(
            need.action,
            need.resource,
            frozenset(key for other in needs if other.resource == need.resource for key in other.keys),
        )
        for need in needs
    ]


def _parts(operation: str, request: Mapping[str, Any]) -> Iterator[tuple[str, str, str | None]]:
    if operation in _SINGLE:
        yield _SINGLE[operation], request["TableName"], _pk(request.get("Key") or request["Item"])
    elif operation == "query":
        index = f"/index/{request['IndexName']}" if "IndexName" in request else ""
        yield "Query", request["TableName"] + index, _hash_value(request)
    elif operation == "scan":
        yield "Scan", request["TableName"], None
    elif operation == "batch_get_item":
        for table, wanted in request["RequestItems"].items():
            for key in wanted["Keys"]:
                yield "BatchGetItem", table, _pk(key)
    elif operation == "batch_write_item":
        for table, writes in request["RequestItems"].items():
            for write in writes:
                ((_, content),) = write.items()
                yield "BatchWriteItem", table, _pk(content.get("Key") or content["Item"])
    elif operation in ("transact_write_items", "transact_get_items"):
        for action in request["TransactItems"]:
            ((kind, content),) = action.items()
            yield _IN_TRANSACTION[kind], content["TableName"], _pk(content.get("Key") or content["Item"])
    else:
        raise ValueError(f"expected an operation on items, found {operation}")


def _pk(item: Mapping[str, Any]) -> str:
    value: str = item["pk"]["S"]
    return value


def _hash_value(request: Mapping[str, Any]) -> str:
    """The value that a query's key condition names with ``=`` first: the partition's."""
    match = re.search(r"(#\w+)\s*=\s*(:\w+)", request["KeyConditionExpression"])
    assert match is not None, request["KeyConditionExpression"]
    assert request["ExpressionAttributeNames"][match[1]] in ("pk", "mid")
    value: str = request["ExpressionAttributeValues"][match[2]]["S"]
    return value


def allows(policy: Mapping[str, Any], need: Need) -> bool:
    """Whether a policy gives a permission: some statement allows it and none denies it."""
    effects = {statement["Effect"] for statement in policy["Statement"] if _applies(statement, need)}
    return effects == {"Allow"}


def _applies(statement: Mapping[str, Any], need: Need) -> bool:
    assert statement.keys() <= {"Effect", "Action", "Resource", "Condition", "Sid"}, statement
    return (
        any(like(pattern, need.action) for pattern in _list(statement["Action"]))
        and any(like(pattern, need.resource) for pattern in _list(statement["Resource"]))
        and all(
            _holds(operator, wanted, need)
            for operator, conditions in statement.get("Condition", {}).items()
            for wanted in conditions.items()
        )
    )


def _holds(operator: str, wanted: tuple[str, Any], need: Need) -> bool:
    name, values = wanted
    assert name == "dynamodb:LeadingKeys", name
    if operator == "Null":
        return (not need.keys) is (values == "true")
    assert operator == "ForAllValues:StringLike", operator
    return all(any(like(pattern, key) for pattern in _list(values)) for key in need.keys)


def like(pattern: str, value: str) -> bool:
    """IAM's wildcards: ``*`` for any text, ``?`` for one character. Policy variables are refused."""
    assert "${" not in pattern, pattern
    expression = "".join(".*" if char == "*" else "." if char == "?" else re.escape(char) for char in pattern)
    return re.fullmatch(expression, value, re.DOTALL) is not None


def _list(value: str | Iterable[str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)
