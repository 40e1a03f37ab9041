"""What a file is, told by its first bytes, and whether that fits what it is said to be."""

from __future__ import annotations

import re
from typing import Final

SNIFFED_BYTES: Final = 4_096  # how much of a file is looked at

_ZIP: Final = "application/zip"
_OLE: Final = "application/x-ole-storage"
_XML: Final = "application/xml"
_HTML: Final = "text/html"
_MP4: Final = "video/mp4"

_SIGNATURES: Final = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (8, b"WEBP", "image/webp"),  # behind RIFF and a length
    (8, b"WAVE", "audio/wav"),
    (8, b"AVI ", "video/x-msvideo"),
    (0, b"II*\0", "image/tiff"),
    (0, b"MM\0*", "image/tiff"),
    (0, b"%PDF-", "application/pdf"),
    (0, b"PK\x03\x04", _ZIP),
    (0, b"PK\x05\x06", _ZIP),
    (0, b"\x1f\x8b", "application/gzip"),
    (0, b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (0, b"Rar!\x1a\x07", "application/vnd.rar"),
    (0, b"OggS", "application/ogg"),
    (0, b"fLaC", "audio/flac"),
    (0, b"ID3\x02", "audio/mpeg"),
    (0, b"ID3\x03", "audio/mpeg"),
    (0, b"ID3\x04", "audio/mpeg"),
    (0, b"\xff\xfb", "audio/mpeg"),
    (0, b"\xff\xf3", "audio/mpeg"),
    (0, b"\x1aE\xdf\xa3", "video/webm"),
    (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", _OLE),
    (0, b"{\\rtf", "application/rtf"),
    (0, b"MZ\x90\0", "application/vnd.microsoft.portable-executable"),
    (0, b"\x7fELF", "application/x-elf"),
)
_RIFF: Final = ("image/webp", "audio/wav", "video/x-msvideo")
_BRANDS: Final = {b"heic": "image/heic", b"heix": "image/heic", b"mif1": "image/heif", b"avif": "image/avif"}
_BRANDS_BY_START: Final = {b"qt": "video/quicktime", b"M4A": "audio/mp4", b"3g": "video/3gpp"}
_MARKUP: Final = re.compile(rb"<(?:!doctype\s+html|html|head|body|script|iframe|svg|\?xml)[\s>/?]", re.IGNORECASE)
_ROOT: Final = re.compile(rb"<(?:[\w.-]+:)?(svg|html)[\s>/]", re.IGNORECASE)

# Names that stand for the same type.
_ALIASES: Final = {
    "image/jpg": "image/jpeg",
    "image/pjpeg": "image/jpeg",
    "audio/mp3": "audio/mpeg",
    "audio/x-wav": "audio/wav",
    "audio/wave": "audio/wav",
    "audio/vnd.wave": "audio/wav",
    "audio/x-flac": "audio/flac",
    "audio/x-m4a": "audio/mp4",
    "application/x-pdf": "application/pdf",
    "application/x-gzip": "application/gzip",
    "application/x-zip-compressed": _ZIP,
    "text/rtf": "application/rtf",
    "text/xml": _XML,
}
# What may be inside of what the signature tells: patterns of types.
_INSIDE: Final = {
    _ZIP: r"application/(?:.*(?:openxmlformats|oasis|opendocument|java-archive|android|keynote|pages|numbers).*|.*\+zip)",
    _OLE: r"application/(?:msword|vnd\.ms-.*|vnd\.visio|x-msi)",
    _XML: r".*\+xml|text/.*",
    _HTML: r"application/xhtml\+xml|text/.*|.*\+xml|application/xml",
    "image/svg+xml": r"application/xml|text/.*",
    "application/gzip": r"application/(?:x-tar|x-compressed.*|x-tgz)|.*\+gzip",
    "application/ogg": r"(?:audio|video)/(?:ogg|opus|vorbis|x-opus.*)",
    "video/webm": r"audio/webm|(?:audio|video)/(?:x-)?matroska",
    _MP4: r"(?:audio|video)/.*",
    "audio/mpeg": r"audio/.*",
    "application/rtf": r"application/msword|text/.*",
    "application/vnd.microsoft.portable-executable": r"application/x-(?:msdownload|dosexec|msdos-program)",
}
_TYPE: Final = re.compile(r"[\w.+\-]+/[\w.+\-]+(?:[ \t]*;[ \t]*[\w.\-]+=[\w.\-\"]+)*", re.ASCII)
_ACTIVE: Final = re.compile(
    r"text/html|text/xml|application/xml|.*\+xml|.*(?:java|ecma|live)script.*|text/xsl.*|multipart/.*"
    r"|application/x-shockwave-flash|application/vnd\.wap.*"
)


def sniffed_type(data: bytes) -> str | None:
    """The type that the first bytes tell; None where they tell nothing (plain text, for one)."""
    for offset, signature, kind in _SIGNATURES:
        if data.startswith(signature, offset) and (kind not in _RIFF or data.startswith(b"RIFF")):
            return kind
    if data[4:8] == b"ftyp":
        brand = data[8:12]
        by_start = (kind for start, kind in _BRANDS_BY_START.items() if brand.startswith(start))
        return _BRANDS.get(brand) or next(by_start, _MP4)
    start = data[:SNIFFED_BYTES].removeprefix(b"\xef\xbb\xbf").lstrip()
    # Comments may stand before the root, so a document that begins as markup is looked through.
    if not start.startswith(b"<") or (not _MARKUP.match(start) and not start.startswith(b"<!--")):
        return None
    root = _ROOT.search(start)
    if root is None:
        return _XML if start[:5].lower() == b"<?xml" else _HTML if _MARKUP.search(start) else None
    if root[1].lower() == b"svg":
        return "image/svg+xml"
    return "application/xhtml+xml" if start[:5].lower() == b"<?xml" else _HTML


def checked_type(claimed: str | None, data: bytes) -> tuple[str | None, bool]:
    """The type of a file and whether it is what it was said to be.

    Args:
        claimed: What the sender says; kept where the bytes do not speak against it.
        data: Its first bytes.

    Returns:
        ``("image/jpeg", True)`` for a JPEG that came as a PNG; ``("application/pdf", False)`` for a PDF that did;
        None for a type that nobody knows.
    """
    kind = plain_type(claimed)
    found = sniffed_type(data)
    if kind is None or kind == "application/octet-stream":
        return found or kind, True
    if found is None or kind == found or re.fullmatch(_INSIDE.get(found, r"(?!)"), kind):
        return claimed, True
    if kind.partition("/")[0] == found.partition("/")[0] and kind.startswith(("image/", "audio/", "video/")):
        # Of the same family, and mislabelled as phones do; an SVG is a document and none of them.
        return found, "image/svg+xml" not in (kind, found)
    return found, False


def is_media_type(text: str) -> bool:
    """Whether a text has the form of a media type and can stand in a header."""
    return len(text) <= 200 and _TYPE.fullmatch(text) is not None


def plain_type(media_type: str | None) -> str | None:
    """A media type without parameters, in lower case and under its usual name."""
    if media_type is None:
        return None
    kind = media_type.partition(";")[0].strip().lower()
    return _ALIASES.get(kind, kind) or None


def is_active(media_type: str | None) -> bool:
    """Whether a browser that opens a file of this type would run what is in it; unknown types count as such."""
    kind = plain_type(media_type)
    return kind is None or _ACTIVE.fullmatch(kind) is not None
