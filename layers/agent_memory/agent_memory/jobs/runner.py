"""Starts jobs and runs them, a step at a time, within an invocation's time.

A step that raises is tried again: by Lambda's own repeats of an asynchronous call, then by the hourly sweep; after
`MAX_TRIES` failures in a row, or at once where the step says that no try will help (`GivenUp`), the job has failed and
waits for somebody to look at it and to run it again.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from agent_memory import clock, observe
from agent_memory._json import EMPTY, freeze, thaw
from agent_memory.errors import AgentMemoryError, ConfigurationError, StorageError, UnavailableError
from agent_memory.ids import new_id
from agent_memory.jobs.kinds import step_of
from agent_memory.ports.jobs import Job, JobStore

if TYPE_CHECKING:
    from agent_memory.agent.services import Services

LEASE_S: Final = 55.0  # less than the minute after which Lambda repeats a call that crashed: the repeat takes the job
STEP_S: Final = 30.0  # time that must be left for another step to begin
MAX_TRIES: Final = 9  # three calls of Lambda's, in each of three sweeps
RETRY_DELAYS_S: Final = (0, 0, 600)  # before the next try, in turn: Lambda repeats two of three, a sweep begins anew

_log = logging.getLogger("agent_memory.jobs")


class GivenUp(Exception):
    """Raised by a step that has cleaned up behind itself and knows that no other try will help, with the reason."""

    def __init__(self, reason: AgentMemoryError) -> None:
        super().__init__(reason.message)
        self.reason = reason


@dataclass(slots=True)
class Work:
    """What a step works with.

    Attributes:
        services: The deployment's adapters.
        job: The job as it was when this invocation took it.
        deadline: When the invocation must have ended, `time.monotonic()` seconds; None: no limit.
        cursor: Where the job goes on; changed in place, kept after the step.
        progress: Counts of what is done; changed in place.
        result: What the job answers at its end; changed in place.
        wait_s: Set by a step that is not done and should not go on before so many seconds.
        forget_params: Set by a last step whose job must not keep what it was asked.
    """

    services: Services
    job: Job
    deadline: float | None = None
    cursor: dict[str, Any] = field(default_factory=dict)
    progress: dict[str, int] = field(default_factory=dict)
    result: dict[str, Any] = field(default_factory=dict)
    wait_s: float = 0.0
    forget_params: bool = False

    @property
    def params(self) -> Mapping[str, Any]:
        """What the job was asked to do."""
        return self.job.params

    def count(self, name: str, by: int = 1) -> None:
        """Add to the progress."""
        self.progress[name] = self.progress.get(name, 0) + by

    def time_left(self) -> float:
        """Seconds until the invocation must have ended."""
        return float("inf") if self.deadline is None else self.deadline - time.monotonic()


def jobs_of(services: Services) -> JobStore:
    """The deployment's jobs. Raises ConfigurationError where it has no table for them."""
    if services.jobs is None:
        raise ConfigurationError("this deployment keeps no jobs; set RUNS_TABLE", code="SETTING_MISSING")
    return services.jobs


def start(
    services: Services,
    kind: str,
    params: Mapping[str, Any],
    *,
    owner: str | None,
    job_id: str | None = None,
    correlation_id: str | None = None,
) -> Job:
    """Keep a job and have it run: by the janitor function, or here to its end where none is set.

    Args:
        services: The deployment's adapters.
        kind: A kind of `KINDS`.
        params: What it should do; JSON.
        owner: The resource that may read the job; None: the deployment.
        job_id: Its id; a job of that id and owner that exists is returned as it is and not started again.
        correlation_id: Id of the request that asks for it; the one at hand when absent.

    Raises:
        UnavailableError: Storage is busy. Once a job is kept, it runs: a call that was not taken is made up by the sweep.
    """
    step_of(kind)
    now = clock.now()
    job = Job(
        id=job_id or new_id("job-"),
        kind=kind,
        owner=owner,
        params=freeze(dict(params)),
        created_at=now,
        updated_at=now,
        correlation_id=correlation_id or observe.correlation_id(),
    )
    kept = jobs_of(services).create(job)
    if kept is not job:
        return kept
    if dispatch(services, job):
        return job
    return run(services, job.id, owner) or job


