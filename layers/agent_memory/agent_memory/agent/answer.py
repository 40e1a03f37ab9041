"""Collects the parts of an answer from the events of one model call, as guardrails let them through."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_memory import clock
from agent_memory._json import EMPTY, freeze
from agent_memory.agent.events import RunEvent
from agent_memory.messages.parts import (
    FilePart,
    Part,
    ReasoningPart,
    SourcePart,
    StepStartPart,
    TextPart,
    ToolInvocation,
    ToolPart,
)


class StepParts:
    """The parts of one step, growing while its events arrive."""

    def __init__(self) -> None:
        self._parts: list[Part | None] = [StepStartPart()]
        self._blocks: dict[tuple[str, str], int] = {}
        self._kinds: dict[int, tuple[str, int]] = {}
        self._texts: dict[int, list[str]] = {}
        self._metadata: dict[int, Any] = {}
        self.tool_calls: list[Mapping[str, Any]] = []
        self.sources: list[Any] = []
        self.files: list[Any] = []

    def take(self, event: RunEvent) -> None:
        """Add what an event brings."""
        payload = event.payload
        match event.type:
            case "text-start" | "reasoning-start":
                self._open(event.type.removesuffix("-start"), payload["id"])
            case "text-delta" | "reasoning-delta":
                place = self._open(event.type.removesuffix("-delta"), payload["id"])
                self._texts[place].append(payload["text"])
            case "text-end" | "reasoning-end":
                kind = event.type.removesuffix("-end")
                place = self._open(kind, payload["id"])
                if payload.get("providerMetadata") is not None:
                    self._metadata[place] = payload["providerMetadata"]
                self._blocks.pop((kind, payload["id"]))
            case "tool-call":
                self.tool_calls.append(payload)
                executed = payload.get("providerExecuted")
                call = ToolInvocation(
                    "call",
                    payload["toolCallId"],
                    payload["toolName"],
                    freeze(payload["args"]),
                    extra=freeze({"rawInput": payload["rawInput"]}) if "rawInput" in payload else EMPTY,
                )
                self._parts.append(ToolPart(call, provider_executed=executed, created_at=clock.now_ms()))
            case "source":
                self.sources.append(payload["source"])
                self._parts.append(SourcePart(freeze(payload["source"]), created_at=clock.now_ms()))
            case "file":
                self.files.append(payload)
                url = payload["data"]
                if not url.startswith(("data:", "http:", "https:")):
                    url = f"data:{payload['mimeType']};base64,{url}"
                self._parts.append(FilePart(url, payload["mimeType"], created_at=clock.now_ms()))
            case _:
                pass

    def _open(self, kind: str, block: str) -> int:
        place = self._blocks.get((kind, block))
        if place is None:
            place = self._blocks[(kind, block)] = len(self._parts)
            self._parts.append(None)
            self._texts[place] = []
            self._kinds[place] = (kind, clock.now_ms())
        return place

    def _text_of(self, kind: str) -> str:
        return "".join("".join(pieces) for place, pieces in self._texts.items() if self._kinds[place][0] == kind)

    @property
    def text(self) -> str:
        """The text so far."""
        return self._text_of("text")

    @property
    def reasoning(self) -> str:
        """The reasoning so far."""
        return self._text_of("reasoning")

    def parts(self) -> tuple[Part, ...]:
        """The parts so far. Blocks without any text are left out."""
        made: list[Part] = []
        for place, part in enumerate(self._parts):
            if part is not None:
                made.append(part)
                continue
            text = "".join(self._texts[place])
            kind, started = self._kinds[place]
            metadata = freeze(self._metadata.get(place))
            if kind == "reasoning" and (text or metadata is not None):
                details = freeze([{"type": "text", "text": text}])
                made.append(ReasoningPart(text, details, provider_metadata=metadata, created_at=started))
            elif kind == "text" and text:
                made.append(TextPart(text, provider_metadata=metadata, created_at=started))
        return tuple(made)
