"""Rows that say which messages use a file."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from agent_memory import clock
from agent_memory.aws.dynamodb import keys
from agent_memory.aws.dynamodb.values import Item, to_item
from agent_memory.ports.files import FileMark


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


def mark_key(mark: FileMark) -> dict[str, str]:
    """Key of a mark's item: marks lie by the day on which they are due."""
    day = f"{clock.from_ms(mark.due):%Y%m%d}"
    return {"pk": keys.mark_pk(day), "sk": keys.mark_sk(mark.due, mark.resource_id, mark.name)}


def mark_item(mark: FileMark) -> Item:
    """The item of a mark."""
    return to_item(
        {
            **mark_key(mark),
            "v": keys.SCHEMA,
            "resource": mark.resource_id,
            "file": mark.name,
            "due": mark.due,
            "thread": mark.thread_id,
            "mid": mark.message_id,
        }
    )


def read_mark(row: Item) -> FileMark:
    """A mark from its item."""
    ids = (row[name]["S"] if name in row else None for name in ("thread", "mid"))
    return FileMark(row["resource"]["S"], row["file"]["S"], int(row["due"]["N"]), *ids)


def names_of(row: Mapping[str, Any]) -> tuple[str, ...]:
    """The files that a message's item refers to."""
    return tuple(name["S"] for name in row.get("files", {}).get("L", ()))
