"""A vector index on Amazon OpenSearch: a managed domain, or a serverless collection with its own rules.

A collection takes no document ids of ours, cannot refresh or delete by query, and shows a write only after a while. There
the index is a hint: searches ask for more and fold copies together, callers read rows again, and deletion finds the
engine's ids by searching. On a domain ids follow from the message and carry external versions, so a repeat changes
nothing and an older write is refused.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from agent_memory.aws import _opensearch_requests as requests
from agent_memory.aws._opensearch_aliases import Aliases, Described, stamps_of
from agent_memory.aws._opensearch_client import connect, refused, translated
from agent_memory.aws._opensearch_requests import Engine
from agent_memory.aws._opensearch_writes import DELETE_PAGE, Action, Writes
from agent_memory.errors import ConfigurationError, InvalidInputError
from agent_memory.ports import Hit, IndexedMessage, IndexEntry, IndexPage, IndexQuery
from agent_memory.recall.fusion import best, candidates, fuse
from agent_memory.recall.naming import name_of

if TYPE_CHECKING:
    from opensearchpy import OpenSearch

__all__ = ["OpenSearchIndex", "connect"]

MAX_TERMS: Final = 500
COPY_SEARCHES: Final = 50
VISIBLE_AFTER_S: Final = 90.0  # a collection refreshes every 60 s at most
SCORE_DECIMALS: Final = 6  # scores are float32, and one on the threshold must not fall below it


class OpenSearchIndex:
    """Search in one index for one embedder, behind an alias that a re-index can move.

    Args:
        client: An opensearch-py client, e.g. of `connect`.
        embedder_id: The embedder's id.
        dimension: Length of its vectors.
        serverless: Whether the client talks to a serverless collection.
        engine: ``faiss`` or ``lucene``: those that filter inside the k-NN clause.
        prefix: Start of the alias's name; embedder and dimension follow.
        alias: The alias, instead of the name made from the prefix.
        sleep: Waits between tries; tests pass their own.
    """

    def __init__(
        self,
        client: OpenSearch,
        embedder_id: str,
        dimension: int,
        *,
        serverless: bool = False,
        engine: Engine = "faiss",
        prefix: str = "agent-memory",
        alias: str | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.id = alias or f"{prefix}-{name_of(embedder_id, dimension)}"
        self._client: Any = client
        self._identity = {"embedder": embedder_id, "dimension": dimension, "schema": requests.SCHEMA}
        self._dimension = dimension
        self._serverless = serverless
        self._engine: Engine = engine
        self._writes = Writes(client, serverless=serverless, sleep=sleep)
        self._checked = False
        self._stamps = frozenset({self.id})
        self._aliases = Aliases(client, self.id, self._body)

    # -- the port

    def ensure(self) -> None:
        """Create the index and its alias if needed, and check one that is there. Checked once in a process.

        Raises ConfigurationError naming expected and found where embedder, dimension, field type or k-NN differ.
        """
        if not self._checked:
            self._take(self._aliases.create())

    def search(self, query: IndexQuery) -> tuple[Hit, ...]:
        """See `VectorIndex.search`. `threshold` applies to the cosine, in mode ``vector``.

        One request in each mode; a second, larger one where chunks of a few long messages fill the first.
        """
        if not query.resource_id:
            raise InvalidInputError("resource_id", "expected the owner of the messages, found none")
        if query.limit < 1:
            return ()
        depth = candidates(query.limit) if query.mode == "hybrid" else query.limit
        size = requests.hit_count(depth)
        vector: Sequence[float] = ()
        if query.mode == "vector" or (query.mode == "hybrid" and query.vector is not None):
            vector = self._checked_vector(query)
        by_vector = any(vector)  # a zero vector has no direction, and the engine refuses it
        bodies = [requests.vector_search(query, vector, size)] if by_vector else []
        if query.mode != "vector":
            if query.text is None:
                raise InvalidInputError("text", f"expected a text for a search in mode {query.mode}, found none")
            bodies.append(requests.word_search(query, query.text, size))
        answers = self._search(bodies, query.resource_id)
        near = self._hits(query, answers[0], cosine=True) if by_vector else []
        if by_vector and len(near) < query.limit and size <= len(answers[0]["hits"]["hits"]) < requests.MAX_HITS:
            wider = requests.vector_search(query, vector, requests.MAX_HITS)
            near = self._hits(query, self._search([wider], query.resource_id)[0], cosine=True)
        if query.mode == "vector":
            if query.threshold is not None:
                near = [hit for hit in near if hit.score >= query.threshold]
            return best(near, query.limit)
        said = self._hits(query, answers[-1], cosine=False)
        return best(said, query.limit) if query.mode == "text" else fuse(near, said, query.limit)

    def upsert(self, messages: Sequence[IndexedMessage]) -> None:
        """See `VectorIndex.upsert`. Asks for no refresh of what is new. Raises UnavailableError when entries stay refused."""
        for message in messages:
            wrong = next((len(v) for v in message.vectors if len(v) != self._dimension), None)
            if wrong is not None:
                raise self._other_dimension(wrong)
        self.ensure()
        newest: dict[tuple[str, str, str], IndexedMessage] = {}
        for message in messages:
            key = (message.resource_id, message.thread_id, message.message_id)
            if key not in newest or _order(message) >= _order(newest[key]):
                newest[key] = message
        chosen = list(newest.values())
        if self._serverless:
            chosen = self._unstored(chosen)
        actions: list[Action] = [
            [{"index": self._address(message, document)}, document]
            for message in chosen
            for document in requests.documents(message)
        ]
        self._writes.bulk(self.id, actions)
        if not self._serverless:
            # An edit may leave fewer chunks than there were.
            for message in chosen:
                if message.version > 1:
                    older = requests.older_than(message, _order(message))
                    self._writes.delete(self.id, older, message.resource_id)

    def delete(self, resource_id: str, thread_id: str, message_ids: Sequence[str] | None = None) -> int:
        """See `VectorIndex.delete`. Goes on until nothing is found; raises UnavailableError where something stays."""
        self.ensure()
        if message_ids is None:
            return self._writes.delete(self.id, requests.of_message(resource_id, thread_id, None), resource_id)
        ids = list(dict.fromkeys(message_ids))
        return sum(
            self._writes.delete(
                self.id, requests.of_message(resource_id, thread_id, ids[at : at + MAX_TERMS]), resource_id
            )
            for at in range(0, len(ids), MAX_TERMS)
        )

    def delete_resource(self, resource_id: str, *, cursor: Any = None, limit: int = 1_000) -> tuple[int, Any]:
        """See `VectorIndex.delete_resource`. In a collection what was removed may be found again for a while."""
        names = self._aliases.names()
        number, after = cursor or (0, None)
        if number >= len(names):
            return 0, None
        name, query, size = names[number], requests.of_resource(resource_id), min(limit, DELETE_PAGE)
        if not self._serverless:
            removed = self._writes.delete(name, query, resource_id, most=size)
        else:
            with translated(self.id):
                entries = self._client.search(index=name, body=requests.page(query, size, after))["hits"]["hits"]
            self._writes.remove(name, [entry["_id"] for entry in entries])
            removed = len(entries)
            after = entries[-1]["sort"] if entries else None
        if removed >= size:
            return removed, [number, after]
        return removed, [number + 1, None] if number + 1 < len(names) else None

    def entries(self, places: Sequence[tuple[str, str, str]]) -> tuple[IndexEntry, ...]:
        """See `VectorIndex.entries`."""
        threads: dict[tuple[str, str], dict[str, None]] = {}
        for resource_id, thread_id, message_id in places:
            threads.setdefault((resource_id, thread_id), {})[message_id] = None
        queries = [
            requests.of_message(resource_id, thread_id, list(ids)[at : at + MAX_TERMS])
            for (resource_id, thread_id), ids in threads.items()
            for at in range(0, len(ids), MAX_TERMS)
        ]
        found: list[IndexEntry] = []
        for start in range(0, len(queries), COPY_SEARCHES):
            batch = queries[start : start + COPY_SEARCHES]
            answers = self._search([requests.page(query, DELETE_PAGE) for query in batch])
            for query, answer in zip(batch, answers, strict=True):
                hits = answer["hits"]["hits"]
                while len(hits) % DELETE_PAGE == 0 and hits:
                    (more,) = self._search([requests.page(query, DELETE_PAGE, hits[-1]["sort"])])
                    if not more["hits"]["hits"]:
                        break
                    hits += more["hits"]["hits"]
                found += requests.entries(hits)
        return tuple(found)

    def scan(self, after: str | None, limit: int) -> IndexPage:
        """See `VectorIndex.scan`."""
        size = min(limit, DELETE_PAGE)
        behind = None if after is None else requests.behind(json.loads(after))
        (answer,) = self._search([requests.page({"match_all": {}}, size, behind)])
        hits = answer["hits"]["hits"]
        found = requests.entries(hits)
        if len(hits) < size:
            return IndexPage(tuple(found), None)
        if len(found) > 1:
            found.pop()  # its other documents may be on the next page
        last = found[-1]
        return IndexPage(tuple(found), json.dumps([last.resource_id, last.thread_id, last.message_id]))

    # -- being built anew

    @property
    def stamps(self) -> frozenset[str]:
        """See `RebuildableIndex.stamps`."""
        return self._stamps

    @property
    def visible_after_s(self) -> float:
        """See `RebuildableIndex.visible_after_s`. A domain is refreshed before a deletion looks for what should go."""
        return VISIBLE_AFTER_S if self._serverless else 0.0

    def targets(self) -> tuple[OpenSearchIndex, ...]:
        """See `RebuildableIndex.targets`. What is being built is written under its own name, which no alias moves away."""
        current, building = self._aliases.current(), self._aliases.building()
        self._checked = False
        if current is not None:
            self._take(current)
        return (*(() if current is None else (self,)), *(() if building is None else (self._at(building),)))

    def build(self, stamps: Iterable[str]) -> OpenSearchIndex:
        """See `RebuildableIndex.build`."""
        return self._at(self._aliases.build(stamps))

    def switch(self) -> bool:
        """See `RebuildableIndex.switch`."""
        return self._aliases.switch()

    def drop(self, index_id: str) -> bool:
        """See `RebuildableIndex.drop`. Raises InvalidInputError for this index itself."""
        if index_id == self.id:
            raise InvalidInputError("index", f"expected an index that is not in use, found the current one {index_id}")
        return Aliases(self._client, index_id, self._body).drop()

    # -- searching

    def _checked_vector(self, query: IndexQuery) -> Sequence[float]:
        if query.vector is None:
            raise InvalidInputError("vector", f"expected a vector for a search in mode {query.mode}, found none")
        if len(query.vector) != self._dimension:
            raise self._other_dimension(len(query.vector))
        return query.vector

    def _search(self, bodies: list[dict[str, Any]], resource_id: str | None = None) -> list[dict[str, Any]]:
        """Searches in one request; of one resource's documents alone where it is named."""
        if not bodies:
            return []
        self.ensure()
        place = {} if resource_id is None or self._serverless else {"routing": requests.routing_of(resource_id)}
        with translated(self.id):
            if len(bodies) == 1:
                return [self._client.search(index=self.id, body=bodies[0], params=dict(place))]
            lines = [line for body in bodies for line in ({"index": self.id, **place}, body)]
            answers: list[dict[str, Any]] = self._client.msearch(body=lines)["responses"]
        for answer in answers:
            if "error" in answer:
                raise refused(self.id, answer.get("status"), str(answer["error"].get("type")))
        return answers

    def _hits(self, query: IndexQuery, answer: dict[str, Any], *, cosine: bool) -> list[Hit]:
        """One hit per message: the best of its newest chunks."""
        found: dict[tuple[str, str], tuple[int, Hit]] = {}
        for entry in answer["hits"]["hits"]:
            source = entry["_source"]
            score = float(entry["_score"])
            hit = Hit(
                resource_id=source["resource"],
                thread_id=source["thread"],
                message_id=source["message"],
                seq=source["seq"],
                score=round(requests.cosine_of(score), SCORE_DECIMALS) if cosine else score,
                version=source["version"],
            )
            if hit.resource_id != query.resource_id:
                continue
            key, order = (hit.thread_id, hit.message_id), source["order"]
            known = found.get(key)
            if known is None or (order, hit.score) > (known[0], known[1].score):
                found[key] = (order, hit)
        return [hit for _, hit in found.values()]

    # -- writing

    def _address(self, message: IndexedMessage, document: dict[str, Any]) -> dict[str, Any]:
        if self._serverless:
            return {"_index": self.id}
        return {
            "_index": self.id,
            "_id": requests.document_id(message, document["chunk"]),
            "routing": requests.routing_of(message.resource_id),
            "version": document["order"],
            "version_type": "external_gte",
        }

    def _unstored(self, messages: list[IndexedMessage]) -> list[IndexedMessage]:
        """Messages that the collection does not show yet in this version or a newer one; older copies are removed."""
        missing: list[IndexedMessage] = []
        removals: list[str] = []
        for message, entries in zip(messages, self._copies(messages), strict=True):
            order = _order(message)
            if any(entry["_source"]["order"] > order for entry in entries):
                continue
            same = {entry["_source"]["chunk"]: entry for entry in entries if entry["_source"]["order"] == order}
            whole = len(same) == max(len(message.vectors), 1)
            kept = {entry["_id"] for entry in same.values()} if whole else set()
            removals += [entry["_id"] for entry in entries if entry["_id"] not in kept]
            if not whole:
                missing.append(message)
        self._writes.remove(self.id, removals)
        return missing

    def _copies(self, messages: Sequence[IndexedMessage]) -> list[list[dict[str, Any]]]:
        """The documents that the collection shows of each message; one request for fifty messages."""
        found: list[list[dict[str, Any]]] = []
        for start in range(0, len(messages), COPY_SEARCHES):
            bodies = [
                {
                    "size": DELETE_PAGE,
                    "_source": ["order", "chunk"],
                    "query": requests.of_message(message.resource_id, message.thread_id, [message.message_id]),
                }
                for message in messages[start : start + COPY_SEARCHES]
            ]
            found += [answer["hits"]["hits"] for answer in self._search(bodies)]
        return found

    # -- the index itself

    def _body(self, stamps: Iterable[str]) -> dict[str, Any]:
        identity = {**self._identity, "stamps": sorted({self.id, *stamps})}
        return requests.index_body(identity, self._dimension, self._engine, serverless=self._serverless)

    def _take(self, found: Described) -> None:
        """Check an index and take its stamps."""
        self._check(found[1])
        self._stamps = stamps_of(found, self.id)
        self._checked = True

    def _at(self, found: Described) -> OpenSearchIndex:
        """An index by its own name."""
        made = copy.copy(self)
        made.id = found[0]
        made._take(found)
        return made

    def _check(self, found: dict[str, Any]) -> None:
        mappings = found.get("mappings", {})
        field = mappings.get("properties", {}).get(requests.VECTOR, {})
        meta = mappings.get("_meta", {})
        expected = {
            "vector field": "knn_vector",
            "dimension": self._dimension,
            "embedder": self._identity["embedder"],
            "schema": requests.SCHEMA,
            "index.knn": "true",
        }
        actual = {
            "vector field": field.get("type"),
            "dimension": field.get("dimension"),
            "embedder": meta.get("embedder"),
            "schema": meta.get("schema"),
            "index.knn": str(found.get("settings", {}).get("index", {}).get("knn", "absent")).lower(),
        }
        for name, value in expected.items():
            if actual[name] != value:
                raise ConfigurationError(
                    f"search index {self.id}: expected {name} {value}, found {actual[name]}; "
                    "give each embedder an index of its own (OPENSEARCH_INDEX) and index again",
                    code="INDEX_MISMATCH",
                )

    def _other_dimension(self, found: int) -> ConfigurationError:
        return ConfigurationError(
            f"expected vectors of {self._dimension} dimensions for search index {self.id}, found {found}; "
            "use the embedder that the index was made for, or an index of its own for this one",
            code="INDEX_MISMATCH",
        )


def _order(message: IndexedMessage) -> int:
    return requests.order_of(message.seq, message.version)
