"""The request body of Bedrock's Converse, made from a prompt. Pure; the limits are those of the Converse API reference."""

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
    PromptPart,
    PromptReasoning,
    PromptText,
    PromptToolCall,
    PromptToolResult,
    ToolSpec,
)

PROVIDER: Final = "bedrock"
SEE_FILE: Final = "(See the attached file.)"  # Converse refuses a document without text beside it
MAX_IMAGE_BYTES: Final = 3_750_000
MAX_DOCUMENT_BYTES: Final = 4_500_000
MAX_DOCUMENTS: Final = 5  # in one request; the newest are shown
MAX_IMAGES: Final = 20

_IMAGES: Final = {
    "image/png": "png",
    "image/jpeg": "jpeg",
    "image/jpg": "jpeg",
    "image/gif": "gif",
    "image/webp": "webp",
}
_DOCUMENTS: Final = {
    "application/pdf": "pdf",
    "text/csv": "csv",
    "text/html": "html",
    "text/markdown": "md",
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
}
_NOT_IN_DOCUMENT_NAME: Final = re.compile(r"[^A-Za-z0-9\-()\[\] ]+")
_SETTINGS: Final = {
    "maxOutputTokens": "maxTokens",
    "maxTokens": "maxTokens",
    "temperature": "temperature",
    "topP": "topP",
    "stopSequences": "stopSequences",
}
_OPTIONS: Final = (
    "additionalModelRequestFields",
    "additionalModelResponseFieldPaths",
    "guardrailConfig",
    "performanceConfig",
    "requestMetadata",
    "serviceTier",
)


