"""Files of messages that are written outside of a run, and of messages whose owner changes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from agent_memory.attachments import change_files, echo_to_reference
from agent_memory.errors import AccessDeniedError, AgentMemoryError, InvalidInputError, NotFoundError
from agent_memory.file_copies import copy_files
from agent_memory.messages import Message

if TYPE_CHECKING:
    from agent_memory.memory.base import MemoryBase
    from agent_memory.processors.attachment_uploader import AttachmentUploader

__all__ = ["FileKeeper", "copy_files"]

_NOTHING_STORED = (AccessDeniedError, InvalidInputError, NotFoundError)

_log = logging.getLogger(__name__)


class FileKeeper:
    """Keeps the files of messages of one owner while they are saved; should that fail, what was uploaded for it is removed.

    Unless a message may be stored all the same: as of a save that storage did not answer, or of whose parts one was refused.
    Then the files are left to the end of their time.

    Args:
        memory: Whose storage is used.
        owner: The owner of the messages.
    """

    def __init__(self, memory: MemoryBase, owner: str) -> None:
        self._memory = memory
        self._owner = owner
        self._uploader: AttachmentUploader | None = None
        self._before = 0
        self._taken = False

    def __enter__(self) -> FileKeeper:
        self._before = len(self._uploader.uploads) if self._uploader is not None else 0
        self._taken = False
        return self

    def __exit__(self, error: type[BaseException] | None, *_: Any) -> None:
        blobs = self._memory.blobs
        if error is None or self._uploader is None or blobs is None:
            return
        uploads = self._uploader.uploads[self._before :]
        if not uploads or (self._taken and not issubclass(error, _NOTHING_STORED)):
            return
        try:
            blobs.delete(uploads)
        except AgentMemoryError:
            _log.warning("uploads of a save that failed were left behind", exc_info=True)

    def take(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """The messages with references in place of their files. Raises what `AttachmentUploader.take` raises."""
        memory = self._memory
        if memory.blobs is None:
            # Bytes stay in the messages; links that were signed for this owner still become references.
            return tuple(change_files(m, lambda address, *_: echo_to_reference(address, self._owner)) for m in messages)
        if self._uploader is None:
            from agent_memory.processors.attachment_uploader import AttachmentUploader

            plain = AttachmentUploader(memory.blobs, files=memory.files, rules=memory.file_rules)
            self._uploader = plain.of_owner(self._owner)
        kept = tuple(self._uploader.take(messages))
        self._taken = True
        return kept

    def after(self, change: Callable[[Message], Message]) -> Callable[[Message], Message]:
        """The change, followed by `take` where it changed what the message holds."""

        def changed(stored: Message) -> Message:
            new = change(stored)
            attachments = (stored.content.experimental_attachments, new.content.experimental_attachments)
            if new.parts == stored.parts and attachments[0] == attachments[1]:
                return new
            return self.take([new])[0]

        return changed
