"""Removes the rows of a deleted or emptied thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agent_memory.errors import ConfigurationError

if TYPE_CHECKING:
    from agent_memory.jobs.runner import Work

ROWS_A_STEP: Final = 1_000


def step(work: Work) -> bool:
    """Up to 1,000 rows of ``{"threadId"}`` of the job's owner; what is gone tells the next step where to go on."""
    if work.services.store is None or work.job.owner is None:
        raise ConfigurationError("a purge needs the message store and the owner of the thread")
    removed = work.services.store.purge_thread(work.job.owner, work.params["threadId"], limit=ROWS_A_STEP)
    work.count("messages", removed)
    return removed < ROWS_A_STEP
