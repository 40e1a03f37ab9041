"""What is known of the files of messages: which messages use them, and until when they are kept without a use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, Protocol, runtime_checkable

FileState = Literal["ready", "promised", "gone"]

REFERENCE_SCHEME: Final = "attachment://"

GRACE_S: Final = 25 * 3_600
"""How long a file is kept that no message uses: a day, and an hour for clocks and for runs that end late."""

UPLOAD_LIFETIME_S: Final = 3_600
"""How long an address to upload to can be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRecord:
    """A file of a resource.

    Attributes:
        name: What references call it. Bytes under a name never change.
        state: ``promised``: its bytes are expected or not checked yet; ``ready``; ``gone``: removed, or about to be.
        media_type, filename, size: As far as they are known; size in bytes.
        kept_until: Before this time it is not removed, whether or not a message uses it.
    """

    name: str
    state: FileState = "ready"
    media_type: str | None = None
    filename: str | None = None
    size: int | None = None
    kept_until: datetime | None = None

    @property
    def reference(self) -> str:
        """What a message holds of it."""
        return f"{REFERENCE_SCHEME}{self.name}"


@dataclass(frozen=True, slots=True)
class FileUse:
    """That a message of a thread refers to a file."""

    name: str
    thread_id: str
    message_id: str


@dataclass(frozen=True, slots=True)
class FileMark:
    """A note to look at a file at a time (milliseconds since 1970) and to remove it if no message uses it.

    With `thread_id` and `message_id` it is one about the overflow body of that message: `name` is its key, and it goes if no row
    of the message points to it.
    """

    resource_id: str
    name: str
    due: int
    thread_id: str | None = None
    message_id: str | None = None


@runtime_checkable
class FileStore(Protocol):
    """Files of resources.

    Nothing that a message uses is removed. It rests on this: whoever is about to write a use first has the file kept
    for `GRACE_S` (`expect` for new bytes, `hold` for a file that is there, `release` when another use goes) and writes
    the use within that time; `condemn` removes only a file whose time has run out, that has no use, and whose time was
    not set anew since it looked.
    """

    def expect(self, resource_id: str, files: Sequence[FileRecord]) -> None:
        """Note files whose bytes are about to be written: new ones, or copies for another owner. One request for 40.

        Raises ConflictError (``RESOURCE_LOCKED``) while the resource is being erased, UnavailableError where the owner's
        copy of that name was removed less than 20 minutes ago.
        """

    def find(self, resource_id: str, name: str) -> FileRecord | None:
        """What is known of a file. One request, and one more for a file that was withdrawn."""

    def hold(self, resource_id: str, names: Sequence[str]) -> Mapping[str, FileRecord]:
        """Keep files that a message is about to use. Those that are gone or were never known are left out. Two requests.

        A name that is no upload's and of which nothing is known is taken as a ready file. Raises ConflictError
        (``RESOURCE_LOCKED``) while the resource is being erased.
        """

    def settle(self, resource_id: str, file: FileRecord) -> bool:
        """Note that a promised file's bytes are there and checked. False where it is not promised. One request."""

    def refuse(self, resource_id: str, name: str) -> None:
        """Note that a promised file is of no use: it is gone. One request."""

    def uses(self, resource_id: str, uses: Sequence[FileUse]) -> Mapping[FileUse, str]:
        """Those uses that are noted, each with a token that every writing of it changes. One request for 100."""

    def release(self, resource_id: str, use: FileUse, token: str) -> bool:
        """Take away a use that still has this token; the file is looked at again later. One request."""

    def withdraw(self, resource_id: str, uses: Sequence[FileUse]) -> None:
        """Take away uses by messages that were given to another resource. Two requests a use.

        A file without another use counts as gone for this resource at once, until its bytes are written anew.
        """

    def due(self, *, limit: int = 100) -> tuple[tuple[FileMark, ...], bool]:
        """Marks that are due, oldest first, and whether there may be more. One request, one more for every day."""

    def condemn(self, mark: FileMark) -> bool:
        """Whether the bytes of a file must go now. Then `clear` the mark once they have; else the mark is gone already."""

    def clear(self, marks: Sequence[FileMark]) -> None:
        """Remove marks that are done with."""
