"""What has to be written: the index that is searched, and those that are being built beside it."""

from __future__ import annotations

from dataclasses import dataclass

from agent_memory.ports import Embedder, RebuildableIndex, VectorIndex


@dataclass(frozen=True, slots=True)
class Target:
    """An index that is kept in step.

    Attributes:
        index: The index.
        embedder: Its embedder.
        stamps: Rows with one of these stamps belong to it.
        leading: Whether it is the one that is searched. What fails for another holds up nothing.
    """

    index: VectorIndex
    embedder: Embedder
    stamps: frozenset[str]
    leading: bool = True

    @property
    def visible_after_s(self) -> float:
        """Seconds after which everything written is found, see `RebuildableIndex.visible_after_s`."""
        return self.index.visible_after_s if isinstance(self.index, RebuildableIndex) else 0.0


def targets_of(
    index: VectorIndex,
    embedder: Embedder,
    next_index: VectorIndex | None = None,
    next_embedder: Embedder | None = None,
) -> tuple[Target, ...]:
    """The indexes that a change of a row has to reach now: the searched one first, which is made where it is missing.

    Asks the indexes each time, because a re-index may have begun or ended since: a change is stored before it is asked
    for, and a re-index reads rows after it began, so one of the two sees it.
    """
    index.ensure()
    found = _targets(index, embedder, leading=index)
    if not any(target.leading for target in found):
        index.ensure()  # somebody has removed it since this process looked
        found = _targets(index, embedder, leading=index)
    if next_index is not None and next_embedder is not None and next_index.id != index.id:
        found += _targets(next_index, next_embedder, leading=None)
    return tuple(found)


def _targets(index: VectorIndex, embedder: Embedder, *, leading: VectorIndex | None) -> list[Target]:
    if not isinstance(index, RebuildableIndex):
        return [Target(index, embedder, frozenset({index.id}), leading=index is leading)]
    return [Target(found, embedder, found.stamps, leading=found is leading) for found in index.targets()]
