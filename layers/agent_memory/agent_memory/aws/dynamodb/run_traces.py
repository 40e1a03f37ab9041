"""The removal of everything that the runs table holds of a resource: its partition, and rows elsewhere that name it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from agent_memory.aws.dynamodb import keys
from agent_memory.aws.dynamodb.client import Dynamo
from agent_memory.aws.dynamodb.values import Item, to_item
from agent_memory.errors import NotFoundError, UnavailableError
from agent_memory.ports import BlobStore

KINDS: Final = {
    "S": "suspendedRuns",
    "C": "answerPieces",
    "A": "runningRuns",
    "K": "repeatedCalls",
    "J": "jobs",
    "F": "files",
    "Q": "quotas",
}
"""Kinds of rows in a resource's partition by the first letter of their sort keys, as a receipt names them."""

_OWNER_FIELD: Final = r'\\*"[^"\\]{0,40}(?:[rR]esource|[oO]wner|rowsOf)[^"\\]{0,40}\\*"'  # bounded: texts are of users
_NESTED: Final = 3  # JSON inside of JSON inside of JSON: an answer kept as the body of an answer


class RunTraces:
    """The part of the run store that erases."""

    _db: Dynamo
    _table: str
    _blobs: BlobStore | None

    def remove_resource(self, resource_id: str, *, limit: int = 1_000) -> Mapping[str, int]:
        """See `ErasableRows.remove_resource`."""
        rows = list(
            self._db.query(
                self._table,
                limit=limit,
                ConsistentRead=True,
                KeyConditionExpression="#pk = :pk",
                ExpressionAttributeNames={"#pk": "pk"},
                ExpressionAttributeValues=to_item({":pk": keys.owner_pk(resource_id)}),
                attributes=("pk", "sk"),
            )
        )
        counts = Counter(KINDS.get(row["sk"]["S"].partition("#")[0], "others") for row in rows)
        self._delete(rows)
        return counts

    def remove_traces(
        self, resource_id: str, *, cursor: Any = None, spare: str | None = None
    ) -> tuple[Mapping[str, int], Any]:
        """See `ErasableRows.remove_traces`. One request, its removals, and one for each large result it looks into.

        The bytes of a large result stay: `agent_memory.aws.shared_objects` goes through those with and without a row.
        """
        more = {} if cursor is None else {"ExclusiveStartKey": cursor}
        answer = self._db.call("scan", TableName=self._table, ConsistentRead=True, **more)
        names = mentions(resource_id)
        found = [
            item
            for item in answer["Items"]
            if not _is_job(item, spare) and (_is_led_by(item, resource_id) or self._names(item, names))
        ]
        open_job = next((item for item in found if _is_open(item)), None)
        self._delete([item for item in found if not _is_open(item)])
        if open_job is not None:
            raise UnavailableError(
                f"job {open_job['sk']['S'][2:]} names the resource and has not ended; the erasure goes on when it has",
                code="JOB_STILL_RUNS",
            )
        return ({"mentions": len(found)} if found else {}), answer.get("LastEvaluatedKey") or None

    def _names(self, item: Item, names: Callable[[str], bool]) -> bool:
        if any(names(text) for name, attribute in item.items() if name != "v" for text in _texts(attribute)):
            return True
        for name in ("state_blob", "result_blob"):
            key = item.get(name, {}).get("S")
            if key is not None and self._blobs is not None:
                try:
                    return names(self._blobs.get(key).decode())
                except NotFoundError:
                    continue
        return False

    def _delete(self, rows: list[Item]) -> None:
        """Remove rows, and before them those that lead to them."""
        leading = [to_item(key) for row in rows for key in _leading(row["sk"]["S"])]
        keys_of_rows = [{"pk": row["pk"], "sk": row["sk"]} for row in rows]
        # A walk may find a row and one that leads to it on the same page.
        chosen = {(key["pk"]["S"], key["sk"]["S"]): key for key in [*leading, *keys_of_rows]}
        self._db.batch_write(self._table, [{"DeleteRequest": {"Key": key}} for key in chosen.values()])


def mentions(resource_id: str) -> Callable[[str], bool]:
    """Whether a text names the resource: is or holds a key of it, or holds its id as JSON, at any depth, where an owner stands.

    A longer id, or a word that begins like this one, is no mention; and an id that is a word, like ``user``, is none where the
    JSON of others has that word as something else.
    """
    quoted: set[str] = set()
    for ascii_only in (False, True):
        text = resource_id
        for _ in range(_NESTED):
            text = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
            quoted.add(text)
    inside = "|".join(re.escape(text) for text in sorted(quoted))
    pattern = re.compile(rf'{_OWNER_FIELD}\s*:\s*\\*"(?:{inside})\\*"')
    prefix, own = keys.blob_prefix(resource_id), keys.owner_pk(resource_id)

    def names(text: str) -> bool:
        if text == own or text.startswith(f"{own}#"):
            return True
        if prefix in text and re.search(rf'(?:^|[/"\s]){re.escape(prefix)}', text):
            return True
        return pattern.search(text) is not None

    return names


def _is_led_by(item: Item, resource_id: str) -> bool:
    """Whether a row of the deployment is about the resource: a pointer to a job or run, or a mark (time, owner and file)."""
    if item.get("resource", {}).get("S") == resource_id:
        return True
    pieces = item["sk"]["S"].split("#") if item["pk"]["S"].startswith(keys.mark_pk("")) else []
    return len(pieces) == 3 and pieces[1] in (keys.escape(resource_id), keys.blob_segment(resource_id))


def _texts(attribute: Mapping[str, Any]) -> list[str]:
    kind, content = next(iter(attribute.items()))
    if kind == "S":
        return [content]
    if kind == "M":
        return [text for item in content.values() for text in _texts(item)]
    return [text for item in content for text in _texts(item)] if kind == "L" else []


def _leading(sk: str) -> list[dict[str, str]]:
    """Keys of the rows that lead to a suspended run or a job by its id alone."""
    kind, _, id = sk.partition("#")
    if kind == "S":
        return [{"pk": f"I#{id}", "sk": "I"}]
    if kind == "J":
        return [{"pk": f"I#{id}", "sk": "J"}, {"pk": "N#JO", "sk": keys.unescape(id)}]
    return []


def _is_job(item: Item, job_id: str | None) -> bool:
    return job_id is not None and item["pk"]["S"] == "N#J" and item["sk"]["S"] == f"J#{keys.escape(job_id)}"


def _is_open(item: Item) -> bool:
    return item["sk"]["S"].startswith("J#") and item.get("state", {}).get("S") in ("waiting", "running")
