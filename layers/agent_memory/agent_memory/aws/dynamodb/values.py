"""DynamoDB's attribute values from plain ones and back, and the names of an expression."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

Item: TypeAlias = dict[str, dict[str, Any]]
"""An item as the low-level client carries it: ``{"title": {"S": "…"}}``."""

_NAME = re.compile(r"#([A-Za-z_]\w*)")


def value(plain: Any) -> dict[str, Any]:
    """The attribute value of a plain one: text, whole number, boolean, None, list or dict."""
    if isinstance(plain, str):
        return {"S": plain}
    if isinstance(plain, bool):
        return {"BOOL": plain}
    if isinstance(plain, int):
        return {"N": str(plain)}
    if plain is None:
        return {"NULL": True}
    if isinstance(plain, Mapping):
        return {"M": {key: value(item) for key, item in plain.items()}}
    if isinstance(plain, list | tuple):
        return {"L": [value(item) for item in plain]}
    raise TypeError(f"expected text, a whole number, a boolean, None, a list or a dict, found {type(plain).__name__}")


def plain(attribute: Mapping[str, Any]) -> Any:
    """The plain value of an attribute value. Kinds this store never writes come back as they are."""
    kind, content = next(iter(attribute.items()))
    if kind in ("S", "BOOL"):
        return content
    if kind == "N":
        return int(content) if content.lstrip("-").isdigit() else float(content)
    if kind == "NULL":
        return None
    if kind == "M":
        return {key: plain(item) for key, item in content.items()}
    if kind == "L":
        return [plain(item) for item in content]
    return attribute


def to_item(fields: Mapping[str, Any]) -> Item:
    """An item of the fields that are not None."""
    return {key: value(content) for key, content in fields.items() if content is not None}


def from_item(item: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The plain fields of an item."""
    return {key: plain(attribute) for key, attribute in item.items()}


def names(*expressions: str | None, **given: str) -> dict[str, str]:
    """`ExpressionAttributeNames` for every ``#name`` in the expressions; `given` names those that stand for another."""
    found = {match for text in expressions if text for match in _NAME.findall(text)}
    return {f"#{name}": given.get(name, name) for name in sorted(found)}


def expression(
    *,
    update: str | None = None,
    condition: str | None = None,
    given: Mapping[str, str] | None = None,
    **values: Any,
) -> dict[str, Any]:
    """The expression parameters of a write: `update` and `condition` with ``#name`` and ``:value`` in them.

    Every attribute is written ``#name``, because many plain names are reserved words.
    """
    out: dict[str, Any] = {}
    if update:
        out["UpdateExpression"] = update
    if condition:
        out["ConditionExpression"] = condition
    found = names(update, condition, **(given or {}))
    if found:
        out["ExpressionAttributeNames"] = found
    text = f"{update or ''} {condition or ''} "
    used = {f":{key}": value(content) for key, content in values.items() if re.search(rf":{key}\b", text)}
    if used:
        out["ExpressionAttributeValues"] = used
    return out


def size_of(item: Mapping[str, Mapping[str, Any]]) -> int:
    """Bytes of an item by DynamoDB's published rules: names and text in UTF-8, numbers about half their digits."""
    return sum(len(key.encode()) + _size(attribute) for key, attribute in item.items())


def _size(attribute: Mapping[str, Any]) -> int:
    kind, content = next(iter(attribute.items()))
    if kind == "S":
        return len(content.encode())
    if kind == "N":
        number: str = content
        digits = number.lstrip("-").replace(".", "").strip("0")
        return (len(digits) + 1) // 2 + 1 + number.startswith("-")
    if kind in ("BOOL", "NULL"):
        return 1
    if kind == "M":
        return 3 + sum(1 + len(key.encode()) + _size(item) for key, item in content.items())
    if kind == "L":
        return 3 + sum(1 + _size(item) for item in content)
    if isinstance(content, bytes):
        return len(content)
    members: list[Any] = content  # a set
    return sum(map(len, members))
