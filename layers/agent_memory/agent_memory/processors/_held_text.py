"""A streamed text whose end is held back, so that what a filter looks for is seen whole before any of it is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent_memory.processors._patterns import Rule, find_all, redacted


@dataclass(slots=True)
class HeldText:
    """One block of text while it arrives.

    What has been shown is kept for a while as context, so that a pattern still sees what stands before its match.

    Attributes:
        rules: What to look for.
        window: Characters held back at the end; the beginning of a match may be no longer before it is a match itself.
        matches: Rules that matched, in order.
    """

    rules: Sequence[Rule]
    window: int
    matches: list[Rule]
    _text: str = ""
    _shown: int = 0
    _next: int = 0

    def add(self, text: str) -> str:
        """Take a piece; returns what may be shown now."""
        self._text += text
        # A long match is looked at again when it has grown by an eighth: time stays linear, and holding is always safe.
        if len(self._text) < self._next:
            return ""
        return self._show(len(self._text) - self.window)

    def end(self) -> str:
        """No more comes: returns the rest."""
        return self._show(len(self._text))

    def _show(self, cut: int) -> str:
        cut = max(cut, self._shown)
        found = [match for match in find_all(self._text, self.rules) if match.end > self._shown]
        # A match that reaches over the cut may still grow; what touches the end of all text is never over it.
        cut = next((max(m.start, self._shown) for m in found if m.start < cut < m.end), cut)
        ready = [m for m in found if m.end <= cut]
        self.matches.extend(m.rule for m in ready)
        # A match that begins in what was shown already hides what is left of it.
        shown = redacted(self._text, ready, self._shown, cut)
        keep_from = max(0, cut - self.window)
        self._text = self._text[keep_from:]
        self._shown = cut - keep_from
        held = len(self._text) - self._shown
        self._next = len(self._text) + held // 8 if held > 4 * self.window else 0
        return shown
