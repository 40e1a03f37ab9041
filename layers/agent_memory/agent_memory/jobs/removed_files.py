"""What follows for files when messages are removed or changed: the stream of the messages table tells of it.

Records come late, twice and out of order, so a record only says where to look: what counts is the rows as they are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from agent_memory.errors import AgentMemoryError, UnavailableError
from agent_memory.ports import BlobStore, FileStore, FileUse, MessageStore


@dataclass(frozen=True, slots=True)
class FileChange:
    """What a record says that messages of a thread may not refer to any more.

    Attributes:
        number: Its number in the stream.
        resource_id, thread_id: Whose.
        files: Message ids and names of files.
        bodies: Message ids and keys of overflow bodies.
    """

    number: str
    resource_id: str
    thread_id: str
    files: tuple[tuple[str, str], ...] = ()
    bodies: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class Released:
    """What one batch came to: uses and bodies that went, and the numbers of records that could not be followed.

    Those in `failed` may be delivered again; those in `refused` would fail again.
    """

    uses: int = 0
    bodies: int = 0
    failed: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


def apply(
    changes: Iterable[FileChange], store: MessageStore, files: FileStore | None, blobs: BlobStore | None
) -> Released:
    """Take away uses that no row makes any more, and remove bodies that no row points to.

    Never raises for what storage answers: the records concerned come back in `failed` and `refused`.
    """
    result = Released()
    by_thread: dict[tuple[str, str], list[FileChange]] = defaultdict(list)
    for change in changes:
        by_thread[change.resource_id, change.thread_id].append(change)
    for (resource_id, thread_id), group in by_thread.items():
        try:
            _thread(resource_id, thread_id, group, store, files, blobs, result)
        except UnavailableError:
            result.failed += [change.number for change in group]
        except AgentMemoryError:
            result.refused += [change.number for change in group]
    return result


def _thread(
    resource_id: str,
    thread_id: str,
    changes: Sequence[FileChange],
    store: MessageStore,
    files: FileStore | None,
    blobs: BlobStore | None,
    result: Released,
) -> None:
    lost = {FileUse(name, thread_id, message_id) for change in changes for message_id, name in change.files}
    bodies = dict.fromkeys(body for change in changes for body in change.bodies)
    # The tokens first, then the rows: a message that takes the file again after the rows were read changes the token.
    noted: Mapping[FileUse, str] = files.uses(resource_id, tuple(lost)) if files is not None and lost else {}
    ids = dict.fromkeys([*(use.message_id for use in noted), *(message_id for message_id, _ in bodies)])
    if not ids:
        return
    now = store.references(resource_id, thread_id, tuple(ids))
    for use, token in noted.items():
        if files is not None and use.name not in now.get(use.message_id, ()):
            result.uses += files.release(resource_id, use, token)
    orphans = [key for message_id, key in bodies if key not in now.get(message_id, ())]
    if orphans and blobs is not None:
        # No row will ever point to these again: every write of a body has a key of its own.
        blobs.delete(orphans)
        result.bodies += len(orphans)
