"""One part as a caller sends it, whichever format it is in: stored, page message of AI SDK 4 to 7, or model message."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any, Final

from agent_memory._json import FrozenDict, FrozenList, freeze
from agent_memory.errors import InvalidInputError
from agent_memory.messages.media import UNKNOWN_TYPE, is_address, is_url, media_type_of, split_data_url
from agent_memory.messages.parts import (
    MISSING,
    Approval,
    Part,
    ReasoningPart,
    SourcePart,
    TextPart,
    part_from_json,
)
from agent_memory.messages.tool_outcome import ToolOutcome, read_outcome

PAGE_STATES: Final = {
    "input-streaming": "partial-call",
    "input-available": "call",
    "approval-requested": "approval-requested",
    "approval-responded": "approval-responded",
    "output-available": "result",
    "output-error": "output-error",
    "output-denied": "output-denied",
}
_TOOL_FIELDS: Final = frozenset(
    {"type", "toolCallId", "toolName", "state", "input", "output", "errorText", "rawInput", "approval", "dynamic"}
    | {"callProviderMetadata", "providerMetadata"}
)
_FILE_FIELDS: Final = frozenset({"type", "data", "image", "url", "mediaType", "mimeType", "filename"})
_CALL_FIELDS: Final = frozenset({"toolCallId", "toolName", "input", "args"})
_OPTIONS: Final = frozenset({"providerMetadata", "providerOptions"})


def read_part(raw: Any, path: str) -> Part | ToolOutcome:
    """Read one part; a tool result or an approval of a model message comes back as a `ToolOutcome`.

    Raises InvalidInputError that names the field under `path`. Parts of unknown types are kept as they came.
    """
    if not isinstance(raw, dict):
        raise InvalidInputError(path, f"expected an object with a string type, found {found(raw)}")
    tag = raw.get("type")
    if not isinstance(tag, str) or not tag:
        raise InvalidInputError(f"{path}.type", f"expected a non-empty string, found {found(tag)}")
    reader = _READERS.get(tag)
    if reader is not None:
        return reader(raw, path)
    if tag.startswith("tool-") and "toolCallId" in raw:
        return _page_tool(raw, path, tag[len("tool-") :])
    return part_from_json(raw, path)


def required(raw: dict[str, Any], key: str, path: str) -> str:
    """A non-empty string field. Raises InvalidInputError."""
    value = raw.get(key)
    if not isinstance(value, str) or not value:
        raise InvalidInputError(f"{path}.{key}", f"expected a non-empty string, found {found(value)}")
    return value


def found(value: Any) -> str:
    """How an error names what it found."""
    if value is None:
        return "nothing"
    return "an empty string" if value == "" else type(value).__name__


def options_of(raw: dict[str, Any]) -> Any:
    """Provider metadata, which model messages call options."""
    metadata = raw.get("providerMetadata")
    return freeze(raw.get("providerOptions") if metadata is None else metadata)


def _optional(raw: dict[str, Any], key: str, path: str) -> str | None:
    value = raw.get(key)
    if value is not None and not isinstance(value, str):
        raise InvalidInputError(f"{path}.{key}", f"expected a string, found {found(value)}")
    return value


def _rest(raw: dict[str, Any], known: frozenset[str]) -> FrozenDict:
    left = {key: value for key, value in raw.items() if key not in known and key not in _OPTIONS}
    frozen: FrozenDict = freeze(left)
    return frozen


def _stored(raw: dict[str, Any], path: str, read: frozenset[str], **fields: Any) -> Part:
    """A part in stored form: `fields`, and what `raw` has beside the fields that were `read` into them."""
    metadata = options_of(raw)
    if metadata is not None:
        fields["providerMetadata"] = metadata
    return part_from_json({**_rest(raw, read), **fields}, path)


def _text(raw: dict[str, Any], path: str) -> Part:
    # `state` tells a page whether text is still arriving; what is sent to a server has arrived.
    if isinstance(raw.get("text"), str) and len(raw) == 2 + ("state" in raw):
        return TextPart(raw["text"])
    return _stored(raw, path, frozenset({"state"}))


def _reasoning(raw: dict[str, Any], path: str) -> Part:
    if "reasoning" in raw or "details" in raw:
        return part_from_json(raw, path)
    text = raw.get("text")
    if not isinstance(text, str):
        raise InvalidInputError(f"{path}.text", f"expected a string, found {found(text)}")
    detail = {"type": "text", "text": text}
    if isinstance(raw.get("signature"), str):
        detail["signature"] = raw["signature"]
    return _stored(raw, path, frozenset({"text", "state", "signature"}), reasoning=text, details=[detail])


def _redacted(raw: dict[str, Any], path: str) -> Part:
    data = required(raw, "data", path)
    return ReasoningPart(
        details=FrozenList([freeze({"type": "redacted", "data": data})]), provider_metadata=options_of(raw)
    )


def _file(raw: dict[str, Any], path: str) -> Part:
    return _read_file(raw, path, "url" if "url" in raw and "data" not in raw else "data", None)


def _image(raw: dict[str, Any], path: str) -> Part:
    key = next((key for key in ("image", "url", "data") if key in raw), "image")
    return _read_file(raw, path, key, "image/png")


def _read_file(raw: dict[str, Any], path: str, key: str, fallback: str | None) -> Part:
    if raw["type"] == "file" and key == "data" and isinstance(raw.get("data"), str) and not _is_model_file(raw):
        return part_from_json(raw, path)
    data, told_by = _data(raw.get(key), f"{path}.{key}")
    given = _optional(raw, "mediaType", path) or _optional(raw, "mimeType", path)
    filename = _optional(raw, "filename", path)
    media_type = media_type_of(data, given=given, filename=filename) or given or fallback
    if told_by != "url" and not is_address(data):
        data = f"data:{media_type or UNKNOWN_TYPE};base64,{_checked_base64(data, f'{path}.{key}')}"
    else:
        _check_address(data, f"{path}.{key}")
    part: dict[str, Any] = {**_rest(raw, _FILE_FIELDS), "type": "file", "data": data}
    named = {"mimeType": media_type, "filename": filename, "providerMetadata": options_of(raw)}
    part.update((name, value) for name, value in named.items() if value is not None)
    return part_from_json(part, path)


def _is_model_file(raw: dict[str, Any]) -> bool:
    # A stored file part says `mimeType` (or nothing) and keeps its metadata under `providerMetadata`.
    return "mediaType" in raw or "providerOptions" in raw or ("mimeType" in raw and not is_url(raw["data"]))


def _data(value: Any, path: str) -> tuple[str, str]:
    """The data of a file as text, and the kind of field it came from.

    Read are text, the tagged forms ``{"type": "url" | "data" | "text", …}``, and what JSON makes of bytes in Node:
    ``{"type": "Buffer", "data": [1, 2]}`` and ``{"0": 1, "1": 2}``.
    """
    if isinstance(value, dict):
        inner = value.get("type")
        if inner == "Buffer" and isinstance(value.get("data"), list):
            return _encoded(value["data"], f"{path}.data"), "data"
        if inner == "text" and isinstance(value.get("text"), str):
            return base64.b64encode(value["text"].encode()).decode(), "data"
        if isinstance(inner, str) and inner in ("url", "data"):
            return required(value, inner, path), inner
        if value and all(key.isdecimal() and len(key) < 10 for key in value):
            return _encoded([value[key] for key in sorted(value, key=int)], path), "data"
    if not isinstance(value, str) or not value:
        raise InvalidInputError(path, f"expected a data URL, a URL or base64 text, found {found(value)}")
    return value, path.rpartition(".")[2]


def _encoded(numbers: list[Any], path: str) -> str:
    try:
        return base64.b64encode(bytes(numbers)).decode()
    except (ValueError, TypeError, OverflowError):
        raise InvalidInputError(path, "expected a list of bytes from 0 to 255") from None


def _checked_base64(text: str, path: str) -> str:
    text = text.replace("-", "+").replace("_", "/")
    text += "=" * (-len(text) % 4)
    try:
        binascii.a2b_base64(text, strict_mode=True)
    except (ValueError, binascii.Error):
        raise InvalidInputError(path, "expected a data URL, a URL or base64 text, found other text") from None
    return text


def _check_address(data: str, path: str) -> None:
    """Refuse a data URL without data and a reference to nothing: kept, they would be files that nobody can ever see."""
    from agent_memory.attachments import SCHEME, name_of
    from agent_memory.file_data import decode

    if split_data_url(data) is not None and decode(data) is None:
        raise InvalidInputError(path, "expected a data URL with base64 in it, found other text")
    if data.startswith(SCHEME) and name_of(data) is None:
        raise InvalidInputError(path, f"expected a reference like {SCHEME}<id of an upload>, found another form")


def _source_url(raw: dict[str, Any], path: str) -> Part:
    named = {"id": _optional(raw, "sourceId", path), "url": required(raw, "url", path)}
    named["title"] = _optional(raw, "title", path)
    source = {"sourceType": "url", **{key: value for key, value in named.items() if value is not None}}
    return _stored(raw, path, frozenset({"sourceId", "url", "title"}), type="source", source=source)


def _source(raw: dict[str, Any], path: str) -> Part:
    if "source" in raw:
        return part_from_json(raw, path)
    return SourcePart(source=_rest(raw, frozenset({"type"})), provider_metadata=options_of(raw))


def _dynamic_tool(raw: dict[str, Any], path: str) -> Part:
    return _page_tool(raw, path, required(raw, "toolName", path), dynamic=True)


def _tool_invocation(raw: dict[str, Any], path: str) -> Part:
    if "toolCallId" in raw and "toolInvocation" not in raw:
        return _page_tool(raw, path, "invocation")  # a page's call of a tool that has this name
    return part_from_json(raw, path)


def _page_tool(raw: dict[str, Any], path: str, name: str, *, dynamic: bool = False) -> Part:
    if not name:
        raise InvalidInputError(f"{path}.type", "expected the tool's name after tool-, found nothing")
    state = raw.get("state")
    if not isinstance(state, str) or state not in PAGE_STATES:
        raise InvalidInputError(f"{path}.state", f"expected one of {', '.join(PAGE_STATES)}, found {found(state)}")
    call: dict[str, Any] = {
        "state": PAGE_STATES[state],
        "toolCallId": required(raw, "toolCallId", path),
        "toolName": name,
    }
    if "input" in raw:
        call["args"] = raw["input"]
    if "rawInput" in raw:
        call["rawInput"] = raw["rawInput"]
    if state == "output-available":
        call["result"] = raw.get("output")
    elif state == "output-error":
        call["errorText"] = _optional(raw, "errorText", path) or ""
    approval = raw.get("approval")
    if approval is not None:
        call["approval"] = _checked_approval(approval, state, f"{path}.approval")
    elif state in ("approval-requested", "approval-responded"):
        raise InvalidInputError(f"{path}.approval", "expected an object, found nothing")
    part: dict[str, Any] = {key: value for key, value in raw.items() if key not in _TOOL_FIELDS}
    part |= {"type": "tool-invocation", "toolInvocation": call}
    if dynamic:
        part["dynamic"] = True
    _put_call_metadata(part, raw)
    try:
        return part_from_json(part, path)
    except InvalidInputError as error:
        raise InvalidInputError(error.field.replace(".toolInvocation", ""), error.detail) from None


def _checked_approval(approval: Any, state: str, path: str) -> dict[str, Any]:
    if not isinstance(approval, dict):
        raise InvalidInputError(path, f"expected an object, found {found(approval)}")
    if state == "approval-responded" and not isinstance(approval.get("approved"), bool):
        raise InvalidInputError(f"{path}.approved", f"expected true or false, found {found(approval.get('approved'))}")
    for key in ("id", "reason"):
        _optional(approval, key, path)
    return approval


def _put_call_metadata(part: dict[str, Any], raw: dict[str, Any]) -> None:
    metadata = raw.get("callProviderMetadata", raw.get("providerMetadata"))
    own = metadata.get("mastra") if isinstance(metadata, dict) else None
    if isinstance(metadata, dict) and isinstance(own, dict) and type(own.get("createdAt")) is int:
        # Where a page message carries the date of the part; see `to_ui`.
        part.setdefault("createdAt", own["createdAt"])
        rest = {key: value for key, value in own.items() if key != "createdAt"}
        metadata = {key: value for key, value in metadata.items() if key != "mastra"} | (
            {"mastra": rest} if rest else {}
        )
    if metadata:
        part["providerMetadata"] = metadata


def _model_call(raw: dict[str, Any], path: str) -> Part:
    if "state" in raw:
        return _page_tool(raw, path, "call")
    call = {
        "state": "call",
        "toolCallId": required(raw, "toolCallId", path),
        "toolName": required(raw, "toolName", path),
    }
    args = raw.get("input", raw.get("args", MISSING))
    if args is not MISSING:
        call["args"] = args
    return _stored(raw, path, _CALL_FIELDS, type="tool-invocation", toolInvocation=call)


def _model_result(raw: dict[str, Any], path: str) -> Part | ToolOutcome:
    if "state" in raw:
        return _page_tool(raw, path, "result")
    name = _optional(raw, "toolName", path)
    return read_outcome(raw, tool_call_id=required(raw, "toolCallId", path), tool_name=name or "")


def _approval_request(raw: dict[str, Any], path: str) -> Part | ToolOutcome:
    if "state" in raw:
        return _page_tool(raw, path, "approval-request")
    return ToolOutcome(
        tool_call_id=required(raw, "toolCallId", path),
        tool_name="",
        state="approval-requested",
        approval=Approval(id=required(raw, "approvalId", path)),
    )


def _approval_response(raw: dict[str, Any], path: str) -> Part | ToolOutcome:
    if "state" in raw:
        return _page_tool(raw, path, "approval-response")
    approved = raw.get("approved")
    if not isinstance(approved, bool):
        raise InvalidInputError(f"{path}.approved", f"expected true or false, found {found(approved)}")
    approval = Approval(id=required(raw, "approvalId", path), approved=approved, reason=_optional(raw, "reason", path))
    return ToolOutcome(
        tool_call_id=_optional(raw, "toolCallId", path) or "",
        tool_name="",
        state="approval-responded",
        approval=approval,
    )


_READERS: Final[dict[str, Callable[[dict[str, Any], str], Part | ToolOutcome]]] = {
    "text": _text,
    "reasoning": _reasoning,
    "redacted-reasoning": _redacted,
    "file": _file,
    "image": _image,
    "source": _source,
    "source-url": _source_url,
    "tool-invocation": _tool_invocation,
    "dynamic-tool": _dynamic_tool,
    "tool-call": _model_call,
    "tool-result": _model_result,
    "tool-approval-request": _approval_request,
    "tool-approval-response": _approval_response,
}
