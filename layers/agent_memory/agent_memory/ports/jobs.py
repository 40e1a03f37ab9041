"""Work that takes longer than a request: resumable, bounded per invocation, with progress that can be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, Protocol, runtime_checkable

from agent_memory._json import EMPTY

JobState = Literal["waiting", "running", "finished", "failed"]

FINISHED_LIFETIME_S: Final = 30 * 86_400
"""How long a finished or failed job can be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job.

    Attributes:
        id: Unique in the deployment.
        kind: What it does, e.g. ``purge``; one of `agent_memory.jobs.kinds.KINDS`.
        owner: The resource whose job it is, which may read it; None: the deployment's own.
        state: ``waiting`` for an invocation, ``running``, ``finished``, or ``failed`` after its last try.
        params: What it was asked to do; JSON. Never changes, but for a job that must forget it at its end.
        cursor: Where it goes on; JSON of the kind's own.
        progress: What it has done so far, in counts.
        result: What it answers when it has finished; JSON.
        error: ``{"code", "message"}`` of the last failed try.
        tries: Invocations in a row that took it and have ended no step, this one included.
        not_before: Earliest time of its next step; None: at once.
        created_at, updated_at: Its dates.
        holder: The invocation that runs it, or ran it last.
        correlation_id: Id of the request that asked for it.
    """

    id: str
    kind: str
    owner: str | None
    state: JobState = "waiting"
    params: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    cursor: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    progress: Mapping[str, int] = field(default_factory=lambda: EMPTY)
    result: Mapping[str, Any] | None = None
    error: Mapping[str, str] | None = None
    tries: int = 0
    not_before: datetime | None = None
    created_at: datetime
    updated_at: datetime
    holder: str | None = None
    correlation_id: str | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing will happen any more without a retry."""
        return self.state in ("finished", "failed")


@runtime_checkable
class JobStore(Protocol):
    """Jobs by id and owner."""

    def create(self, job: Job) -> Job:
        """Keep a new job; where one of that id and owner exists, that one is returned and nothing changes. One request.

        Raises ConflictError where a job of another owner has that id.
        """

    def get(self, job_id: str, *, owner: str | None) -> Job | None:
        """A job of that owner (None: of the deployment). One request."""

    def owner_of(self, job_id: str) -> str | None:
        """The owner of a job, for a trusted caller that names its id alone; None where there is none. One request."""

    def take(self, job_id: str, *, owner: str | None, holder: str, lease_s: float) -> Job | None:
        """Take a job that has not ended for this invocation, and count a try. One request.

        None where it has ended, is not due yet, or another invocation holds it and its lease has not run out.
        """

    def save(self, job: Job, *, lease_s: float | None = None) -> bool:
        """Keep what changed, on condition that `job.holder` still holds it. One request.

        With `lease_s` the lease goes on for as long; without it the job is given back (or has ended). False where another
        invocation holds it now: this one must stop.
        """

    def reopen(self, job_id: str, *, owner: str | None) -> Job | None:
        """Make a failed job wait again, from where it was. None where it is not a failed one. One request."""

    def list_open(self, *, limit: int = 100, cursor: Any = None) -> tuple[tuple[tuple[str, str | None], ...], Any]:
        """(job id, owner) of jobs that have not ended, and a cursor where there are more. One request."""

    def list_jobs(self, owner: str | None) -> tuple[Job, ...]:
        """All jobs of an owner that can still be read, newest first. One request per MB."""

    def delete(self, job_id: str, *, owner: str | None) -> None:
        """Forget a job. One request."""
