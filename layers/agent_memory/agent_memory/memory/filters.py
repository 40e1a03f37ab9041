"""Reading what callers ask for: pages, orders, filters, includes. Snake_case and camelCase keys mean the same."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from agent_memory import clock
from agent_memory.errors import InvalidInputError
from agent_memory.ids import check_id
from agent_memory.messages import Message
from agent_memory.ports import DateRange

DEFAULT_MESSAGES_PER_PAGE: Final = 40
DEFAULT_THREADS_PER_PAGE: Final = 100
MAX_METADATA_KEY_CHARS: Final = 128
_METADATA_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_RESERVED_KEYS: Final = frozenset({"__proto__", "prototype", "constructor"})
_LARGEST_OFFSET: Final = 2**52  # half of the integers that a JavaScript client can count exactly

PerPage = int | Literal[False] | None
"""A page size; False: all; None: the default."""


@dataclass(frozen=True, slots=True)
class Include:
    """A message that shall be among the results, with neighbours. `thread_id` says where to look first."""

    id: str
    thread_id: str | None = None
    before: int = 0
    after: int = 0


def read_page(page: Any, per_page: Any, default: int) -> tuple[int, int | Literal[False]]:
    """Check a page number (from 0) and a page size."""
    number = _whole("page", page)
    if per_page is None:
        size: int | Literal[False] = default
    elif per_page is False:
        if number:
            raise InvalidInputError("page", "expected 0 when per_page is False (all), found " + str(number))
        return 0, False
    else:
        size = _whole("per_page", per_page)
    if number * size > _LARGEST_OFFSET:
        raise InvalidInputError("page", f"expected page × per_page up to {_LARGEST_OFFSET}, found more")
    return number, size


def read_order(order_by: Any) -> tuple[Literal["createdAt", "updatedAt"], bool]:
    """The field to order by and whether the newest come first, from ``{"field", "direction"}``; both may be left out."""
    if order_by is None:
        return "createdAt", True
    if not isinstance(order_by, Mapping):
        raise InvalidInputError("order_by", f"expected an object with field and direction, found {_kind(order_by)}")
    field = order_by.get("field") or "createdAt"
    direction = order_by.get("direction") or "DESC"
    if field not in ("createdAt", "created_at", "updatedAt", "updated_at"):
        raise InvalidInputError("order_by.field", f"expected createdAt or updatedAt, found {_shown(field)}")
    if not isinstance(direction, str) or direction.upper() not in ("ASC", "DESC"):
        raise InvalidInputError("order_by.direction", f"expected ASC or DESC, found {_shown(direction)}")
    return ("updatedAt" if field.startswith("updated") else "createdAt"), direction.upper() == "DESC"


def read_message_filter(raw: Any) -> tuple[DateRange | None, Mapping[str, Any] | None]:
    """Date range and metadata of ``{"dateRange": {"start", "end", …}, "metadata": {…}}``. Ends belong to the range."""
    given = _object("filter", raw)
    metadata = _object("filter.metadata", given.get("metadata"))
    for key, value in metadata.items():
        check_metadata_key(key)
        if not _is_scalar(value):
            raise InvalidInputError(
                f"filter.metadata.{key}",
                f"expected a string, a finite number, a boolean or null, found {_shown(value)}",
            )
    return _read_dates(_object("filter.date_range", _either(given, "date_range", "dateRange"))), metadata or None


def read_thread_filter(raw: Any) -> tuple[Any, Mapping[str, Any] | None]:
    """Resource id (or None) and metadata of ``{"resourceId", "metadata"}``."""
    given = _object("filter", raw)
    metadata = _object("filter.metadata", given.get("metadata"))
    for key in metadata:
        check_metadata_key(key)
    return _either(given, "resource_id", "resourceId"), metadata or None


def check_metadata_key(key: Any) -> str:
    """A key that may stand in a metadata filter. Raises InvalidInputError."""
    if (
        not isinstance(key, str)
        or len(key) > MAX_METADATA_KEY_CHARS
        or key in _RESERVED_KEYS
        or _METADATA_KEY.fullmatch(key) is None
    ):
        raise InvalidInputError(
            f"filter.metadata.{str(key)[:MAX_METADATA_KEY_CHARS]}",
            f"expected a key of letters, digits and _ that begins with no digit, up to {MAX_METADATA_KEY_CHARS} characters",
        )
    return key


def read_include(raw: Any) -> tuple[Include, ...]:
    """The messages of ``[{"id", "threadId"?, "withPreviousMessages"?, "withNextMessages"?}]``; bare ids are taken too."""
    if raw is None:
        return ()
    if isinstance(raw, str) or not isinstance(raw, Sequence):
        raise InvalidInputError("include", f"expected a list, found {_kind(raw)}")
    return tuple(_read_include(f"include.{index}", item) for index, item in enumerate(raw))


def matches(dates: DateRange | None = None, metadata: Mapping[str, Any] | None = None) -> Callable[[Message], bool]:
    """Whether a message passes a filter that was read before."""

    def check(message: Message) -> bool:
        if dates is not None and not dates.contains(message.created_at):
            return False
        own = message.metadata
        return all(key in own and _same(own[key], value) for key, value in (metadata or {}).items())

    return check


def _same(found: Any, wanted: Any) -> bool:
    # True equals 1 in Python; in JSON they are different values.
    return isinstance(found, bool) == isinstance(wanted, bool) and bool(found == wanted)


def _read_include(at: str, item: Any) -> Include:
    if isinstance(item, Include):
        return item
    if isinstance(item, str):
        return Include(check_id(at, item))
    given = _object(at, item)
    thread_id = _either(given, "thread_id", "threadId")
    before = _either(given, "with_previous_messages", "withPreviousMessages")
    after = _either(given, "with_next_messages", "withNextMessages")
    return Include(
        check_id(f"{at}.id", given.get("id")),
        None if thread_id is None else check_id(f"{at}.threadId", thread_id),
        0 if before is None else _whole(f"{at}.withPreviousMessages", before),
        0 if after is None else _whole(f"{at}.withNextMessages", after),
    )


def _read_dates(given: Mapping[str, Any]) -> DateRange | None:
    bounds: dict[str, Any] = {}
    for name in ("start", "end"):
        if given.get(name) is not None:
            try:
                bounds[name] = clock.parse(given[name])
            except (ValueError, TypeError, AttributeError, OverflowError):
                raise InvalidInputError(
                    f"filter.date_range.{name}", f"expected an ISO date, found {_shown(given[name])}"
                ) from None
        exclusive = _either(given, f"{name}_exclusive", f"{name}Exclusive")
        if exclusive is not None:
            if not isinstance(exclusive, bool):
                raise InvalidInputError(
                    f"filter.date_range.{name}_exclusive", f"expected True or False, found {_shown(exclusive)}"
                )
            bounds[f"{name}_exclusive"] = exclusive
    return DateRange(**bounds) if "start" in bounds or "end" in bounds else None


def _whole(field: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidInputError(field, f"expected a whole number from 0 up, found {_shown(value)}")
    return value


def _object(field: str, value: Any) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidInputError(field, f"expected an object, found {_kind(value)}")
    return value


def _either(given: Mapping[str, Any], *names: str) -> Any:
    return next((given[name] for name in names if given.get(name) is not None), None)


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value))


def _kind(value: Any) -> str:
    return "nothing" if value is None else type(value).__name__


def _shown(value: Any) -> str:
    if isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) <= 40):
        return repr(value)
    return _kind(value)
