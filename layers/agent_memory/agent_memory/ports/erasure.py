"""What erasure asks of the stores that hold rows of a resource."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class ErasableRows(Protocol):
    """Rows of resources. Counts are by kind of row, e.g. ``{"messages": 40}``; those that are 0 are left out."""

    def remove_resource(self, resource_id: str, *, limit: int = 1_000) -> Mapping[str, int]:
        """Remove about `limit` rows that lie under the resource's keys. Empty: none were left."""

    def remove_traces(
        self, resource_id: str, *, cursor: Any = None, spare: str | None = None
    ) -> tuple[Mapping[str, int], Any]:
        """Walk over all rows of all owners and remove those that name the resource, 1 MB a call.

        Args:
            resource_id: The resource.
            cursor: Where the walk goes on; None begins it.
            spare: Id of the job that asks, whose own row stays.

        Returns:
            What was removed, and a cursor where there is more to walk over.

        Raises:
            UnavailableError: A job that has not ended names the resource; call again when it has.
        """


@runtime_checkable
class ErasableStore(ErasableRows, Protocol):
    """Threads, messages and working memory, which can be closed for a resource."""

    def lock_of(self, resource_id: str) -> str | None:
        """Id of the job that keeps the resource closed; None where it is open. One request."""

    def lock_resource(self, resource_id: str, job_id: str, *, instead_of: str | None = None) -> str:
        """Close the resource: new threads and working memory are refused. One request.

        Returns the id of the job that holds it, which is another one where it was closed already (and not by `instead_of`).
        """

    def unlock_resource(self, resource_id: str, job_id: str) -> None:
        """Forget the resource, the lock of that job included. Harmless where it is not closed by it. One request."""

    def bury_threads(self, resource_id: str, *, cursor: Any = None) -> tuple[int, Any]:
        """Hide a page of threads at once and for good, so that running turns fail to commit.

        Returns how many were shown or being built, and a cursor where there may be more.
        """
