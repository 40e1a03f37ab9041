"""What each file of tests/events asks for and what must come of it; fed to handlers in this process and to built packages.

The files are what `sam local invoke --event` takes. One that asks about something names the files that must have been
fed before it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from infra.local import resources
from infra.local.issuer import AUDIENCE, Issuer
from infra.local.template import ROOT, Template
from tests.support.emulator import shared_emulator
from tests.support.opensearch_fake import OpenSearchFake

EVENTS = ROOT / "tests" / "events"
ORIGIN = "https://app.example"


@dataclass
class World:
    """What is behind the functions: tables and bucket on the emulator, a search service, an issuer of tokens."""

    dynamodb: Any
    names: Mapping[str, str]
    endpoint: str
    search: OpenSearchFake
    issuer: Issuer

    def rows(self, table: str) -> list[dict[str, Any]]:
        """All items of a table by its logical id."""
        items: list[dict[str, Any]] = self.dynamodb.scan(TableName=self.names[table])["Items"]
        return items

    def indexed(self) -> dict[str, str]:
        """Texts of the indexed messages of thread trip-1 by message id."""
        found = [document for document in self.search.documents() if document["thread"] == "trip-1"]
        return {document["message"]: document["text"] for document in found}

    def variables(self, given: Mapping[str, str]) -> dict[str, str]:
        """A function's variables out of the template's, with this world in place of the resources."""
        found = {key: self.names.get(value, value) for key, value in given.items()}
        # Each function is run alone: there is no other to hand work to.
        found |= {key: "" for key in found if key.endswith("_FUNCTION")}
        found |= {
            "AUTH_MODE": "iam",
            "CLAIMS_TABLE": self.names["ClaimsTable"],
            "CORS_ORIGINS": ORIGIN,
            "EMBEDDER": "hashing",
            "OPENSEARCH_URL": self.search.url,
            "OPENSEARCH_SERVERLESS": "false",
            "JWT_ISSUER": self.issuer.name,
            "JWT_AUDIENCE": AUDIENCE,
        }
        return found | {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
        }


@dataclass(frozen=True)
class Answer:
    """What a function answered: an HTTP answer, another value, or the name of an error."""

    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    value: Any = None
    error: str | None = None

    @property
    def json(self) -> Any:
        """The body of an HTTP answer."""
        return json.loads(self.body)


Check = Callable[[World, Answer], None]
Call = Callable[[str, Any], Answer]
"""Takes the folder's name and the event."""


@dataclass(frozen=True)
class Case:
    """`after`: files that must have been fed before. `before` brings about what no event does."""

    check: Check
    after: tuple[str, ...] = ()
    before: Callable[[World], None] | None = None


def _created(_world: World, answer: Answer) -> None:
    assert (answer.status, answer.json["id"], answer.json["title"]) == (200, "trip-1", "Trip")


def _listed(_world: World, answer: Answer) -> None:
    assert answer.status == 200
    assert "trip-1" in [thread["id"] for thread in answer.json["threads"]]


def _saved(world: World, answer: Answer) -> None:
    assert answer.status == 200
    assert answer.json["messages"][0]["content"]["content"] == "We fly on Monday. ø漢😀"
    assert len([row for row in world.rows("MessagesTable") if row["pk"]["S"] == "R#ada#trip-1"]) == 3


def _taken(_world: World, answer: Answer) -> None:
    assert (answer.status, len(answer.json["messages"])) == (200, 1)


def _found(_world: World, answer: Answer) -> None:
    assert (answer.status, answer.json["id"]) == (200, "trip-1")


def _last_values_count(_world: World, answer: Answer) -> None:
    assert answer.status == 200
    assert len(answer.json["messages"]) > 1, "the last of two perPage counts"
    assert answer.headers["access-control-allow-origin"] == ORIGIN


def _status(status: int, origin: str | None = None) -> Check:
    def check(_world: World, answer: Answer) -> None:
        assert answer.status == status
        assert answer.json["error"]
        assert answer.headers.get("access-control-allow-origin") == origin

    return check


