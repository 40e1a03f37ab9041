"""The adapters of a deployment, as agents and handlers use them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from agent_memory.file_rules import FileRules
from agent_memory.ports import (
    BlobStore,
    Dispatcher,
    Embedder,
    FileStore,
    JobStore,
    MessageStore,
    Quota,
    RunStore,
    VectorIndex,
)
from agent_memory.ports.signing import Signer


class CostMeter(Protocol):
    """Counts what a run requests of its storage (`agent_memory.aws.meter.Meter` does)."""

    def begin(self) -> Any:
        """Count what is requested from now on in this context and in its copies; the object that holds the counts."""


@dataclass(slots=True)
class Services:
    """What a deployment offers. None where it offers nothing of the kind."""

    store: MessageStore | None = None
    runs: RunStore | None = None
    jobs: JobStore | None = None
    quota: Quota | None = None
    blobs: BlobStore | None = None
    files: FileStore | None = None
    file_rules: FileRules = field(default_factory=FileRules)
    index: VectorIndex | None = None
    embedder: Embedder | None = None
    next_index: VectorIndex | None = None
    next_embedder: Embedder | None = None
    dispatcher: Dispatcher | None = None
    signer: Signer | None = None
    model: str = "demo"
    meter: CostMeter | None = None
