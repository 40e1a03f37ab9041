"""How options are declared and read: one reader per field, which checks a value and says what is wrong with it.

An options class is a frozen dataclass whose fields are declared with `option(reader, default)`. Its values are read from
snake_case or camelCase keys by `read_into`, and checked again by `check` where the class is called directly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import field, fields, replace
from typing import Any, Final, TypeVar

from agent_memory._json import FrozenDict, freeze
from agent_memory.errors import InvalidInputError

T = TypeVar("T")
MAX_DAYS: Final = 36_500

Reader = Callable[[Any, str, Any, bool], Any]
"""Reads one value: (value, dotted path, value in force or None, strict) → the value to keep."""

_REMOVED: Final = {
    "use": "it was removed: working memory is always updated by its tool; leave the key out",
    "processors": "it was removed: put processors into the agent's input_processors or output_processors",
    "threads": "it was removed: set generate_title at the top level of the options",
}


def option(read: Reader, default: Any = None) -> Any:
    """A dataclass field whose values go through `read`."""
    return field(default=default, metadata={"read": read})


def expected(at: str, what: str, value: Any) -> InvalidInputError:
    """The error for a value of the wrong kind; long or structured values are named by their type."""
    found = repr(value) if isinstance(value, bool | int | float) else type(value).__name__
    if isinstance(value, str) and len(value) <= 20:
        found = repr(value)
    return InvalidInputError(at, f"expected {what}, found {found}")


# ------------------------------------------------------------------------------------------------ readers of one value


def whole(minimum: int, maximum: int | None = None) -> Reader:
    bounds = f"from {minimum} up" if maximum is None else f"from {minimum} to {maximum}"

    def read(value: Any, at: str, _current: Any, _strict: bool) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= (maximum or value):
            raise expected(at, f"a whole number {bounds}", value)
        return value

    return read


def count_or_off(value: Any, at: str, _current: Any, _strict: bool) -> int:
    if value is False:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise expected(at, "a whole number from 0 up, or False for none", value)
    return value


def flag(value: Any, at: str, _current: Any, _strict: bool) -> bool:
    if not isinstance(value, bool):
        raise expected(at, "True or False", value)
    return value


def text(value: Any, at: str, _current: Any, _strict: bool) -> str:
    if not isinstance(value, str) or not value.strip():
        raise expected(at, "a text that is not blank", value)
    return value


def choice(*allowed: str) -> Reader:
    def read(value: Any, at: str, _current: Any, _strict: bool) -> str:
        if not isinstance(value, str) or value not in allowed:
            raise expected(at, " or ".join(allowed), value)
        return value

    return read


def number(value: Any, at: str, _current: Any, _strict: bool) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise expected(at, "a finite number", value)
    return value


def days(value: Any, at: str, _current: Any, _strict: bool) -> float:
    if not 0 < number(value, at, None, True) <= MAX_DAYS:
        raise expected(at, f"a number above 0, at most {MAX_DAYS}", value)
    return float(value)


def mapping(value: Any, at: str, _current: Any, _strict: bool) -> FrozenDict:
    if not isinstance(value, Mapping):
        raise expected(at, "an object", value)
    frozen: FrozenDict = freeze(dict(value))
    return frozen


def schema(value: Any, at: str, _current: Any, _strict: bool) -> FrozenDict:
    describe = getattr(value, "model_json_schema", None)  # a pydantic model class
    if describe is not None:
        value = describe()
    return mapping(value, at, None, True)


def model(value: Any, at: str, _current: Any, strict: bool) -> Any:
    # A model object or a function can only come from Python; a request may name a model.
    if isinstance(value, str) and value.strip():
        return value
    if strict and (callable(value) or callable(getattr(value, "stream", None))):
        return value
    raise expected(at, "a model's name, a ChatModel, or a function of the request context", value)


def instructions(value: Any, at: str, _current: Any, strict: bool) -> Any:
    if (strict and callable(value)) or (isinstance(value, str) and value.strip()):
        return value
    raise expected(at, "a text, or a function of the request context", value)


def section(kind: Callable[[], type[Any]]) -> Reader:
    def read(value: Any, at: str, current: Any, strict: bool) -> Any:
        cls = kind()
        if value is False:
            return None
        if isinstance(value, cls):
            return value
        if value is True:
            return current or cls()
        if not isinstance(value, Mapping):
            raise expected(at, "True, False or an object", value)
        rest = {key: item for key, item in value.items() if key != "enabled"}
        enabled = flag(value["enabled"], f"{at}.enabled", None, strict) if value.get("enabled") is not None else True
        section = read_into(cls, rest, at, current, strict)
        return section if enabled else None

    return read


# ------------------------------------------------------------------------------------------------------------- inside


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def _readers(cls: Any) -> dict[str, Reader]:
    return {item.name: item.metadata["read"] for item in fields(cls) if "read" in item.metadata}


def check(options: Any) -> None:
    """Check (and normalise) the fields of an options object that was built directly."""
    for item in fields(options):
        value = getattr(options, item.name)
        if "read" not in item.metadata or (value is None and item.default is None):
            continue
        read = item.metadata["read"]
        value = item.default if value is None else value
        object.__setattr__(options, item.name, read(value, _camel(item.name), None, True))


def read_into(cls: type[T], raw: Mapping[str, Any], at: str, base: T | None, strict: bool) -> T:
    """Read `raw` (found under path `at`) into `cls`, on top of `base`."""
    readers = _readers(cls)
    changes: dict[str, Any] = {}
    for name, (key, value) in _by_name(raw, readers, at, strict).items():
        changes[name] = readers[name](value, f"{at}.{key}" if at else key, getattr(base, name, None), strict)
    if base is None:
        return cls(**changes)
    return replace(base, **changes)  # type: ignore[type-var]


def _by_name(raw: Mapping[str, Any], known: Mapping[str, Any], at: str, strict: bool) -> dict[str, tuple[str, Any]]:
    """The given values by snake_case name, each with the key it came under."""
    names = {_camel(name): name for name in known} | {name: name for name in known}
    given: dict[str, tuple[str, Any]] = {}
    for key, value in raw.items():
        path = f"{at}.{key}" if at else str(key)
        name = names.get(key)
        if name is None:
            if key in _REMOVED and value is not None:
                raise InvalidInputError(path, _REMOVED[key])
            if strict:
                raise InvalidInputError(path, _unknown(str(key), names))
            continue
        if value is None:
            continue
        if name in given and given[name][1] != value:
            raise InvalidInputError(path, f"given twice with different values, also as {given[name][0]}; remove one")
        given[name] = (key, value)
    return given


def _unknown(key: str, names: Mapping[str, str]) -> str:
    from difflib import get_close_matches

    near = sorted({names[match] for match in get_close_matches(key, names, n=3)})
    advice = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(sorted(set(names.values())))}"
    return f"expected a known option, found this one; {advice}"
