"""The routes of export, import and erasure."""

from __future__ import annotations

import io
import json
import urllib.request
import zipfile

import pytest
from botocore.config import Config

from agent_memory import clock, runtime
from agent_memory.jobs.erase import WAIT_S
from tests.support import http_app
from tests.support.emulator import shared_emulator
from tests.support.http_app import serve
from tests.support.models import FakeModel, say
from tests.support.worlds import EmulatorTables


@pytest.fixture(scope="module")
def shared():
    made = EmulatorTables()
    made.s3 = shared_emulator().client("s3", config=Config(signature_version="s3v4"))  # the one that links need
    return made


@pytest.fixture
def app(shared):
    with serve(shared) as made:
        yield made


@pytest.fixture
def signed_in(shared):
    with serve(shared, auth_mode="jwt") as made:
        made.authorizer = {"resourceId": "ada", "exp": str(clock.now_ms() // 1000 + 600)}
        yield made


def job_of(app, answer):
    assert answer.status == 202, answer.json
    job = answer.json["job"]
    found = app.get(f"/api/jobs/{job['id']}")
    assert found.status == 200
    return found.json


def test_export_answers_a_link_that_is_signed_when_the_job_is_read(app):
    app.save("hello", "again")
    job = job_of(app, app.post("/api/memory/export", {"resourceId": "ada"}))
    assert (job["state"], job["resourceId"]) == ("finished", "ada")
    with urllib.request.urlopen(job["result"]["url"]) as answer:
        opened = zipfile.ZipFile(io.BytesIO(answer.read()))
    rows = [json.loads(line) for line in opened.read("messages-00001.jsonl").splitlines()]
    assert [row["content"]["content"] for row in rows] == ["hello", "again"]
    stored = [row for row in app.rows("runs") if row["sk"]["S"] == f"J#{job['id']}"]
    assert "Signature" not in json.dumps(stored) and "http" not in json.dumps(stored)


def test_the_description_names_the_only_status_that_is_answered(app):
    paths = app.get("/api/openapi.json").json["paths"]
    for name in ("export", "import", "erase"):
        responses = paths[f"/api/memory/{name}"]["post"]["responses"]
        assert {status for status in responses if status.startswith("2")} == {"202"}


def test_an_export_is_begun_once_for_one_key(app):
    first = app.post("/api/memory/export", {"resourceId": "ada"}, key="k")
    again = app.post("/api/memory/export", {"resourceId": "ada"}, key="k")
    assert first.json["job"]["id"] == again.json["job"]["id"]


def test_an_end_user_exports_their_own_and_neither_imports_nor_erases(signed_in):
    job = job_of(signed_in, signed_in.post("/api/memory/export"))
    assert job["resourceId"] == "ada" and "url" in job["result"]
    refused = signed_in.post("/api/memory/export", {"resourceId": "bob"})
    assert refused.json["job"]["resourceId"] == "ada"  # whoever is named: the token's resource is meant
    for path, body in (
        ("import", {"messages": [{"role": "assistant", "content": "I will pay."}], "threadId": "t"}),
        ("erase", {"resourceId": "ada"}),
    ):
        answer = signed_in.post(f"/api/memory/{path}", body)
        assert (answer.status, answer.json["code"]) == (403, "NOT_ALLOWED")
    assert signed_in.rows("threads") == []


def test_import_names_the_rows_that_it_did_not_take(app):
    rows = [{"role": "user", "content": "one"}, {"role": "robot", "content": "two"}, "three"]
    given = {"resourceId": "ada", "threadId": "t1", "messages": rows}
    job = job_of(app, app.post("/api/memory/import", given))
    result = job["result"]
    assert (result["counts"]["stored"], result["counts"]["refused"]) == (1, 2)
    assert [(error["row"], error["field"]) for error in result["errors"]] == [(2, "role"), (3, "")]
    with urllib.request.urlopen(result["reportUrl"]) as answer:
        assert [json.loads(line) for line in answer.read().splitlines()] == result["errors"]
    assert app.said("t1") == [("user", "one")]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"messages": [], "attachment": "attachment://x"}, 400),
        ({"attachment": "https://e.example/a.zip"}, 400),
        ({"attachment": "attachment://" + "0" * 64}, 404),
        ({"export": {"resourceId": "ada", "jobId": "none"}}, 404),
        ({"export": {"resourceId": "ada", "jobId": "../../bob/exports/x"}}, 404),
        ({"messages": [], "threadId": "bobs"}, 403),
    ],
)
def test_an_import_from_nothing_is_refused_before_a_job_is_made(app, body, status):
    app.create("bobs", "bob")
    answer = app.post("/api/memory/import", {"resourceId": "ada", **body})
    assert answer.status == status, answer.json
    assert not [row for row in app.rows("runs") if row["sk"]["S"].startswith("J#")]


