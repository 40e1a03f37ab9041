"""Messages that have to be looked at again when an index shows all that was written to it.

A serverless collection finds, and so deletes, only what it was given a minute ago. A message that is written and deleted at
once would stay. So the indexer puts off a second look at whatever it deletes or changes: one object in the bucket per batch,
with ids and nothing else, which the hourly sweep takes up (`agent_memory.jobs.again`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from agent_memory import clock
from agent_memory.ids import new_id
from agent_memory.ports import BlobStore
from agent_memory.recall.rows import Place
from agent_memory.recall.targets import Target

PREFIX: Final = "indexer/again/"
_DIGITS: Final = 15


def looks_again(blobs: BlobStore | None, targets: Sequence[Target]) -> Callable[[Sequence[Place]], None] | None:
    """What puts off a second look at messages; None without a bucket, or where every index shows at once what is written."""
    wait_s = max((target.visible_after_s for target in targets), default=0.0)
    return partial(put_off, blobs, wait_s=wait_s) if wait_s and blobs is not None else None


def put_off(blobs: BlobStore, places: Sequence[Place], wait_s: float) -> None:
    """Keep messages for a look in `wait_s` seconds or later. One request."""
    due_ms = clock.now_ms() + int(wait_s * 1000)
    body = json.dumps({"places": [list(place) for place in places]})
    blobs.put(f"{PREFIX}{due_ms:0{_DIGITS}d}-{new_id()}.json", body.encode(), "application/json")


def due(blobs: BlobStore, *, limit: int) -> tuple[str, ...]:
    """Keys of what is due, the oldest first. One request."""
    keys = blobs.list_keys(PREFIX, limit=limit)
    now = f"{PREFIX}{clock.now_ms():0{_DIGITS}d}"
    return tuple(key for key in keys if key <= now)


def read(blobs: BlobStore, key: str) -> list[Place]:
    """The messages of one object. One request."""
    return [(owner, thread_id, message_id) for owner, thread_id, message_id in json.loads(blobs.get(key))["places"]]
