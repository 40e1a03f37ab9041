"""A stand-in for OpenSearch over HTTP: exact k-NN, a few queries, bulk, and what a serverless collection refuses.

In serverless mode it takes no ids of the caller's, knows no refresh, no deletion by query, no scroll and no `_cat`, and
shows a write only after 30 seconds of its own clock. `refuse_next` answers that many bulk items with 429.
"""

from __future__ import annotations

import itertools
import json
import operator
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from agent_memory.recall.words import words
from tests.support.https import serve_tls

PAGE_LIMIT = 1_000
REFRESH_S = 30.0


class Refused(Exception):
    def __init__(self, status, kind):
        super().__init__(kind)
        self.status, self.kind = status, kind


class OpenSearchFake:
    def __init__(self, *, serverless=False, tls=None, port=0):
        self.serverless = serverless
        self.indexes = {}
        self.aliases = {}
        self.now = 0.0
        self.requests = []
        self.refuse_next = 0
        self.down = None
        self._ids = itertools.count(1)
        self._lock = threading.RLock()
        self._http = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self._http.daemon_threads = True
        self.url = f"{serve_tls(self._http, tls)}://127.0.0.1:{self._http.server_address[1]}"
        threading.Thread(target=lambda: self._http.serve_forever(0.02), daemon=True).start()

    def close(self):
        self._http.shutdown()
        self._http.server_close()

    def settle(self):
        """Let everything written so far become visible."""
        self.now += REFRESH_S + 1
        for index in self.indexes.values():
            self._refresh(index)

    def documents(self):
        return [entry["_source"] for index in self.indexes.values() for entry in index["docs"].values()]

    # -- routes

    def answer(self, method, path, query, body):
        if self.down is not None:
            raise Refused(self.down, "cluster_block_exception")
        parts = [part for part in path.split("/") if part]
        last = parts[-1] if parts else ""
        if self.serverless:
            if last in ("_refresh", "_delete_by_query", "scroll", "_pit") or (
                parts and parts[0] in ("_cat", "_cluster")
            ):
                raise Refused(404, "not_found")
            if {"refresh", "scroll", "routing"} & query.keys():
                raise Refused(404, "not_found")
        if last == "_bulk":
            return self._bulk(lines(body))
        if last == "_msearch":
            pairs = lines(body)
            found = []
            for head, search in zip(pairs[::2], pairs[1::2], strict=True):
                try:
                    found.append({**self._search(head["index"], search, head.get("routing")), "status": 200})
                except Refused as error:
                    found.append({"error": {"type": error.kind}, "status": error.status})
            return {"responses": found}
        if last == "_search":
            return self._search(parts[0], json.loads(body), query.get("routing", [None])[0])
        if last == "_refresh":
            self._refresh(self._index(parts[0]))
            return {"_shards": {"failed": 0}}
        if last == "_delete_by_query":
            index = self._index(parts[0])
            asked, routing = json.loads(body)["query"], query["routing"][0]
            gone = [key for key, entry in index["shown"].items() if reached(entry, routing) and matches(asked, entry)]
            gone = gone[: int(query["max_docs"][0]) if "max_docs" in query else None]
            for key in gone:
                index["docs"].pop(key, None)
                index["shown"].pop(key, None)
            return {"deleted": len(gone), "failures": [], "version_conflicts": 0}
        if last == "_aliases" and method == "POST":
            return self._move(json.loads(body)["actions"])
        if len(parts) == 1 and method == "PUT":
            return self._create(parts[0], json.loads(body))
        if len(parts) == 1 and method == "DELETE":
            if self.indexes.pop(parts[0], None) is None:  # an alias cannot be deleted like an index
                raise Refused(404 if parts[0] not in self.aliases else 400, "index_not_found_exception")
            self.aliases = {alias: name for alias, name in self.aliases.items() if name != parts[0]}
            return {"acknowledged": True}
        if len(parts) == 1 and method == "GET":
            index = self._index(parts[0])
            return {index["name"]: {"mappings": index["mappings"], "settings": index["settings"]}}
        raise Refused(400, f"unknown route {method} {path}")

    def _index(self, name):
        found = self.indexes.get(self.aliases.get(name, name))
        if found is None:
            raise Refused(404, "index_not_found_exception")
        return found

    def _create(self, name, body):
        if name in self.indexes:
            raise Refused(400, "resource_already_exists_exception")
        method = body.get("mappings", {}).get("properties", {}).get("vector", {}).get("method", {})
        if (method.get("engine"), method.get("space_type")) == ("faiss", "cosinesimil"):
            raise Refused(400, "mapper_parsing_exception")  # as collections do, and domains before 2.19
        settings = {"index": {k: str(v).lower() for k, v in body.get("settings", {}).get("index", {}).items()}}
        self.indexes[name] = {
            "name": name,
            "mappings": body.get("mappings", {}),
            "settings": settings,
            "docs": {},
            "shown": {},
            "pending": [],
        }
        self.aliases |= dict.fromkeys(body.get("aliases", {}), name)
        return {"acknowledged": True}

    def _move(self, actions):
        moved = dict(self.aliases)
        for action in actions:
            ((kind, asked),) = action.items()
            if asked["index"] not in self.indexes:
                raise Refused(404, "index_not_found_exception")
            if kind == "add":
                moved[asked["alias"]] = asked["index"]
            elif moved.get(asked["alias"]) == asked["index"]:  # it may have been added to another one just before
                del moved[asked["alias"]]
        self.aliases = moved
        return {"acknowledged": True}

    def _refresh(self, index):
        index["shown"] = dict(index["docs"])
        index["pending"] = []

    def _due(self, index):
        if not self.serverless:
            return
        due = [item for item in index["pending"] if item[0] + REFRESH_S <= self.now]
        index["pending"] = [item for item in index["pending"] if item[0] + REFRESH_S > self.now]
        for _, key, entry in due:
            if entry is None:
                index["shown"].pop(key, None)
            else:
                index["shown"][key] = entry

    def _bulk(self, entries):
        items, position = [], 0
        while position < len(entries):
            ((kind, head),) = entries[position].items()
            document = None if kind == "delete" else entries[position + 1]
            position += 1 if kind == "delete" else 2
            try:
                status = self._apply(kind, head, document)
                items.append({kind: {"status": status}})
            except Refused as error:
                items.append({kind: {"status": error.status, "error": {"type": error.kind}}})
        return {"errors": any(next(iter(item.values()))["status"] >= 300 for item in items), "items": items}

    def _apply(self, kind, head, document):
        if self.refuse_next > 0:
            self.refuse_next -= 1
            raise Refused(429, "rejected_execution_exception")
        index = self._index(head["_index"])
        if kind == "delete":
            key = head["_id"]
            if index["docs"].pop(key, None) is None:
                raise Refused(404, "not_found")
            index["pending"].append((self.now, key, None))
            return 200
        if self.serverless and {"_id", "version", "routing"} & head.keys():
            raise Refused(400, "illegal_argument_exception")
        properties = index["mappings"]["properties"]
        if index["mappings"].get("dynamic") == "strict" and document.keys() - properties.keys():
            raise Refused(400, "strict_dynamic_mapping_exception")
        vector = document.get("vector")
        if vector is not None and len(vector) != properties["vector"]["dimension"]:
            raise Refused(400, "mapper_parsing_exception")
        key = head.get("_id") or f"engine-{next(self._ids)}"
        stored = index["docs"].get(key)
        if stored and "version" in head and stored["version"] > head["version"]:
            raise Refused(409, "version_conflict_engine_exception")
        entry = {"_id": key, "_source": document, "version": head.get("version", 1), "routing": head.get("routing")}
        index["docs"][key] = entry
        index["pending"].append((self.now, key, entry))
        return 201

    def _search(self, name, body, routing=None):
        index = self._index(name)
        self._due(index)
        size = min(body.get("size", 10), PAGE_LIMIT)
        query = body["query"]
        places = [entry for entry in index["shown"].values() if reached(entry, routing)]
        scored = [(score, entry) for entry in places if (score := rank(query, entry)) is not None]
        if "knn" in query:
            k = next(iter(query["knn"].values()))["k"]
            scored = sorted(scored, key=lambda pair: -pair[0])[:k]
        if "sort" in body:
            names = [next(iter(item)) for item in body["sort"]]
            keyed = [([entry["_source"][name] for name in names], entry) for _, entry in scored]
            keyed = sorted(keyed, key=lambda pair: pair[0])
            keyed = [pair for pair in keyed if "search_after" not in body or pair[0] > body["search_after"]]
            hits = [{"_id": entry["_id"], "sort": key} for key, entry in keyed[:size]]
            for hit, (_, entry) in zip(hits, keyed, strict=False):
                if body.get("_source"):
                    hit["_source"] = {name: entry["_source"][name] for name in body["_source"]}
        else:
            scored.sort(key=lambda pair: -pair[0])
            hits = [{"_id": e["_id"], "_score": score, "_source": e["_source"]} for score, e in scored[:size]]
        return {"hits": {"hits": hits}}

    def _handler(fake):
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # head and body in one packet; two would wait for each other
            disable_nagle_algorithm = True

            def _any(self):
                size = int(self.headers.get("content-length") or 0)
                body = self.rfile.read(size)
                if self.headers.get("content-encoding") == "gzip":
                    import gzip

                    body = gzip.decompress(body)
                url = urlsplit(self.path)
                with fake._lock:
                    fake.requests.append((self.command, url.path, body.decode()))
                    try:
                        status, answer = 200, fake.answer(self.command, url.path, parse_qs(url.query), body)
                    except Refused as error:
                        status, answer = error.status, {"error": {"type": error.kind}, "status": error.status}
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = do_DELETE = _any

            def log_message(self, *args):
                pass

        return Handler


