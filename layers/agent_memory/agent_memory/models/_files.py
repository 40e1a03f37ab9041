"""Files of a prompt as a provider takes them: bytes where they are at hand, a note in words where they cannot be shown."""

from __future__ import annotations

import base64
import binascii
from typing import Final
from urllib.parse import unquote_to_bytes

from agent_memory.ports import PromptFile

_TEXT_TYPES: Final = (
    "application/json",
    "application/xml",
    "application/yaml",
    "application/x-yaml",
    "application/javascript",
    "application/x-ndjson",
    "application/sql",
    "application/toml",
)


def bytes_of(file: PromptFile) -> bytes | None:
    """The file's bytes, from a data URL too; None for one that lies elsewhere or cannot be read."""
    if file.data is not None:
        return file.data
    if not file.url or not file.url.startswith("data:"):
        return None
    head, comma, body = file.url[5:].partition(",")
    if not comma:
        return None
    try:
        raw = unquote_to_bytes(body)
        return base64.b64decode(raw) if head.endswith(";base64") else raw
    except binascii.Error:
        return None


def media_type_of(file: PromptFile) -> str:
    """The media type without parameters, in lower case."""
    return file.media_type.partition(";")[0].strip().lower()


def is_text(file: PromptFile) -> bool:
    """Whether the file's bytes are text."""
    kind = media_type_of(file)
    return kind.startswith("text/") or kind in _TEXT_TYPES or kind.endswith(("+json", "+xml"))


def absence(file: PromptFile) -> str:
    """Why there are no bytes of a file."""
    return "not at hand" if file.size is None else f"{file.size} bytes are too many to be shown"


def note(file: PromptFile, why: str) -> str:
    """What stands in a prompt for a file that cannot be shown."""
    return f"[File {file.filename or 'without a name'}, {media_type_of(file) or 'unknown type'}: {why}]"