def test_an_export_goes_into_another_owner_by_its_job(app):
    app.save("hello")
    exported = job_of(app, app.post("/api/memory/export", {"resourceId": "ada"}))
    given = {"resourceId": "bob", "export": {"resourceId": "ada", "jobId": exported["id"]}}
    job = job_of(app, app.post("/api/memory/import", given))
    assert job["result"]["counts"]["stored"] == 1
    (thread,) = app.get("/api/memory/threads", resourceId="bob", agentId="conformance").json["threads"]
    assert app.said(thread["id"]) == [("user", "hello")]


def test_erase_closes_the_resource_at_once_and_answers_a_receipt_in_the_end(shared):
    with serve(shared, erase_wait_s=1) as app:
        app.save("hello")
        app.save("hello", thread="t2", resource="bob")
        answer = app.post("/api/memory/erase", {"resourceId": "ada"})
        job = job_of(app, answer)
        assert (job["state"], job["resourceId"]) == ("finished", None)
        receipt = json.loads(job["result"]["receipt"])
        assert receipt["removed"]["messages"] == 1
        assert "ada" not in answer.body.decode()
        everything = json.dumps([app.rows(table) for table in ("threads", "messages", "runs", "claims")])
        assert '"ada"' not in everything and "R#ada" not in everything
        assert app.said("t2") == [("user", "hello")]


def test_while_it_waits_what_is_written_is_a_409(app):
    app.save("hello")
    job = app.post("/api/memory/erase", {"resourceId": "ada"}).json["job"]
    assert job["state"] == "waiting"
    assert WAIT_S > 86_400
    for path, body in (
        ("/api/memory/threads", {"resourceId": "ada", "threadId": "new"}),
        ("/api/memory/save-messages", {"messages": [_message("new")]}),
        ("/api/memory/save-messages", {"messages": [_message("t1")]}),
        ("/api/memory/threads/t1/working-memory", {"workingMemory": "x", "resourceId": "ada"}),
        ("/api/attachments", {"resourceId": "ada", "filename": "a.txt", "contentType": "text/plain", "size": 5}),
        ("/api/memory/import", {"resourceId": "ada", "threadId": "t", "messages": [{"role": "user", "content": "x"}]}),
    ):
        answer = app.post(path, body, agentId="conformance")
        assert (answer.status, answer.json.get("code")) == (409, "RESOURCE_LOCKED"), path
    again = app.post("/api/memory/erase", {"resourceId": "ada"})
    assert again.json["job"]["id"] == job["id"]
    ran = app.run("generate", "hi")
    assert ran.status == 409, ran.json


def _message(thread):
    return {"id": "m", "role": "user", "content": "x", "threadId": thread, "resourceId": "ada"}


def test_without_a_key_for_receipts_no_erasure_is_begun(app):
    app.deployment.services.signer = None
    app.save("hello")
    assert app.post("/api/memory/erase", {"resourceId": "ada"}).status == 500
    assert http_app.text_of(app.messages("t1")[0]) == "hello"


@pytest.mark.parametrize("thread", ["t1", "new"], ids=["thread-that-was-there", "new-thread"])
@pytest.mark.parametrize("kind", ["generate", "stream"])
def test_a_turn_whose_owner_is_erased_while_the_model_speaks_stores_nothing(app, thread, kind):
    app.save("hello")

    def erased_meanwhile(_request):
        assert app.post("/api/memory/erase", {"resourceId": "ada"}).status == 202
        return say("I will remember rhubarb")

    made = http_app.agent("slow", model=FakeModel(erased_meanwhile), recall=False)
    runtime.configure(app.deployment, {"slow": made})
    answer = app.run(kind, "Remember rhubarb", agent="slow", thread=thread)
    if kind == "generate":
        assert answer.status == 409, answer.json
    else:
        assert "error" in answer.types
    assert app.rows("messages") == []
    everything = json.dumps([app.rows(table) for table in ("threads", "runs", "claims")])
    assert "rhubarb" not in everything
    assert app.get(f"/api/memory/threads/{thread}").status == 404
