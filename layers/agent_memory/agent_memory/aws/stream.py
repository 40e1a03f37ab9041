"""Records of the messages table's stream, read into changes of rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_memory import clock
from agent_memory.aws.dynamodb import keys
from agent_memory.errors import StorageError
from agent_memory.recall.indexer import Change


def read_change(record: Mapping[str, Any]) -> Change | None:
    """The change in a stream record, as Lambda hands it over; None for an item that is no message."""
    data = record["dynamodb"]
    new: Mapping[str, Any] = data.get("NewImage") or {}
    old: Mapping[str, Any] = data.get("OldImage") or {}
    key = data["Keys"]
    if "mid" not in new and "mid" not in old:
        return None
    image = new or old
    owner = keys.owner_and_thread(key["pk"]["S"], rid=_text(image, "rid"), tid=_text(image, "tid"))
    if owner is None:
        raise StorageError("expected a message's item to name its resource and thread, found one that names neither")
    at = data.get("ApproximateCreationDateTime")
    stamp, old_stamp = _text(new, "index"), _text(old, "index")
    return Change(
        number=data["SequenceNumber"],
        resource_id=owner[0],
        thread_id=owner[1],
        seq=int(key["sk"]["N"]),
        new_id=_text(new, "mid"),
        old_id=_text(old, "mid"),
        index=stamp if new else old_stamp,
        old_index=old_stamp,
        at=clock.from_ms(int(float(at) * 1000)) if isinstance(at, int | float) else None,
    )


def _text(image: Mapping[str, Any], name: str) -> str | None:
    value = image.get(name, {}).get("S")
    return value if isinstance(value, str) else None
