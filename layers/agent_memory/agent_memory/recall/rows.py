"""Rows of messages that are named by id, wherever they stand by now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from agent_memory.messages import Message
from agent_memory.ports import MessageStore

Place: TypeAlias = tuple[str, str, str]
"""Resource, thread and message id."""


def rows_of(
    store: MessageStore, places: Sequence[Place], seqs: Mapping[Place, int], *, live_only: bool = False
) -> dict[Place, Message]:
    """The rows as they are now, strongly consistent; places without a row are left out.

    Args:
        store: Where they are.
        places: The messages; of one resource or of several.
        seqs: Their last known numbers. A message that is not there is looked for by id: an import may have moved it.
        live_only: Leave out rows that their thread does not show.
    """
    found: dict[Place, Message] = {}
    by_owner: dict[str, list[Place]] = defaultdict(list)
    for place in dict.fromkeys(places):
        by_owner[place[0]].append(place)
    for owner, own in by_owner.items():
        rows = rows_at(store, owner, {place: seqs[place] for place in own if place in seqs}, live_only=live_only)
        by_thread: dict[str, list[str]] = defaultdict(list)
        for place in own:
            if place not in rows:
                by_thread[place[1]].append(place[2])
        moved: dict[Place, int] = {}
        for thread_id, ids in by_thread.items():
            for message_id, seq in store.find(owner, thread_id, ids).items():
                moved[owner, thread_id, message_id] = seq
        found |= rows | rows_at(store, owner, moved, live_only=live_only)
    return found


def rows_at(
    store: MessageStore,
    owner: str,
    seqs: Mapping[Place, int],
    *,
    live_only: bool = False,
    consistent: bool = True,
) -> dict[Place, Message]:
    """Those of an owner's messages that stand at these numbers. One request per 100, or per 50 with `live_only`."""
    if not seqs:
        return {}
    options: dict[str, Any] = {"live_only": True} if live_only else {}
    keys = list(dict.fromkeys((place[1], seq) for place, seq in seqs.items()))
    rows = store.get_messages(owner, keys, consistent=consistent, **options)
    named = {(owner, row.thread_id or "", row.id): row for row in rows}
    return {place: row for place, row in named.items() if place in seqs}
