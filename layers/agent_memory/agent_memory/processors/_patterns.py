"""What a regex filter looks for: rules of one's own, and presets."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from agent_memory.errors import ConfigurationError

Span = tuple[int, int]

_DIGIT_RUN: Final = re.compile(r"\d(?:[ .\-\u00a0]?\d){12,}")
_CARD_DIGITS: Final = range(13, 20)  # ISO/IEC 7812-1 allows up to 19; the shortest in use have 13
_CARD_START: Final = "23456"  # travel, banking and merchandising: what payment cards begin with


@dataclass(frozen=True, slots=True)
class Rule:
    """What to look for in a text.

    Attributes:
        name: Names the rule in tripwires and counts.
        find: Yields where matches begin and end.
        replacement: What a match is replaced by; for patterns it may refer to groups (``\\1``).
        pattern: The pattern, where it is one.
    """

    name: str
    find: Callable[[str], Iterable[Span]]
    replacement: str
    pattern: re.Pattern[str] | None = None

    def shown(self, text: str, span: Span) -> str:
        """What takes the place of a match."""
        if self.pattern is not None and "\\" in self.replacement:
            match = self.pattern.match(text, span[0])
            return f"[{self.name}]" if match is None else match.expand(self.replacement)
        return self.replacement


def pattern_rule(name: str, pattern: str | re.Pattern[str], replacement: str | None = None) -> Rule:
    """A rule for a regular expression. Raises ConfigurationError for one that cannot be read or matches nothing at all."""
    try:
        compiled = re.compile(pattern) if isinstance(pattern, str) else pattern
    except re.error as error:
        raise ConfigurationError(f"the pattern of rule {name} cannot be read: {error}") from error

    def find(text: str) -> Iterator[Span]:
        return (match.span() for match in compiled.finditer(text) if match.end() > match.start())

    return Rule(name, find, f"[{name}]" if replacement is None else replacement, compiled)


def rule_of(given: Rule | Mapping[str, Any]) -> Rule:
    """A rule from ``{"name", "pattern", "replacement"?}``."""
    if isinstance(given, Rule):
        return given
    if not isinstance(given, Mapping):
        raise ConfigurationError(f"expected a rule to be a mapping with name and pattern, found {type(given).__name__}")
    unknown = given.keys() - {"name", "pattern", "replacement"}
    if unknown:
        raise ConfigurationError(f"a rule has name, pattern and replacement; found {sorted(unknown)[0]}")
    name, pattern = given.get("name"), given.get("pattern")
    if not isinstance(name, str) or not name or not isinstance(pattern, str | re.Pattern):
        raise ConfigurationError("expected a rule to have a name and a pattern")
    return pattern_rule(name, pattern, given.get("replacement"))


def card_numbers(text: str) -> Iterator[Span]:
    """Payment card numbers: 13 to 19 digits, alone or in groups, whose check digit is right.

    In a longer row of groups every run of whole groups is tried, so that a number beside another one is found.
    """
    for run in _DIGIT_RUN.finditer(text):
        groups = [match.span() for match in re.finditer(r"\d+", run.group())]
        first = 0
        while first < len(groups):
            last = _card_end(run.group(), groups, first)
            if last is None:
                first += 1
                continue
            yield run.start() + groups[first][0], run.start() + groups[last][1]
            first = last + 1


def _card_end(run: str, groups: Sequence[Span], first: int) -> int | None:
    if run[groups[first][0]] not in _CARD_START:
        return None
    digits = ""
    found: int | None = None
    for place in range(first, len(groups)):
        digits += run[slice(*groups[place])]
        if len(digits) >= _CARD_DIGITS.stop:
            break
        if len(digits) in _CARD_DIGITS and passes_luhn(digits):
            found = place
    return found


def passes_luhn(digits: str) -> bool:
    """Whether the last digit is the check digit of the others (ISO/IEC 7812-1, annex B)."""
    total = 0
    for place, digit in enumerate(reversed(digits)):
        value = int(digit) * (1 + place % 2)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


EMAIL: Final = (
    r"(?<![A-Za-z0-9._%+\-])[A-Za-z0-9._%+\-]{1,64}@(?:[A-Za-z0-9\-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![A-Za-z0-9])"
)
PHONE: Final = (
    r"(?<![\w+])(?:"
    r"\+[1-9]\d{0,2}(?:[ .\-/]?\(?\d{1,4}\)?){2,5}"  # with the country's code
    r"|(?:\(\d{3}\) ?|\d{3}[ .\-])\d{3}[ .\-]\d{4}"  # North America
    r"|0\d{1,4}[ /\-]\d{3,4}(?:[ \-]?\d{2,4}){1,2}"  # with the trunk prefix that most other countries use
    r")(?!\d)"
)
API_KEY: Final = (
    r"(?<![A-Za-z0-9])(?:"
    r"(?:sk|pk|rk)[-_][A-Za-z0-9_\-]{16,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}"
    r"|(?:gh[oprsu]_|github_pat_|glpat-|npm_|hf_)[A-Za-z0-9_\-]{16,}"
    r"|xox[abeprs]-[A-Za-z0-9\-]{10,}"
    r"|AIza[A-Za-z0-9_\-]{35}"
    # A signed token from its first characters on: it may be longer than what a stream holds back.
    r"|eyJ[A-Za-z0-9_\-]{13,}(?:\.[A-Za-z0-9_\-]*){0,2}"
    r")"
)

PRESETS: Final[Mapping[str, tuple[Rule, ...]]] = {
    "email": (pattern_rule("email", EMAIL),),
    "credit-card": (Rule("credit-card", card_numbers, "[credit-card]"),),
    "phone": (pattern_rule("phone", PHONE),),
    "api-key": (pattern_rule("api-key", API_KEY),),
}
GROUPS: Final[Mapping[str, tuple[str, ...]]] = {"pii": ("credit-card", "email", "phone"), "secrets": ("api-key",)}


def preset_rules(names: Iterable[str]) -> tuple[Rule, ...]:
    """The rules of presets and of groups of presets. Raises ConfigurationError for an unknown name."""
    rules: list[Rule] = []
    for name in names:
        for preset in GROUPS.get(name, (name,)):
            if preset not in PRESETS:
                raise ConfigurationError(f"expected a preset of {', '.join([*PRESETS, *GROUPS])}; found {name!r:.40}")
            rules.extend(rule for rule in PRESETS[preset] if rule not in rules)
    return tuple(rules)


@dataclass(frozen=True, slots=True)
class Match:
    """Where a rule found something."""

    start: int
    end: int
    rule: Rule


def find_all(text: str, rules: Sequence[Rule]) -> list[Match]:
    """All matches, in order, without overlaps: the earlier one wins, then that of the earlier rule."""
    found = [Match(start, end, rule) for rule in rules for start, end in rule.find(text)]
    found.sort(key=lambda match: match.start)
    kept: list[Match] = []
    for match in found:
        if kept and match.start < kept[-1].end:
            if match.end > kept[-1].end:
                # What sticks out of an overlap is hidden too.
                kept[-1] = Match(kept[-1].start, match.end, kept[-1].rule)
            continue
        kept.append(match)
    return kept


def redacted(text: str, matches: Sequence[Match], start: int = 0, end: int | None = None) -> str:
    """The text from `start` to `end` with each match replaced, those that only reach into it too."""
    out: list[str] = []
    for match in matches:
        out += (text[start : match.start], match.rule.shown(text, (match.start, match.end)))
        start = match.end
    return "".join((*out, text[start:end]))
