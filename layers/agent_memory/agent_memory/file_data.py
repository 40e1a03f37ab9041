"""Bytes that travel inside a message: data URLs (base64 or percent-encoded) and bare base64."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote_to_bytes

from agent_memory.messages.media import is_address, media_type_of, split_data_url

_BASE64: Final = re.compile(r"[A-Za-z0-9+/_\-\s]+={0,2}\s*")


@dataclass(frozen=True, slots=True)
class FileData:
    """Bytes with their media type, where it is known."""

    data: bytes
    media_type: str | None


def decode(text: str, *, media_type: str | None = None, filename: str | None = None) -> FileData | None:
    """The bytes in `text`; None where it is no data URL and no base64 (then it is an address, or damaged).

    Args:
        text: A data URL or bare base64.
        media_type: What the sender says it is; wins over what the data tell.
        filename: Its name, whose ending tells where nothing else does.
    """
    parsed = split_data_url(text)
    if parsed is None:
        if not text or is_address(text):
            return None
        data = _from_base64(text)
    else:
        payload = parsed[2]
        data = _from_base64(payload) if parsed[1] else unquote_to_bytes(payload)
    if data is None:
        return None
    return FileData(data, media_type_of(text, given=media_type, filename=filename))


def _from_base64(text: str) -> bytes | None:
    text = text.replace("%2B", "+").replace("%2F", "/").replace("%3D", "=") if "%" in text else text
    if text and not _BASE64.fullmatch(text):
        return None
    compact = "".join(text.split()).rstrip("=").translate(_URL_SAFE)
    try:
        return base64.b64decode(compact + "=" * (-len(compact) % 4), validate=True)
    except binascii.Error:
        return None


_URL_SAFE: Final = str.maketrans("-_", "+/")