def _agents(_world: World, answer: Answer) -> None:
    assert answer.status == 200
    assert "assistant" in answer.json


def _streamed(thread: str, words: str) -> Check:
    def check(world: World, answer: Answer) -> None:
        assert answer.status == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.body.endswith(b"data: [DONE]\n\n")
        assert b'"type":"finish"' in answer.body
        assert words in answer.body.decode()
        roles = [row["role"]["S"] for row in world.rows("MessagesTable") if row["pk"]["S"] == f"R#ada#{thread}"]
        assert sorted(roles) == ["assistant", "user"]

    return check


def _page(thread: str) -> Check:
    def check(world: World, answer: Answer) -> None:
        _streamed(thread, "Hello")(world, answer)
        assert answer.headers["access-control-allow-origin"] == ORIGIN
        assert answer.headers["x-vercel-ai-ui-message-stream"] == "v1"

    return check


def _preflight(_world: World, answer: Answer) -> None:
    assert (answer.status, answer.body) == (204, b"")
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    assert "POST" in answer.headers["access-control-allow-methods"]


def _turn_done(world: World, answer: Answer) -> None:
    assert answer.value == {"runId": "run-later-1", "done": True, "finishReason": "stop"}
    assert len([row for row in world.rows("MessagesTable") if row["pk"]["S"] == "R#ada#later-1"]) == 2


def _deleted(world: World, answer: Answer) -> None:
    assert answer.status == 200
    kept = [row["mid"]["S"] for row in world.rows("MessagesTable") if row["pk"]["S"] == "R#ada#trip-1"]
    assert "m-2" not in kept


def _titled(world: World, answer: Answer) -> None:
    assert answer.value == {"outcome": "written"}
    (header,) = [row for row in world.rows("ThreadsTable") if row["sk"]["S"] == "T#untitled-1"]
    assert header["title"]["S"]


def _in_index(*present: str, absent: tuple[str, ...] = ()) -> Check:
    def check(world: World, answer: Answer) -> None:
        assert answer.value == {"batchItemFailures": []}
        indexed = world.indexed()
        assert set(present) <= indexed.keys()
        assert not set(absent) & indexed.keys()

    return check


def _row_rules(world: World, answer: Answer) -> None:
    # The record's image is of another version; what is in the table counts.
    _in_index("m-1")(world, answer)
    assert world.indexed()["m-1"] == "We fly on Monday. ø漢😀"


def _expire(world: World) -> None:
    key = {"pk": {"S": "R#ada#trip-1"}, "sk": {"N": "3"}}
    world.dynamodb.delete_item(TableName=world.names["MessagesTable"], Key=key)


def _scheduled(kind: str) -> Check:
    def check(_world: World, answer: Answer) -> None:
        assert answer.value["jobId"].startswith(f"{kind}-")
        assert answer.value["state"] == "finished"

    return check


def _no_job(_world: World, answer: Answer) -> None:
    assert answer.value == {"jobId": "job-nowhere", "state": None}


def _let_in(_world: World, answer: Answer) -> None:
    (statement,) = answer.value["policyDocument"]["Statement"]
    assert (statement["Effect"], statement["Resource"]) == (
        "Allow",
        "arn:aws:execute-api:eu-west-1:123456789012:abc123/v1/*",
    )
    assert answer.value["context"]["resourceId"] == "ada"


def _refused(_world: World, answer: Answer) -> None:
    assert answer.error == "Unauthorized"


_SAVED = ("memory/save-messages.base64.v1.json",)
_INDEXED = (*_SAVED, "indexer/insert.stream.json")

