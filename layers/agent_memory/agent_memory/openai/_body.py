"""The request body of an OpenAI-compatible chat completion, made from a prompt. Pure."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any, Final

from agent_memory._json import dumps, thaw
from agent_memory.models._files import absence, bytes_of, is_text, media_type_of, note
from agent_memory.models.repair import output_text, repaired, tool_name
from agent_memory.ports import (
    ModelRequest,
    PromptFile,
    PromptMessage,
    PromptPart,
    PromptText,
    PromptToolCall,
    PromptToolResult,
)

PROVIDER: Final = "openai"

_AUDIO: Final = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
_SETTINGS: Final = {
    "temperature": "temperature",
    "topP": "top_p",
    "presencePenalty": "presence_penalty",
    "frequencyPenalty": "frequency_penalty",
    "seed": "seed",
    "stopSequences": "stop",
}
_OURS: Final = frozenset({"model", "messages", "stream", "stream_options", "tools"})
_CAPITAL: Final = re.compile(r"(?<=[a-z0-9])([A-Z])")


def completion_request(
    request: ModelRequest, model_id: str, *, limit_name: str = "max_tokens", include_usage: bool = True
) -> dict[str, Any]:
    """The JSON body of ``POST /chat/completions``, streamed.

    Args:
        request: What to ask.
        model_id: The model's name at the service.
        limit_name: The field for `maxOutputTokens`: newer OpenAI models know ``max_completion_tokens`` only, many
            compatible services ``max_tokens`` only.
        include_usage: Whether to ask for token counts; a few services refuse the question.
    """
    prompt = repaired(request.messages, provider=PROVIDER, model_id=model_id)
    messages: list[dict[str, Any]] = []
    if prompt.system:
        messages.append({"role": "system", "content": "\n\n".join(prompt.system)})
    for message in prompt.messages:
        messages.extend(_messages(message))
    body: dict[str, Any] = {"model": model_id, "messages": messages, "stream": True}
    if include_usage:
        body["stream_options"] = {"include_usage": True}
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": thaw(tool.input_schema),
                },
            }
            for tool in request.tools
        ]
        body |= _choice(request.tool_choice)
    if request.response_schema is not None:
        schema = {"name": "answer", "schema": thaw(request.response_schema)}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    body |= _settings(request.settings, limit_name)
    for key, value in (request.provider_options.get(PROVIDER) or {}).items():
        if (name := _CAPITAL.sub(r"_\1", key).lower()) not in _OURS:
            body[name] = thaw(value)
    return body


def _settings(settings: Mapping[str, Any], limit_name: str) -> dict[str, Any]:
    found = {_SETTINGS[key]: thaw(value) for key, value in settings.items() if key in _SETTINGS and value is not None}
    limit = settings.get("maxOutputTokens", settings.get("maxTokens"))
    return found if limit is None else found | {limit_name: limit}


def _choice(choice: Any) -> dict[str, Any]:
    if choice in ("none", "required"):
        return {"tool_choice": choice}
    if isinstance(choice, Mapping) and choice.get("toolName"):
        return {"tool_choice": {"type": "function", "function": {"name": tool_name(str(choice["toolName"]))}}}
    return {}


def _messages(message: PromptMessage) -> list[dict[str, Any]]:
    if message.role == "tool":
        return [
            {"role": "tool", "tool_call_id": part.tool_call_id, "content": output_text(part.output)}
            for part in message.content
            if isinstance(part, PromptToolResult)
        ]
    if message.role == "user":
        return [{"role": "user", "content": _user_content(message.content)}]
    calls = [
        {
            "id": part.tool_call_id,
            "type": "function",
            "function": {"name": part.tool_name, "arguments": dumps(part.args)},
        }
        for part in message.content
        if isinstance(part, PromptToolCall)
    ]
    # Files an assistant made cannot be sent back: only users' messages may hold any.
    texts = [
        note(part, "made earlier, not shown") if isinstance(part, PromptFile) else part.text
        for part in message.content
        if isinstance(part, PromptText | PromptFile)
    ]
    said: dict[str, Any] = {"role": "assistant", "content": "\n\n".join(texts) if texts else None}
    return [said | {"tool_calls": calls} if calls else said]


def _user_content(parts: tuple[PromptPart, ...]) -> str | list[dict[str, Any]]:
    shown = [
        _file(part) if isinstance(part, PromptFile) else {"type": "text", "text": part.text}
        for part in parts
        if isinstance(part, PromptText | PromptFile)
    ]
    # Plain text is what every compatible service reads; some know no list.
    if all(part["type"] == "text" for part in shown):
        return "\n\n".join(part["text"] for part in shown)
    return shown


def _file(file: PromptFile) -> dict[str, Any]:
    kind, data = media_type_of(file), bytes_of(file)
    if kind.startswith("image/"):
        if data is None and file.url and file.url.startswith(("https://", "http://")):
            return {"type": "image_url", "image_url": {"url": file.url}}
        if data:
            return {"type": "image_url", "image_url": {"url": _data_url(kind, data)}}
    if not data:
        return {"type": "text", "text": note(file, absence(file))}
    if is_text(file):
        text = data.decode(errors="replace")
        return {"type": "text", "text": f"{note(file, 'its text follows')}\n{text}"}
    if kind in _AUDIO:
        audio = {"data": base64.b64encode(data).decode(), "format": _AUDIO[kind]}
        return {"type": "input_audio", "input_audio": audio}
    if kind == "application/pdf":
        filename = file.filename or "file.pdf"
        return {"type": "file", "file": {"filename": filename, "file_data": _data_url(kind, data)}}
    return {"type": "text", "text": note(file, "a type that this model cannot read")}


def _data_url(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"
