"""Short-lived state of runs, bytes too large for an item, and work that outlives a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class SuspendedRun:
    """A run that waits for approvals, with what is needed to go on. `state` is JSON."""

    run_id: str
    agent_id: str
    resource_id: str | None
    thread_id: str | None
    suspended_at: datetime
    tool_calls: tuple[Mapping[str, Any], ...]
    state: Mapping[str, Any]


@runtime_checkable
class RunStore(Protocol):
    """Short-lived state of runs: suspensions, chunks of running answers, stop flags, results by idempotency key.

    Everything here expires. `owner` is the resource, or None for a run without memory (it then lives apart).
    """

    def suspend(self, run: SuspendedRun) -> None:
        """Keep a suspended run (7 days)."""

    def find_suspended(self, run_id: str, *, owner: str | None) -> SuspendedRun | None:
        """A suspended run by id. `owner` None: any (trusted callers); otherwise only that resource's."""

    def decide(self, run: SuspendedRun, tool_call_id: str, decision: Mapping[str, Any]) -> SuspendedRun | None:
        """Record the decision on one call, once (conditional). None when it had been decided before.

        The run is returned with all decisions so far in ``state["decisions"]``.
        """

    def finish_suspended(self, run: SuspendedRun) -> None:
        """Forget a suspended run."""

    def list_suspended(self, owner: str, *, thread_id: str | None = None) -> tuple[SuspendedRun, ...]:
        """Suspended runs of a resource, newest first."""

    def append_chunk(self, owner: str, thread_id: str, run_id: str, number: int, events: Sequence[str]) -> None:
        """Keep a batch of a running answer's events (1 hour)."""

    def read_chunks(
        self, owner: str, thread_id: str, run_id: str, after: int
    ) -> tuple[tuple[int, tuple[str, ...]], ...]:
        """Batches numbered above `after`, in order."""

    def set_active(self, owner: str, thread_id: str, run_id: str, *, agent_id: str, expires_at: int) -> None:
        """Note that `run_id` is running on the thread (until `expires_at`, milliseconds since 1970)."""

    def get_active(self, owner: str, thread_id: str) -> Mapping[str, Any] | None:
        """The running run: ``{"run_id", "agent_id", "abort", "waiting"}``, or None. `waiting`: how many messages it may take."""

    def clear_active(self, owner: str, thread_id: str, run_id: str) -> None:
        """The run ended."""

    def request_abort(self, owner: str, thread_id: str, run_id: str | None) -> bool:
        """Ask the running run (that one, if given) to stop. False when nothing runs."""

    def hand_in(
        self, owner: str, thread_id: str, run_id: str, message: Mapping[str, Any], *, agent_id: str, at: int
    ) -> bool:
        """Put a message, which has an ``id``, where the running run of that agent finds it. `at` orders messages.

        False where that run does not run or is not registered, or holds as much as it can. Again the same is the same.
        """

    def take_in(self, owner: str, thread_id: str, run_id: str) -> tuple[Mapping[str, Any], ...]:
        """Take all messages that were handed in to this run, in order. Each is given out at most once."""

    def hand_back(self, owner: str, thread_id: str, run_id: str, message_id: str) -> bool:
        """Take a message back that was handed in. False where the run has taken it, or it was never there."""

    def remember(
        self, owner: str | None, key: str, body_hash: str, result: Mapping[str, Any] | None, *, run_id: str
    ) -> Mapping[str, Any] | None:
        """Claim an idempotency key, or look up what it answered.

        With `result` None: claims the key and returns None, or returns ``{"hash", "result" | None}`` of the earlier call.
        With a `result`: keeps it for 24 hours.
        """

    def forget(self, owner: str | None, key: str) -> None:
        """Release a key whose call failed."""


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """Bytes in storage. `key` is relative to the store and begins with the owner's prefix."""

    key: str
    size: int
    content_type: str | None = None


@dataclass(frozen=True, slots=True)
class UploadLink:
    """A request that puts bytes into storage without passing through here: its URL, method and headers."""

    url: str
    method: str
    headers: Mapping[str, str]


@runtime_checkable
class BlobStore(Protocol):
    """Bytes too large for an item: attachments and overflow bodies."""

    def put(self, key: str, data: bytes, content_type: str | None = None) -> StoredBlob:
        """Write bytes under a key; writing the same again is harmless."""

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        """Read bytes. Raises NotFoundError, and TooLargeError before reading where there are more than `max_bytes`."""

    def head(self, key: str) -> StoredBlob:
        """Size and type of what is there. Raises NotFoundError. One request."""

    def first_bytes(self, key: str, count: int) -> bytes:
        """At most `count` bytes from the beginning. Raises NotFoundError. One request."""

    def copy(self, key: str, new_key: str) -> None:
        """Copy bytes and type without passing them through here, whatever their size. Raises NotFoundError."""

    def delete(self, keys: Sequence[str]) -> None:
        """Remove keys; unknown ones are not an error."""

    def list_keys(self, prefix: str, *, after: str | None = None, limit: int = 1_000) -> tuple[str, ...]:
        """Keys that begin with `prefix` and sort behind `after`, in order; at most `limit` and 1,000. One request."""

    def link(
        self, key: str, *, expires_in_s: int = 3600, filename: str | None = None, content_type: str | None = None
    ) -> str:
        """A URL that yields the bytes, signed now; as `content_type`, else as the type they were put with.

        A browser is told to save, and not to show, a file of a type that it would run.
        """

    def upload_link(self, key: str, *, size: int, content_type: str, expires_in_s: int) -> UploadLink:
        """A request that puts exactly `size` bytes of this type under a key where there is nothing yet."""


@runtime_checkable
class Dispatcher(Protocol):
    """Starts work that must outlive the request: an asynchronous Lambda invoke, or its local twin."""

    def dispatch(self, target: Literal["titles", "janitor", "chat"], event: Mapping[str, Any]) -> None:
        """Hand over an event; it is delivered at least once. One request."""
