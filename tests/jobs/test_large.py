"""Long threads on the emulator, over HTTP: gone at once, copied whole, and at a known number of requests a step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agent_memory import runtime
from agent_memory.aws.dynamodb import DynamoMessageStore, DynamoRunStore
from agent_memory.aws.dynamodb.jobs import DynamoJobStore
from agent_memory.aws.meter import Meter
from agent_memory.http.application import Application
from agent_memory.http.routes import ROUTES
from agent_memory.jobs.runner import run
from agent_memory.messages import Message
from agent_memory.ports import Thread
from agent_memory.settings import Settings
from tests.jobs.test_runner import Janitor
from tests.support import tables
from tests.support.emulator import shared_emulator
from tests.support.http_app import Answer, App, all_agents, event
from tests.support.memories import START
from tests.support.vectors import ListIndex, WordEmbedder

TEXT = ("The quick brown fox jumps over the lazy dog while the river runs by. " * 9)[:600]
AGENT = {"agentId": "conformance"}


class Estate:
    """A deployment on the emulator whose janitor is called by hand."""

    def __init__(self) -> None:
        client = shared_emulator().client("dynamodb")
        names = tables.create(client)
        self.meter = Meter()
        self.meter.attach(client)
        self.janitor = Janitor()
        self.index = ListIndex()
        deployment = runtime.Deployment(Settings())
        self.store = DynamoMessageStore(
            client, threads_table=names.threads, messages_table=names.messages, claims_table=names.claims
        )
        vars(deployment).update(
            store=self.store,
            runs=DynamoRunStore(client, runs_table=names.runs, claims_table=names.claims),
            jobs=DynamoJobStore(client, runs_table=names.runs),
            files=None,
            blobs=None,
            index=self.index,
            embedder=WordEmbedder(),
            dispatcher=self.janitor,
        )
        runtime.configure(deployment, all_agents())
        self.app = App(Application(ROUTES), deployment, client, names, self.index)

    def fill(self, thread: str, count: int, owner: str = "ada") -> None:
        messages = [
            Message.text_message("user", f"{n} {TEXT}"[:600], id=f"{thread}-{n}", created_at=START)
            for n in range(count)
        ]
        self.store.build_thread(Thread(thread, owner, START, START, title="Long"), messages)

    def counts(self, thread: str, owner: str) -> int:
        pk = {"S": f"R#{owner}#{thread}"}
        found = self.app.dynamodb.get_paginator("query").paginate(
            TableName=self.app.names.messages,
            Select="COUNT",
            KeyConditionExpression="pk = :pk",
            ExpressionAttributeValues={":pk": pk},
        )
        return sum(page["Count"] for page in found)

    def work(self, kind: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[int]]:
        """Run the job that the last call started; the job, and the requests of each of its steps."""
        from agent_memory.jobs import kinds

        (called,) = self.janitor.events
        self.janitor.events.clear()
        step, costs = kinds.step_of(kind), list[int]()

        def counted(work: Any) -> bool:
            with self.meter.measure() as cost:
                done = step(work)
            costs.append(cost.requests)
            return done

        with monkeypatch.context() as during:
            during.setattr("agent_memory.jobs.runner.step_of", lambda _: counted)
            job = run(runtime.services(), called["jobId"], called["owner"])
        return job, costs

    def call(self, method: str, path: str, body: Any = None, **query: Any) -> Answer:
        return self.app.handle(event(method, path, body=body, query={**AGENT, **query}))


@pytest.fixture
def estate() -> Iterator[Estate]:
    yield Estate()
    runtime.configure(None)


@pytest.mark.slow
def test_a_thread_of_5000_messages_is_gone_at_once_and_purged_in_bounded_steps_case_22(
    estate: Estate, monkeypatch: pytest.MonkeyPatch
) -> None:
    estate.fill("t1", 5_000)
    estate.fill("t2", 1)
    newest = estate.store.latest("ada", "t1", 30)
    from agent_memory.recall.indexing import index_messages

    index_messages(estate.index, WordEmbedder(), [*newest, *estate.store.latest("ada", "t2", 1)])
    query = {"resourceId": "ada", "searchQuery": "quick brown fox", "limit": "50"}
    found = estate.call("GET", "/api/memory/search", **query).json["results"]
    assert {result["threadId"] for result in found} == {"t1", "t2"}

    with estate.meter.measure() as cost:
        assert estate.call("DELETE", "/api/memory/threads/t1", resourceId="ada").status == 200
    assert cost.requests <= 7  # whose it is, the header twice, the deletion, runs that wait, the job

    assert estate.counts("t1", "ada") == 5_000
    assert len([row for row in estate.index.rows if row[1] == "t1"]) == 30
    for path in ("t1", "t1/messages", "t1/working-memory/history"):
        assert estate.call("GET", f"/api/memory/threads/{path}").status == 404
    assert estate.call("GET", "/api/memory/threads/t1/messages", resourceId="ada").status == 404
    threads = estate.call("GET", "/api/memory/threads", resourceId="ada").json
    assert ([thread["id"] for thread in threads["threads"]], threads["total"]) == (["t2"], 1)
    for scope in ({}, {"threadId": "t1"}, {"threadId": "t2"}):
        found = estate.call("GET", "/api/memory/search", **query, **scope).json["results"]
        assert "t1" not in {result["threadId"] for result in found}
    recalled = estate.app.deployment.services.store.get_messages("ada", [("t1", 5_000)], live_only=True)
    assert recalled == ()
    answer = estate.call(
        "POST",
        "/api/agents/conformance/generate",
        {"messages": "quick brown fox", "memory": {"thread": "t3", "resource": "ada"}},
    )
    assert {m["threadId"] for m in answer.json["rememberedMessages"]} <= {"t2", "t3"}
    assert estate.call("GET", "/api/chat/t1", resourceId="ada").status in (200, 404)
    assert TEXT[:40] not in estate.call("GET", "/api/chat/t1", resourceId="ada").body.decode()
    assert estate.call("DELETE", "/api/memory/threads/t1", resourceId="ada").status == 404
    made = {"threadId": "t1", "resourceId": "ada"}
    assert estate.call("POST", "/api/memory/threads", made).status == 200
    assert estate.call("GET", "/api/memory/threads/t1/messages").json["messages"] == []

    job, costs = estate.work("purge", monkeypatch)

    assert (job.state, job.progress) == ("finished", {"messages": 5_000})
    assert estate.counts("t1", "ada") == 0
    # A step: the header, one or two reads of 1,000 rows, 40 batches of 25.
    assert len(costs) == 6
    assert max(costs) <= 44
    assert sum(costs) <= 220


@pytest.mark.slow
def test_a_clone_and_a_transfer_of_3000_messages_take_a_known_number_of_requests(
    estate: Estate, monkeypatch: pytest.MonkeyPatch
) -> None:
    estate.fill("t1", 3_000)
    estate.janitor.events.clear()
    with estate.meter.measure() as cost:
        begun = estate.call("POST", "/api/memory/threads/t1/clone", {"newThreadId": "c1"}, resourceId="ada")
    assert begun.status == 202
    assert set(begun.json) == {"thread", "clonedMessages", "messageIdMap", "job"}
    assert cost.requests <= 12
    assert estate.call("GET", "/api/memory/threads/c1").status == 404

    job, costs = estate.work("clone", monkeypatch)

    assert (job.state, job.progress) == ("finished", {"messages": 3_000})
    shown = estate.call("GET", f"/api/jobs/{job.id}").json
    assert (shown["state"], shown["result"]["threadId"]) == ("finished", "c1")
    assert estate.call("GET", "/api/memory/threads/c1").json == begun.json["thread"]
    page = estate.call("GET", "/api/memory/threads/c1/messages", perPage="2").json
    assert (page["total"], [m["content"]["content"][:5] for m in page["messages"]]) == (3_000, ["2998 ", "2999 "])
    # A step: the renewed hold, one look for rows of an earlier try, one or two reads of 1,000 rows, 40 batches of 25.
    assert len(costs) == 4  # 100 were copied by the call, 1,000 a step, and the last step shows the clone
    assert max(costs) <= 44
    assert sum(costs) <= 135

    with estate.meter.measure() as cost:
        moving = estate.call("POST", "/api/memory/threads/c1/transfer", {"resourceId": "bob"}, resourceId="ada")
    assert (moving.status, moving.json["resourceId"], set(moving.json["job"])) == (202, "ada", {"id"})
    assert cost.requests <= 7
    job, costs = estate.work("transfer", monkeypatch)
    assert (job.state, job.result["resourceId"], job.progress["purged"]) == ("finished", "bob", 3_000)
    assert estate.call("GET", "/api/memory/threads/c1", resourceId="ada").status == 403
    assert estate.call("GET", "/api/memory/threads/c1", resourceId="bob").status == 200
    assert (estate.counts("c1", "ada"), estate.counts("c1", "bob")) == (0, 3_000)
    assert len(costs) == 8  # three copy, one moves, four purge
    assert max(costs) <= 46
