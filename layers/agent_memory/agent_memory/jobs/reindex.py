"""Builds a search index anew beside the one that is searched, and lets it take its place when it is whole.

Two uses. The embedder changes: NEXT_EMBEDDER names the new one, whose index is built; when the job has finished, EMBEDDER
is set to it, and NEXT_EMBEDDER to nothing. Or the index has to be made again with the same embedder (NEXT_EMBEDDER is not
set): the job itself lets searches go to the new one.

From the first step on the indexer writes to both indexes. A change that the walk over the table has passed reaches the new
index through the stream, one that lies ahead is met by the walk, and where both meet, the newer version stays. So the index is
whole when the walk ends, and searches go on against the old one until then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_memory.errors import ConfigurationError, InvalidInputError, ModelError
from agent_memory.jobs._index import PAGE, note, parts_of, upkeep_of
from agent_memory.jobs.runner import GivenUp
from agent_memory.ports import RebuildableIndex
from agent_memory.recall.targets import Target

if TYPE_CHECKING:
    from agent_memory.agent.services import Services
    from agent_memory.jobs.runner import Work
    from agent_memory.ports import Embedder


def step(work: Work) -> bool:
    """Begins, then embeds a page of rows at a time, then switches.

    Params: ``{"stamps": [...]}``, ids of further indexes whose rows the new one shall hold, e.g. of an embedder that was
    changed without this job. What the searched index holds is always among them.

    Raises:
        GivenUp: No index to build, or the one that this job began to build is gone or not configured any more; or an
            embedder that does not embed.
    """
    services, cursor = work.services, work.cursor
    phase = cursor.get("phase", "begin")
    if phase == "begin":
        index, embedder = _chosen(services, None)
        _try(embedder)
        _, searched, _ = parts_of(services)
        searched.ensure()
        own = searched.stamps if isinstance(searched, RebuildableIndex) else frozenset({searched.id})
        index.build({*own, *work.params.get("stamps", ())})
        cursor.update(phase="walk", index=index.id, rows=None)
        work.result["index"] = index.id
        return False
    index, embedder = _chosen(services, cursor["index"])
    if phase == "walk":
        built = next((target for target in index.targets() if target is not index), None)
        if built is None:
            raise _given_up(
                f"expected the index that is built in place of {index.id}, found that it is gone; start another job"
            )
        target = Target(built, embedder, built.stamps, leading=False)
        upkeep = upkeep_of(services, target)
        cursor["rows"] = upkeep.rows(cursor.get("rows"), PAGE, consistent=True)
        note(work, upkeep)
        if cursor["rows"] is None:
            cursor.update(phase="switch")
            work.wait_s = built.visible_after_s  # a search must find in the new index what was written last
        return False
    index.switch()
    cursor.clear()
    return True


def drop(work: Work) -> bool:
    """Removes the index of a former embedder for good. Params: ``{"index": id}``."""
    services = work.services
    _, searched, _ = parts_of(services)
    dropped = work.params["index"]
    if dropped in {searched.id, *(() if services.next_index is None else (services.next_index.id,))}:
        raise _given_up(f"expected an index that is not in use, found that EMBEDDER or NEXT_EMBEDDER uses {dropped}")
    index, _ = _chosen(services, None)
    try:
        work.result["removed"] = index.drop(dropped)
    except (ConfigurationError, InvalidInputError) as error:
        raise GivenUp(error) from error
    return True


def _chosen(services: Services, index_id: str | None) -> tuple[RebuildableIndex, Embedder]:
    """The index to build: of the next embedder where one is set, or the one of this id; and its embedder."""
    _, index, embedder = parts_of(services)
    known = [(services.next_index, services.next_embedder), (index, embedder)]
    for found, its_embedder in known:
        if found is None or its_embedder is None or (index_id is not None and found.id != index_id):
            continue
        if not isinstance(found, RebuildableIndex):
            raise _given_up(f"expected an index with build, switch and targets, found that {found.id} has none")
        return found, its_embedder
    raise _given_up(
        f"expected the embedder of index {index_id}, which this job builds, as EMBEDDER or NEXT_EMBEDDER; found others"
    )


def _try(embedder: Embedder) -> None:
    """Embed one word, because an embedder that refuses everything would leave the new index empty."""
    try:
        (vector,) = embedder.embed_passages(["word"])
    except ModelError as error:
        if error.retryable:
            raise
        raise GivenUp(error) from error
    if len(vector) != embedder.dimension:
        raise _given_up(f"expected vectors of {embedder.dimension} dimensions of {embedder.id}, found {len(vector)}")


def _given_up(message: str) -> GivenUp:
    """No other try helps before somebody has changed the settings; the job can be run again then."""
    return GivenUp(ConfigurationError(message))
