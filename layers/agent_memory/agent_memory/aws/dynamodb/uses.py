"""Rows that say which messages use a file."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from agent_memory.aws.dynamodb import keys
from agent_memory.aws.dynamodb.values import Item, to_item


def use_items(resource_id: str, thread_id: str, message_id: str, names: Iterable[str]) -> list[Item]:
    """The rows of one message's uses, each with a token of its own."""
    return [
        to_item(
            {
                "pk": keys.owner_pk(resource_id),
                "sk": keys.use_sk(name, thread_id, message_id),
                "v": keys.SCHEMA,
                "thread": thread_id,
                "mid": message_id,
                "token": secrets.token_hex(8),
            }
        )
        for name in names
    ]


def uses_of_rows(rows: Iterable[Mapping[str, Any]]) -> Iterator[Item]:
    """The rows of the uses of whole message items."""
    for row in rows:
        if "files" not in row:
            continue
        ids = {name: row[name]["S"] for name in ("rid", "tid") if name in row}
        place = keys.owner_and_thread(row["pk"]["S"], **ids)
        if place is not None:
            yield from use_items(*place, row["mid"]["S"], names_of(row))


def names_of(row: Mapping[str, Any]) -> tuple[str, ...]:
    """The files that a message's item refers to."""
    return tuple(name["S"] for name in row.get("files", {}).get("L", ()))
