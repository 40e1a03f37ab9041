"""What files a deployment takes: how large, how many, of which types, under which names."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from agent_memory.errors import InvalidInputError, TooLargeError
from agent_memory.messages.file_types import is_media_type, plain_type

MAX_UPLOAD_BYTES: Final = 5 * 1024**3  # S3 takes no more in one request
MAX_FILENAME_BYTES: Final = 255
MAX_PROMPT_FILE_BYTES: Final = 20 * 1024 * 1024
"""A larger file is not put into a prompt."""


@dataclass(frozen=True, slots=True)
class FileRules:
    """Rules for files that callers send.

    Attributes:
        max_bytes: Of one file. What comes inside a request is bounded by the body too.
        max_files: Of one message.
        types: Patterns of the types that are taken, e.g. ``image/*`` and ``application/pdf``; empty: all.
        denied_types: Patterns of the types that are refused, whatever `types` says.
        fetch_remote: Whether files behind https addresses are fetched and kept.
    """

    max_bytes: int = MAX_UPLOAD_BYTES
    max_files: int = 20
    types: tuple[str, ...] = ()
    denied_types: tuple[str, ...] = ()
    fetch_remote: bool = False

    def check_size(self, field: str, size: int) -> None:
        """Raises TooLargeError."""
        if size > self.max_bytes:
            raise TooLargeError(
                f"{field}: expected a file of at most {self.max_bytes} bytes, found {size}; send a smaller one",
                code="ATTACHMENT_TOO_LARGE",
            )

    def check_count(self, field: str, count: int) -> None:
        """Raises InvalidInputError."""
        if count > self.max_files:
            raise InvalidInputError(
                field,
                f"expected at most {self.max_files} files in a message, found {count}; send several messages",
                code="TOO_MANY_ATTACHMENTS",
            )

    def check_type(self, field: str, media_type: str | None) -> None:
        """Raises InvalidInputError for a type that is not taken, and for what is no media type."""
        if media_type is not None and not is_media_type(media_type):
            raise InvalidInputError(field, "expected a media type like image/png, found something else")
        kind = plain_type(media_type) or "application/octet-stream"
        if _matches(kind, self.denied_types) or (self.types and not _matches(kind, self.types)):
            taken = f"one of {', '.join(self.types)}" if self.types else "another one"
            raise InvalidInputError(
                field,
                f"expected a type of file that is taken here ({taken}), found {kind}",
                code="ATTACHMENT_TYPE_REFUSED",
            )


def clean_filename(name: str) -> str | None:
    """A name that is safe to show and to save under: no path, no control characters, at most 255 bytes. None: none left."""
    last = re.split(r"[/\\]", unicodedata.normalize("NFC", name))[-1]
    # Cc and Cf: control characters, and those that turn the direction of text to hide an ending.
    kept = "".join(c for c in last if unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Zl", "Zp")).strip()
    kept = kept.rstrip(". ")
    if len(kept.encode()) > MAX_FILENAME_BYTES:
        stem, dot, ending = kept.rpartition(".")
        tail = f"{dot}{ending}" if stem and len(ending.encode()) <= 32 else ""
        room = MAX_FILENAME_BYTES - len(tail.encode())
        kept = (stem if tail else kept).encode()[:room].decode(errors="ignore") + tail
    return kept if kept.strip(".") else None


def _matches(kind: str, patterns: Sequence[str]) -> bool:
    return any(
        kind.startswith(pattern[:-1]) if pattern.endswith("/*") else kind == plain_type(pattern) or pattern == "*/*"
        for pattern in patterns
    )
