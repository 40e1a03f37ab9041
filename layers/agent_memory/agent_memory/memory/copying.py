"""What copies of threads have in common, run at once or by a job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from agent_memory.messages import Message
from agent_memory.ports import FileStore, MessageStore, RunStore, ThreadCopy, ThreadHeader

COPIED_AT_ONCE: Final = 1_000  # messages that a call copies itself; more are left to the janitor

Carry = Callable[[Sequence[Message]], None]


def clone(store: MessageStore, copy: ThreadCopy, carry: Carry | None = None) -> ThreadHeader:
    """Copy the rest of the rows and show the clone. Nothing stays of one that fails."""
    try:
        while not copy.all_read:
            copy = store.copy_rows(copy, carry=carry)
        return store.finish_clone(copy)
    except BaseException:
        store.abandon_copy(copy)
        raise


def withdraw_files(
    store: MessageStore, files: FileStore | None, resource_id: str, thread_id: str, cursor: Any = None
) -> Any:
    """Take the files of a thread from the resource that had it, one page of rows; a cursor where there are more."""
    if files is None:
        return None
    uses, more = store.buried_uses(resource_id, thread_id, cursor=cursor)
    files.withdraw(resource_id, uses)
    return more


def forget_runs(runs: RunStore | None, resource_id: str, thread_id: str) -> None:
    """Forget runs that wait for approval on a thread which this resource has no more: they show what was said in it."""
    if runs is not None:
        for run in runs.list_suspended(resource_id, thread_id=thread_id):
            runs.finish_suspended(run)
