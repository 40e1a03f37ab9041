"""The daily round over all threads: removes those that have expired, and what is left of deleted ones.

It reads the whole table of threads, so it runs once a day; nobody sees an expired thread in the meantime.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agent_memory.errors import ConfigurationError
from agent_memory.jobs.purge import ROWS_A_STEP

if TYPE_CHECKING:
    from agent_memory.jobs.runner import Work
    from agent_memory.ports import MessageStore

PAGES_A_STEP: Final = 20
THREADS_A_STEP: Final = 25


def step(work: Work) -> bool:
    """Up to 20 pages of the table, or 25 of the dead threads found on one and 1,000 of their rows. Without params."""
    store = work.services.store
    if store is None:
        raise ConfigurationError("the round over the threads needs the message store")
    dead: list[list[str]] = work.cursor.setdefault("dead", [])
    if not dead:
        return _look(work, store)
    rows = 0
    for owner, thread_id in list(dead[:THREADS_A_STEP]):
        limit = ROWS_A_STEP - rows
        removed = store.purge_thread(owner, thread_id, limit=limit)
        work.count("messages", removed)
        rows += removed
        if removed >= limit:
            return False
        work.count("threads")
        del dead[0]
    return False


def _look(work: Work, store: MessageStore) -> bool:
    """Read on until dead threads are found; True at the end of the table."""
    for _ in range(PAGES_A_STEP):
        if work.cursor.get("last"):
            return True
        found, more = store.dead_threads(cursor=work.cursor.get("page"))
        work.cursor |= {"dead": [list(place) for place in found], "page": more, "last": more is None}
        if found:
            break
    return False
