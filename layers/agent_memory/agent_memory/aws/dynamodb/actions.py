"""Single actions of a transaction on message rows."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from agent_memory import clock
from agent_memory.aws.dynamodb.items import CHANGEABLE
from agent_memory.aws.dynamodb.values import Item, expression, size_of, to_item

_RETURN_OLD = {"ReturnValuesOnConditionCheckFailure": "ALL_OLD"}


def put_row(table: str, pk: str, seq: int, fields: Mapping[str, Any]) -> dict[str, Any]:
    """A new row, where there is none."""
    return {
        "Put": {
            "TableName": table,
            "Item": to_item({"pk": pk, "sk": seq, **fields}),
            **expression(condition="attribute_not_exists(#pk)"),
            **_RETURN_OLD,
        }
    }


def change_row(
    table: str, pk: str, seq: int, fields: Mapping[str, Any], *, version: int, expires_at: datetime | None = None
) -> dict[str, Any]:
    """Other contents for the row of this id and version; attributes this store does not know stay.

    It expires when it did before, unless another time is given.
    """
    sets = ["#v = :v", "#ver = :next"]
    removes: list[str] = []
    values: dict[str, Any] = {}
    for name in CHANGEABLE:
        if fields.get(name) is None:
            removes.append(f"#{name}")
        else:
            sets.append(f"#{name} = :{name}")
            values[name] = fields[name]
    if expires_at is not None:
        sets.append("#ttl = :ttl")
        values["ttl"] = clock.to_ms(expires_at) // 1000
    update = f"SET {', '.join(sets)}" + (f" REMOVE {', '.join(removes)}" if removes else "")
    return {
        "Update": {
            "TableName": table,
            "Key": to_item({"pk": pk, "sk": seq}),
            **expression(
                update=update,
                condition="#mid = :mid AND #ver = :ver",
                v=fields["v"],
                mid=fields["mid"],
                ver=version,
                next=version + 1,
                **values,
            ),
            **_RETURN_OLD,
        }
    }


def delete_row(table: str, pk: str, seq: int, message_id: str) -> dict[str, Any]:
    """No row of this id at this number any more; refused where there is none."""
    return {
        "Delete": {
            "TableName": table,
            "Key": to_item({"pk": pk, "sk": seq}),
            **expression(condition="#mid = :mid", mid=message_id),
            **_RETURN_OLD,
        }
    }


def replace_row(table: str, old: Item, new: Item) -> dict[str, Any]:
    """Another message's whole item at the number of `old`, on condition that `old` is still there as it was read."""
    return {
        "Put": {
            "TableName": table,
            "Item": new,
            **expression(
                condition="#mid = :mid AND #ver = :ver",
                mid=old["mid"]["S"],
                ver=int(old["ver"]["N"]),
            ),
            **_RETURN_OLD,
        }
    }


def stamps(index: str | None, expires_at: datetime | None) -> dict[str, Any]:
    """Fields that a row is given once: the vector index it belongs to, and when it expires (whole seconds)."""
    return {"index": index, "ttl": None if expires_at is None else clock.to_ms(expires_at) // 1000}


def action_bytes(action: Mapping[str, Any]) -> int:
    """About how much of a transaction's 4 MB an action takes: its item, or the values of its update."""
    request = next(iter(action.values()))
    return size_of(request.get("Item", {})) + size_of(request.get("ExpressionAttributeValues", {})) + 200
