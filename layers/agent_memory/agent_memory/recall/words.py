"""Words as the local adapters see them: one rule for spaced scripts and for scripts without spaces."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

# Han with its extensions, kana, Hangul, Thai, Lao, Khmer and Burmese: scripts whose words nothing separates
_UNSPACED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
_RUNS: Final = re.compile(rf"([{_UNSPACED}]+)|([^\W{_UNSPACED}_]+)")


def words(text: str) -> list[str]:
    """The words of a text, lower-case and without accents; of text without spaces, each pair of neighbours.

    A single character between others that are spaced counts alone.
    """
    found: list[str] = []
    for run in _RUNS.finditer(plain(text)):
        unspaced, word = run.groups()
        if word is not None:
            found.append(word)
        elif len(unspaced) == 1:
            found.append(unspaced)
        else:
            found.extend(unspaced[i : i + 2] for i in range(len(unspaced) - 1))
    return found


def plain(text: str) -> str:
    """Text with one form for what looks alike: width and case folded, accents of letters removed."""
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", text).casefold()
    bare = "".join(c for c in decomposed if not "\u0300" <= c <= "\u036f")
    return unicodedata.normalize("NFC", bare)
