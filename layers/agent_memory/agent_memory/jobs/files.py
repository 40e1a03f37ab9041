"""Removes files that no message uses and bodies that no row came to point to, once their time is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_memory.attachments import key_of_name
from agent_memory.errors import ConfigurationError

if TYPE_CHECKING:
    from agent_memory.jobs.runner import Work
    from agent_memory.ports import FileMark, MessageStore


def step(work: Work) -> bool:
    """Up to 100 marks that are due. Without params; the marks themselves say where it goes on."""
    files, blobs, store = work.services.files, work.services.blobs, work.services.store
    if files is None or blobs is None or store is None:
        raise ConfigurationError("the removal of files needs the tables and the bucket")
    marks, more = files.due()
    bodies = [mark for mark in marks if mark.message_id is not None]
    gone = [mark for mark in marks if mark.message_id is None and files.condemn(mark)]
    orphans = [mark for mark in bodies if not _is_pointed_to(store, mark)]
    blobs.delete([*(key_of_name(mark.name, mark.resource_id) for mark in gone), *(mark.name for mark in orphans)])
    files.clear([*gone, *bodies])
    work.count("marks", len(marks))
    work.count("files", len(gone))
    work.count("bodies", len(orphans))
    return not more


def _is_pointed_to(store: MessageStore, mark: FileMark) -> bool:
    """Whether a row points to an overflow body. One that none points to by now never will be: see `keys.overflow_key`."""
    if mark.thread_id is None or mark.message_id is None:
        return True
    found = store.references(mark.resource_id, mark.thread_id, [mark.message_id])
    return mark.name in found.get(mark.message_id, ())
