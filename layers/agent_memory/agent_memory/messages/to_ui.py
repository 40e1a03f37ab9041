"""Stored messages as page messages of AI SDK 5 and later: ``{id, role, parts, metadata}``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from agent_memory._json import EMPTY
from agent_memory.messages.legacy import all_parts, lone_attachments
from agent_memory.messages.media import UNKNOWN_TYPE, as_url, media_type_of
from agent_memory.messages.message import Attachment, Message
from agent_memory.messages.page_fields import error_text, page_extra, page_metadata, page_metadata_of
from agent_memory.messages.parts import (
    MISSING,
    Approval,
    DataPart,
    ErrorPart,
    FilePart,
    Part,
    ReasoningPart,
    SourceDocumentPart,
    SourcePart,
    StepStartPart,
    TextPart,
    ToolInvocation,
    ToolPart,
    UnknownPart,
)
from agent_memory.messages.to_ui_v4 import to_ui_messages_v4

# Parts that only newer pages know (ai 7.0.173), with the texts they need; kept as they came.
_PAGE_TYPES: Final = {"custom": ("kind",), "reasoning-file": ("mediaType", "url")}
_USER_SIGNALS: Final = frozenset({None, "text", "user", "user-message", "v2"})


def to_ui_messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Page messages, one for each message; system messages are left out.

    `metadata` is the application's own with `threadId` and `resourceId` of the row, and `createdAt` (ISO 8601) unless
    the application has a `createdAt` of its own. Every message passes the AI SDK's ``validateUIMessages``, and its
    values may share structure with the stored message: change a copy (`thaw`).
    """
    return [_page_message(message) for message in messages if message.role != "system"]


def _page_message(message: Message) -> dict[str, Any]:
    role, parts = message.role, _page_parts(message)
    if role == "signal":
        role = "user" if message.type in _USER_SIGNALS else "assistant"
        if role == "assistant":
            parts = [{"type": "data-signal", "data": {"type": message.type, "parts": parts}}]
    if not parts:
        parts = [{"type": "text", "text": ""}]  # a page refuses a message without a part
    return {"id": message.id, "role": role, "parts": parts, "metadata": page_metadata(message)}


def _page_parts(message: Message) -> list[dict[str, Any]]:
    parts = [_attachment(item) for item in lone_attachments(message.content)]
    parts.extend(_page_part(part) for part in all_parts(message.content))
    return parts


def _attachment(item: Attachment) -> dict[str, Any]:
    media_type = media_type_of(item.url, given=item.content_type, filename=item.name) or item.content_type
    out: dict[str, Any] = {
        "type": "file",
        "mediaType": media_type or UNKNOWN_TYPE,
        "url": as_url(item.url, media_type),
    }
    _put(out, "filename", item.name)
    return out


def _page_part(part: Part) -> dict[str, Any]:
    if isinstance(part, TextPart):
        out: dict[str, Any] = {"type": "text", "text": part.text}
    elif isinstance(part, ToolPart):
        return tool_part(part)
    elif isinstance(part, ReasoningPart):
        out = {"type": "reasoning", "text": part.text, "state": "done"}
    elif isinstance(part, FilePart):
        media_type = media_type_of(part.data, given=part.mime_type, filename=part.filename) or part.mime_type
        out = {"type": "file", "mediaType": media_type or UNKNOWN_TYPE, "url": as_url(part.data, media_type)}
        _put(out, "filename", part.filename)
    elif isinstance(part, StepStartPart):
        return {"type": "step-start"}
    elif isinstance(part, DataPart):
        return _data_part(part)
    elif isinstance(part, SourcePart):
        out = _source(part)
    elif isinstance(part, SourceDocumentPart):
        out = _document(part.extra)
    elif isinstance(part, ErrorPart):
        return {"type": "data-error", "data": part.error}
    else:
        return _unknown(part)
    if part.extra:
        out = {**page_extra(part.extra), **out}
    _put(out, "providerMetadata", page_metadata_of(part.provider_metadata))
    return out


def _data_part(part: DataPart) -> dict[str, Any]:
    out = page_extra(part.extra) | {"type": part.kind, "data": None if part.data is MISSING else part.data}
    _put(out, "id", part.id)
    return out


def _source(part: SourcePart) -> dict[str, Any]:
    source = part.source if isinstance(part.source, dict) else EMPTY
    url, title, source_id = source.get("url"), source.get("title"), source.get("id")
    if isinstance(url, str):
        out: dict[str, Any] = {"type": "source-url", "sourceId": source_id, "url": url, "title": title}
        _fill(out, sourceId=url)
        _drop_unless_text(out, "title")
    elif source.get("sourceType") == "document":
        out = _document({**source, "sourceId": source_id})
    else:
        out = {"type": "data-source", "data": part.source}
    return out


