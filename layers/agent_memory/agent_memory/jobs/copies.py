"""Clones and transfers of long threads, a piece at a time.

The id of the new thread is taken by the call that starts the job, so a taken one is refused there. Until the last step
the new thread is hidden, and a thread that is moved stays where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from agent_memory import clock
from agent_memory._json import freeze
from agent_memory.errors import AgentMemoryError, ConflictError
from agent_memory.file_copies import copy_files
from agent_memory.jobs.adapters import store_of
from agent_memory.jobs.purge import ROWS_A_STEP
from agent_memory.jobs.runner import GivenUp
from agent_memory.memory.copying import Carry, forget_runs, withdraw_files
from agent_memory.messages import Message
from agent_memory.ports import Thread, ThreadCopy, ThreadHeader
from agent_memory.ports.copies import BUSY, LOOKS, never_rests

if TYPE_CHECKING:
    from agent_memory.jobs.runner import Work


def clone(work: Work) -> bool:
    """``{"copy", "thread"}``: a copy that has begun, and what its thread is made of."""
    store = store_of(work.services)

    def begin(lost: ThreadCopy) -> ThreadCopy:
        return store.begin_clone(
            lost.source_resource,
            lost.source_thread,
            lambda _: _thread(lost, work.params["thread"]),
            seed=lost.seed or "",
            index=lost.index,
            choice=lost.choice,
            carry=_carry(work, lost),
        )

    def finish(copy: ThreadCopy) -> bool:
        return _show(work, copy, store.finish_clone(copy).message_count)

    return _step(work, begin, finish)


def transfer(work: Work) -> bool:
    """``{"copy"}``: a transfer that has begun. At the end the rows of the old owner are purged."""
    store = store_of(work.services)
    if work.cursor.get("moved"):
        copy = ThreadCopy.from_json(work.params["copy"])
        if work.services.files is not None and not work.cursor.get("withdrawn"):
            more = withdraw_files(
                store, work.services.files, copy.source_resource, copy.source_thread, work.cursor.get("uses")
            )
            work.cursor |= {"uses": more, "withdrawn": more is None}
            return False
        forget_runs(work.services.runs, copy.source_resource, copy.source_thread)
        removed = store.purge_thread(copy.source_resource, copy.source_thread, limit=ROWS_A_STEP)
        work.count("purged", removed)
        return removed < ROWS_A_STEP

    def begin(lost: ThreadCopy) -> ThreadCopy:
        return store.begin_transfer(lost.source_resource, lost.source_thread, lost.resource_id)

    def finish(copy: ThreadCopy) -> bool:
        moved = store.finish_transfer(copy, carry=_carry(work, copy))
        if isinstance(moved, ThreadCopy):
            work.cursor["looks"] = work.cursor.get("looks", 0) + 1
            if work.cursor["looks"] >= LOOKS:
                raise never_rests(copy.thread_id)
            work.cursor["copy"] = moved.to_json()
            return False
        work.cursor["moved"] = True
        _show(work, copy, copy.rows)
        return False

    return _step(work, begin, finish)


def _step(work: Work, begin: Callable[[ThreadCopy], ThreadCopy], finish: Callable[[ThreadCopy], bool]) -> bool:
    """One piece, or the end, which is a step of its own. What no repeat can change ends the job, and nothing stays."""
    store = store_of(work.services)
    copy = ThreadCopy.from_json(work.cursor.get("copy", work.params["copy"]))
    try:
        try:
            store.keep_copy(copy)
        except ConflictError as error:
            return _lost(work, copy, error, begin)
        if copy.all_read:
            return finish(copy)
        copy = store.copy_rows(copy, again=True, carry=_carry(work, copy))
    except AgentMemoryError as error:
        if error.status >= 500:
            raise
        store.abandon_copy(copy)
        raise GivenUp(error) from error
    work.cursor["copy"] = copy.to_json()
    work.progress["messages"] = copy.rows
    return False


def _lost(work: Work, copy: ThreadCopy, error: ConflictError, begin: Callable[[ThreadCopy], ThreadCopy]) -> bool:
    """Go on where the target is no thread being built: its end came and was not noted, or it was given up meanwhile."""
    given_up = work.job.error is not None and work.job.error["code"] == BUSY
    if copy.all_read and not given_up:
        shown = store_of(work.services).get_thread(copy.resource_id, copy.thread_id)
        if shown is None or shown.incarnation != copy.incarnation:
            raise error
        return _end(work, copy, shown)
    # After a long pause, or run again. The rows of the first try are purged like those of any thread that was given up.
    work.cursor.pop("looks", None)
    work.cursor["copy"] = begin(copy).to_json()
    return False


def _end(work: Work, copy: ThreadCopy, header: ThreadHeader) -> bool:
    _show(work, copy, header.message_count)
    work.cursor["moved"] = True
    return work.job.kind == "clone"


def _show(work: Work, copy: ThreadCopy, messages: int) -> bool:
    work.progress["messages"] = messages
    work.result.update({"threadId": copy.thread_id, "resourceId": copy.resource_id, "messages": messages})
    return True


def _carry(work: Work, copy: ThreadCopy) -> Carry | None:
    if copy.source_resource == copy.resource_id:
        return None
    services, owner, new_owner = work.services, copy.source_resource, copy.resource_id

    def carry(messages: Sequence[Message]) -> None:
        copy_files(services.blobs, messages, owner, new_owner, files=services.files)

    return carry


def _thread(copy: ThreadCopy, given: Any) -> Thread:
    created_at = clock.parse(given["createdAt"])
    return Thread(
        id=copy.thread_id,
        resource_id=copy.resource_id,
        created_at=created_at,
        updated_at=created_at,
        title=given["title"],
        metadata=freeze(given["metadata"]),
        expires_at=None if given["expiresAt"] is None else clock.parse(given["expiresAt"]),
    )
