"""The HTTP application over real stores in moto, with agents that need no provider, and a caller to ask it with."""

from __future__ import annotations

import base64
import hmac
import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import boto3
from moto import mock_aws

from agent_memory import runtime
from agent_memory.agent.agent import Agent
from agent_memory.aws.dynamodb import DynamoMessageStore
from agent_memory.aws.dynamodb.files import DynamoFileStore
from agent_memory.aws.dynamodb.jobs import DynamoJobStore
from agent_memory.aws.dynamodb.runs import DynamoRunStore
from agent_memory.aws.s3 import S3BlobStore
from agent_memory.http import Application, Response
from agent_memory.http.routes import ROUTES
from agent_memory.memory import Memory
from agent_memory.models.scripted import ScriptedModel
from agent_memory.settings import Settings
from infra.conformance.agents import TEMPLATE, broken_tool, delete_record, get_weather, pick_color
from tests.support import tables
from tests.support.vectors import ListIndex, WordEmbedder, index_thread

ORIGIN = "https://app.example"
KEYS = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "eu-west-1"}


def agent(name: str, *, scope: str | None = "resource", recall: bool = True, **more: Any) -> Agent:
    """An agent as the conformance profile describes it; without `scope` it has no working memory."""
    memory = Memory(
        last_messages=20,
        semantic_recall={"top_k": 3, "message_range": 1, "scope": "resource"} if recall else False,
        working_memory={"enabled": True, "scope": scope, "template": TEMPLATE} if scope else False,
    )
    fields = {
        "description": "For black-box checks.",
        "instructions": "Do what the last message says.",
        "model": ScriptedModel(),
        "tools": [get_weather, delete_record, broken_tool, pick_color],
        "memory": memory,
        **more,
    }
    return Agent(name, **fields)


def all_agents() -> dict[str, Agent]:
    made = [
        agent("conformance"),
        agent("conformance-thread", scope="thread"),
        agent("resumable", scope=None, recall=False, resumable=True),
        agent("forgetful", memory=None),
    ]
    return {each.id: each for each in made}


@dataclass
class Answer:
    """A response as a client sees it."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        """The events of a stream, framing checked; the last one is ``[DONE]``."""
        text = self.body.decode()
        assert "\r" not in text
        assert text.endswith("\n\n")
        events = []
        for block in text[:-2].split("\n\n"):
            if block.startswith(":"):
                continue
            assert "\n" not in block, block
            assert block.startswith("data: "), block
            events.append("[DONE]" if block == "data: [DONE]" else json.loads(block[6:]))
        assert events[-1] == "[DONE]"
        return events

    @property
    def types(self) -> list[str]:
        """The types of a stream's events, runs of deltas as one."""
        found: list[str] = []
        for event in self.events:
            kind = event if isinstance(event, str) else event["type"]
            if not (found and found[-1] == kind and kind.endswith("delta")):
                found.append(kind)
        return found

    def of(self, kind: str) -> list[Any]:
        """Events of one type."""
        return [event for event in self.events if isinstance(event, dict) and event["type"] == kind]

    @property
    def said(self) -> str:
        """All text deltas of a stream, of either kind."""
        return "".join(e.get("delta", e.get("payload", {}).get("text", "")) for e in self.of("text-delta"))


def event(
    method: str,
    path: str,
    *,
    query: Mapping[str, Any] | None = None,
    body: Any = None,
    raw: str | None = None,
    headers: Mapping[str, str] | None = None,
    authorizer: Mapping[str, Any] | None = None,
    encoded: bool = False,
    stage: str = "v1",
) -> dict[str, Any]:
    """A proxy event of API Gateway, payload 1.0."""
    values = {key: value if isinstance(value, str) else json.dumps(value) for key, value in (query or {}).items()}
    text = raw if raw is not None else None if body is None else json.dumps(body)
    if encoded and text is not None:
        text = base64.b64encode(text.encode()).decode()
    given = {"content-type": "application/json", **(headers or {})}
    return {
        "resource": "/{proxy+}",
        "path": path,
        "httpMethod": method,
        "headers": given,
        "multiValueHeaders": {name: [value] for name, value in given.items()},
        "queryStringParameters": values or None,
        "multiValueQueryStringParameters": {name: [value] for name, value in values.items()} or None,
        "requestContext": {"stage": stage, "requestId": "r-1", "authorizer": dict(authorizer or {})},
        "body": text,
        "isBase64Encoded": encoded,
    }


def event_v2(method: str, path: str, *, query: Mapping[str, str] | None = None, body: Any = None) -> dict[str, Any]:
    """An event of a function URL, payload 2.0."""
    return {
        "version": "2.0",
        "rawPath": path,
        "rawQueryString": urlencode(query or {}),
        "headers": {"content-type": "application/json"},
        "requestContext": {
            "domainName": "abc.lambda-url.eu-west-1.on.aws",
            "stage": "$default",
            "http": {"method": method, "path": path},
        },
        "body": None if body is None else json.dumps(body),
        "isBase64Encoded": False,
    }


