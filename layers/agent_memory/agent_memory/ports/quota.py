"""What a resource may use in a time."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class Quota(Protocol):
    """Limits of every resource: turns in a minute, tokens in a day. Only where a limit is set is there one of these."""

    def admit(self, owner: str) -> None:
        """Count a turn that is about to begin. One request. Raises QuotaError where a limit was met; UnavailableError."""

    def spend(self, owner: str, tokens: int) -> None:
        """Count tokens that a turn has taken. One request where tokens are limited, else none. Never raises."""
