"""Records of the messages table's stream, read into changes of rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_memory import clock
from agent_memory._json import loads
from agent_memory.aws.dynamodb import keys
from agent_memory.aws.dynamodb.uses import names_of
from agent_memory.errors import StorageError
from agent_memory.jobs.removed_files import FileChange
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


def read_file_change(record: Mapping[str, Any]) -> FileChange | None:
    """What a record says that a message does not refer to any more; None where that is nothing, as of most records."""
    data = record["dynamodb"]
    old: Mapping[str, Any] = data.get("OldImage") or {}
    if "files" not in old and "body" not in old:
        return None
    new: Mapping[str, Any] = data.get("NewImage") or {}
    owner = keys.owner_and_thread(data["Keys"]["pk"]["S"], rid=_text(old, "rid"), tid=_text(old, "tid"))
    message_id = _text(old, "mid")
    if owner is None or message_id is None:
        return None
    stays = new if _text(new, "mid") == message_id else {}
    kept = names_of(stays)
    body = _text(old, "body")
    files = tuple((message_id, name) for name in names_of(old) if name not in kept)
    bodies = ((message_id, body),) if body is not None and body != _text(stays, "body") else ()
    return FileChange(data["SequenceNumber"], *owner, files, bodies) if files or bodies else None


def _text(image: Mapping[str, Any], name: str) -> str | None:
    value = image.get(name, {}).get("S")
    return value if isinstance(value, str) else None


def read_kept(data: bytes) -> list[Mapping[str, Any]]:
    """The stream records in an object that was kept because they failed.

    Two kinds: those that the indexer put aside, a list of records; and those that Lambda gave up, whose event stands under
    ``payload``, as text. Raises StorageError for anything else.
    """
    try:
        found = loads(data)
        if isinstance(found, dict):
            payload = found["payload"]
            found = (loads(payload) if isinstance(payload, str) else payload)["Records"]
        if not isinstance(found, list) or not all({"Keys", "SequenceNumber"} <= set(row["dynamodb"]) for row in found):
            raise TypeError(type(found).__name__)
    except (ValueError, TypeError, KeyError) as error:
        raise StorageError(
            f"expected an object of kept stream records, found another: {type(error).__name__}"
        ) from error
    return found
