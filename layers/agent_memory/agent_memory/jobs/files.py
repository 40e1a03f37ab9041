"""Removes files that no message uses, once their time is over. Started by the sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_memory.attachments import key_of_name
from agent_memory.errors import ConfigurationError

if TYPE_CHECKING:
    from agent_memory.jobs.runner import Work


def step(work: Work) -> bool:
    """Up to 100 marks that are due. Without params; the marks themselves say where it goes on."""
    files, blobs = work.services.files, work.services.blobs
    if files is None or blobs is None:
        raise ConfigurationError("the removal of files needs the runs table and the bucket")
    marks, more = files.due()
    gone = [mark for mark in marks if files.condemn(mark)]
    blobs.delete([key_of_name(mark.name, mark.resource_id) for mark in gone])
    files.clear(gone)
    work.count("marks", len(marks))
    work.count("files", len(gone))
    return not more