def lines(body):
    return [json.loads(line) for line in body.decode().splitlines() if line.strip()]


def reached(entry, routing):
    """Whether a request reaches a document's shard, of which each routing has its own here. A comma parts routings."""
    return routing is None or entry["routing"] in routing.split(",")


def matches(query, entry):
    return rank(query, entry) is not None


def rank(query, entry):
    """The score of a document, or None where the query does not match."""
    ((kind, clause),) = query.items()
    source = entry["_source"]
    if kind == "match_all":
        return 1.0
    if kind == "bool":
        if not all(matches(part, entry) for part in clause.get("filter", [])):
            return None
        scores = [rank(part, entry) for part in clause.get("must", [])]
        return None if None in scores else sum(scores)
    ((name, wanted),) = clause.items()
    value = source.get(name)
    if kind == "term":
        return 0.0 if wanted in (value if isinstance(value, list) else [value]) else None
    if kind == "terms":
        return 0.0 if value in wanted else None
    if kind == "range":
        compare = {"lt": operator.lt, "lte": operator.le, "gte": operator.ge}
        return 0.0 if all(compare[name](value, bound) for name, bound in wanted.items()) else None
    if kind == "match":
        common = set(words(wanted["query"])) & set(words(value or ""))
        return float(len(common)) / (1 + 0.001 * len(value)) if common else None
    if kind == "knn":
        if value is None or not matches(wanted["filter"], entry):
            return None
        product = sum(a * b for a, b in zip(value, wanted["vector"], strict=True))
        return 1 + product if product > 0 else 1 / (1 - product)
    raise Refused(400, f"parsing_exception: {kind}")
