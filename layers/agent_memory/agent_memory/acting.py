"""For which owner the code at work was called, where that is one owner for certain: a signed-in end user's own resource."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_owner: ContextVar[str | None] = ContextVar("agent_memory_acting_for", default=None)


def act_for(owner: str | None) -> None:
    """From now on in this context and its copies everything is done for `owner`; None: for nobody in particular."""
    _owner.set(owner)


@contextmanager
def acting_for(owner: str | None) -> Iterator[None]:
    """The same for what is done inside."""
    token = _owner.set(owner)
    try:
        yield
    finally:
        _owner.reset(token)


def owner_at_work() -> str | None:
    """The owner, or None."""
    return _owner.get()
