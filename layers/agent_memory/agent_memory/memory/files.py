"""Files of messages when their owner changes: every owner has copies of its own."""

from __future__ import annotations

from collections.abc import Iterable

from agent_memory.attachments import change_files, echo_to_reference, key_of
from agent_memory.errors import NotFoundError
from agent_memory.messages import Message
from agent_memory.ports import BlobStore


def copy_files(blobs: BlobStore | None, messages: Iterable[Message], owner: str, new_owner: str) -> int:
    """Copy the files that `messages` of `owner` refer to under `new_owner`, where the same references find them.

    Files that are gone are left out. Returns how many were copied.
    """
    if blobs is None or owner == new_owner:
        return 0
    types: dict[str, str | None] = {}

    def collect(address: str, media_type: str | None, _name: str | None) -> None:
        if key_of(address, owner) is not None:
            types[address] = media_type or types.get(address)

    for message in messages:
        change_files(message, collect)
    copied = 0
    for reference, media_type in types.items():
        source, target = key_of(reference, owner), key_of(reference, new_owner)
        try:
            if source is not None and target is not None:
                blobs.put(target, blobs.get(source), media_type)
                copied += 1
        except NotFoundError:
            continue
    return copied


def with_references(message: Message, owner: str) -> Message:
    """The message with the reference in place of each link that was signed for this owner, so that none goes stale."""
    return change_files(message, lambda address, _type, _name: echo_to_reference(address, owner))
