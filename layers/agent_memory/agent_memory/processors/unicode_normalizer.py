"""Brings what users type into one form of Unicode."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import replace
from typing import Final

from agent_memory.messages import Message
from agent_memory.messages.parts import TextPart
from agent_memory.processors.base import InputContext

_SPACES: Final = re.compile(r"[^\S\r\n]+")
_BREAKS: Final = re.compile(r"(?:[ \t]*(?:\r\n?|\n)){3,}")
_JOINERS: Final = "\u200c\u200d"  # Persian, Arabic and Indic words need them
_VARIATION: Final = "\ufe0e\ufe0f"
_KEYCAP: Final = "\u20e3"
_TAGS: Final = range(0xE0020, 0xE0080)  # spell the name of a flag behind a black flag
_SKIN_TONES: Final = range(0x1F3FB, 0x1F400)
_BLACK_FLAG: Final = "\U0001f3f4"


class UnicodeNormalizer:
    """Unicode normalizer.

    Text parts of the user's input are brought to form NFKC, so that wide, circled and ligature letters become the plain ones that
    filters look for. What memory loaded is not touched; the changed text is what is stored.

    Args:
        strip_control_chars: Remove characters that cannot be seen: controls but for tab and line break, marks of
            direction, zero-width and tag characters.
        preserve_emojis: Keep what emoji are put together with when controls are stripped; if False the emoji go too.
        collapse_whitespace: Make runs of spaces one space, and more than two line breaks two.
        trim: Remove white space at both ends.
    """

    id = "unicode-normalizer"
    name = "UnicodeNormalizer"

    def __init__(
        self,
        strip_control_chars: bool = False,
        preserve_emojis: bool = True,
        collapse_whitespace: bool = True,
        trim: bool = True,
    ) -> None:
        self.strip_control_chars = strip_control_chars
        self.preserve_emojis = preserve_emojis
        self.collapse_whitespace = collapse_whitespace
        self.trim = trim

    def process_input(self, ctx: InputContext) -> list[Message] | None:
        """Normalise the text parts of the input."""
        new = {m.id: self._message(m) for m in ctx.messages if ctx.message_list.source(m.id) == "input"}
        changed = [new.get(message.id, message) for message in ctx.messages]
        return None if changed == list(ctx.messages) else changed

    def normalize(self, text: str) -> str:
        """The text in its normal form."""
        text = unicodedata.normalize("NFKC", text)
        if self.strip_control_chars:
            text = _stripped(text, emojis=self.preserve_emojis)
        if self.collapse_whitespace:
            text = _BREAKS.sub("\n\n", _SPACES.sub(" ", text))
        return text.strip() if self.trim else text

    def _message(self, message: Message) -> Message:
        parts = [
            replace(part, text=self.normalize(part.text)) if isinstance(part, TextPart) else part
            for part in message.parts
        ]
        changed = message.with_parts(parts)
        if message.content.content and not any(isinstance(part, TextPart) for part in parts):
            changed = changed.with_content(content=self.normalize(message.content.content))
        return changed


def _stripped(text: str, *, emojis: bool) -> str:
    kept: list[str] = []
    for place, char in enumerate(text):
        before = text[place - 1] if place else ""
        if char in _JOINERS:
            stays = _joins(char, before, text[place + 1 : place + 2], emojis=emojis)
        elif ord(char) in _TAGS:
            stays = emojis and bool(kept) and (kept[-1] == _BLACK_FLAG or ord(kept[-1]) in _TAGS)
        elif char in _VARIATION:
            stays = emojis and (_is_emoji(before) or before.isdigit() or before in ("#", "*"))
        elif not emojis and (_is_emoji(char) or char == _KEYCAP):
            stays = False
        else:
            # Private use ("Co") is what icon fonts show.
            stays = char in "\t\n\r" or unicodedata.category(char)[0] != "C" or unicodedata.category(char) == "Co"
        if stays:
            kept.append(char)
    return "".join(kept)


def _joins(joiner: str, before: str, after: str, *, emojis: bool) -> bool:
    """Whether a joiner stands where writing needs one: inside a word, or between emoji."""
    if not before or not after:
        return False
    if unicodedata.category(before)[0] in "LM" and unicodedata.category(after)[0] in "LM":
        # Latin words never need one; there it only hides a word from filters.
        return not (before.isascii() and after.isascii())
    return emojis and joiner == _JOINERS[1] and _is_emoji(before) and _is_emoji(after)


def _is_emoji(char: str) -> bool:
    return bool(char) and (unicodedata.category(char) == "So" or ord(char) in _SKIN_TONES or char in _VARIATION)