@dataclass
class App:
    """The application and what is behind it."""

    application: Application
    deployment: runtime.Deployment
    dynamodb: Any
    names: tables.Names
    index: ListIndex
    authorizer: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)

    def handle(self, given: Mapping[str, Any], context: Any = None) -> Answer:
        response: Response = self.application.handle(given, context)
        return Answer(response.status, response.headers, response.read())

    def call(self, method: str, path: str, **more: Any) -> Answer:
        signed_in = {"exp": str(int(time.time()) + 3600), **self.authorizer} if self.authorizer else {}
        more.setdefault("authorizer", signed_in)
        more["headers"] = {**self.headers, **(more.get("headers") or {})}
        return self.handle(event(method, path, **more))

    def get(self, path: str, **query: Any) -> Answer:
        return self.call("GET", path, query=query)

    def post(self, path: str, body: Any = None, *, key: str | None = None, **query: Any) -> Answer:
        headers = {"idempotency-key": key} if key else {}
        return self.call("POST", path, body=body if body is not None else {}, query=query, headers=headers)

    # -- short forms of what tests do all the time

    def run(self, kind: str, messages: Any, *, agent: str = "conformance", thread: str = "t1", **body: Any) -> Answer:
        """generate or stream on a thread of ada."""
        memory = {"thread": thread, "resource": "ada"} if thread else None
        given = {"messages": messages, **({"memory": memory} if memory else {}), **body}
        return self.post(f"/api/agents/{agent}/{kind}", given)

    def messages(self, thread: str = "t1", **query: Any) -> list[Any]:
        answer = self.get(f"/api/memory/threads/{thread}/messages", **query)
        assert answer.status == 200, answer.json
        found: list[Any] = answer.json["messages"]
        return found

    def said(self, thread: str = "t1") -> list[tuple[str, str]]:
        """Role and text of a thread's stored messages."""
        return [(m["role"], text_of(m)) for m in self.messages(thread)]

    def create(self, thread: str = "t1", resource: str = "ada", **body: Any) -> Any:
        answer = self.post(
            "/api/memory/threads", {"threadId": thread, "resourceId": resource, **body}, agentId="conformance"
        )
        assert answer.status == 200, answer.json
        return answer.json

    def save(self, *texts: str, thread: str = "t1", resource: str = "ada", agent: str = "conformance") -> list[Any]:
        """Save user messages m1, m2…"""
        given = [
            {"id": f"{thread}-m{n}", "role": "user", "content": text, "threadId": thread, "resourceId": resource}
            for n, text in enumerate(texts, 1)
        ]
        answer = self.post("/api/memory/save-messages", {"messages": given}, agentId=agent)
        assert answer.status == 200, answer.json
        found: list[Any] = answer.json["messages"]
        return found

    def indexed(self, resource: str, *threads: str) -> None:
        """Feed the rows of threads to the vector index, as the table's stream does."""
        for thread in threads:
            index_thread(self.deployment.store, self.index, WordEmbedder(), resource, thread)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """All raw items of a table."""
        return list(self.dynamodb.scan(TableName=getattr(self.names, table))["Items"])


def text_of(message: Mapping[str, Any]) -> str:
    return "".join(part["text"] for part in message["content"]["parts"] if part["type"] == "text")


def tool_states(messages: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Call id and state of every stored tool call."""
    return [
        (part["toolInvocation"]["toolCallId"], part["toolInvocation"]["state"])
        for message in messages
        for part in message["content"]["parts"]
        if part["type"] == "tool-invocation"
    ]


class Tables:
    """Clients and tables of one test session; `empty` takes all items out between tests."""

    def __init__(self) -> None:
        self._mock = mock_aws()
        self._mock.start()
        self.dynamodb, self.s3 = boto3.client("dynamodb", **KEYS), boto3.client("s3", **KEYS)
        self._one_at_a_time(self.dynamodb)
        self.names = tables.create(self.dynamodb)
        self.s3.create_bucket(
            Bucket=self.names.bucket, CreateBucketConfiguration={"LocationConstraint": KEYS["region_name"]}
        )

    @staticmethod
    def _one_at_a_time(client: Any) -> None:
        """moto shows a thread half of what another one is writing; the real service does not."""
        lock, call = threading.RLock(), client._make_api_call

        def locked(*args: Any, **kwargs: Any) -> Any:
            with lock:
                return call(*args, **kwargs)

        client._make_api_call = locked

    def empty(self) -> None:
        """Remove every item, past the API, which would take a request for each."""
        from moto.core import DEFAULT_ACCOUNT_ID
        from moto.dynamodb.models import dynamodb_backends

        backend = dynamodb_backends[DEFAULT_ACCOUNT_ID][KEYS["region_name"]]
        for name in (self.names.threads, self.names.messages, self.names.runs, self.names.claims):
            backend.tables[name].items.clear()

    def stop(self) -> None:
        self._mock.stop()


class Seal:
    """Signs with a key that everybody knows."""

    key_id, algorithm = "test", "HMAC_SHA_256"

    def sign(self, data: bytes) -> bytes:
        return hmac.digest(b"key", data, "sha256")


@contextmanager
def serve(shared: Tables, **settings: Any) -> Iterator[App]:
    """The application over empty tables."""
    shared.empty()
    names, dynamodb = shared.names, shared.dynamodb
    chosen = Settings(cors_origins=(ORIGIN,), **settings)
    trusted = chosen.auth_mode == "iam"
    claims = names.claims if trusted else None
    deployment = runtime.Deployment(chosen)
    index = ListIndex()
    blobs = S3BlobStore(shared.s3, names.bucket)
    vars(deployment).update(
        blobs=blobs,
        store=DynamoMessageStore(
            dynamodb,
            threads_table=names.threads,
            messages_table=names.messages,
            claims_table=claims,
            runs_table=names.runs,
            blobs=blobs,
        ),
        files=DynamoFileStore(dynamodb, runs_table=names.runs, threads_table=names.threads),
        runs=DynamoRunStore(dynamodb, runs_table=names.runs, claims_table=claims),
        jobs=DynamoJobStore(dynamodb, runs_table=names.runs),
        index=index,
        embedder=WordEmbedder(),
        signer=Seal(),
        dispatcher=None,
    )
    runtime.configure(deployment, all_agents())
    try:
        yield App(Application(ROUTES), deployment, dynamodb, names, index)
    finally:
        runtime.configure(None)
