"""The erasure of a resource, with its receipt."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.config import Config

from agent_memory import clock
from agent_memory._json import dumps, freeze
from agent_memory.attachments import owner_prefix
from agent_memory.aws.dynamodb import keys
from agent_memory.errors import AccessDeniedError, ConfigurationError, ConflictError
from agent_memory.jobs import erase as erasing
from agent_memory.jobs.erase import erase
from agent_memory.jobs.runner import LEASE_S, run
from agent_memory.ports import SuspendedRun, Thread, TurnCommit
from agent_memory.ports.files import FileRecord
from agent_memory.ports.jobs import Job
from tests.support.clocks import FakeClock
from tests.support.emulator import shared_emulator
from tests.support.estates import Crash, Estate

PERSON = "ada.lovelace@example.org/#1"  # every special character of keys, and a word that is nowhere else
SIMILAR = ("ada", "ADA", "ada2", "ada.lovelace@example.org", "ada.lovelace@example.org/#1#x", "team/ada.lovelace")


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


def to_its_end(estate: Estate, job: Job, *, most: int = 12) -> Job:
    """Run a job until it has ended, the clock moved on whenever it waits."""
    jobs = estate.services.jobs
    for _ in range(most):
        found = jobs.get(job.id, owner=None)
        assert found is not None
        if found.ended:
            assert found.state == "finished", found.error
            return found
        estate.clock.now = max(estate.clock(), found.not_before or estate.clock()) + timedelta(seconds=LEASE_S + 1)
        run(estate.services, job.id, None)
    raise AssertionError(f"the job did not end: {found}")


def traces(estate: Estate, person: str) -> list[str]:
    """Everything that names a person, whichever way a key or an address writes it."""
    forms = {person, keys.escape(person), keys.messages_prefix(person), keys.blob_segment(person)}
    for ascii_only in (True, False):
        text = person
        for _ in range(3):  # JSON in JSON
            text = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
            forms.add(text)
    return [text[:300] for text in estate.everything() if any(form in text for form in forms)]


def receipt_of(estate: Estate, job: Job) -> dict[str, Any]:
    """The receipt of a finished job, its signature checked with the key that lies beside."""
    assert job.result is not None
    text = job.result["receipt"].encode()
    key = bytes.fromhex((estate.folder / "receipt.key").read_text())
    assert hmac.compare_digest(hmac.digest(key, text, "sha256"), base64.b64decode(job.result["signature"]))
    assert job.result["algorithm"] == "HMAC_SHA_256"
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.mark.parametrize("person", [PERSON, "#" * 512, 'Ä "quoted" \\ name'], ids=["plain", "hashed", "quoted"])
def test_wish_6_nothing_is_left_of_a_person_and_the_receipt_proves_it(estate: Estate, person: str) -> None:
    for owner in (person, "bob"):
        estate.fill(owner, other="bob")
    estate.keep_batches(person, "bob")
    assert len(traces(estate, person)) > 30

    job = to_its_end(estate, erase(estate.services, person))

    assert traces(estate, person) == []
    receipt = receipt_of(estate, job)
    assert receipt["resourceSha256"] == hashlib.sha256(person.encode()).hexdigest()
    assert receipt["jobId"] == job.id
    removed = receipt["removed"]
    assert removed["messages"] == 2 * 4 + 1 + 1  # of two threads and of a deleted one
    assert removed["threads"] == 3
    assert removed["shownThreads"] == 2
    assert removed["workingMemory"] >= 3
    assert removed["indexEntries"] > 0
    assert removed["keptRecords"] == 4
    assert {"suspendedRuns", "answerPieces", "runningRuns", "repeatedCalls", "jobs", "files"} <= removed.keys()
    assert removed["mentions"] >= 3  # a trusted caller's kept answers, one of them in the bucket, and a job of bob's
    assert removed["uploads"] == 1
    assert "late" not in removed
    assert receipt["passes"] == 2
    locked, gone, checked = (clock.parse(receipt[name]) for name in ("lockedAt", "removedAt", "checkedAt"))
    assert locked <= gone < checked
    assert checked - gone >= timedelta(seconds=erasing.WAIT_S)
    assert any("backups" in entry["what"] for entry in receipt["remains"])
    assert not any("stream" in entry["what"] for entry in receipt["remains"])
    assert not any("uploaded" in entry["what"] for entry in receipt["remains"])
    assert (job.params, dict(job.cursor)) == ({}, {})


def test_others_with_similar_ids_stay_byte_for_byte(estate: Estate) -> None:
    for owner in (PERSON, *SIMILAR):
        estate.fill(owner, threads=1)
    estate.keep_batches(*SIMILAR)
    before = {owner: estate.of(owner) for owner in SIMILAR}
    assert all(part for owner in SIMILAR for part in before[owner].values())
    batches = {key: data for key, data in estate.objects().items() if not key.startswith("o/")}
    to_its_end(estate, erase(estate.services, PERSON))
    assert {owner: estate.of(owner) for owner in SIMILAR} == before
    after = {key: data for key, data in estate.objects().items() if not key.startswith("o/")}
    gone = {key for key in batches if after.get(key) != batches[key]}
    assert len(gone) == 1 and next(iter(gone)).startswith("n/runs/")  # a kept answer that named the person


@pytest.mark.parametrize("person", ["assistant", "user", "finished", "transfer", "status", "trusted"])
def test_a_person_whose_id_is_a_word_of_others_rows_takes_none_of_them_along(estate: Estate, person: str) -> None:
    runs, now = estate.services.runs, estate.clock()
    state = freeze({"messages": [{"role": "user", "resourceId": "bob"}], "status": ["assistant", "finished"]})
    estate.fill("bob", threads=1, other="carol")
    runs.suspend(SuspendedRun("run-1", "assistant", "bob", "t0", now, (), state))
    runs.suspend(SuspendedRun("run-2", "assistant", None, None, now, (), state))
    runs.remember(None, "trusted", "hash", {"status": 200, "headers": {}, "body": dumps(state)}, run_id="user")
    before = (estate.of("bob"), estate.of("carol"))
    estate.fill(person, threads=1)
    to_its_end(estate, erase(estate.services, person))
    assert (estate.of("bob"), estate.of("carol")) == before
    assert runs.find_suspended("run-2", owner=None) is not None
    found = estate.of(person)
    assert (found["objects"], found["entries"]) == ({}, [])
    assert not [key for key in found["items"] if keys.escape(person) in key.replace('"run-', "")]


def test_all_versions_of_a_versioned_bucket_go_and_those_of_kept_batches_are_cut(estate: Estate) -> None:
    estate.s3.put_bucket_versioning(Bucket=estate.names.bucket, VersioningConfiguration={"Status": "Enabled"})
    estate.fill(PERSON, threads=1)
    estate.keep_batches(PERSON)
    estate.keep_batches(PERSON, "bob")
    estate.services.blobs.put("indexer/refused/2036/03/04/2.json", json.dumps(["not", PERSON, "ours"]).encode())
    estate.services.blobs.delete([f"{owner_prefix(PERSON)}exports/job-1.zip"])
    to_its_end(estate, erase(estate.services, PERSON))
    left = estate.objects()
    assert [key for key in left if key.startswith("o/")] == []
    assert sum("I am bob" in data.decode() for data in left.values()) == 3
    assert not [key for key, data in left.items() if f"I am {PERSON}".encode() in data]


def test_the_bucket_s_batches_of_others_are_whole_after_their_person_s_records_went(estate: Estate) -> None:
    estate.keep_batches("bob", PERSON, "carol")
    before = {key: data.count(b"I am bob") + data.count(b"I am carol") for key, data in estate.objects().items()}
    to_its_end(estate, erase(estate.services, PERSON))
    after = {key: data.count(b"I am bob") + data.count(b"I am carol") for key, data in estate.objects().items()}
    assert after == before
    assert traces(estate, PERSON) == []


def test_while_it_runs_everything_of_the_person_is_refused_and_of_nobody_else(estate: Estate) -> None:
    estate.fill(PERSON, threads=1)
    store, files = estate.services.store, estate.services.files
    job = erase(estate.services, PERSON)
    assert job.state == "waiting"  # for the check
    now = estate.clock()

    def writes(owner: str) -> list[Any]:
        thread = f"new-{keys.turn_slot(owner)}"
        late = [estate.message(f"m{n}", "late") for n in range(150)]
        return [
            lambda: store.create_thread(Thread(thread, owner, now, now)),
            lambda: store.save_messages(owner, f"{thread}-2", late[:2]),
            lambda: store.save_messages(owner, f"{thread}-3", late),
            lambda: store.build_thread(Thread(f"{thread}-4", owner, now, now), late[:3]),
            lambda: store.commit(TurnCommit(f"{thread}-5", owner, None, appended=tuple(late[:1]))),
            lambda: store.put_working_memory(owner, None, "late", expected_version=None),
            lambda: store.put_working_memory(owner, None, "late", expected_version=0),
            lambda: store.put_working_memory(owner, "t", "late", expected_version=None),
            lambda: files.expect(owner, [FileRecord(name="u-1", state="promised")]),
        ]

    for number, write in enumerate(writes(PERSON)):
        with pytest.raises(ConflictError) as caught:
            write()
        assert caught.value.code == "RESOURCE_LOCKED", number
    for number, write in enumerate(writes("bob")):
        if number != 6:
            write()
    to_its_end(estate, job)
    assert traces(estate, PERSON) == []
    store.create_thread(Thread("again", PERSON, now, now))
    assert store.get_thread(PERSON, "again") is not None


def test_a_thread_that_has_expired_is_not_made_again_meanwhile(estate: Estate) -> None:
    store, now = estate.services.store, estate.clock()
    for number in range(2):
        store.create_thread(Thread(f"t{number}", PERSON, now, now, expires_at=now + timedelta(seconds=1)))
    estate.clock.advance(seconds=2)
    store.lock_resource(PERSON, "job-x")
    for expires_at in (None, estate.clock() + timedelta(days=1)):
        with pytest.raises(ConflictError) as caught:
            store.create_thread(Thread("t0", PERSON, now, now, expires_at=expires_at))
        assert caught.value.code == "RESOURCE_LOCKED"
    with pytest.raises(ConflictError) as caught:
        store.save_messages(PERSON, "t1", [estate.message("m", "late")])
    assert caught.value.code == "RESOURCE_LOCKED"


def test_a_thread_given_to_a_person_who_is_erased_stays_where_it_was(estate: Estate) -> None:
    estate.fill("bob", threads=1)
    estate.services.store.lock_resource(PERSON, "job-x")
    with pytest.raises(ConflictError) as caught:
        estate.services.store.transfer_thread("bob", f"t0-{keys.turn_slot('bob')}", PERSON)
    assert caught.value.code == "RESOURCE_LOCKED"
    assert len(estate.read("bob", f"t0-{keys.turn_slot('bob')}")) == 5


def test_a_turn_that_runs_meanwhile_fails_to_commit(estate: Estate) -> None:
    store = estate.services.store
    estate.fill(PERSON, threads=1)
    thread = f"t0-{keys.turn_slot(PERSON)}"
    started = store.begin_turn(PERSON, thread, None)
    assert started.header is not None
    job = erase(estate.services, PERSON)
    for header in (started.header, None):
        with pytest.raises(ConflictError) as caught:
            store.commit(TurnCommit(thread, PERSON, header, appended=(estate.message("late", "I said"),)))
        assert caught.value.code == ("THREAD_DELETED" if header else "RESOURCE_LOCKED")
    to_its_end(estate, job)
    with pytest.raises(ConflictError):
        store.commit(TurnCommit(thread, PERSON, started.header, appended=(estate.message("late", "I said"),)))
    assert traces(estate, PERSON) == []


def test_what_came_late_is_found_by_the_check_and_removed(estate: Estate) -> None:
    estate.fill(PERSON, threads=1)
    job = erase(estate.services, PERSON)
    # A writer that had begun before: it checks nothing any more.
    estate.services.blobs.put(f"{owner_prefix(PERSON)}files/late", b"late")
    row = {"pk": {"S": keys.messages_pk(PERSON, "built")}, "sk": {"N": "1"}, "mid": {"S": "m"}}
    estate.dynamodb.put_item(TableName=estate.names.messages, Item=row)
    claim = {"pk": {"S": keys.claim_pk("built")}, "resource": {"S": PERSON}}
    estate.dynamodb.put_item(TableName=estate.names.claims, Item=claim)
    estate.services.runs.remember(PERSON, "late", "hash", None, run_id="r")
    receipt = receipt_of(estate, to_its_end(estate, job))
    assert traces(estate, PERSON) == []
    assert receipt["removed"]["late"] == 4
    assert receipt["passes"] == 3


def test_an_open_job_that_names_the_person_is_waited_for(estate: Estate) -> None:
    now = estate.clock()
    moving = Job(
        id="moving",
        kind="transfer",
        owner="bob",
        params=freeze({"newResourceId": PERSON}),
        created_at=now,
        updated_at=now,
    )
    estate.services.jobs.create(moving)
    job = erase(estate.services, PERSON)
    assert (job.state, job.progress["waits"]) == ("waiting", 1)
    assert estate.services.jobs.get("moving", owner="bob") is not None
    estate.services.jobs.delete("moving", owner="bob")
    to_its_end(estate, job)
    assert traces(estate, PERSON) == []


def test_a_second_request_is_the_first_one_s_job_and_a_failed_one_is_taken_over(estate: Estate) -> None:
    estate.fill(PERSON, threads=1)
    first = erase(estate.services, PERSON)
    assert erase(estate.services, PERSON).id == first.id
    store = estate.services.store
    assert store.lock_of(PERSON) == first.id
    # Two requests at the same moment both make a job; the one without the lock ends at once and keeps nothing.
    twin = Job(
        id="twin",
        kind="erase",
        owner=None,
        params=freeze({"resourceId": PERSON, "waitS": 1}),
        created_at=estate.clock(),
        updated_at=estate.clock(),
    )
    estate.services.jobs.create(twin)
    ended = run(estate.services, "twin", None)
    assert ended is not None and (ended.state, ended.params) == ("finished", {})
    assert ended.result == {"sameAs": first.id}
    estate.services.jobs.delete(first.id, owner=None)
    second = erase(estate.services, PERSON)
    assert second.id != first.id
    assert receipt_of(estate, to_its_end(estate, second))["removed"] is not None
    assert traces(estate, PERSON) == []


def test_somebody_of_whom_nothing_is_stored_gets_a_receipt_that_says_so(estate: Estate) -> None:
    receipt = receipt_of(estate, to_its_end(estate, erase(estate.services, "nobody", wait_s=60)))
    assert receipt["removed"] == {}
    assert any("stream" in entry["what"] for entry in receipt["remains"])
    assert any("uploaded" in entry["what"] for entry in receipt["remains"])


def test_a_short_wait_is_slept_through_where_nobody_would_wake_the_job(
    estate: Estate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasing.time, "sleep", lambda seconds: estate.clock.advance(seconds=seconds))
    job = erase(estate.services, "nobody", wait_s=5)
    assert job.state == "finished"


def test_without_a_key_or_a_bucket_that_lists_nothing_is_begun(estate: Estate) -> None:
    estate.services.signer, signer = None, estate.services.signer
    with pytest.raises(ConfigurationError, match="RECEIPT_KEY_ARN"):
        erase(estate.services, PERSON)
    estate.services.signer = signer
    assert estate.services.jobs.list_jobs(None) == ()


@pytest.mark.slow
def test_a_crash_after_any_request_is_resumed_and_ends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    estate = make(tmp_path, monkeypatch)
    crashes, number = 0, 0
    while True:
        number += 1
        estate.fill(PERSON, threads=1, other="bob")
        estate.keep_batches(PERSON, "bob")
        job_id = f"erase-{number}"
        estate.calls, estate.crash_at = 0, number
        crashed = False
        try:
            erase(estate.services, PERSON, wait_s=1_000, job_id=job_id)
            job = estate.services.jobs.get(job_id, owner=None)
            if job is not None:
                finish(estate, job)
        except Crash:
            crashed = True
        estate.crash_at = None
        if not crashed:
            break
        crashes += 1
        job = estate.services.jobs.get(job_id, owner=None)
        if job is None:  # it crashed before it was kept, and whoever asked has got no answer
            job = erase(estate.services, PERSON, wait_s=1_000, job_id=job_id)
        finish(estate, job)
        assert traces(estate, PERSON) == [], number
    assert crashes > 60
    assert traces(estate, PERSON) == []


def finish(estate: Estate, job: Job) -> None:
    receipt_of(estate, to_its_end(estate, job))


def test_the_access_of_others_is_as_before(estate: Estate) -> None:
    store = estate.services.store
    estate.fill(PERSON, threads=1)
    thread = f"t0-{keys.turn_slot(PERSON)}"
    now = estate.clock()
    with pytest.raises(AccessDeniedError):
        store.create_thread(Thread(thread, "bob", now, now))
    to_its_end(estate, erase(estate.services, PERSON))
    # The id is free for anybody.
    assert store.create_thread(Thread(thread, "bob", now, now)).thread.resource_id == "bob"
