"""What the jobs that look after the search index share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agent_memory import observe
from agent_memory.errors import ConfigurationError
from agent_memory.jobs.runner import GivenUp
from agent_memory.recall.later import looks_again
from agent_memory.recall.targets import Target, targets_of
from agent_memory.recall.upkeep import Upkeep

if TYPE_CHECKING:
    from agent_memory.agent.services import Services
    from agent_memory.jobs.runner import Work
    from agent_memory.ports import Embedder, MessageStore, VectorIndex

PAGE: Final = 200  # entries or rows of one step: seconds, also where all of them have to be embedded


def parts_of(services: Services) -> tuple[MessageStore, VectorIndex, Embedder]:
    """The table, the searched index and its embedder. Raises GivenUp where recall is off."""
    if services.store is None or services.index is None or services.embedder is None:
        raise GivenUp(
            ConfigurationError(
                "expected an embedder and a search index to look after, found none; set EMBEDDER and OPENSEARCH_URL"
            )
        )
    return services.store, services.index, services.embedder


def live_targets(services: Services) -> tuple[Target, ...]:
    """The indexes that have to be written now, the searched one first."""
    _, index, embedder = parts_of(services)
    return targets_of(index, embedder, services.next_index, services.next_embedder)


def upkeep_of(services: Services, target: Target) -> Upkeep:
    """Upkeep of one index."""
    return Upkeep(parts_of(services)[0], target, again=looks_again(services.blobs, [target]))


def note(work: Work, upkeep: Upkeep) -> None:
    """Add what was done to the job's progress and to the metrics."""
    counts = upkeep.counts
    for name, count in counts.items():
        if count:
            work.count(name, count)
    names = {"written": "IndexedMessages", "deleted": "IndexDeletions", "refused": "IndexRefusals"}
    observe.metrics(**{metric: counts[name] for name, metric in names.items() if counts[name]})
