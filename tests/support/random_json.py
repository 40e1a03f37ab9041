"""Random JSON, and random messages that are almost right, from a seeded generator."""

from __future__ import annotations

import random
from typing import Any

TYPES = (
    *("text", "reasoning", "file", "image", "tool-call", "tool-result", "tool-w", "dynamic-tool", "source-url"),
    *("source-document", "source", "step-start", "data-x", "tool-invocation", "tool-approval-request", "error"),
    *("tool-approval-response", "redacted-reasoning", "tool-", "data-", "custom", "", "weird", "tool-call", "tool-x"),
)
STATES = (
    *("input-streaming", "input-available", "approval-requested", "approval-responded", "output-available"),
    *("output-error", "output-denied", "call", "result", "partial-call", "?"),
)
STRINGS = (
    "",
    " ",
    "x",
    "é漢字",
    "data:image/png;base64,AAAA",
    "data:,",
    "https://e.example/a.png",
    "\ud800",
    "*",
    "a" * 513,
)
KEYS = (
    *("id", "role", "content", "parts", "type", "text", "metadata", "toolInvocations", "experimental_attachments"),
    *("toolCallId", "toolName", "state", "input", "output", "result", "approval", "url", "data", "mediaType", "args"),
    *("providerMetadata", "providerOptions", "reasoning", "details", "createdAt", "threadId", "resourceId", "format"),
    *("toolInvocation", "callProviderMetadata", "errorText", "isError", "filename", "mimeType", "image", "source"),
    *("approvalId", "approved", "mastra", "modelOutput", "value", "signature", "sourceId", "title", "annotations"),
)


def value(rnd: random.Random, depth: int = 0) -> Any:
    """Any JSON value (and now and then what JSON cannot hold)."""
    kind = rnd.randrange(9 if depth < 4 else 6)
    if kind == 0:
        return rnd.choice((None, True, False))
    if kind == 1:
        return rnd.choice((0, -1, 3, 10**30, 2.5, 1e308, float("inf"), float("nan")))
    if kind in (2, 3, 4):
        return rnd.choice((*STRINGS, *TYPES, *STATES))
    if kind == 5:
        return rnd.choice(([], {}))
    if kind == 6:
        return [value(rnd, depth + 1) for _ in range(rnd.randrange(4))]
    return {rnd.choice(KEYS): value(rnd, depth + 1) for _ in range(rnd.randrange(6))}


def part(rnd: random.Random) -> Any:
    """A part, mostly well-formed."""
    if rnd.random() < 0.05:
        return value(rnd)
    out: dict[str, Any] = {
        "type": rnd.choice(TYPES),
        "text": "t",
        "toolCallId": rnd.choice(("c1", "c2", "c3")),
        "toolName": "w",
        "state": rnd.choice(STATES),
        "approvalId": "p1",
        "approval": {"id": "p1", "approved": rnd.choice((True, False))},
        "approved": rnd.choice((True, False)),
        "url": "https://e.example/a.png",
        "data": rnd.choice(("AAAA", "data:image/png;base64,AAAA", {"type": "Buffer", "data": [1, 2]})),
        "image": "/9j/4AAQ",
        "mediaType": "image/png",
        "toolInvocation": {"state": "call", "toolCallId": "c1", "toolName": "w", "args": {}},
    }
    for key in list(out):
        if key != "type" and rnd.random() < 0.35:
            del out[key]
    for _ in range(rnd.randrange(4)):
        out[rnd.choice(KEYS)] = value(rnd, 2)
    return out


def message(rnd: random.Random) -> Any:
    """A message, mostly well-formed, in one of the formats that callers send."""
    if rnd.random() < 0.05:
        return value(rnd)
    parts = [part(rnd) for _ in range(rnd.randrange(4))]
    body: dict[str, Any] = rnd.choice(
        (
            {"content": "hello"},
            {"content": parts},
            {"parts": parts},
            {"content": {"format": 2, "parts": parts}},
            {"content": "x", "toolInvocations": [value(rnd, 2)]},
        )
    )
    out = {
        "id": rnd.choice(("m1", "m2", "", None, f"m{rnd.random()}")),
        "role": rnd.choice(("user", "assistant", "tool")),
        **body,
    }
    for _ in range(rnd.randrange(3)):
        if rnd.random() < 0.3:
            out[rnd.choice(KEYS)] = value(rnd, 2)
    return out
