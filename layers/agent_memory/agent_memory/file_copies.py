"""Copies of files for another owner: every owner has copies of its own, under the names that the messages know."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from agent_memory.attachments import change_files, key_of_name, name_of
from agent_memory.errors import NotFoundError
from agent_memory.messages import Message
from agent_memory.ports import BlobStore, FileRecord, FileStore

_COPIES_AT_ONCE = 4


def copy_files(
    blobs: BlobStore | None,
    messages: Iterable[Message],
    owner: str,
    new_owner: str,
    *,
    files: FileStore | None = None,
) -> int:
    """Copy the files that `messages` of `owner` refer to under `new_owner`, where the same references find them.

    The copies are kept for a day without a use; store the messages within that time. Files that are gone are left out. An
    owner's own threads share files, so there nothing is copied. Repeatable.

    Args:
        blobs: Where the files lie; None: nothing is copied.
        messages: Stored messages.
        owner, new_owner: Resources.
        files: Where files are noted; None: nowhere.

    Returns:
        How many were copied.
    """
    if blobs is None or owner == new_owner:
        return 0
    found: dict[str, FileRecord] = {}

    def collect(address: str, media_type: str | None, filename: str | None) -> None:
        name = name_of(address)
        if name is not None and (name not in found or found[name].media_type is None):
            found[name] = FileRecord(name=name, media_type=media_type, filename=filename)

    for message in messages:
        change_files(message, collect)
    if not found:
        return 0
    if files is not None:
        files.expect(new_owner, tuple(found.values()))

    def copy(name: str) -> bool:
        try:
            blobs.copy(key_of_name(name, owner), key_of_name(name, new_owner))
        except NotFoundError:
            return False
        return True

    with ThreadPoolExecutor(_COPIES_AT_ONCE) as pool:
        return sum(pool.map(copy, found))
