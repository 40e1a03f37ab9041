"""Cuts text that is longer than an embedder takes, without losing a character of it."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

MAX_CHUNKS: Final = 64
"""The most chunks of one message that are embedded; with 2,000 characters each, twice the longest text of the field."""

_BOUNDARIES: Final = (
    re.compile(r"\n\s*\n"),
    re.compile(r"\n|[.!?…][\"'”’»)\]]*\s|[。！？；][”’」』）]*"),
    re.compile(r"\s|[，、：]"),
)
_JOINERS: Final = "\u200d\ufe0e\ufe0f\u20e3"  # zero-width joiner, variation selectors, keycap: parts of one emoji
_SPACE: Final = re.compile(r"\s*")


def chunks(text: str, max_chars: int) -> list[str]:
    """Cut `text` into pieces that give it back when joined.

    Each piece holds something other than white space, and at most `max_chars` characters beside the white space
    around it. Cuts fall behind a paragraph, a sentence or a word where one ends in the second half of a piece; in
    text without any (a long number, Chinese without stops) they fall between two characters that stand alone.

    Returns an empty list for blank text. Raises ValueError for a `max_chars` below 1.
    """
    if max_chars < 1:
        raise ValueError(f"expected max_chars of 1 or more, found {max_chars}")
    pieces: list[str] = []
    length = len(text.rstrip())
    start = 0
    while start < length:
        first = _after_space(text, start)
        if length - first <= max_chars:
            pieces.append(text[start:])
            break
        cut = _after_space(text, _cut(text, first, first + max_chars))
        pieces.append(text[start:cut])
        start = cut
    return pieces


def _after_space(text: str, position: int) -> int:
    found = _SPACE.match(text, position)
    return found.end() if found else position


def _cut(text: str, first: int, end: int) -> int:
    middle = first + (end - first) // 2
    for boundary in _BOUNDARIES:
        ends = [found.end() for found in boundary.finditer(text, middle, end)]
        if ends:
            return ends[-1]
    for cut in range(end, middle, -1):
        if not _holds_together(text[cut - 1], text[cut]):
            return cut
    return end


def _holds_together(before: str, after: str) -> bool:
    return (
        before == "\u200d"
        or after in _JOINERS
        or unicodedata.combining(after) > 0
        or "\U0001f3fb" <= after <= "\U0001f3ff"  # skin tones
    )
