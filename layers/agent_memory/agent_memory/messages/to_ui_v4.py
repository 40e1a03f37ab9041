"""Stored messages as page messages of AI SDK 4: ``{id, role, content, parts, toolInvocations…}``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agent_memory import clock
from agent_memory._json import EMPTY
from agent_memory.messages.legacy import all_parts, lone_attachments
from agent_memory.messages.media import UNKNOWN_TYPE, as_url, media_type_of, split_data_url
from agent_memory.messages.message import Message
from agent_memory.messages.page_fields import error_text, page_metadata
from agent_memory.messages.parts import (
    MISSING,
    FilePart,
    Part,
    ReasoningPart,
    SourcePart,
    StepStartPart,
    TextPart,
    ToolPart,
)
from agent_memory.messages.tool_outcome import DENIAL_TEXT


def to_ui_messages_v4(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Page messages of AI SDK 4, one for each message; system messages are left out.

    `content` is the last text. Calls without an outcome are left out; a failure is a result with `isError`, a denial
    one with the reason. Files of users, and files of assistants that have a URL, are `experimental_attachments`;
    other files of assistants are file parts with base64.
    """
    return [_page_message(message) for message in messages if message.role != "system"]


def _page_message(message: Message) -> dict[str, Any]:
    parts: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    files = [_attachment(item.url, item.content_type, item.name) for item in lone_attachments(message.content)]
    reasoning: list[str] = []
    text, step, in_step = "", 0, False
    for part in all_parts(message.content):
        if isinstance(part, StepStartPart):
            step += in_step
            in_step = False
            parts.append({"type": "step-start"})
            continue
        in_step = True
        if isinstance(part, ToolPart):
            call = _call(part, step)
            if call is not None:
                calls.append(call)
                parts.append({"type": "tool-invocation", "toolInvocation": call})
        elif isinstance(part, FilePart):
            inline = split_data_url(as_url(part.data, part.mime_type)) if message.role == "assistant" else None
            if inline is not None and inline[1]:
                kind = media_type_of(part.data, given=part.mime_type, filename=part.filename)
                parts.append({"type": "file", "mimeType": kind or UNKNOWN_TYPE, "data": inline[2]})
            else:
                files.append(_attachment(part.data, part.mime_type, part.filename))
        else:
            if isinstance(part, TextPart):
                text = part.text
            elif isinstance(part, ReasoningPart):
                reasoning.append(part.text)
            shown = _shown(part)
            if shown is not None:
                parts.append(shown)
    role = "user" if message.role == "signal" else message.role
    out: dict[str, Any] = {
        "id": message.id,
        "role": role,
        "createdAt": clock.to_iso(message.created_at),
        "content": text,
        "parts": parts,
        "metadata": page_metadata(message),
    }
    if calls:
        out["toolInvocations"] = calls
    if files:
        out["experimental_attachments"] = files
    if reasoning:
        out["reasoning"] = "".join(reasoning)
    if isinstance(message.content.extra.get("annotations"), list):
        out["annotations"] = message.content.extra["annotations"]
    return out


def _shown(part: Part) -> dict[str, Any] | None:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if isinstance(part, ReasoningPart):
        details = part.details if part.details is not None else [{"type": "text", "text": part.text}]
        return {"type": "reasoning", "reasoning": part.text, "details": details}
    if isinstance(part, SourcePart):
        return {"type": "source", "source": part.source}
    return None


def _attachment(data: str, content_type: str | None, name: str | None) -> dict[str, Any]:
    kind = media_type_of(data, given=content_type, filename=name) or content_type
    out: dict[str, Any] = {"url": as_url(data, kind)}
    if kind is not None:
        out["contentType"] = kind
    if name is not None:
        out["name"] = name
    return out


def _call(part: ToolPart, step: int) -> dict[str, Any] | None:
    invocation = part.invocation
    if invocation.is_pending:
        return None
    out: dict[str, Any] = {
        "state": "result",
        "step": step if invocation.step is None else invocation.step,
        "toolCallId": invocation.tool_call_id,
        "toolName": invocation.tool_name,
        "args": EMPTY if invocation.args is MISSING else invocation.args,
    }
    if invocation.state == "output-denied":
        out["result"] = (invocation.approval.reason if invocation.approval else None) or DENIAL_TEXT
    elif invocation.state == "output-error":
        out["result"] = error_text(invocation)
        out["isError"] = True
    else:
        out["result"] = None if invocation.result is MISSING else invocation.result
        if invocation.is_error is not None:
            out["isError"] = invocation.is_error
    return out