def _document(fields: dict[str, Any]) -> dict[str, Any]:
    names = ("sourceId", "mediaType", "title", "filename")
    out: dict[str, Any] = {"type": "source-document", **{name: fields.get(name) for name in names}}
    _fill(out, sourceId="", mediaType=UNKNOWN_TYPE, title="")
    _drop_unless_text(out, "filename")
    return out


def _unknown(part: UnknownPart) -> dict[str, Any]:
    needed = _PAGE_TYPES.get(part.type)
    if needed is None or not all(isinstance(part.raw.get(key), str) for key in needed):
        return {"type": f"data-{part.type}", "data": part.raw}
    out = {key: value for key, value in part.raw.items() if key != "providerMetadata"}
    _put(out, "providerMetadata", page_metadata_of(part.provider_metadata))
    return out


def tool_part(part: ToolPart) -> dict[str, Any]:
    """A tool call as a page shows it, with the state names of pages and the approval that goes with the state."""
    invocation = part.invocation
    state, approval = page_state(invocation)
    dynamic = part.extra.get("dynamic") is True
    out = page_extra(part.extra)
    if state not in ("output-available", "output-error"):
        out.pop("resultProviderMetadata", None)
    out |= {"type": "dynamic-tool" if dynamic else f"tool-{invocation.tool_name}"}
    if dynamic:
        out["toolName"] = invocation.tool_name
    out |= {"toolCallId": invocation.tool_call_id, "state": state}
    if invocation.args is not MISSING:
        out["input"] = invocation.args
    elif state not in ("input-streaming", "output-error"):
        out["input"] = EMPTY
    if state == "output-available":
        out["output"] = None if invocation.result is MISSING else invocation.result
        _put(out, "preliminary", part.preliminary)
    elif state == "output-error":
        out["errorText"] = error_text(invocation)
    raw_input = invocation.raw_input
    if raw_input is not MISSING and (
        state == "output-error" or (state == "input-streaming" and isinstance(raw_input, str))
    ):
        out["rawInput"] = raw_input
    _put(out, "approval", approval)
    _put(out, "title", part.title)
    _put(out, "providerExecuted", part.provider_executed)
    metadata = part.provider_metadata if isinstance(part.provider_metadata, dict) else EMPTY
    if part.created_at is not None:
        own = metadata.get("mastra")
        metadata = {**metadata, "mastra": {**(own if isinstance(own, dict) else EMPTY), "createdAt": part.created_at}}
    _put(out, "callProviderMetadata", page_metadata_of(metadata))
    return out


def page_state(invocation: ToolInvocation) -> tuple[str, dict[str, Any] | None]:
    """The page's name of a call's state, and the approval that the page expects with it."""
    approval = invocation.approval
    state = invocation.state
    if state == "partial-call":
        return "input-streaming", None
    if state == "output-denied":
        return "output-denied", _approval(invocation, approval or Approval(), approved=False)
    if state in ("result", "output-error"):
        failed = state == "output-error" or invocation.is_error is True
        granted = _approval(invocation, approval, approved=True) if approval and approval.approved else None
        return ("output-error" if failed else "output-available"), granted
    if approval is None:
        return ("input-available", None) if state == "call" else ("approval-requested", {"id": invocation.tool_call_id})
    if approval.approved is None:
        return "approval-requested", _approval(invocation, approval, approved=None)
    return "approval-responded", _approval(invocation, approval, approved=approval.approved)


def _approval(invocation: ToolInvocation, approval: Approval, *, approved: bool | None) -> dict[str, Any]:
    out = page_extra(approval.extra) | {"id": approval.id or invocation.tool_call_id}
    if approved is not None:
        out["approved"] = approved
        _put(out, "reason", approval.reason)
    return out


def _put(out: dict[str, Any], key: str, value: Any) -> None:
    if value is not None:
        out[key] = value


def _fill(out: dict[str, Any], **fallbacks: str) -> None:
    for key, fallback in fallbacks.items():
        if not isinstance(out.get(key), str):
            out[key] = fallback


def _drop_unless_text(out: dict[str, Any], key: str) -> None:
    if key in out and not isinstance(out[key], str):
        del out[key]


__all__ = ["page_state", "to_ui_messages", "to_ui_messages_v4", "tool_part"]
