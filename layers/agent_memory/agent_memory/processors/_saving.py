"""Stores what a run made: one commit a turn, or one a step and one at the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from agent_memory import clock
from agent_memory.errors import UnavailableError
from agent_memory.messages import Message
from agent_memory.messages.merge import for_storage
from agent_memory.ports import NO_USAGE, Committed, MessageStore, ThreadHeader, ThreadUsage, TurnCommit, TurnRecord
from agent_memory.processors._conversation import conversation
from agent_memory.processors._token_window import METADATA_KEY
from agent_memory.processors.base import RunContext

COMMITTED = "committed"  # in RunContext.shared: the run's newest commit
UPLOADS = "uploads"  # in RunContext.shared: keys that this run wrote, removed should it be stopped
_SAVED = "saved"


@dataclass(slots=True)
class _Saved:
    """What earlier commits of the same run have stored."""

    header: ThreadHeader
    rows: dict[str, Message] = field(default_factory=dict)
    removed: frozenset[str] = frozenset()
    usage: ThreadUsage = NO_USAGE


def save_turn(store: MessageStore, run: RunContext, *, incomplete: bool = False) -> Committed | None:
    """Store the new messages, the changed ones and the turn's record in one transaction.

    Left out: system messages, context, calls whose arguments were still arriving, traces of working memory, and
    messages that nothing is left of. May be called again in the same run: rows it has stored are then changed.

    Args:
        store: Where the thread lies.
        run: The run. Nothing happens for one that is read-only or has no thread.
        incomplete: The run has not come to its end; its answer is marked ``incomplete``.

    Returns:
        What was stored (also under ``committed`` in ``run.shared``), or None where there was nothing to store.

    Raises:
        ConflictError: The thread was deleted meanwhile.
        AccessDeniedError: The thread's id belongs to another resource.
        UnavailableError: Nothing was stored, or all of it and the answer was lost.
        StorageError: Nothing was stored.
    """
    place = conversation(run, store)
    if place is None or run.read_only:
        return None
    key = f"{_SAVED}:{id(store)}"
    saved: _Saved | None = run.shared.get(key)
    header = place.header() if saved is None else saved.header
    appended, updated = _changes(run, saved, incomplete=incomplete)
    removed = tuple(m for m in run.removed if saved is None or m.id not in saved.removed)
    turn = _turn(run, appended) if store is run.store else None
    metadata = _metadata(run)
    if not (appended or updated or removed) and (header is None or (turn is None and not metadata)):
        return None
    commit = TurnCommit(
        thread_id=place.thread_id,
        resource_id=place.resource_id,
        header=header,
        appended=appended,
        updated=updated,
        removed=removed,
        # A later save of the run finds its own answer there, or that of a regenerate after it.
        regenerates=run.regenerates if saved is None else None,
        title=run.thread_title,
        metadata=metadata,
        turn=turn,
        index=_index(run),
        expires_at=_expiry(run),
        usage=run.usage - (NO_USAGE if saved is None else saved.usage),
    )
    try:
        committed = store.commit(commit)
    except UnavailableError:
        # It may be stored all the same, so what it refers to must not be taken back with the run.
        run.shared.get(UPLOADS, []).clear()
        raise
    rows = {} if saved is None else saved.rows
    rows.update((row.id, row) for row in (*committed.appended, *committed.updated))
    run.shared[key] = _Saved(committed.header, rows, frozenset(m.id for m in run.removed), run.usage)
    run.shared[COMMITTED] = committed
    return committed


def _changes(
    run: RunContext, saved: _Saved | None, *, incomplete: bool
) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """New messages, and stored ones that changed, as they shall be stored."""
    appended: list[Message] = []
    updated: list[Message] = []
    known = {} if saved is None else saved.rows
    for message in (*run.messages.new(), *run.messages.updated()):
        kept = for_storage(message)
        if kept is None:
            continue
        if incomplete and kept.id == run.answer_id and "incomplete" not in kept.metadata:
            kept = kept.with_metadata(incomplete="running")
        row = known.get(kept.id)
        if row is not None:
            if row.content != kept.content:
                updated.append(kept.replace(seq=row.seq, version=row.version, created_at=row.created_at))
        elif run.messages.stored(kept.id) is not None:
            updated.append(kept)
        else:
            appended.append(kept)
    return tuple(appended), tuple(updated)


def _turn(run: RunContext, appended: tuple[Message, ...]) -> TurnRecord | None:
    turn = run.turn
    if turn is None or turn.state != "running":
        return turn
    # Saved while it goes on: should the run die, the next try of the turn finds its rows by these ids.
    answer_id = run.answer_id if run.messages.answer is not None else turn.answer_id
    users = tuple(m.id for m in appended if m.role == "user") or turn.user_ids
    run.turn = replace(turn, answer_id=answer_id, user_ids=users)
    return run.turn


def _metadata(run: RunContext) -> Mapping[str, Any] | None:
    cut = run.shared.get("token_cut")
    if cut is None:
        return run.thread_metadata
    return {**(run.thread_metadata or {}), METADATA_KEY: cut}


def _index(run: RunContext) -> str | None:
    recalls = run.options is None or run.options.semantic_recall is not None
    return run.index.id if run.index is not None and recalls else None


def _expiry(run: RunContext) -> Any:
    days = run.options.expire_days if run.options is not None else None
    return None if days is None else clock.now() + timedelta(days=days)
