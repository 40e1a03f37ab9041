"""What a run tells the outside while it goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One event of a run.

    Attributes:
        type: ``start``, ``step-start``, ``text-start``, ``text-delta``, ``text-end``, ``reasoning-start``,
            ``reasoning-delta``, ``reasoning-end``, ``tool-call-input-streaming-start``, ``tool-call-delta``,
            ``tool-call-input-streaming-end``, ``tool-call``, ``tool-result``, ``tool-error``, ``tool-call-approval``,
            ``tool-output-denied``, ``file``, ``source``, ``object``, ``object-result``, ``step-finish``, ``finish``,
            ``error``, ``tripwire``, ``abort`` or ``data-<name>``.
        payload: The fields of the event; for ``data-…`` its data, for ``object`` and ``object-result`` the object.
        id: Id of a ``data-…`` event; a later one with the same id replaces it.
        transient: Whether a ``data-…`` event is not kept in the message.
    """

    type: str
    payload: Any = field(default_factory=dict)
    id: str | None = None
    transient: bool = False

    def to_wire(self, run_id: str) -> dict[str, Any]:
        """The chunk as agent streams carry it."""
        chunk: dict[str, Any] = {"type": self.type, "runId": run_id, "from": "AGENT"}
        if self.type.startswith("data-"):
            chunk["data"] = self.payload
            if self.id is not None:
                chunk["id"] = self.id
            if self.transient:
                chunk["transient"] = True
        elif self.type in ("object", "object-result"):
            chunk["object"] = self.payload
        else:
            chunk["payload"] = self.payload
        return chunk


@dataclass(frozen=True, slots=True)
class TripwireInfo:
    """Why a guardrail stopped a run."""

    reason: str
    processor_id: str
    metadata: Mapping[str, Any] | None = None
    retry: bool = False

    def to_json(self) -> dict[str, Any]:
        """The wire form."""
        return {
            "reason": self.reason,
            "processorId": self.processor_id,
            "metadata": self.metadata,
            "retry": self.retry,
        }