CASES: dict[str, Case] = {
    "memory/create-thread.v1.json": Case(_created),
    "memory/list-threads.v1.json": Case(_listed, ("memory/create-thread.v1.json",)),
    "memory/list-threads.http-api.v2.json": Case(_listed, ("memory/create-thread.v1.json",)),
    "memory/list-threads.function-url.v2.json": Case(_listed, ("memory/create-thread.v1.json",)),
    "memory/save-messages.base64.v1.json": Case(_saved, ("memory/create-thread.v1.json",)),
    "memory/save-messages.v2.json": Case(_taken),
    "memory/get-thread.stage-prefix.v1.json": Case(_found, ("memory/create-thread.v1.json",)),
    "memory/list-messages.multi-value.v1.json": Case(_last_values_count, _SAVED),
    "memory/unknown-thread.v1.json": Case(_status(404, ORIGIN)),
    "memory/body-is-no-json.v1.json": Case(_status(400)),
    "chat/agents.v1.json": Case(_agents),
    "chat/stream.v1.json": Case(_streamed("tea-1", "Ada")),
    "chat/stream.base64.stage-prefix.v1.json": Case(_streamed("tea-2", "漢😀")),
    "chat/page.v1.json": Case(_page("page-1")),
    "chat/page.function-url.base64.v2.json": Case(_page("page-2")),
    "chat/preflight.v1.json": Case(_preflight),
    "chat/turn.async.json": Case(_turn_done),
    "titles/title.async.json": Case(_titled, ("memory/save-messages.v2.json",)),
    "indexer/insert.stream.json": Case(_in_index("m-1", "m-2", "m-3"), _SAVED),
    "indexer/modify.stream.json": Case(_row_rules, _INDEXED),
    "memory/delete-message.v1.json": Case(_deleted, _INDEXED),
    "indexer/remove.stream.json": Case(_in_index("m-1", absent=("m-2",)), ("memory/delete-message.v1.json",)),
    "indexer/expired.stream.json": Case(_in_index("m-1", absent=("m-3",)), _INDEXED, _expire),
    "janitor/sweep.schedule.json": Case(_scheduled("sweep")),
    "janitor/reconcile.schedule.json": Case(_scheduled("reconcile"), _INDEXED),
    "janitor/unknown-job.async.json": Case(_no_job),
    "authorizer/token.json": Case(_let_in),
    "authorizer/no-token.json": Case(_refused),
}


class Feeder:
    """Feeds files to functions, each once, those that it needs before it."""

    def __init__(self, world: World, call: Call) -> None:
        self._world = world
        self._call = call
        self._answers: dict[str, Answer] = {}

    def feed_and_check(self, name: str) -> Answer:
        """Feed a file and check the answer."""
        if name not in self._answers:
            case = CASES[name]
            for earlier in case.after:
                self.feed_and_check(earlier)
            if case.before is not None:
                case.before(self._world)
            event = self.event(name)
            answer = self._answers[name] = self._call(name.partition("/")[0], event)
            case.check(self._world, answer)
        return self._answers[name]

    def event(self, name: str) -> Any:
        """A file's event; a token of today stands in for the one that no file can hold."""
        event = json.loads((EVENTS / name).read_text(encoding="utf-8"))
        if event.get("authorizationToken") == "Bearer <token>":
            event["authorizationToken"] = f"Bearer {self._world.issuer.token('ada')}"
        return event


@contextmanager
def world(template: Template, prefix: str) -> Iterator[World]:
    """Tables, search service and issuer of their own."""
    emulator = shared_emulator()
    names = resources.names(template, prefix)
    dynamodb = emulator.client("dynamodb")
    resources.create_tables(dynamodb, template, names)
    resources.create_buckets(emulator.client("s3"), template, names)
    search = OpenSearchFake()
    with _served() as issuer:
        try:
            yield World(dynamodb, names, emulator.endpoint, search, issuer)
        finally:
            search.close()


@contextmanager
def _served() -> Iterator[Issuer]:
    """An issuer on a real socket."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            kind, body = issuer.page(self.path) or ("text/plain", b"")
            self.send_response(200 if body else 404)
            self.send_header("content-type", kind)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    issuer = Issuer(f"http://127.0.0.1:{server.server_address[1]}")
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield issuer
    finally:
        server.shutdown()
        server.server_close()
