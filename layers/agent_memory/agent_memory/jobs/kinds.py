"""The kinds of jobs, each loaded when the first job of its kind runs."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Final

from agent_memory.errors import ConfigurationError

if TYPE_CHECKING:
    from agent_memory.jobs.runner import Work

Step = Callable[["Work"], bool]
"""A bounded piece of a job, of seconds. True: the job is done. It may run again from the last kept cursor."""

KINDS: Final[dict[str, str]] = {
    "clone": "agent_memory.jobs.copies:clone",
    "again": "agent_memory.jobs.again:step",
    "drop-index": "agent_memory.jobs.reindex:drop",
    "expiry": "agent_memory.jobs.expiry:step",
    "files": "agent_memory.jobs.files:step",
    "erase": "agent_memory.jobs.erase:step",
    "export": "agent_memory.jobs.export:step",
    "import": "agent_memory.jobs.imports:step",
    "purge": "agent_memory.jobs.purge:step",
    "reconcile": "agent_memory.jobs.reconcile:step",
    "reindex": "agent_memory.jobs.reindex:step",
    "replay": "agent_memory.jobs.replay:step",
    "sweep": "agent_memory.jobs.sweep:step",
    "transfer": "agent_memory.jobs.copies:transfer",
}


def step_of(kind: str) -> Step:
    """The step of a kind of job. Raises ConfigurationError."""
    place = KINDS.get(kind)
    if place is None:
        raise ConfigurationError(f"expected a kind of job among {', '.join(sorted(KINDS))}; found {kind!r:.40}")
    module, _, name = place.partition(":")
    step: Step = getattr(import_module(module), name)
    return step
