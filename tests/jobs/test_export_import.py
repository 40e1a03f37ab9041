"""Exports, and imports of exports and of other systems' histories."""

from __future__ import annotations

import hashlib
import io
import json
import random
import zipfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.config import Config

from agent_memory import clock
from agent_memory._json import freeze
from agent_memory.attachments import key_of_name, owner_prefix, reference_to
from agent_memory.aws.dynamodb import keys
from agent_memory.errors import ConflictError, InvalidInputError
from agent_memory.jobs import archive, export, import_archive, import_parts, imports
from agent_memory.jobs.erase import erase
from agent_memory.jobs.export import export_resource, file_key
from agent_memory.jobs.imports import import_resource
from agent_memory.jobs.runner import LEASE_S, run
from agent_memory.messages.message import message_from_json
from agent_memory.ports import Thread, ThreadQuery, ThreadUsage
from agent_memory.ports.jobs import Job
from tests.support import random_json
from tests.support.clocks import FakeClock
from tests.support.emulator import shared_emulator
from tests.support.estates import Crash, Estate


@pytest.fixture
def estate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Estate:
    return make(tmp_path, monkeypatch)


def make(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Estate:
    emulator, now = shared_emulator(), FakeClock()
    monkeypatch.setattr(clock, "now", now)
    config = Config(retries={"total_max_attempts": 1}, max_pool_connections=20)
    return Estate(
        emulator.client("dynamodb", config=config),
        emulator.client("s3", config=config.merge(Config(signature_version="s3v4"))),
        folder,
        now,
    )


def ended(estate: Estate, job: Job, owner: str, *, most: int = 60) -> Job:
    """A job run to its end, the clock moved on whenever it waits."""
    for _ in range(most):
        found = estate.services.jobs.get(job.id, owner=owner)
        assert found is not None
        if found.ended:
            return found
        estate.clock.now = max(estate.clock(), found.not_before or estate.clock()) + timedelta(seconds=LEASE_S + 1)
        run(estate.services, job.id, owner)
    raise AssertionError(f"the job did not end: {found}")


def finished(estate: Estate, job: Job, owner: str) -> Job:
    found = ended(estate, job, owner)
    assert found.state == "finished", found.error
    return found


def exported(estate: Estate, owner: str) -> tuple[Job, zipfile.ZipFile]:
    job = finished(estate, export_resource(estate.services, owner), owner)
    return job, zipfile.ZipFile(io.BytesIO(estate.services.blobs.get(file_key(owner, job.id))))


def rows_of(opened: zipfile.ZipFile, kind: str) -> list[Any]:
    names = sorted(name for name in opened.namelist() if name.startswith(f"{kind}-"))
    return [json.loads(line) for name in names for line in opened.read(name).splitlines()]


def whole(estate: Estate, owner: str) -> dict[str, Any]:
    """Everything that can be read back of an owner."""
    store = estate.services.store
    threads = {}
    for thread in store.list_threads(owner, ThreadQuery(per_page=None)).threads:
        header = store.get_thread(owner, thread.id)
        messages = estate.read(owner, thread.id)
        threads[thread.id] = {
            "thread": header.thread,
            "title source": header.title_source,
            "count": header.message_count,
            "last": header.last_created_at,
            "in order": header.in_date_order,
            "messages": [message.replace(seq=None, version=None) for message in messages],
            "memory": store.get_working_memory(owner, thread.id),
            "versions": store.working_memory_history(owner, thread.id),
        }
    memory = (store.get_working_memory(owner, None), store.working_memory_history(owner, None))
    total = store.list_threads(owner, ThreadQuery(per_page=1)).total
    return {"threads": threads, "memory": memory, "total": total}


def fill(estate: Estate, owner: str, rnd: random.Random) -> None:
    """Random threads, messages in and out of date order, and working memory."""
    store, blobs = estate.services.store, estate.services.blobs
    for number in range(rnd.randint(1, 4)):
        estate.clock.advance(seconds=rnd.randint(1, 999))
        thread = f"{rnd.choice(('t', '漢#字', 'x/y z'))}{number}-{keys.turn_slot(owner)}"
        now = estate.clock()
        store.create_thread(
            Thread(
                thread,
                owner,
                now,
                now,
                rnd.choice(("", "A title", "é 🙂")),
                rnd.choice((None, freeze({"a": {"b": [1, None]}}))),
                rnd.choice((None, now + timedelta(days=900))),
                rnd.choice((None, ThreadUsage(5, 7, 0))),
            ),
            title_source="generated",
        )
        if rnd.random() < 0.3:
            store.update_thread(owner, thread, title="By hand")
        for turn in range(rnd.randint(0, 6)):
            estate.clock.advance(milliseconds=rnd.randint(1, 99_999))
            store.save_messages(owner, thread, [message(estate, owner, f"m{turn}-{n}", rnd) for n in range(2)])
        if rnd.random() < 0.5:
            # Dated before the others by a change, which leaves it where it stands.
            found = estate.read(owner, thread)
            if found:
                early = found[-1].created_at - timedelta(days=3)
                store.update_message(owner, thread, found[-1].id, lambda m, at=early: m.replace(created_at=at))
        for where in (thread, None):
            for version in range(rnd.choice((0, 1, 3, 25))):
                store.put_working_memory(owner, where, f"knows {version} 漢", expected_version=None)
            if rnd.random() < 0.3:
                store.delete_working_memory(owner, where, expected_version=None)
    data = b"bytes of a file"
    name = reference_to(data).removeprefix("attachment://")
    blobs.put(key_of_name(name, owner), data, "image/png")


def message(estate: Estate, owner: str, id: str, rnd: random.Random) -> Any:
    parts: list[Any] = [{"type": "text", "text": rnd.choice(("hello", "é漢字 🙂", "\ud800 half", " ", "{}"))}]
    if rnd.random() < 0.3:
        parts.append({"type": "file", "data": reference_to(b"bytes of a file"), "mimeType": "image/png"})
    if rnd.random() < 0.4:
        call = {"state": "result", "toolCallId": "c1", "toolName": "w", "args": {"a": 1}, "result": {"ok": [1.5, None]}}
        parts.append({"type": "tool-invocation", "toolInvocation": call})
    raw = {
        "id": id,
        "role": rnd.choice(("user", "assistant")),
        "createdAt": clock.to_iso(estate.clock()),
        "content": {"format": 2, "parts": parts, "metadata": rnd.choice(({"k": "v"}, {}, {"deep": {"x": [True]}}))},
        "type": "v2",
        "annotations": ["kept"],
    }
    if rnd.random() < 0.1:
        raw["content"]["parts"][0]["text"] = "x" * 310_000
    if rnd.random() < 0.2:
        raw["expiresAt"] = clock.to_iso(estate.clock() + timedelta(days=700))
    return message_from_json(raw)


# ----------------------------------------------------------------------------------------------------------------- export


def test_an_export_holds_everything_as_json_lines_with_counts_and_checksums(estate: Estate) -> None:
    estate.fill("ada")
    estate.fill("bob")
    job, opened = exported(estate, "ada")
    assert opened.testzip() is None
    manifest = json.loads(opened.read("manifest.json"))
    assert (manifest["format"], manifest["schema"], manifest["resourceId"]) == ("agent-memory-export", 1, "ada")
    for file in manifest["files"]:
        data = opened.read(file["name"])
        assert (len(data), hashlib.sha256(data).hexdigest()) == (file["bytes"], file["sha256"])
        assert len(data.splitlines()) == file["rows"]
    threads, messages = rows_of(opened, "threads"), rows_of(opened, "messages")
    place = keys.turn_slot("ada")
    assert {row["id"] for row in threads} == {f"t0-{place}", f"t1-{place}"}
    assert len(messages) == 9 and {row["resourceId"] for row in messages} == {"ada"}
    assert {row["titleSource"] for row in threads} == {"given"}
    files = rows_of(opened, "attachments")
    assert len(files) == 2
    picture = b"picture of ada"
    assert files[0]["sha256"] == hashlib.sha256(picture).hexdigest()
    assert (files[0]["size"], files[0]["contentType"]) == (len(picture), "image/png")
    memory = rows_of(opened, "working-memory")
    assert [(row["threadId"], row["version"]) for row in memory] == [
        (None, 1),
        (None, 2),
        (f"t0-{place}", 1),
        (f"t0-{place}", 2),
    ]
    assert job.result is not None
    counts = {"threads": 2, "messages": 9, "workingMemoryVersions": 4, "attachments": 2}
    assert manifest["counts"] == counts == job.result["counts"]
    assert job.result["bytes"] == estate.services.blobs.head(file_key("ada", job.id)).size
    assert b"bob" not in b"".join(opened.read(name) for name in opened.namelist())
    left = [key for key in estate.objects() if f"exports/{job.id}" in key]
    assert len(left) == 1, left


def test_an_export_larger_than_a_piece_is_joined_of_many_and_reads_as_one(
    estate: Estate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "CHUNK_BYTES", 2 * 1024 * 1024)
    rnd = random.Random(1)
    store = estate.services.store
    for thread in ("t1", "t2"):
        large = [estate.message(f"{thread}-{n}", rnd.randbytes(450_000).hex()) for n in range(12)]
        for start in range(0, len(large), 4):
            store.save_messages("ada", thread, large[start : start + 4])
    job, opened = exported(estate, "ada")
    assert opened.testzip() is None
    assert [row["id"] for row in rows_of(opened, "messages")] == [f"t{t}-{n}" for t in (1, 2) for n in range(12)]
    assert len([name for name in opened.namelist() if name.startswith("messages")]) > 5
    parts = estate.s3.head_object(Bucket=estate.names.bucket, Key=file_key("ada", job.id))["ETag"]
    assert int(parts.strip('"').partition("-")[2]) >= 2


def test_an_export_of_nobody_is_empty_and_its_link_ends_with_its_time(estate: Estate) -> None:
    job, opened = exported(estate, "nobody")
    assert opened.namelist() == ["manifest.json"]
    assert "signature" in (export.link_of(estate.services, job) or "").lower()
    estate.clock.advance(days=8)
    assert export.link_of(estate.services, job) is None


def test_a_thread_that_is_deleted_meanwhile_ends_where_it_was(estate: Estate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "CHUNK_BYTES", 10)
    store = estate.services.store
    for thread in ("t1", "t2"):
        store.save_messages("ada", thread, [estate.message(f"{thread}-{n}", "x" * 2_000) for n in range(3)])
        estate.clock.advance(seconds=1)
    job = Job(id="e", kind="export", owner="ada", created_at=estate.clock(), updated_at=estate.clock())
    estate.services.jobs.create(job)
    read, store_read = [], store.read_rows

    def watched(header: Any, **more: Any) -> Any:
        read.append(header.thread.id)
        found = store_read(header, **more)
        if len(read) == 1:
            store.delete_thread("ada", "t1")
        return found

    monkeypatch.setattr(store, "read_rows", watched)
    job = finished(estate, job, "ada")
    opened = zipfile.ZipFile(io.BytesIO(estate.services.blobs.get(file_key("ada", job.id))))
    assert [row["id"] for row in rows_of(opened, "messages")] == ["t1-0", "t2-0", "t2-1", "t2-2"]


def test_a_directory_beyond_four_gigabytes_is_read_by_everybody() -> None:
    data, described = archive.entry("a-00001.jsonl", b"{}\n" * 10, 5 * 2**30)
    end = archive.directory([described], 5 * 2**30 + len(data))
    assert b"PK\x06\x06" in end  # the directory for large files
    small, near = archive.entry("a-00001.jsonl", b"{}\n" * 10, 0)
    with zipfile.ZipFile(io.BytesIO(small + archive.directory([near], len(small)))) as opened:
        assert opened.testzip() is None
        assert opened.read("a-00001.jsonl") == b"{}\n" * 10


# ------------------------------------------------------------------------------------------------------ export and import


@pytest.mark.parametrize("seed", range(6))
def test_import_of_an_export_is_what_was_exported(estate: Estate, seed: int) -> None:
    rnd = random.Random(seed)
    fill(estate, "ada", rnd)
    fill(estate, "bob", random.Random(seed + 100))
    before, others = whole(estate, "ada"), estate.of("bob")
    job, _ = exported(estate, "ada")
    data = estate.services.blobs.get(file_key("ada", job.id))

    # As after a loss: everything is erased, and the file is uploaded again.
    erasing = erase(estate.services, "ada", wait_s=1_000)
    estate.clock.advance(seconds=2_000)
    run(estate.services, erasing.id, None)
    assert estate.of("ada") == {"items": {}, "objects": {}, "entries": []}
    upload = "u-" + "0" * 32
    estate.services.blobs.put(key_of_name(upload, "ada"), data)
    first = finished(estate, import_resource(estate.services, "ada", attachment=f"attachment://{upload}"), "ada")
    assert whole(estate, "ada") == before
    assert first.result is not None
    stored = sum(len(thread["messages"]) for thread in before["threads"].values())
    assert (first.result["counts"]["stored"], first.result["counts"]["refused"]) == (stored, 0)

    # And once more.
    items = {k: v for k, v in estate.of("ada")["items"].items() if '"runs"' not in k}
    estate.clock.advance(days=1)
    second = finished(estate, import_resource(estate.services, "ada", attachment=f"attachment://{upload}"), "ada")
    assert {k: v for k, v in estate.of("ada")["items"].items() if '"runs"' not in k} == items
    assert second.result is not None
    assert (second.result["counts"]["stored"], second.result["counts"]["known"]) == (0, stored)
    assert second.result["counts"]["refused"] == 0
    assert estate.of("bob") == others


def test_into_another_owner_files_are_copied_and_ids_that_are_taken_become_others(estate: Estate) -> None:
    fill(estate, "ada", random.Random(3))
    before = whole(estate, "ada")
    job, _ = exported(estate, "ada")
    for _ in range(2):
        done = finished(estate, import_resource(estate.services, "carol", export=("ada", job.id)), "carol")
        assert done.result is not None and done.result["counts"]["refused"] == 0, done.result
        found = whole(estate, "carol")
        assert whole(estate, "ada") == before
        assert not found["threads"].keys() & before["threads"].keys()

        def said(of: dict[str, Any]) -> list[Any]:
            return sorted(
                (
                    thread["thread"].title,
                    thread["title source"],
                    clock.to_iso(thread["thread"].created_at),
                    clock.to_iso(thread["thread"].updated_at),
                    [(m.role, repr(m.content), clock.to_iso(m.created_at)) for m in thread["messages"]],
                    [(v.version, v.text) for v in thread["versions"]],
                )
                for thread in of["threads"].values()
            )

        assert said(found) == said(before)
        assert found["memory"] == before["memory"]
    name = reference_to(b"bytes of a file").removeprefix("attachment://")
    assert estate.services.blobs.get(key_of_name(name, "carol")) == b"bytes of a file"


def test_rows_are_indexed_and_files_are_used_like_those_of_any_message(estate: Estate) -> None:
    estate.fill("ada", threads=1)
    job, _ = exported(estate, "ada")
    finished(estate, import_resource(estate.services, "carol", export=("ada", job.id)), "carol")
    items = [json.loads(text) for text in estate.of("carol")["items"].values()]
    rows = [item for item in items if "mid" in item and "content" in item]
    assert {item["index"]["S"] for item in rows} == {estate.services.index.id}
    uses = [item for item in items if "token" in item and item["sk"]["S"].startswith("F#")]
    assert len(uses) == 1


@pytest.mark.slow
def test_a_crash_of_an_import_after_any_request_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    estate = make(tmp_path, monkeypatch)
    fill(estate, "ada", random.Random(3))
    job, _ = exported(estate, "ada")
    before = whole(estate, "ada")
    number = 0
    while True:
        number += 3
        owner, job_id = f"copy-{number}", f"import-{number}"
        estate.calls, estate.crash_at = 0, number
        try:
            import_resource(estate.services, owner, export=("ada", job.id), job_id=job_id)
            crashed = False
        except Crash:
            crashed = True
        estate.crash_at = None
        if estate.services.jobs.get(job_id, owner=owner) is None:
            import_resource(estate.services, owner, export=("ada", job.id), job_id=job_id)
        done = finished(estate, estate.services.jobs.get(job_id, owner=owner), owner)
        assert done.result is not None and done.result["counts"]["refused"] == 0, (number, done.result)
        found = whole(estate, owner)
        assert len(found["threads"]) == len(before["threads"]), number
        assert sorted(
            [[repr(m.content) for m in thread["messages"]] for thread in found["threads"].values()]
        ) == sorted([[repr(m.content) for m in thread["messages"]] for thread in before["threads"].values()]), number
        assert found["memory"] == before["memory"]
        if not crashed:
            break
    assert number > 30


@pytest.mark.slow
def test_a_crash_of_an_import_of_rows_is_resumed_with_its_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    estate = make(tmp_path, monkeypatch)
    rows: list[Any] = [*history(20), {"role": "robot", "content": "x", "threadId": "t0"}]
    number, crashed = 0, True
    while crashed:
        number += 1
        owner, job_id = f"rows-{number}", f"import-{number}"
        mine = [{**row, "threadId": f"{row['threadId']}-{number}"} for row in rows]
        estate.calls, estate.crash_at = 0, number
        try:
            import_resource(estate.services, owner, messages=mine, job_id=job_id)
            crashed = False
        except Crash:
            estate.crash_at = None
        estate.crash_at = None
        if estate.services.jobs.get(job_id, owner=owner) is None:
            import_resource(estate.services, owner, messages=mine, job_id=job_id)
        done = finished(estate, estate.services.jobs.get(job_id, owner=owner), owner)
        assert done.result is not None
        counts = done.result["counts"]
        assert (counts["stored"] + counts["known"], counts["refused"]) == (20, 1), number
        assert [len(estate.read(owner, f"t{n}-{number}")) for n in range(3)] == [7, 7, 6]
        report = estate.services.blobs.get(import_parts.report_key(owner, job_id)).splitlines()
        assert [json.loads(line)["row"] for line in report] == [21], number
        left = [name for name in estate.object_names() if f"imports/{job_id}/" in name]
        assert left == []
    assert number > 15


@pytest.mark.slow
def test_a_crash_of_an_export_after_any_request_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    estate = make(tmp_path, monkeypatch)
    fill(estate, "ada", random.Random(5))
    _, opened = exported(estate, "ada")
    expected = {kind: rows_of(opened, kind) for kind in ("threads", "messages", "working-memory", "attachments")}
    number = 0
    while True:
        number += 1
        estate.calls, estate.crash_at = 0, number
        try:
            export_resource(estate.services, "ada", job_id=f"e{number}")
            crashed = False
        except Crash:
            crashed = True
        estate.crash_at = None
        if estate.services.jobs.get(f"e{number}", owner="ada") is None:
            export_resource(estate.services, "ada", job_id=f"e{number}")
        job = finished(estate, estate.services.jobs.get(f"e{number}", owner="ada"), "ada")
        opened = zipfile.ZipFile(io.BytesIO(estate.services.blobs.get(file_key("ada", job.id))))
        assert {kind: rows_of(opened, kind) for kind in expected} == expected, number
        assert opened.testzip() is None
        if not crashed:
            break
    assert number > 20


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"PK\x03\x04 no zip", "a zip"),
        (b"PK\x05\x06" + b"\0" * 18, "manifest.json"),
    ],
)
def test_a_file_that_is_no_export_fails_the_job_with_the_reason(estate: Estate, data: bytes, message: str) -> None:
    upload = "u-" + "1" * 32
    estate.services.blobs.put(key_of_name(upload, "ada"), data)
    job = import_resource(estate.services, "ada", attachment=f"attachment://{upload}")
    job = ended(estate, job, "ada", most=2)
    assert job.state == "failed" and job.error is not None
    assert job.error["code"] == "IMPORT_UNREADABLE" and message in job.error["message"]


