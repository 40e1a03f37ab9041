"""Erases a resource: everything that any store holds of it, with a signed receipt at the end.

Phases, each of steps that may be repeated:

lock      The resource is closed: new threads, uploads, working memory, saves and imports are refused.
pass      Threads are hidden, so that running turns fail to commit; then every store is gone through and emptied.
wait      Until links for uploads that were handed out have expired and the stream of changes has been forgotten.
pass      The same again, as a check: what is found now came late, is removed, and another pass follows.
sign      A pass after the wait has found nothing: the receipt is written and signed.
unlock    The resource item goes, and the job forgets whom it was about.
"""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from agent_memory import clock
from agent_memory._json import dumps
from agent_memory.attachments import owner_prefix
from agent_memory.errors import ConfigurationError, UnavailableError
from agent_memory.ids import check_id
from agent_memory.ports.archive import Archive
from agent_memory.ports.erasure import ErasableRows, ErasableStore
from agent_memory.ports.files import UPLOAD_LIFETIME_S
from agent_memory.ports.jobs import FINISHED_LIFETIME_S, Job

if TYPE_CHECKING:
    from agent_memory.agent.services import Services
    from agent_memory.jobs.runner import Work
    from agent_memory.ports import VectorIndex
    from agent_memory.ports.signing import Signer

KIND: Final = "erase"
RECEIPT_SCHEMA: Final = 1

WAIT_S: Final = 25 * 3_600.0
"""Seconds between the first pass and the one that counts, where nothing else is asked for.

The stream of a table forgets a change after 24 hours; until then a batch that could not be indexed may be put into the
bucket with the rows it held. Links for uploads and running turns end well before.
"""
RECHECK_S: Final = 90.0  # a search collection shows for a minute what was removed
OPEN_JOB_WAIT_S: Final = 300.0
SHORT_WAIT_S: Final = 20.0  # up to here a step sleeps itself: a job that waits is taken up again by the hourly sweep
STEP_BUDGET_S: Final = 10.0
STREAM_S: Final = 24 * 3_600
GIVEN_UP_S: Final = 91 * 86_400  # a day in the stream, then 90 in the bucket
BACKUPS_S: Final = 35 * 86_400  # the longest that DynamoDB keeps for a restore to a point in time
SNAPSHOTS_S: Final = 14 * 86_400
QUEUES_S: Final = 14 * 86_400

_Counts = Mapping[str, int]
_Part = Callable[["Work", str, Any], tuple[_Counts, Any]]


def erase(
    services: Services,
    resource_id: str,
    *,
    wait_s: float = WAIT_S,
    job_id: str | None = None,
    correlation_id: str | None = None,
) -> Job:
    """Start the erasure of a resource; the one that is under way where there is one.

    Args:
        services: The deployment's adapters.
        resource_id: Whose data goes.
        wait_s: Seconds between the first pass and the checking one. Fewer than an upload's link lives, or than the stream
            keeps changes, make the receipt say less.
        job_id: Id of the job.
        correlation_id: Id of the request that asks for it.

    Returns:
        A job of the deployment (no owner). Its result holds the receipt: see docs/data-protection.md.

    Raises:
        ConfigurationError: A store that holds rows of resources cannot be emptied, or there is no key to sign with.
    """
    from agent_memory.jobs.runner import jobs_of, start

    check_id("resourceId", resource_id)
    store = _store(services)
    _signer(services)
    _rows(services)
    holder = store.lock_of(resource_id)
    running = None if holder is None else jobs_of(services).get(holder, owner=None)
    if running is not None and not running.ended:
        return running
    params = {"resourceId": resource_id, "waitS": wait_s}
    return start(services, KIND, params, owner=None, job_id=job_id, correlation_id=correlation_id)


def check_open(services: Services, resource_id: str) -> None:
    """Refuse work on a resource that is being erased. One request. Raises ConflictError."""
    store: object = services.store
    if isinstance(store, ErasableStore) and store.lock_of(resource_id) is not None:
        from agent_memory.aws.dynamodb.base import resource_locked

        raise resource_locked(resource_id)


def step(work: Work) -> bool:
    """``{"resourceId", "waitS"}``, of the deployment."""
    phase = work.cursor.setdefault("phase", "lock")
    return _PHASES[phase](work)


# ---------------------------------------------------------------------------------------------------------- the phases


