"""Applies the stream records that were kept because they failed.

The indexer keeps what the embedder refuses under ``indexer/refused/``, Lambda what it gave up after a day under
``aws/lambda/``. A record only names messages, whose rows are read again, so old records and repeats do no harm.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from agent_memory.errors import ConfigurationError, StorageError
from agent_memory.jobs._index import live_targets, parts_of
from agent_memory.jobs.runner import GivenUp

if TYPE_CHECKING:
    from agent_memory.jobs.runner import Work

PREFIXES: Final = ("indexer/refused/", "aws/lambda/")
OBJECTS: Final = 5  # of one step; each holds up to 100 records

_log = logging.getLogger("agent_memory.jobs")


def step(work: Work) -> bool:
    """A few objects at a time. Without params.

    An object goes once all of its records are applied; one of which something fails again stays whole.
    """
    from agent_memory.aws.stream import read_change, read_kept
    from agent_memory.recall.indexer import Indexer
    from agent_memory.recall.later import looks_again

    services, cursor = work.services, work.cursor
    store, _, _ = parts_of(services)
    if services.blobs is None:
        raise GivenUp(
            ConfigurationError("expected the bucket that records are kept in, found none; set ATTACHMENTS_BUCKET")
        )
    number = cursor.get("prefix", 0)
    keys = services.blobs.list_keys(PREFIXES[number], after=cursor.get("key"), limit=OBJECTS)
    if not keys:
        work.cursor.update(prefix=number + 1, key=None)
        return number + 1 == len(PREFIXES)
    targets = live_targets(services)
    indexer = Indexer(store, targets, again=looks_again(services.blobs, targets))
    for key in keys:
        try:
            changes = [change for record in read_kept(services.blobs.get(key)) if (change := read_change(record))]
        except StorageError:
            _log.warning("an object holds no records of the stream", extra={"key": key})
            work.count("unreadable")
            continue
        result = indexer.apply(changes)
        work.count("records", len(changes))
        if result.failed:
            work.count("failed", len(result.failed))
            work.count("kept")
        else:
            services.blobs.delete([key])
            work.count("removed")
    cursor["key"] = keys[-1]
    return False
