"""What bodies and queries may hold: one description each, which checks values and writes its own JSON Schema.

A few small classes instead of a validation library, whose import alone takes a third of what boto3 takes.
Unknown keys are ignored everywhere; null counts as absent unless a shape takes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from agent_memory import clock
from agent_memory._json import dumps, loads
from agent_memory.errors import InvalidInputError
from agent_memory.ids import MAX_ID_BYTES, check_id

Issue = tuple[str, str]
_MISSING: Final = object()


class RequestError(InvalidInputError):
    """A body, query or path with one or more wrong fields. `issues` are pairs of dotted field and message."""

    def __init__(self, issues: Sequence[Issue], where: Literal["body", "query", "path"]) -> None:
        super().__init__(*issues[0], where=where)
        self.issues = tuple(issues)


class Shape:
    """Anything that is JSON."""

    def check(self, value: Any, at: str, issues: list[Issue]) -> Any:  # noqa: ARG002 - takes everything
        """Return the value as handlers use it; add to `issues` what is wrong with it."""
        return value

    def read_text(self, text: str, at: str, issues: list[Issue]) -> Any:
        """The same for the text of a query value."""
        return self.check(text, at, issues)

    def schema(self) -> dict[str, Any]:
        """JSON Schema."""
        return {}


ANY: Final = Shape()


@dataclass(frozen=True)
class Text(Shape):
    """Text."""

    max_chars: int | None = None
    choices: tuple[str, ...] = ()
    min_chars: int = 0

    def check(self, value: Any, at: str, issues: list[Issue]) -> Any:
        if not isinstance(value, str):
            issues.append((at, f"expected a string, found {kind(value)}"))
        elif self.choices and value not in self.choices:
            issues.append((at, f"expected one of {', '.join(self.choices)}, found {value[:40]!r}"))
        elif self.max_chars is not None and len(value) > self.max_chars:
            issues.append((at, f"expected at most {self.max_chars} characters, found {len(value)}"))
        elif len(value.strip()) < self.min_chars:
            issues.append((at, "expected a text, found a blank one"))
        return value

    def schema(self) -> dict[str, Any]:
        out: dict[str, Any] = {"type": "string"}
        if self.choices:
            out["enum"] = list(self.choices)
        if self.max_chars is not None:
            out["maxLength"] = self.max_chars
        if self.min_chars:
            out["minLength"] = self.min_chars
        return out


class Id(Shape):
    """The id of a thread, resource, message or run."""

    def check(self, value: Any, at: str, issues: list[Issue]) -> Any:
        try:
            return check_id(at, value)
        except InvalidInputError as error:
            issues.append((at, error.detail))
            return value

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "minLength": 1, "maxLength": MAX_ID_BYTES}


@dataclass(frozen=True)
class Whole(Shape):
    """A whole number."""

    low: int = 0
    high: int | None = None

    def check(self, value: Any, at: str, issues: list[Issue]) -> Any:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            issues.append((at, f"expected a whole number, found {kind(value)}"))
        elif value < self.low or (self.high is not None and value > self.high):
            most = "" if self.high is None else f" to {self.high}"
            issues.append((at, f"expected a whole number from {self.low}{most}, found {str(value)[:20]}"))
        return value

    def read_text(self, text: str, at: str, issues: list[Issue]) -> Any:
        if not text.removeprefix("-").isdigit() or not text.isascii() or len(text) > 15:
            issues.append((at, f"expected a whole number from {self.low}, found {text[:20]!r}"))
            return text
        return self.check(int(text), at, issues)

    def schema(self) -> dict[str, Any]:
        out: dict[str, Any] = {"type": "integer", "minimum": self.low}
        if self.high is not None:
            out["maximum"] = self.high
        return out


@dataclass(frozen=True)
class Date(Shape):
    """A date as ISO 8601 text. `clears`: null is taken and means none."""

    clears: bool = False

    def check(self, value: Any, at: str, issues: list[Issue]) -> Any:
        if isinstance(value, str):
            try:
                return clock.parse(value)
            except (ValueError, OverflowError):
                pass
        issues.append(
            (
                at,
                f"expected an ISO 8601 date, found {value[:40]!r}"
                if isinstance(value, str)
                else f"expected an ISO 8601 date, found {kind(value)}",
            )
        )
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": ["string", "null"] if self.clears else "string", "format": "date-time"}


class Flag(Shape):
    """True or false."""

    def check(self, value: Any, at: str, issues: list[Issue]) -> Any:
        if not isinstance(value, bool):
            issues.append((at, f"expected true or false, found {kind(value)}"))
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


@dataclass(frozen=True)
class Object(Shape):
    """An object. `fields` that are present are checked, `required` ones must be; the rest passes unchecked."""

    fields: Mapping[str, Shape] | None = None
    required: tuple[str, ...] = ()
    max_bytes: int | None = None

    def check(self, value: Any, at: str, issues: list[Issue]) -> Any:
        if not isinstance(value, dict):
            issues.append((at or "body", f"expected an object, found {kind(value)}"))
            return {}
        out = dict(value)
        for name, shape in (self.fields or {}).items():
            found = out.get(name)
            path = f"{at}.{name}" if at else name
            if found is not None:
                out[name] = shape.check(found, path, issues)
                continue
            if name in out and isinstance(shape, Date) and shape.clears:
                continue
            out.pop(name, None)
            if name in self.required:
                issues.append((path, "expected a value, found nothing"))
        if self.max_bytes is not None and (size := len(dumps(value).encode())) > self.max_bytes:
            issues.append((at or "body", f"expected at most {self.max_bytes} bytes of JSON, found {size}"))
        return out

    def schema(self) -> dict[str, Any]:
        out: dict[str, Any] = {"type": "object"}
        if self.fields:
            out["properties"] = {name: shape.schema() for name, shape in self.fields.items()}
        if self.required:
            out["required"] = list(self.required)
        return out


@dataclass(frozen=True)
class List(Shape):
    """A list."""

    item: Shape = ANY
    min_items: int = 0
    max_items: int | None = None

    def check(self, value: Any, at: str, issues: list[Issue]) -> Any:
        if not isinstance(value, list):
            issues.append((at, f"expected a list, found {kind(value)}"))
            return []
        if len(value) < self.min_items or (self.max_items is not None and len(value) > self.max_items):
            most = "" if self.max_items is None else f" to {self.max_items}"
            issues.append((at, f"expected {self.min_items}{most} items, found {len(value)}"))
            return []
        return [self.item.check(item, f"{at}.{number}", issues) for number, item in enumerate(value)]

    def schema(self) -> dict[str, Any]:
        out: dict[str, Any] = {"type": "array", "items": self.item.schema()}
        if self.min_items:
            out["minItems"] = self.min_items
        if self.max_items is not None:
            out["maxItems"] = self.max_items
        return out


@dataclass(frozen=True)
class Either(Shape):
    """A value of one of several shapes: the first that takes it."""

    shapes: tuple[Shape, ...]
    expected: str

    def check(self, value: Any, at: str, issues: list[Issue]) -> Any:
        best: list[Issue] = []
        for shape in self.shapes:
            wrong: list[Issue] = []
            checked = shape.check(value, at, wrong)
            if not wrong:
                return checked
            if any(field != at for field, _ in wrong):
                best = wrong  # the shape fits and something inside it does not: say what
        issues.extend(best or [(at, f"expected {self.expected}, found {kind(value)}")])
        return value

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [shape.schema() for shape in self.shapes]}


@dataclass(frozen=True)
class JsonText(Shape):
    """A query value that is JSON text."""

    inner: Shape
    plain: Shape | None = None

    def read_text(self, text: str, at: str, issues: list[Issue]) -> Any:
        try:
            value = loads(text)
        except (ValueError, RecursionError):
            if self.plain is not None:
                return self.plain.check(text, at, issues)
            issues.append((at, "expected JSON"))
            return None
        if self.plain is not None and not isinstance(value, dict | list):
            return self.plain.check(text, at, issues)
        return self.inner.check(value, at, issues)

    def schema(self) -> dict[str, Any]:
        return {"type": "string"}


def kind(value: Any) -> str:
    """What a value is, in the words of JSON."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return {str: "a string", int: "a number", float: "a number", list: "a list", dict: "an object"}.get(
        type(value), type(value).__name__
    )


def read_body(shape: Object, value: Any) -> dict[str, Any]:
    """Check a body. Raises RequestError with every wrong field."""
    issues: list[Issue] = []
    out: dict[str, Any] = shape.check(value, "", issues)
    if issues:
        raise RequestError(issues, "body")
    return out


def read_query(
    shapes: Mapping[str, Shape], query: Mapping[str, Sequence[str]], required: Sequence[str] = ()
) -> dict[str, Any]:
    """Check the known keys of a query; of several values the last counts, and the text ``undefined`` is none.

    Raises RequestError with every wrong key.
    """
    issues: list[Issue] = []
    out: dict[str, Any] = {}
    for name, shape in shapes.items():
        text = next(iter(reversed(query.get(name) or ())), _MISSING)
        if isinstance(text, str) and text != "undefined":
            out[name] = shape.read_text(text, name, issues)
        elif name in required:
            issues.append((name, "expected a value, found nothing"))
    if issues:
        raise RequestError(issues, "query")
    return out
