"""JSON values that cannot change: what messages hold, and what hooks are handed."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn, TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Any] | dict[str, Any] | None"


def _refuse(self: object, *_args: object, **_kwargs: object) -> NoReturn:
    raise TypeError(f"{type(self).__name__} cannot be changed; build a new value instead")


class FrozenDict(dict[str, Any]):
    """A JSON object that refuses changes. Equal to, and serialised as, a plain dict."""

    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return (freeze, (dict(self),))

    def __deepcopy__(self, memo: dict[int, Any]) -> FrozenDict:
        return self

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(dumps(self))


class FrozenList(list[Any]):
    """A JSON array that refuses changes. Equal to, and serialised as, a plain list."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = append = clear = extend = insert = pop = remove = reverse = (
        sort
    ) = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return (freeze, (list(self),))

    def __deepcopy__(self, memo: dict[int, Any]) -> FrozenList:
        return self

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(dumps(self))


EMPTY = FrozenDict()


def freeze(value: Any) -> Any:
    """Return `value` with every dict and list in it made unchangeable. Tuples become arrays."""
    kind = type(value)
    if kind is dict:
        return FrozenDict({key: freeze(item) for key, item in value.items()})
    if kind is list or kind is tuple:
        return FrozenList([freeze(item) for item in value])
    return value


def thaw(value: Any) -> Any:
    """Return a deep copy of `value` made of plain dicts and lists."""
    if isinstance(value, dict):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, list):
        return [thaw(item) for item in value]
    return value


def dumps(value: object) -> str:
    """Compact JSON text that UTF-8 can carry: no spaces, non-ASCII kept as it is.

    Where a lone surrogate is in it, such as half of an emoji that was cut, all non-ASCII is escaped: so it survives.
    Raises ValueError on NaN and infinities.
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text


def loads(text: str | bytes) -> Any:
    """Parse JSON text. NaN and infinities, which are not JSON, raise ValueError, and so do numbers like 1e999."""
    return json.loads(text, parse_constant=_reject_constant, parse_float=_finite)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text:.20} is too large for a number")
    return number


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