def converse_request(
    request: ModelRequest, model_id: str, *, guardrail: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The arguments of ``converse_stream``: valid for Converse whatever the prompt is like."""
    # Converse has no choice "none", and refuses tool blocks in a request that defines no tools.
    tools = request.tools if request.tool_choice != "none" else ()
    prompt = repaired(request.messages, provider=PROVIDER, model_id=model_id, keep_reasoning=True, tools=bool(tools))
    shown = _Files()
    messages = [
        {"role": "assistant" if m.role == "assistant" else "user", "content": shown.blocks(m.content, m.role)}
        for m in reversed(prompt.messages)
    ]
    messages.reverse()
    body: dict[str, Any] = {"modelId": model_id, "messages": _named_apart(_merged(messages))}
    if prompt.system:
        body["system"] = [{"text": text} for text in prompt.system]
    if tools:
        body["toolConfig"] = _tool_config(tools, request.tool_choice)
    if config := _inference(request.settings):
        body["inferenceConfig"] = config
    if guardrail:
        body["guardrailConfig"] = dict(guardrail)
    if request.response_schema is not None:
        schema = {"schema": dumps(request.response_schema), "name": "answer"}
        body["outputConfig"] = {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": schema}}}
    options = request.provider_options.get(PROVIDER) or {}
    body.update({key: thaw(options[key]) for key in _OPTIONS if key in options})
    return body


def _merged(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A tool message is the user's here, so what the user said next joins it; results come first."""
    out: list[dict[str, Any]] = []
    for message in messages:
        if out and out[-1]["role"] == message["role"]:
            out[-1]["content"] += message["content"]
        else:
            out.append(message)
    return out


def _tool_config(tools: tuple[ToolSpec, ...], choice: Any) -> dict[str, Any]:
    specs = []
    for tool in tools:
        spec: dict[str, Any] = {"name": tool.name, "inputSchema": {"json": thaw(tool.input_schema)}}
        if tool.description.strip():
            spec["description"] = tool.description
        specs.append({"toolSpec": spec})
    config: dict[str, Any] = {"tools": specs}
    if choice == "required":
        config["toolChoice"] = {"any": {}}
    elif isinstance(choice, Mapping) and choice.get("toolName"):
        config["toolChoice"] = {"tool": {"name": tool_name(str(choice["toolName"]))}}
    return config


def _inference(settings: Mapping[str, Any]) -> dict[str, Any]:
    found = {_SETTINGS[key]: thaw(value) for key, value in settings.items() if key in _SETTINGS and value is not None}
    if "stopSequences" in found:
        found["stopSequences"] = [text for text in found["stopSequences"] if text]
    return found


class _Files:
    """Content blocks of messages, newest message first, so that the newest files are the ones that are shown."""

    def __init__(self) -> None:
        self._images = MAX_IMAGES
        self._documents = MAX_DOCUMENTS

    def blocks(self, parts: tuple[PromptPart, ...], role: str) -> list[dict[str, Any]]:
        made = [self._block(part, role) for part in reversed(parts)]
        made.reverse()
        if any("document" in block for block in made) and not any("text" in block for block in made):
            made.append({"text": SEE_FILE})
        return made

    def _block(self, part: PromptPart, role: str) -> dict[str, Any]:
        match part:
            case PromptText():
                return {"text": part.text}
            case PromptReasoning():
                return _reasoning(part)
            case PromptToolCall():
                return {"toolUse": {"toolUseId": part.tool_call_id, "name": part.tool_name, "input": thaw(part.args)}}
            case PromptToolResult():
                return _result(part)
            case PromptFile():
                return self._file(part, role)

    def _file(self, file: PromptFile, role: str) -> dict[str, Any]:
        kind = media_type_of(file)
        image = _IMAGES.get(kind)
        document = _DOCUMENTS.get(kind) or ("txt" if is_text(file) else None)
        data = bytes_of(file)
        if role != "user":
            return {"text": note(file, "made earlier, not shown")}
        if image is None and document is None:
            return {"text": note(file, "a type that this model cannot read")}
        if file.url and file.url.startswith("s3://"):
            source: dict[str, Any] = {"s3Location": {"uri": file.url}}
        elif not data:
            return {"text": note(file, absence(file))}
        elif len(data) > (MAX_IMAGE_BYTES if image else MAX_DOCUMENT_BYTES):
            return {"text": note(file, f"{len(data)} bytes are too many for this model")}
        else:
            source = {"bytes": data}
        if image is not None:
            self._images -= 1
            if self._images < 0:
                return {"text": note(file, "too many images in this conversation")}
            return {"image": {"format": image, "source": source}}
        self._documents -= 1
        if self._documents < 0:
            return {"text": note(file, "too many documents in this conversation")}
        return {"document": {"format": document, "name": _document_name(file), "source": source}}


def _document_name(file: PromptFile) -> str:
    """The file's name in the letters Converse takes."""
    raw = _NOT_IN_DOCUMENT_NAME.sub(" ", (file.filename or "file").rsplit(".", 1)[0])
    return " ".join(raw.split())[:190].strip() or "file"


def _named_apart(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Number documents of one name, oldest first, so that a name stays the same from turn to turn."""
    taken: set[str] = set()
    for message in messages:
        for block in message["content"]:
            if document := block.get("document"):
                name, number = document["name"], 1
                while document["name"] in taken:
                    number += 1
                    document["name"] = f"{name} {number}"
                taken.add(document["name"])
    return messages


def _reasoning(part: PromptReasoning) -> dict[str, Any]:
    own = part.provider_metadata[PROVIDER]
    if own.get("redactedData"):
        return {"reasoningContent": {"redactedContent": base64.b64decode(own["redactedData"])}}
    text: dict[str, Any] = {"text": part.text}
    if own.get("signature"):
        text["signature"] = own["signature"]
    return {"reasoningContent": {"reasoningText": text}}


def _result(part: PromptToolResult) -> dict[str, Any]:
    # Models differ in the JSON they take in a result; an object is what all of them take.
    structured = isinstance(part.output, Mapping) and part.output
    content = {"json": thaw(part.output)} if structured else {"text": output_text(part.output)}
    status = "error" if part.is_error else "success"
    return {"toolResult": {"toolUseId": part.tool_call_id, "content": [content], "status": status}}
