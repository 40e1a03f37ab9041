"""Rows of OpenAI's chat format as model messages, which `from_input` reads."""

from __future__ import annotations

import base64
from typing import Any, Final

from agent_memory._json import loads
from agent_memory.errors import InvalidInputError
from agent_memory.messages.incoming_part import found

_AUDIO: Final = {"wav": "audio/wav", "mp3": "audio/mpeg"}
_TYPES: Final = frozenset({"image_url", "input_audio", "refusal", "file"})
_OWN: Final = frozenset({"tool_calls", "tool_call_id", "function_call", "name", "refusal", "audio"})


def is_openai(raw: dict[str, Any]) -> bool:
    """Whether a row has something that only this format has. Plain text reads the same in every format."""
    if isinstance(raw.get("tool_calls"), list) or "tool_call_id" in raw or raw.get("role") == "developer":
        return True
    parts = raw.get("content")
    return isinstance(parts, list) and any(
        isinstance(part, dict) and part.get("type") in _TYPES and part["type"] in part for part in parts
    )


def from_openai(raw: dict[str, Any], path: str) -> dict[str, Any]:
    """The row as a model message. Raises InvalidInputError naming the field."""
    out = {key: value for key, value in raw.items() if key not in _OWN}
    role, body = raw.get("role"), raw.get("content")
    if role == "developer":
        out["role"] = "system"
    if role == "tool":
        call_id = raw.get("tool_call_id")
        if not isinstance(call_id, str) or not call_id:
            raise InvalidInputError(f"{path}.tool_call_id", f"expected the id of a call, found {found(call_id)}")
        result = {"type": "tool-result", "toolCallId": call_id, "toolName": raw.get("name") or "tool"}
        return {**out, "content": [{**result, "result": _text_of(body)}]}
    parts: list[Any] = []
    if isinstance(body, str):
        parts = [{"type": "text", "text": body}] if body else []
    elif isinstance(body, list):
        parts = [_part(part, f"{path}.content.{number}") for number, part in enumerate(body)]
    elif body is not None:
        raise InvalidInputError(f"{path}.content", f"expected text or a list of parts, found {found(body)}")
    if isinstance(raw.get("refusal"), str):
        parts.append({"type": "text", "text": raw["refusal"]})
    calls = raw.get("tool_calls") or []
    if not isinstance(calls, list):
        raise InvalidInputError(f"{path}.tool_calls", f"expected a list, found {found(calls)}")
    parts += [_call(call, f"{path}.tool_calls.{number}") for number, call in enumerate(calls)]
    return {**out, "content": parts}


def _text_of(body: Any) -> Any:
    """A tool's result: the value of JSON text, else the text."""
    if isinstance(body, list):
        body = "".join(part.get("text", "") for part in body if isinstance(part, dict))
    if isinstance(body, str) and body[:1] in ("{", "["):
        try:
            return loads(body)
        except ValueError:
            return body
    return body


def _part(part: Any, path: str) -> Any:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "image_url":
        image = part.get("image_url")
        address = image.get("url") if isinstance(image, dict) else image
        if not isinstance(address, str) or not address:
            raise InvalidInputError(f"{path}.image_url.url", f"expected an address, found {found(address)}")
        return {"type": "image", "image": address}
    if kind == "input_audio":
        given = part.get("input_audio")
        audio = given if isinstance(given, dict) else {}
        data = audio.get("data")
        if not isinstance(data, str) or not data:
            raise InvalidInputError(f"{path}.input_audio.data", f"expected base64, found {found(data)}")
        media_type = _AUDIO.get(str(audio.get("format")), "application/octet-stream")
        return {"type": "file", "mediaType": media_type, "data": f"data:{media_type};base64,{data}"}
    if kind == "refusal":
        return {"type": "text", "text": part.get("refusal")}
    if kind == "file" and isinstance(part.get("file"), dict):
        file = part["file"]
        data = file.get("file_data")
        if not isinstance(data, str) or not data:
            raise InvalidInputError(
                f"{path}.file.file_data", "expected the bytes, because a file id means nothing here"
            )
        media_type = "application/octet-stream" if not data.startswith("data:") else data[5:].partition(";")[0]
        address = data if data.startswith("data:") else f"data:{media_type};base64,{_checked(data, path)}"
        return {"type": "file", "mediaType": media_type, "data": address, "filename": file.get("filename")}
    return part


def _checked(data: str, path: str) -> str:
    try:
        base64.b64decode(data, validate=True)
    except ValueError:
        raise InvalidInputError(f"{path}.file.file_data", "expected base64, found something else") from None
    return data


def _call(call: Any, path: str) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    call_id = call.get("id") if isinstance(call, dict) else None
    for field, value in (("id", call_id), ("function.name", name)):
        if not isinstance(value, str) or not value:
            raise InvalidInputError(f"{path}.{field}", f"expected a non-empty string, found {found(value)}")
    text = (function or {}).get("arguments") or "{}"
    try:
        args = loads(text) if isinstance(text, str) else text
    except ValueError:
        raise InvalidInputError(f"{path}.function.arguments", "expected JSON text, found something else") from None
    return {"type": "tool-call", "toolCallId": call_id, "toolName": name, "args": args}
