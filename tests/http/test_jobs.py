"""Jobs over HTTP."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent_memory import runtime
from agent_memory.jobs.runner import run, start


class Queue:
    def __init__(self):
        self.events = []

    def dispatch(self, target, event):
        self.events.append((target, dict(event)))


@pytest.fixture
def queue(app):
    made = runtime.services().dispatcher = Queue()
    return made


def fail(job_id, owner):
    jobs = runtime.services().jobs
    taken = jobs.take(job_id, owner=owner, holder="h", lease_s=60)
    jobs.save(replace(taken, state="failed", error={"code": "UNAVAILABLE", "message": "storage is busy"}))


def test_trusted_caller_sees_every_job(app, queue):
    start(runtime.services(), "purge", {"threadId": "secret"}, owner="ada", job_id="j1")
    start(runtime.services(), "sweep", {}, owner=None, job_id="s1")
    answer = app.get("/api/jobs/j1")
    assert answer.status == 200
    job = answer.json
    assert {key: job[key] for key in ("id", "kind", "resourceId", "state", "progress", "result", "error")} == {
        "id": "j1",
        "kind": "purge",
        "resourceId": "ada",
        "state": "waiting",
        "progress": {},
        "result": None,
        "error": None,
    }
    assert job["createdAt"].endswith("Z") and "params" not in job
    assert app.get("/api/jobs/j1", resourceId="ada").json == job
    assert app.get("/api/jobs/s1").json["resourceId"] is None
    assert app.get("/api/jobs/j1", resourceId="bob").status == 404
    unknown = app.get("/api/jobs/nope")
    assert unknown.status == 404 and unknown.json["code"] == "JOB_NOT_FOUND"


def test_end_user_sees_own_jobs_only_and_runs_none_again(signed_in):
    bobs = signed_in
    bobs.authorizer = {"resourceId": "bob"}
    runtime.services().dispatcher = Queue()
    start(runtime.services(), "purge", {"threadId": "t"}, owner="bob", job_id="mine")
    start(runtime.services(), "purge", {"threadId": "t"}, owner="ada", job_id="hers")
    start(runtime.services(), "sweep", {}, owner=None, job_id="nobodys")
    fail("mine", "bob")
    fail("hers", "ada")
    assert bobs.get("/api/jobs/mine").json["state"] == "failed"
    assert bobs.get("/api/jobs/mine", resourceId="ada").status == 200
    unknown = bobs.get("/api/jobs/nope")
    for job_id in ("hers", "nobodys"):
        for query in ({}, {"resourceId": "ada"}):
            answer = bobs.get(f"/api/jobs/{job_id}", **query)
            assert (answer.status, answer.json) == (404, unknown.json)
    for job_id in ("mine", "hers", "nope"):
        assert bobs.post(f"/api/jobs/{job_id}/retry").status == 403
    assert runtime.services().jobs.get("mine", owner="bob").state == "failed"


def test_failed_job_is_run_again_from_where_it_was(app, queue):
    app.save("one", "two")
    app.deployment.store.delete_thread("ada", "t1")
    start(runtime.services(), "purge", {"threadId": "t1"}, owner="ada", job_id="j1")
    early = app.post("/api/jobs/j1/retry")
    assert early.status == 409 and early.json["code"] == "JOB_NOT_FAILED"
    fail("j1", "ada")
    assert app.get("/api/jobs/j1").json["error"] == {"code": "UNAVAILABLE", "message": "storage is busy"}
    queue.events.clear()
    again = app.post("/api/jobs/j1/retry")
    assert again.status == 200 and again.json["state"] == "waiting"
    assert [(target, event["jobId"]) for target, event in queue.events] == [("janitor", "j1")]
    assert app.post("/api/jobs/j1/retry").status == 409
    assert app.post("/api/jobs/nope/retry").status == 404


def test_without_a_janitor_it_is_run_in_the_call(app):
    app.save("one", "two")
    app.deployment.store.delete_thread("ada", "t1")
    runtime.services().dispatcher = Queue()
    start(runtime.services(), "purge", {"threadId": "t1"}, owner="ada", job_id="j1")
    fail("j1", "ada")
    runtime.services().dispatcher = None
    again = app.post("/api/jobs/j1/retry")
    assert again.json["state"] == "finished" and again.json["progress"] == {"messages": 2}
    assert app.rows("messages") == []


def test_the_jobs_of_the_index_are_started_by_trusted_callers(app, queue):
    answer = app.post("/api/jobs", {"kind": "reindex", "stamps": ["former-8"], "index": "of no use here"})
    assert answer.status == 200
    job = answer.json
    assert (job["kind"], job["resourceId"], job["state"]) == ("reindex", None, "waiting")
    assert [event["jobId"] for _, event in queue.events] == [job["id"]]
    assert app.get(f"/api/jobs/{job['id']}").json == job
    assert runtime.services().jobs.get(job["id"], owner=None).params == {"stamps": ["former-8"]}


def test_a_job_that_is_not_one_of_the_index_or_misses_what_it_needs_is_refused(app, queue):
    for body in ({}, {"kind": "purge"}, {"kind": "sweep"}, {"kind": "drop-index"}, {"kind": "reindex", "stamps": "x"}):
        assert app.post("/api/jobs", body).status == 400, body
    assert queue.events == []


@pytest.fixture
def small(monkeypatch):
    """More than three messages are left to a job."""
    monkeypatch.setattr("agent_memory.memory.clone.COPIED_AT_ONCE", 3)
    monkeypatch.setattr("agent_memory.memory.threads.COPIED_AT_ONCE", 3)


def test_long_thread_is_cloned_by_a_job_that_its_owner_can_follow(small, signed_in):
    queue = runtime.services().dispatcher = Queue()
    query = {"agentId": "conformance"}
    signed_in.save("one", "two", "three", "four")
    answer = signed_in.post("/api/memory/threads/t1/clone", {"newThreadId": "c1"}, **query)
    assert answer.status == 202
    assert answer.json["thread"]["id"] == "c1"
    assert answer.json["thread"]["metadata"]["clone"]["lastMessageId"] == "t1-m4"
    assert (answer.json["clonedMessages"], answer.json["messageIdMap"]) == ([], {})
    job_id = answer.json["job"]["id"]
    assert signed_in.get(f"/api/jobs/{job_id}").json["state"] == "waiting"
    assert signed_in.get("/api/memory/threads/c1").status == 404
    assert signed_in.post("/api/memory/threads/t1/clone", {"newThreadId": "c1"}, **query).status == 409
    signed_in.authorizer = {"resourceId": "bob"}
    assert signed_in.get(f"/api/jobs/{job_id}").status == 404
    signed_in.authorizer = {"resourceId": "ada"}
    ((_, event),) = queue.events
    run(runtime.services(), event["jobId"], event["owner"])
    done = signed_in.get(f"/api/jobs/{job_id}").json
    assert (done["state"], done["progress"]) == ("finished", {"messages": 4})
    assert signed_in.get("/api/memory/threads/c1").json == answer.json["thread"]
    assert [text for _, text in signed_in.said("c1")] == ["one", "two", "three", "four"]


def test_clone_is_begun_once_for_one_key(small, app, queue):
    app.save("one", "two", "three", "four")
    first = app.post("/api/memory/threads/t1/clone", {}, key="k", agentId="conformance")
    again = app.post("/api/memory/threads/t1/clone", {}, key="k", agentId="conformance")
    assert first.status == again.status == 202 and first.json == again.json
    assert len(queue.events) == 1


def test_long_thread_is_moved_by_a_job_that_neither_owner_sees(small, app, queue):
    app.save("one", "two", "three", "four")
    thread = app.get("/api/memory/threads/t1").json
    answer = app.post("/api/memory/threads/t1/transfer", {"resourceId": "bob"}, agentId="conformance")
    assert answer.status == 202
    job_id = answer.json.pop("job")["id"]
    assert answer.json == {**thread, **answer.json} and answer.json["resourceId"] == "ada"
    assert app.get(f"/api/jobs/{job_id}").json["resourceId"] is None
    assert app.get(f"/api/jobs/{job_id}", resourceId="ada").status == 404
    ((_, event),) = queue.events
    assert run(runtime.services(), event["jobId"], event["owner"]).state == "finished"
    assert app.get("/api/memory/threads/t1").json["resourceId"] == "bob"
    assert [text for _, text in app.said("t1")] == ["one", "two", "three", "four"]
    assert app.get("/api/memory/threads/t1/messages", resourceId="ada").status == 403
