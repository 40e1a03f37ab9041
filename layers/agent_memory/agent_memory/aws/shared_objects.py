"""Objects under no owner's prefix that may hold what belongs to one: kept answers of trusted callers, and the indexer's.

Batches of stream records that could not be indexed lie in the bucket, whole, until somebody looks at them. They hold rows
as they were, of several resources in one object, and what the indexer wants to look at again holds ids of several: those
of an erased resource are cut out, and the rest stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from agent_memory._json import dumps, loads
from agent_memory.aws.dynamodb import keys
from agent_memory.aws.dynamodb.run_traces import mentions
from agent_memory.errors import NotFoundError
from agent_memory.ports.archive import Archive, BlobVersion

ANSWERS: Final = "n/runs/"
"""Where the run store keeps large answers and states of callers that name no resource."""

PREFIXES: Final = (ANSWERS, "indexer/", "aws/lambda/")
"""And where the indexer puts records that no repeat mends and second looks, and Lambda batches that it gives up."""

_PAGE: Final = 25  # each may have 6 MB


class SharedObjects:
    """`ErasableRows` for them: everything is found by the walk, because no key names an owner.

    Args:
        blobs: The bucket.
    """

    def __init__(self, blobs: Archive) -> None:
        self._blobs = blobs

    def remove_resource(self, resource_id: str, *, limit: int = 1_000) -> Mapping[str, int]:  # noqa: ARG002
        """See `ErasableRows.remove_resource`."""
        return {}

    def remove_traces(
        self,
        resource_id: str,
        *,
        cursor: Any = None,
        spare: str | None = None,  # noqa: ARG002 - there are no jobs here
    ) -> tuple[Mapping[str, int], Any]:
        """See `ErasableRows.remove_traces`. Reads 25 objects a call, all versions of them."""
        number, after = cursor or (0, None)
        found, more = self._blobs.list_versions(PREFIXES[number], cursor=after, limit=_PAGE)
        versions = [version for version in found if not version.marker]
        counts: Counter[str] = Counter()
        if PREFIXES[number] == ANSWERS:
            counts["keptAnswers"] = self._remove_answers(versions, resource_id)
        else:
            counts["keptRecords"] = sum(self._cut(version, resource_id) for version in versions)
        if more is not None:
            return +counts, [number, more]
        return +counts, [number + 1, None] if number + 1 < len(PREFIXES) else None

    def _remove_answers(self, versions: Sequence[BlobVersion], resource_id: str) -> int:
        names = mentions(resource_id)
        named = [version for version in versions if names(self._read(version).decode("utf-8", "replace"))]
        self._blobs.delete_versions(named)
        return len(named)

    def _read(self, version: BlobVersion) -> bytes:
        try:
            return self._blobs.get_version(version)
        except NotFoundError:
            return b""

    def _cut(self, version: BlobVersion, resource_id: str) -> int:
        """Take the resource's records out of an object; how many there were."""
        data = self._read(version)
        try:
            content = loads(data)
        except ValueError:
            # Not ours to understand. It goes whole where it may hold the resource's rows.
            if keys.messages_prefix(resource_id).encode() not in data:
                return 0
            self._blobs.delete_versions([version])
            return 1
        kept, removed = _without(content, resource_id)
        if removed:
            # The new version first: a crash in between leaves the old one to the next walk.
            if version.latest and _holds_any(kept):
                self._blobs.put(version.key, dumps(kept).encode(), "application/json")
            replaced_in_place = version.version == "null" and version.latest and _holds_any(kept)
            if not replaced_in_place:
                self._blobs.delete_versions([version])
        return removed


def _without(content: Any, resource_id: str) -> tuple[Any, int]:
    """The content without records and places of the resource, at any depth, and how many went.

    Lambda puts the records into an object of its own, in places as JSON text.
    """
    if isinstance(content, list):
        pairs = [_without(item, resource_id) for item in content if not _is_of(item, resource_id)]
        gone = len(content) - len(pairs)
        return [item for item, _ in pairs], gone + sum(count for _, count in pairs)
    if isinstance(content, dict):
        found = {key: _without(item, resource_id) for key, item in content.items()}
        return {key: item for key, (item, _) in found.items()}, sum(count for _, count in found.values())
    inner = _parsed(content)
    if inner is None:
        return content, 0
    kept, count = _without(inner, resource_id)
    return (dumps(kept), count) if count else (content, 0)


def _is_of(item: Any, resource_id: str) -> bool:
    """Whether it is a record of the stream, or the place of a message, of the resource."""
    if _is_place(item):
        return bool(item[0] == resource_id)
    if not _is_record(item):
        return False
    pk = item["dynamodb"].get("Keys", {}).get("pk", {}).get("S", "")
    return str(pk).startswith(keys.messages_prefix(resource_id))


def _is_place(item: Any) -> bool:
    return isinstance(item, list) and len(item) == 3 and all(isinstance(part, str) for part in item)


def _is_record(item: Any) -> bool:
    return isinstance(item, dict) and isinstance(item.get("dynamodb"), dict)


def _holds_any(content: Any) -> bool:
    """Whether a record or a place is left in it."""
    if _is_record(content) or _is_place(content):
        return True
    if isinstance(content, list | dict):
        return any(map(_holds_any, content.values() if isinstance(content, dict) else content))
    inner = _parsed(content)
    return inner is not None and _holds_any(inner)


def _parsed(content: Any) -> Any:
    """What a JSON text holds; None for anything else."""
    if not isinstance(content, str) or content[:1] not in ("{", "["):
        return None
    try:
        return loads(content)
    except ValueError:
        return None
