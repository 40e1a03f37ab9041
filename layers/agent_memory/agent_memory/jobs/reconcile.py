"""Compares the search index with the messages, once a day: what has no row goes, and what is missing is added."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from agent_memory import clock
from agent_memory.jobs._index import PAGE, live_targets, note, upkeep_of

if TYPE_CHECKING:
    from agent_memory.jobs.runner import Work

YOUNG: Final = timedelta(minutes=15)  # what is newer may still be on its way through the indexer


def step(work: Work) -> bool:
    """A page of the index, later a page of the table. Without params; nothing to do where recall is off.

    The walk over the index reads the row of every entry, the one over the table all rows, both eventually consistent: about
    0.7 read units a message of 1 KB. What looks wrong is read again.
    """
    services = work.services
    if services.index is None or services.embedder is None:
        return True
    target = next(target for target in live_targets(services) if target.leading)
    upkeep = upkeep_of(services, target)
    cursor = work.cursor
    if not cursor.get("entries_done"):
        cursor["entries"] = upkeep.entries(cursor.get("entries"), PAGE)
        cursor["entries_done"] = cursor["entries"] is None
        done = False
    else:
        cursor["rows"] = upkeep.rows(cursor.get("rows"), PAGE, before=clock.now() - YOUNG)
        done = cursor["rows"] is None
    note(work, upkeep)
    if done:
        cursor.clear()  # it names a message, which may be somebody's to erase
    return done
