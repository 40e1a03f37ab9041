"""What kind of file some data is, and the forms in which data travels."""

from __future__ import annotations

import re
from typing import Final

UNKNOWN_TYPE: Final = "application/octet-stream"
MAX_PATH_CHARS: Final = 2048  # browsers and proxies take no longer addresses everywhere

_SCHEME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.\-]*:")
_TYPE: Final = re.compile(r"[\w.+\-]+/[\w.+\-]+")
# The first characters of the base64 of each format's magic number.
_MAGIC: Final = (
    ("iVBORw0KGgo", "image/png"),
    ("/9j/", "image/jpeg"),
    ("R0lGODdh", "image/gif"),
    ("R0lGODlh", "image/gif"),
    ("JVBERi0", "application/pdf"),
)
_WEBP: Final = re.compile(r"UklGR.{6}XRUJQ")  # RIFF, four bytes of length, WEBP
_EXTENSIONS: Final = {
    "csv": "text/csv",
    "doc": "application/msword",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "gif": "image/gif",
    "htm": "text/html",
    "html": "text/html",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "json": "application/json",
    "md": "text/markdown",
    "mp3": "audio/mpeg",
    "mp4": "video/mp4",
    "pdf": "application/pdf",
    "png": "image/png",
    "txt": "text/plain",
    "wav": "audio/wav",
    "webp": "image/webp",
    "xls": "application/vnd.ms-excel",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}


def is_url(data: str) -> bool:
    """Whether `data` is a URL of any scheme, data URLs included, and not bare base64."""
    return _SCHEME.match(data) is not None


def is_address(data: str) -> bool:
    """Whether `data` is a URL or the path of one. Base64 may begin with a slash too: of a JPEG, of an MP3."""
    if is_url(data):
        return True
    return len(data) <= MAX_PATH_CHARS and data.startswith("/") and not data.startswith(("//", "/9j/"))


def split_data_url(url: str) -> tuple[str | None, bool, str] | None:
    """Media type (or None), whether the payload is base64, and the payload; None where `url` is no data URL."""
    if url[:5].lower() != "data:" or "," not in url:
        return None
    head, payload = url[5:].split(",", 1)
    kind, *options = head.split(";")
    return (kind.strip() or None), any(option.strip().lower() == "base64" for option in options), payload


def media_type_of(data: str, *, given: str | None = None, filename: str | None = None) -> str | None:
    """The media type of a file: as given, else as its data URL, its first bytes or its name tell, else None."""
    if given and _TYPE.match(given):
        return given
    parsed = split_data_url(data)
    if parsed is not None and parsed[0] and _TYPE.match(parsed[0]):
        return parsed[0]
    payload = parsed[2] if parsed is not None else data
    if not is_url(payload):
        for prefix, kind in _MAGIC:
            if payload.startswith(prefix):
                return kind
        if _WEBP.match(payload[:24]):
            return "image/webp"
    path = filename or (
        data[:MAX_PATH_CHARS].split("?", 1)[0].split("#", 1)[0] if is_url(data) and parsed is None else ""
    )
    return _EXTENSIONS.get(path.rpartition(".")[2].lower())


def as_url(data: str, media_type: str | None) -> str:
    """`data` as something a page can load: URLs and paths as they are, bare base64 as a data URL."""
    if is_address(data):
        return data
    return f"data:{media_type or UNKNOWN_TYPE};base64,{data}"