def _lock(work: Work) -> bool:
    from agent_memory.jobs.runner import jobs_of

    store, resource_id = _store(work.services), _resource(work)
    holder = store.lock_of(resource_id)
    before = None if holder in (None, work.job.id) else jobs_of(work.services).get(str(holder), owner=None)
    # The lock of an erasure that failed for good is taken over.
    stale = holder if before is None or before.ended else None
    holder = store.lock_resource(resource_id, work.job.id, instead_of=stale)
    if holder != work.job.id:
        work.result["sameAs"] = holder
        return _end(work)
    work.cursor |= {"lockedAt": clock.to_iso(clock.now()), "phase": "pass", "passes": 0}
    return False


def _pass(work: Work) -> bool:
    """One pass over all stores, some seconds at a time."""
    parts = _parts(work.services)
    end = time.monotonic() + STEP_BUDGET_S
    while work.cursor.get("part", 0) < len(parts):
        number = work.cursor.setdefault("part", 0)
        try:
            counts, more = parts[number](work, _resource(work), work.cursor.get("at"))
        except UnavailableError as error:
            if error.code != "JOB_STILL_RUNS":
                raise
            work.count("waits")
            work.wait_s = OPEN_JOB_WAIT_S
            return False
        for name, count in counts.items():
            work.count(name, count)
        found = sum(count for name, count in counts.items() if name != "objectBytes")
        work.cursor["found"] = work.cursor.get("found", 0) + found
        work.cursor["at"] = more
        if more is None:
            work.cursor["part"] = number + 1
        if time.monotonic() > end:
            return False
    return _after_pass(work)


def _after_pass(work: Work) -> bool:
    cursor = work.cursor
    cursor["passes"] += 1
    found, waited = cursor.pop("found", 0), "until" in cursor
    cursor["part"], cursor["at"] = 0, None
    if waited and found == 0:
        cursor |= {"phase": "sign", "checkedAt": clock.to_iso(clock.now())}
        return False
    asked_s = float(work.params["waitS"])
    seconds = min(RECHECK_S, asked_s) if waited else asked_s
    if waited:
        work.count("late", found)
    else:
        cursor["removedAt"] = clock.to_iso(clock.now())
    cursor |= {"phase": "wait", "until": clock.to_ms(clock.now() + timedelta(seconds=seconds))}
    return False


def _wait(work: Work) -> bool:
    left_s = (work.cursor["until"] - clock.to_ms(clock.now())) / 1000
    if left_s > SHORT_WAIT_S:
        work.wait_s = left_s
        return False
    if left_s > 0:
        time.sleep(left_s)
    work.cursor["phase"] = "pass"
    return False


def _sign(work: Work) -> bool:
    signer = _signer(work.services)
    receipt = dumps(_receipt(work))
    work.result |= {
        # As text, because a signature is over bytes and not over what they mean.
        "receipt": receipt,
        "signature": base64.b64encode(signer.sign(receipt.encode())).decode(),
        "algorithm": signer.algorithm,
        "keyId": signer.key_id,
    }
    work.cursor["phase"] = "unlock"
    return False


def _unlock(work: Work) -> bool:
    _store(work.services).unlock_resource(_resource(work), work.job.id)
    return _end(work)


def _end(work: Work) -> bool:
    work.cursor.clear()
    work.forget_params = True
    return True


_PHASES: Final[Mapping[str, Callable[[Work], bool]]] = {
    "lock": _lock,
    "pass": _pass,
    "wait": _wait,
    "sign": _sign,
    "unlock": _unlock,
}


# ---------------------------------------------------------------------------------------------------- parts of a pass


def _parts(services: Services) -> list[_Part]:
    """What is gone through, in order: first what stops writers."""
    rows = _rows(services)
    parts: list[_Part] = [_bury, *map(_own_rows, rows), *map(_traces, rows)]
    if services.blobs is not None:
        parts += [_uploads, _objects]
    parts += [_index(index) for index in (services.index, services.next_index) if index is not None]
    return parts


def _bury(work: Work, resource_id: str, at: Any) -> tuple[_Counts, Any]:
    count, more = _store(work.services).bury_threads(resource_id, cursor=at)
    # Their headers are counted when they go.
    return ({"shownThreads": count} if count else {}), more


def _own_rows(rows: ErasableRows) -> _Part:
    def part(_work: Work, resource_id: str, _at: Any) -> tuple[_Counts, Any]:
        counts = rows.remove_resource(resource_id)
        return counts, True if counts else None

    return part


