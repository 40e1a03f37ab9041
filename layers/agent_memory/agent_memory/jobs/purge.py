"""Removes the rows of a deleted or emptied thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_memory.errors import ConfigurationError

if TYPE_CHECKING:
    from agent_memory.jobs.runner import Work


def step(work: Work) -> bool:
    """``{"threadId"}`` of the job's owner."""
    if work.services.store is None or work.job.owner is None:
        raise ConfigurationError("a purge needs the message store and the owner of the thread")
    work.count("messages", work.services.store.purge_thread(work.job.owner, work.params["threadId"]))
    return True
