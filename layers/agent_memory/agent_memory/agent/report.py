"""What operators learn of a run that has ended: one log line, and its metrics."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from agent_memory import observe
from agent_memory.errors import AgentMemoryError

if TYPE_CHECKING:
    from agent_memory.agent.run import Run

_log = logging.getLogger("agent_memory.agent")


def report(run: Run) -> None:
    """Tell of a run: how it ended, what it took. Holds ids and counts only."""
    result, notes = run.result, run.ctx.notes
    outcome, code = outcome_of(run)
    cost, recall = notes.get("cost") or {}, notes.get("recall") or {}
    usage = run.finisher.usage()
    took_ms = round((time.monotonic() - run.began) * 1000)
    fields: dict[str, Any] = {
        "outcome": outcome,
        "code": code,
        "finish_reason": None if result is None else result.finish_reason,
        "duration_ms": took_ms,
        "steps": len(run.steps),
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "embedding_tokens": run.embedded.tokens,
        "requests": cost.get("requests"),
        "read_units": cost.get("readUnits"),
        "write_units": cost.get("writeUnits"),
        "s3_requests": cost.get("s3Requests"),
        "bytes_read": cost.get("bytesRead"),
        "partition_gb": cost.get("partitionGb"),
        "recall_hits": recall.get("hits"),
        "recall_failed": recall.get("failed"),
        "title_failed": notes.get("title_failed"),
        "release_failed": notes.get("release_failed"),
    }
    level = logging.WARNING if outcome in ("failed", "deadline") else logging.INFO
    _log.log(level, "a turn ended", extra={name: value for name, value in fields.items() if value is not None})
    if outcome == "repeated":
        return
    values = {
        "Turns": 1,
        "TurnTime": took_ms,
        "InputTokens": usage.input_tokens,
        "OutputTokens": usage.output_tokens,
        "EmbeddingTokens": run.embedded.tokens,
        "StorageRequests": cost.get("requests"),
        "ReadUnits": cost.get("readUnits"),
        "WriteUnits": cost.get("writeUnits"),
        "PartitionSize": cost.get("partitionGb"),
        "Tripwires": int(outcome == "tripwire"),
    }
    rates = {"TurnFailures": int(outcome in ("failed", "deadline"))}
    if recall:
        rates |= {"RecallHits": int(recall.get("hits") or 0), "RecallFailures": int(recall.get("failed") is not None)}
    # A metric costs money for every hour in which it has a value, so what did not happen is not told.
    observe.metrics(**{name: value for name, value in values.items() if value}, **rates)


def report_refused(error: BaseException) -> None:
    """Count a turn that failed before its first event, other than by what the caller sent."""
    known = error if isinstance(error, AgentMemoryError) else None
    if not isinstance(error, Exception) or (known is not None and known.status < 500):
        return
    code = type(error).__name__ if known is None else known.code
    _log.warning("a turn could not begin", extra={"code": code})
    observe.metrics(TurnFailures=1)


def outcome_of(run: Run) -> tuple[str, str | None]:
    """How a run ended, and the code of its failure."""
    result = run.result
    if run.tripwire is not None:
        return "tripwire", run.tripwire.processor_id
    if result is None:
        return "failed", None
    if result.error is not None:
        error = result.error
        return "failed", error.code if isinstance(error, AgentMemoryError) else type(error).__name__
    if result.repeated:
        return "repeated", None
    if result.finish_reason == "suspended":
        return "suspended", None
    return run.closed or "finished", None