def run(services: Services, job_id: str, owner: str | None, *, deadline: float | None = None) -> Job | None:
    """Run a job's steps until it is done, should wait, or the deadline is near.

    Returns the job as it is then; None where there is nothing to do: no such job, ended, not due, or in other hands.
    Raises what a step raised, after it was noted in the job; a failure for good is noted and not raised.
    """
    store = jobs_of(services)
    job = store.take(job_id, owner=owner, holder=new_id(), lease_s=LEASE_S)
    if job is None:
        return None
    started = time.monotonic()
    work = Work(services, job, deadline, thaw(job.cursor), thaw(job.progress), thaw(job.result or {}))
    try:
        if job.tries > MAX_TRIES:
            # An alarm rings for it, as for every step that did not end the job for a reason of its own.
            raise StorageError(f"expected a step to end, found {MAX_TRIES} invocations that ended without it")
        step = step_of(job.kind)
        while True:
            work.wait_s = 0.0
            done = step(work)
            more = not done and not work.wait_s and work.time_left() > STEP_S
            job = _after(job, work, done=done, more=more)
            if not store.save(job, lease_s=LEASE_S if more else None):
                _log.warning("job=<%s>, kind=<%s> | another invocation has taken the job", job.id, job.kind)
                return None
            if not more:
                break
    except Exception as error:
        _failed(store, job, error)
        return store.get(job.id, owner=owner)
    _log.info(
        "job=<%s>, kind=<%s>, state=<%s>, ms=<%d>, progress=<%s>, correlation_id=<%s> | a job was run",
        job.id,
        job.kind,
        job.state,
        (time.monotonic() - started) * 1000,
        dict(job.progress),
        job.correlation_id,
    )
    # Without a janitor nobody else goes on; a caller that runs without a deadline gets here only for a job that waits.
    if job.state == "waiting" and not work.wait_s:
        dispatch(services, job)
    return job


def retry(services: Services, job_id: str, owner: str | None) -> Job | None:
    """Run a failed job again from where it was; None where it is not a failed one."""
    job = jobs_of(services).reopen(job_id, owner=owner)
    if job is not None and not dispatch(services, job):
        return run(services, job_id, owner) or job
    return job


def dispatch(services: Services, job: Job) -> bool:
    """Hand a job to the janitor; False where there is none. A call that is not taken is left to the next sweep."""
    if services.dispatcher is None:
        return False
    event = {"jobId": job.id, "owner": job.owner, "correlationId": job.correlation_id}
    try:
        services.dispatcher.dispatch("janitor", event)
    except ConfigurationError:
        return False
    except UnavailableError:
        _log.warning("job=<%s>, kind=<%s> | the janitor took no call; the sweep will start it", job.id, job.kind)
    return True


def _after(job: Job, work: Work, *, done: bool, more: bool) -> Job:
    return replace(
        job,
        state="finished" if done else "running" if more else "waiting",
        params=EMPTY if work.forget_params else job.params,
        cursor=freeze(thaw(work.cursor)),
        progress=freeze(dict(work.progress)),
        result=freeze(thaw(work.result)) if done or work.result else None,
        error=None,
        tries=0,
        not_before=clock.now() + timedelta(seconds=work.wait_s) if work.wait_s else None,
        updated_at=clock.now(),
    )


def _failed(store: JobStore, job: Job, error: Exception) -> None:
    """Note a failed try in the job, and raise it unless it was the last one."""
    tries = max(job.tries, 1)  # 0 after a step of this very invocation
    final = isinstance(error, GivenUp)
    cause = error.reason if isinstance(error, GivenUp) else error
    code = cause.code if isinstance(cause, AgentMemoryError) else type(cause).__name__
    message = cause.message if isinstance(cause, AgentMemoryError) else "the step raised; the log says where"
    last = final or tries >= MAX_TRIES
    delay_s = RETRY_DELAYS_S[(tries - 1) % len(RETRY_DELAYS_S)]
    failed = replace(
        job,
        state="failed" if last else "waiting",
        error=freeze({"code": code, "message": message}),
        tries=tries,
        not_before=clock.now() + timedelta(seconds=delay_s) if delay_s and not last else None,
    )
    store.save(failed)
    if last and not final:
        observe.metrics(JobFailures=1)
    _log.log(
        logging.ERROR if last and not final else logging.WARNING,
        "job=<%s>, kind=<%s>, try=<%d>, code=<%s>, correlation_id=<%s> | a job failed%s\n%s",
        job.id,
        job.kind,
        tries,
        code,
        job.correlation_id,
        " for good" if last else "",
        # Frames, and not the error's own text, which may hold what a user wrote.
        "" if final else "".join(traceback.format_tb(error.__traceback__)).rstrip(),
    )
    if not last:
        raise error
