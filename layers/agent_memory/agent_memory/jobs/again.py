"""Looks once more at messages that an index may not have shown when they were deleted or changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agent_memory.jobs._index import live_targets, note, upkeep_of
from agent_memory.recall import later

if TYPE_CHECKING:
    from agent_memory.jobs.runner import Work

OBJECTS: Final = 5  # of one step; each names up to 100 messages


def step(work: Work) -> bool:
    """A few objects at a time, until none is due. Without params. See `agent_memory.recall.later`."""
    services = work.services
    if services.blobs is None or services.index is None or services.embedder is None:
        return True
    keys = later.due(services.blobs, limit=OBJECTS)
    if not keys:
        return True
    targets = live_targets(services)
    for key in keys:
        places = later.read(services.blobs, key)
        for target in targets:
            upkeep = upkeep_of(services, target)
            upkeep.look(places)
            note(work, upkeep)
        services.blobs.delete([key])
        work.count("looked_at", len(places))
    return False
