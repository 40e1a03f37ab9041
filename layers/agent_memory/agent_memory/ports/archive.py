"""What exports, imports and erasure ask of a bucket beside a BlobStore: pieces, ranges and versions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from agent_memory.ports.runs import BlobStore


@dataclass(frozen=True, slots=True)
class BlobVersion:
    """One version of an object. `marker`: it says that the object was deleted, and has no bytes."""

    key: str
    version: str
    size: int
    latest: bool
    marker: bool = False


@runtime_checkable
class Archive(BlobStore, Protocol):
    """Large objects written and read in pieces, and everything that lies under a prefix, versions included."""

    def put_for_a_week(self, key: str, data: bytes, content_type: str) -> None:
        """As `put`; the bucket removes the object after 7 days. One request."""

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """At most `length` bytes from `start`; empty behind the end. Raises NotFoundError. One request."""

    def begin_upload(self, key: str, content_type: str, *, expires: bool = False) -> str:
        """Begin an object of several pieces; returns the upload's id. `expires`: the bucket removes it after 7 days."""

    def upload_piece(self, key: str, upload_id: str, number: int, data: bytes) -> str:
        """Write a piece (from 1; at least 5 MiB but for the last); returns its tag. A repeat replaces it."""

    def finish_upload(self, key: str, upload_id: str, tags: Sequence[str]) -> None:
        """Make the object of its pieces. Finishing twice is harmless."""

    def list_versions(
        self, prefix: str, *, cursor: Any = None, limit: int = 1_000
    ) -> tuple[tuple[BlobVersion, ...], Any]:
        """Versions and deletion markers under a prefix, and a cursor where there may be more. One request."""

    def get_version(self, version: BlobVersion) -> bytes:
        """The bytes of one version. Raises NotFoundError. One request."""

    def delete_versions(self, versions: Sequence[BlobVersion]) -> None:
        """Remove versions and markers for good; unknown ones are not an error. One request per 1,000."""

    def abort_uploads(self, prefix: str) -> int:
        """Remove the pieces of unfinished uploads under a prefix. Returns how many uploads there were."""
