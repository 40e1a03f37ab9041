"""Writes to OpenSearch: bulk requests whose answers are looked at, and deletions that go on until nothing is found."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from agent_memory.aws._opensearch_client import PASSING, refused, translated
from agent_memory.aws._opensearch_requests import routing_of
from agent_memory.errors import UnavailableError

BULK_ACTIONS: Final = 200
TRIES: Final = 5
FIRST_DELAY_S: Final = 0.2
DELETE_PAGE: Final = 1_000
MAX_DELETE_ROUNDS: Final = 200

Action = list[dict[str, Any]]
"""The lines of one action of a bulk request: what to do where, and the document of an index action."""


class Writes:
    """Writes to indexes by their names.

    Args:
        client: An opensearch-py client.
        serverless: Whether it talks to a serverless collection, which deletes by the engine's ids alone.
        sleep: Waits between tries, in seconds.
    """

    def __init__(self, client: Any, *, serverless: bool, sleep: Callable[[float], object]) -> None:
        self._client = client
        self._serverless = serverless
        self._sleep = sleep

    def bulk(self, index: str, actions: Sequence[Action]) -> None:
        """Send actions in batches. Each answer is looked at: those refused for a while go again, the rest raise."""
        for start in range(0, len(actions), BULK_ACTIONS):
            left = list(actions[start : start + BULK_ACTIONS])
            for wait_s in _waits():
                left = self._bulk_once(index, left)
                if not left:
                    break
                self._sleep(wait_s)
            else:
                raise UnavailableError(
                    f"search index {index} went on refusing {len(left)} of {len(actions)} entries",
                    code="INDEX_UNAVAILABLE",
                )

    def remove(self, index: str, ids: Iterable[str]) -> None:
        """Delete documents by the engine's ids."""
        self.bulk(index, [[{"delete": {"_index": index, "_id": found}}] for found in ids])

    def delete(self, index: str, query: dict[str, Any], resource_id: str, *, most: int | None = None) -> int:
        """Delete what a query for documents of one resource finds; how many there were.

        With `most` at most about so many, on a domain. Raises UnavailableError where something stays.
        """
        if self._serverless:
            return self._delete_by_search(index, query)
        return self._delete_by_query(index, query, resource_id, most)

    # -- inside

    def _delete_by_query(self, index: str, query: dict[str, Any], resource_id: str, most: int | None) -> int:
        deleted = 0
        params: dict[str, Any] = {"conflicts": "proceed", "routing": routing_of(resource_id)}
        if most is not None:
            params["max_docs"] = most
        for wait_s in _waits():
            with translated(index):
                # Deletion by query sees only what is refreshed. It is the indexer's work, never a turn's.
                self._client.indices.refresh(index=index)
                answer = self._client.delete_by_query(index=index, body={"query": query}, params=params)
            deleted += int(answer.get("deleted", 0))
            if not answer.get("failures") and not answer.get("version_conflicts"):
                return deleted
            self._sleep(wait_s)
        raise _incomplete(index)

    def _delete_by_search(self, index: str, query: dict[str, Any]) -> int:
        """Pages of ids, each deleted by a bulk request. What was deleted may still be found for a while."""
        gone: set[str] = set()
        after: list[Any] | None = None
        for _ in range(MAX_DELETE_ROUNDS):
            body: dict[str, Any] = {"size": DELETE_PAGE, "_source": False, "query": query}
            body["sort"] = [{"seq": "asc"}, {"chunk": "asc"}, {"order": "asc"}, {"message": "asc"}]
            if after is not None:
                body["search_after"] = after
            with translated(index):
                entries = self._client.search(index=index, body=body)["hits"]["hits"]
            fresh = [entry["_id"] for entry in entries if entry["_id"] not in gone]
            self.remove(index, fresh)
            gone.update(fresh)
            if len(entries) < DELETE_PAGE:
                return len(gone)
            # A copy of the last document sorts like it and may be on the next page, so that page begins before both.
            last = entries[-1]["sort"]
            after = next((entry["sort"] for entry in reversed(entries) if entry["sort"] != last), last)
        raise _incomplete(index)

    def _bulk_once(self, index: str, actions: Sequence[Action]) -> list[Action]:
        with translated(index):
            answer = self._client.bulk(body=[line for action in actions for line in action])
        again: list[Action] = []
        if not answer.get("errors"):
            return again
        for action, item in zip(actions, answer["items"], strict=True):
            (kind, outcome), *_ = item.items()
            status = outcome["status"]
            # 409: a newer version is there. 404 for a delete: it is gone already.
            if status < 300 or (status == 409 and kind == "index") or (status == 404 and kind == "delete"):
                continue
            if status not in PASSING:
                raise refused(index, status, str(outcome.get("error", {}).get("type")))
            again.append(action)
        return again


def _incomplete(index: str) -> UnavailableError:
    return UnavailableError(f"search index {index} kept entries that were to go", code="DELETE_INCOMPLETE")


def _waits() -> Iterator[float]:
    """Waits between tries: random within a bound that doubles."""
    for number in range(TRIES):
        yield random.uniform(0, FIRST_DELAY_S * 2**number)
