"""Applies the stream records that were kept because they failed.

The indexer keeps what the embedder refuses under ``indexer/refused/``, Lambda what it gave up after a day under
``aws/lambda/``. A record only names messages, whose rows are read again, so old records and repeats do no harm.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from agent_memory.errors import ConfigurationError, StorageError
from agent_memory.jobs._index import live_targets
from agent_memory.jobs.runner import GivenUp

if TYPE_CHECKING:
    from agent_memory.agent.services import Services
    from agent_memory.jobs.runner import Work

PREFIXES: Final = ("indexer/refused/", "aws/lambda/")
OBJECTS: Final = 5  # of one step; each holds up to 100 records

_log = logging.getLogger("agent_memory.jobs")


def step(work: Work) -> bool:
    """A few objects at a time. Without params.

    An object goes once all of its records are applied, to the index and to files; one of which something fails again stays
    whole.
    """
    from agent_memory.aws.stream import read_kept

    blobs, cursor = work.services.blobs, work.cursor
    if blobs is None:
        raise GivenUp(
            ConfigurationError("expected the bucket that records are kept in, found none; set ATTACHMENTS_BUCKET")
        )
    number: int = cursor.get("prefix", 0)
    keys = blobs.list_keys(PREFIXES[number], after=cursor.get("key"), limit=OBJECTS)
    if not keys:
        work.cursor.update(prefix=number + 1, key=None)
        return number + 1 == len(PREFIXES)
    for key in keys:
        try:
            records = read_kept(blobs.get(key))
            failed = _apply(work.services, records)
        except StorageError:
            _log.warning("an object holds no records of the stream", extra={"key": key})
            work.count("unreadable")
            continue
        work.count("records", len(records))
        if failed:
            work.count("failed", len(failed))
            work.count("kept")
        else:
            blobs.delete([key])
            work.count("removed")
    cursor["key"] = keys[-1]
    return False


def _apply(services: Services, records: Sequence[Mapping[str, Any]]) -> set[str]:
    """What the indexer does with records. Numbers of those that failed. Raises StorageError for what is no record."""
    from agent_memory.aws.stream import read_change, read_file_change
    from agent_memory.jobs import removed_files
    from agent_memory.recall.indexer import Indexer
    from agent_memory.recall.later import looks_again

    if services.store is None:
        raise GivenUp(ConfigurationError("expected the tables that records are of, found none; set MESSAGES_TABLE"))
    changes = [change for record in records if (change := read_change(record)) is not None]
    lost = [found for record in records if (found := read_file_change(record)) is not None]
    released = removed_files.apply(lost, services.store, services.files, services.blobs)
    failed = {*released.failed, *released.refused}
    if services.index is not None and services.embedder is not None:
        targets = live_targets(services)
        indexer = Indexer(services.store, targets, again=looks_again(services.blobs, targets))
        failed.update(indexer.apply(changes).failed)
    return failed