def test_an_export_that_somebody_has_changed_is_refused(estate: Estate) -> None:
    estate.fill("ada", threads=1)
    _, opened = exported(estate, "ada")
    changed = io.BytesIO()
    with zipfile.ZipFile(changed, "w") as target:
        for name in opened.namelist():
            target.writestr(name, opened.read(name).replace(b"I am ada", b"I am bob"))
    upload = "u-" + "2" * 32
    estate.services.blobs.put(key_of_name(upload, "carol"), changed.getvalue())
    done = ended(
        estate, import_resource(estate.services, "carol", attachment=f"attachment://{upload}"), "carol", most=2
    )
    assert done.state == "failed" and done.error is not None and "checksum" in done.error["message"]


def test_an_import_into_somebody_who_is_erased_is_refused(estate: Estate) -> None:
    estate.fill("ada", threads=1)
    job, _ = exported(estate, "ada")
    estate.services.store.lock_resource("carol", "job-x")
    with pytest.raises(ConflictError) as caught:
        import_resource(estate.services, "carol", export=("ada", job.id))
    assert caught.value.code == "RESOURCE_LOCKED"
    with pytest.raises(ConflictError) as caught:
        export_resource(estate.services, "carol")
    assert caught.value.code == "RESOURCE_LOCKED"