def _traces(rows: ErasableRows) -> _Part:
    def part(work: Work, resource_id: str, at: Any) -> tuple[_Counts, Any]:
        return rows.remove_traces(resource_id, cursor=at, spare=work.job.id)

    return part


def _uploads(work: Work, resource_id: str, _at: Any) -> tuple[_Counts, Any]:
    count = _blobs(work.services).abort_uploads(owner_prefix(resource_id))
    return ({"uploads": count} if count else {}), None


def _objects(work: Work, resource_id: str, _at: Any) -> tuple[_Counts, Any]:
    blobs = _blobs(work.services)
    found, more = blobs.list_versions(owner_prefix(resource_id))
    blobs.delete_versions(found)
    counts = {"objects": len(found), "objectBytes": sum(version.size for version in found)} if found else {}
    return counts, True if more is not None else None


def _index(index: VectorIndex) -> _Part:
    def part(_work: Work, resource_id: str, at: Any) -> tuple[_Counts, Any]:
        count, more = index.delete_resource(resource_id, cursor=at)
        return ({"indexEntries": count} if count else {}), more

    return part


# ---------------------------------------------------------------------------------------------------------- the receipt


def _receipt(work: Work) -> dict[str, Any]:
    now = clock.now()
    removed = clock.parse(work.cursor["removedAt"])

    def until(start: datetime, seconds: float) -> str:
        return clock.to_iso(start + timedelta(seconds=seconds))

    remains = [
        ("point-in-time backups of the tables, for a restore by the operator", until(removed, BACKUPS_S)),
        (
            "ids of threads, messages and requests in logs, without any text of messages",
            "the end of the retention of the log groups (LogRetentionDays)",
        ),
        ("events of asynchronous calls that failed, in their queues", until(removed, QUEUES_S)),
        ("this job with this receipt, which name the resource by its SHA-256 only", until(now, FINISHED_LIFETIME_S)),
    ]
    if work.services.index is not None:
        remains.append(("automatic snapshots of a managed search domain", until(removed, SNAPSHOTS_S)))
    if float(work.params["waitS"]) < UPLOAD_LIFETIME_S:
        remains.append(
            (
                "files that are uploaded after the check by links that were handed out before the lock",
                until(removed, UPLOAD_LIFETIME_S),
            )
        )
    if float(work.params["waitS"]) < STREAM_S:
        remains += [
            ("changes in the stream of the messages table", until(removed, STREAM_S)),
            ("batches of those changes that are given up after the check, in the bucket", until(removed, GIVEN_UP_S)),
        ]
    return {
        "schema": RECEIPT_SCHEMA,
        "kind": "erasure",
        "jobId": work.job.id,
        "resourceSha256": hashlib.sha256(_resource(work).encode()).hexdigest(),
        "requestedAt": clock.to_iso(work.job.created_at),
        "lockedAt": work.cursor["lockedAt"],
        "removedAt": work.cursor["removedAt"],
        "checkedAt": work.cursor["checkedAt"],
        "issuedAt": clock.to_iso(now),
        "passes": work.cursor["passes"],
        "removed": {name: count for name, count in sorted(work.progress.items()) if name != "waits"},
        "remains": [{"what": what, "until": end} for what, end in remains],
    }


# ------------------------------------------------------------------------------------------------------------ adapters


def _resource(work: Work) -> str:
    return str(work.params["resourceId"])


def _store(services: Services) -> ErasableStore:
    store: object = services.store
    if not isinstance(store, ErasableStore):
        raise ConfigurationError("an erasure needs a message store that can be closed and emptied for one resource")
    return store


def _signer(services: Services) -> Signer:
    if services.signer is None:
        raise ConfigurationError(
            "an erasure ends with a signed receipt, and there is no key to sign it with; set RECEIPT_KEY_ARN",
            code="SETTING_MISSING",
        )
    return services.signer


def _blobs(services: Services) -> Archive:
    if not isinstance(services.blobs, Archive):
        raise ConfigurationError("an erasure needs a bucket whose versions can be listed and removed")
    return services.blobs


def _rows(services: Services) -> list[ErasableRows]:
    """Everything that holds rows of resources."""
    found: list[ErasableRows] = [_store(services)]
    if services.runs is not None:
        if not isinstance(services.runs, ErasableRows):
            raise ConfigurationError("an erasure needs a run store that can be emptied for one resource")
        found.append(services.runs)
    if services.blobs is not None:
        from agent_memory.aws.shared_objects import SharedObjects

        found.append(SharedObjects(_blobs(services)))
    return found