def test_messages_that_have_expired_since_do_not_come_back_and_the_rest_does(
    estate: Estate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_archive, "RESTORE_BYTES", 1_000)
    soon = estate.clock() + timedelta(days=1)
    said = [estate.message(f"m{n}", "x " * 50, **({} if n > 29 else {"expires_at": soon})) for n in range(35)]
    estate.services.store.save_messages("ada", "t1", said)
    estate.clock.advance(seconds=1)
    estate.services.store.save_messages("ada", "t2", [estate.message("last", "y")])
    job, _ = exported(estate, "ada")
    estate.clock.advance(days=2)
    done = finished(estate, import_resource(estate.services, "carol", export=("ada", job.id)), "carol")
    assert done.result is not None
    counts = done.result["counts"]
    assert (counts["stored"], counts["expired"], counts["refused"]) == (6, 30, 0)
    found = whole(estate, "carol")["threads"].values()
    assert sorted(len(thread["messages"]) for thread in found) == [1, 5]


def test_a_forged_export_with_its_checksums_in_order_names_what_it_cannot_place(estate: Estate) -> None:
    threads = [
        {"id": "good", "createdAt": "2026-01-01T00:00:00Z", "updatedAt": "2026-01-01T00:00:00Z", "titleSource": "?"},
        {"id": "no-dates"},
        {"id": "large", "createdAt": 1, "updatedAt": 1, "metadata": {"x": "y" * 20_000}},
        "no thread",
    ]
    messages = [
        {"id": "m1", "role": "user", "content": "kept", "threadId": "good"},
        {"id": "m2", "role": "robot", "content": "bad", "threadId": "good"},
        {"id": "m3", "role": "user", "content": "lost", "threadId": "no-dates"},
        {"id": "m4", "role": "user", "content": "lost", "threadId": "large"},
        {"id": "m5", "role": "user", "content": "lost", "threadId": "never"},
        7,
    ]
    files = {"threads-00001.jsonl": archive.lines(threads), "messages-00001.jsonl": archive.lines(messages)}
    described = [{"name": name, "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()]
    manifest = {"format": "agent-memory-export", "schema": 1, "resourceId": "ada", "files": described}
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as made:
        for name, data in {**files, "manifest.json": json.dumps(manifest).encode()}.items():
            made.writestr(name, data)
    upload = "u-" + "4" * 32
    estate.services.blobs.put(key_of_name(upload, "ada"), target.getvalue())
    done = finished(estate, import_resource(estate.services, "ada", attachment=f"attachment://{upload}"), "ada")
    assert done.result is not None
    named = [(error["row"], error["code"]) for error in done.result["errors"]]
    assert named == [
        ("messages-00001.jsonl:2", "INVALID_ROW"),
        ("threads-00001.jsonl:2", "INVALID_ROW"),
        ("messages-00001.jsonl:3", "THREAD_REFUSED"),
        ("threads-00001.jsonl:3", "INVALID_INPUT"),
        ("messages-00001.jsonl:4", "THREAD_REFUSED"),
        ("threads-00001.jsonl:4", "INVALID_ROW"),
        ("messages-00001.jsonl:5", "THREAD_UNKNOWN"),
        ("messages-00001.jsonl:6", "THREAD_UNKNOWN"),
    ]
    assert [m.text for m in estate.read("ada", "good")] == ["kept"]


@pytest.mark.parametrize("rows_of", [None, "ada"])
def test_an_uploaded_export_that_says_to_be_another_s_takes_their_files_on_the_caller_s_word_alone(
    estate: Estate, rows_of: str | None
) -> None:
    estate.fill("ada", threads=1)
    job, _ = exported(estate, "ada")
    upload = "u-" + "5" * 32
    estate.services.blobs.put(key_of_name(upload, "carol"), estate.services.blobs.get(file_key("ada", job.id)))
    begun = import_resource(estate.services, "carol", attachment=f"attachment://{upload}", rows_of=rows_of)
    done = finished(estate, begun, "carol")
    assert done.result is not None and done.result["counts"]["stored"] == 5
    files = [key for key in estate.objects() if key.startswith(f"{owner_prefix('carol')}files/") and upload not in key]
    assert len(files) == (0 if rows_of is None else 1)


@pytest.mark.parametrize("named", [[{"rows": 1}], [7], {"name": "x"}])
def test_a_manifest_that_names_no_files_fails_the_job_with_the_reason(estate: Estate, named: Any) -> None:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as made:
        manifest = {"format": "agent-memory-export", "schema": 1, "resourceId": "ada", "files": named}
        made.writestr("manifest.json", json.dumps(manifest))
    upload = "u-" + "6" * 32
    estate.services.blobs.put(key_of_name(upload, "ada"), target.getvalue())
    job = ended(estate, import_resource(estate.services, "ada", attachment=f"attachment://{upload}"), "ada", most=2)
    assert job.state == "failed" and job.error is not None and job.error["code"] == "IMPORT_UNREADABLE"


def test_a_thread_longer_than_a_batch_and_a_file_is_put_back_whole(
    estate: Estate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "CHUNK_BYTES", 4_000)
    monkeypatch.setattr(import_archive, "RESTORE_ROWS", 7)
    store = estate.services.store
    for thread, count in (("short", 3), ("long", 90), ("none", 0), ("exact", 7)):
        estate.clock.advance(seconds=1)
        store.create_thread(Thread(thread, "ada", estate.clock(), estate.clock()))
        store.save_messages("ada", thread, [estate.message(f"{thread}-{n}", f"{n} " * 40) for n in range(count)])
    job, opened = exported(estate, "ada")
    assert len([name for name in opened.namelist() if name.startswith("messages")]) > 3
    done = finished(estate, import_resource(estate.services, "carol", export=("ada", job.id)), "carol")
    assert done.result is not None and done.result["counts"]["stored"] == 100
    found = whole(estate, "carol")["threads"].values()
    texts = [[message.text for message in thread["messages"]] for thread in found]
    assert sorted(map(len, texts)) == [0, 3, 7, 90]
    assert all(said == [f"{n} " * 40 for n in range(len(said))] for said in texts)


# -------------------------------------------------------------------------------------------- histories of other systems


def history(rows: int) -> list[Any]:
    return [
        {
            "id": f"m{n}",
            "threadId": f"t{n % 3}",
            "role": "user" if n % 2 else "assistant",
            "content": f"text {n}",
            "createdAt": clock.to_iso(clock.parse("2026-01-01T00:00:00Z") + timedelta(seconds=n)),
        }
        for n in range(rows)
    ]


def test_wish_15_of_a_thousand_rows_of_which_seven_are_bad_993_are_stored_and_seven_named(estate: Estate) -> None:
    rows: list[Any] = history(1_000)
    rows[10] = {**rows[10], "role": "robot"}
    rows[99] = {**rows[99], "threadId": None}
    rows[100] = "a text"
    rows[500] = {**rows[500], "createdAt": "yesterday"}
    rows[777] = {**rows[777], "content": None}
    rows[998] = {**rows[998], "resourceId": "bob"}
    rows[999] = {**rows[999], "id": "x" * 600}
    job = finished(estate, import_resource(estate.services, "ada", messages=rows), "ada")
    assert job.result is not None
    counts = job.result["counts"]
    assert (counts["rows"], counts["stored"], counts["refused"]) == (1_000, 993, 7)
    named = {error["row"]: error["field"] for error in job.result["errors"]}
    assert named == {
        11: "role",
        100: "threadId",
        101: "",
        501: "createdAt",
        778: "content",
        999: "resourceId",
        1_000: "id",
    }
    assert all(error["code"] and error["expected"] for error in job.result["errors"])
    assert sum(len(estate.read("ada", f"t{n}")) for n in range(3)) == 993
    report = estate.services.blobs.get(import_parts.report_key("ada", job.id)).splitlines()
    assert [json.loads(line) for line in report] == list(job.result["errors"])
    assert imports.report_of(estate.services, job) is not None

    before = whole(estate, "ada")
    estate.clock.advance(days=1)
    again = finished(estate, import_resource(estate.services, "ada", messages=rows), "ada")
    assert again.result is not None
    assert (again.result["counts"]["stored"], again.result["counts"]["known"]) == (0, 993)
    assert whole(estate, "ada") == before


def test_rows_of_mastra_of_the_ai_sdk_and_of_openai_are_read(estate: Estate) -> None:
    mastra_1 = [
        {"id": "a1", "role": "user", "content": "v1 text", "type": "text", "createdAt": "2026-01-01T00:00:00Z"},
        {
            "id": "a2",
            "role": "assistant",
            "type": "tool-call",
            "content": [{"type": "tool-call", "toolCallId": "k1", "toolName": "weather", "args": {"city": "Oslo"}}],
        },
        {
            "id": "a3",
            "role": "tool",
            "type": "tool-result",
            "content": [{"type": "tool-result", "toolCallId": "k1", "toolName": "weather", "result": {"c": 3}}],
        },
    ]
    mastra_2 = [
        {"id": "b1", "role": "user", "content": {"format": 2, "parts": [{"type": "text", "text": "v2 text"}]}},
    ]
    ai_sdk = [
        {"id": "c1", "role": "user", "parts": [{"type": "text", "text": "page text"}], "metadata": {"k": 1}},
        {
            "id": "c2",
            "role": "assistant",
            "parts": [
                {"type": "step-start"},
                {
                    "type": "tool-weather",
                    "toolCallId": "k2",
                    "state": "output-available",
                    "input": {"city": "Rome"},
                    "output": 20,
                },
                {"type": "text", "text": "20 degrees", "state": "done"},
            ],
        },
    ]
    openai = [
        {"role": "system", "content": "Be kind."},
        {"role": "developer", "content": "Be brief."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is it?"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "k3", "type": "function", "function": {"name": "look", "arguments": '{"closely": true}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "k3", "content": '{"seen": "a cat"}'},
        {"role": "tool", "tool_call_id": "k4", "content": "nobody asked"},
        {"role": "assistant", "content": "A cat."},
    ]
    everything = {"one": mastra_1, "two": mastra_2, "three": ai_sdk, "four": openai}
    rows = [{**row, "threadId": thread} for thread, found in everything.items() for row in found]
    for turn in range(2):
        job = finished(estate, import_resource(estate.services, "ada", messages=rows), "ada")
        assert job.result is not None
        counts = job.result["counts"]
        taken = "known" if turn else "stored"
        assert (counts["rows"], counts[taken], counts["ignored"], counts["refused"]) == (13, 10, 2, 1)
        assert [(e["row"], e["code"]) for e in job.result["errors"]] == [(12, "TOOL_CALL_UNKNOWN")]
        said = {thread: [(m.role, m.text) for m in estate.read("ada", thread)] for thread in everything}
        assert said == {
            "one": [("user", "v1 text"), ("assistant", "")],
            "two": [("user", "v2 text")],
            "three": [("user", "page text"), ("assistant", "20 degrees")],
            "four": [("user", "What is it?"), ("assistant", ""), ("assistant", "A cat.")],
        }
    calls = {
        part.invocation.tool_call_id: (part.invocation.tool_name, part.invocation.args, part.invocation.result)
        for thread in everything
        for found in estate.read("ada", thread)
        for part in found.parts
        if hasattr(part, "invocation")
    }
    assert calls == {
        "k1": ("weather", {"city": "Oslo"}, {"c": 3}),
        "k2": ("weather", {"city": "Rome"}, 20),
        "k3": ("look", {"closely": True}, {"seen": "a cat"}),
    }
    picture = estate.read("ada", "four")[0].parts[1]
    assert picture.data.startswith("attachment://")


def test_rows_without_a_date_stay_in_their_order_and_a_default_thread_takes_those_without_one(
    estate: Estate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports, "ROWS_AT_ONCE", 50)
    rows = [{"role": "user", "content": f"text {n}"} for n in range(123)]
    rows[60]["createdAt"] = clock.to_iso(estate.clock() + timedelta(hours=1))
    job = finished(estate, import_resource(estate.services, "ada", messages=rows, thread_id="t"), "ada")
    assert job.result is not None and job.result["counts"]["stored"] == 123
    assert [m.text for m in estate.read("ada", "t")] == [f"text {n}" for n in range(123)]
    assert len({m.id for m in estate.read("ada", "t")}) == 123


def test_lines_that_are_no_json_and_blank_ones_are_named_and_a_file_of_lines_is_read_by_pieces(
    estate: Estate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports, "READ_BYTES", 300)
    monkeypatch.setattr(imports, "MAX_ROW_BYTES", 2_000)
    good = [json.dumps(row, ensure_ascii=False) for row in history(30)]
    lines = [*good[:5], "{broken", "", *good[5:20], '{"role": "user", "content": "é', *good[20:]]
    upload = "u-" + "3" * 32
    estate.services.blobs.put(key_of_name(upload, "ada"), "\n".join(lines).encode())
    job = finished(estate, import_resource(estate.services, "ada", attachment=f"attachment://{upload}"), "ada")
    assert job.result is not None
    assert job.result["counts"]["stored"] == 30
    assert [error["row"] for error in job.result["errors"]] == [6, 7, 23]


def test_a_thread_of_another_owner_is_named_for_each_of_its_rows_and_nothing_is_written_there(estate: Estate) -> None:
    estate.fill("bob", threads=1)
    thread = f"t0-{keys.turn_slot('bob')}"
    before = estate.of("bob")
    rows = [*history(3), {"role": "user", "content": "mine", "threadId": thread}]
    job = finished(estate, import_resource(estate.services, "ada", messages=rows), "ada")
    assert job.result is not None
    assert [(e["row"], e["code"], e["field"]) for e in job.result["errors"]] == [(4, "ACCESS_DENIED", "threadId")]
    assert estate.of("bob") == before


def test_rows_that_belong_far_before_stored_ones_are_named_and_others_stored(estate: Estate) -> None:
    store = estate.services.store
    late = [estate.message(f"late{n}", "x") for n in range(150)]
    store.save_messages("ada", "t0", late)
    now = clock.to_iso(estate.clock())
    rows = [*history(1), {"id": "next", "threadId": "t0", "role": "user", "content": "y", "createdAt": now}]
    job = finished(estate, import_resource(estate.services, "ada", messages=rows), "ada")
    assert job.result is not None
    assert [(e["row"], e["code"]) for e in job.result["errors"]] == [(1, "IMPORT_TOO_FAR_BACK")]
    assert estate.read("ada", "t0")[-1].id == "next"


def test_a_source_must_be_named_and_only_one(estate: Estate) -> None:
    for source in ({}, {"messages": [], "export": ("ada", "x")}, {"attachment": "https://e.example/x"}):
        with pytest.raises(InvalidInputError):
            import_resource(estate.services, "ada", **source)


def test_whatever_a_row_is_the_import_ends_and_says_what_became_of_it(estate: Estate) -> None:
    rnd = random.Random(7)
    rows = [json.loads(json.dumps(_finite(random_json.value(rnd)))) for _ in range(300)]
    rows += [{**row, "threadId": "t"} for row in rows if isinstance(row, dict)]
    job = finished(estate, import_resource(estate.services, "ada", messages=rows), "ada")
    assert job.result is not None
    counts = job.result["counts"]
    assert counts["rows"] == len(rows)
    assert counts["stored"] + counts["known"] + counts["ignored"] + counts["refused"] == len(rows)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return {key: _finite(item) for key, item in value.items()} if isinstance(value, dict) else value
