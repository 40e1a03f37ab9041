"""Reading messages together with their neighbours, by number."""

from __future__ import annotations

import contextvars
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from agent_memory.messages import Message
from agent_memory.ports import MessageStore, ThreadHeader, live

COMPUTED: Final = 20  # neighbours on one side that are asked for by number; farther ones are read as a run of rows
CHUNK: Final = 100  # rows of one request by number
MAX_CHUNKS: Final = 20  # how far a run of deleted rows is followed
WORKERS: Final = 8


@dataclass(frozen=True, slots=True)
class Want:
    """A message by its place, with the number of neighbours wanted on either side."""

    header: ThreadHeader
    seq: int
    message_id: str
    before: int = 0
    after: int = 0


@dataclass(frozen=True, slots=True)
class Window:
    """A message and its neighbours, oldest first."""

    message: Message
    before: tuple[Message, ...] = ()
    after: tuple[Message, ...] = ()

    def all(self) -> tuple[Message, ...]:
        """All of it, oldest first."""
        return (*self.before, self.message, *self.after)


def read_windows(store: MessageStore, resource_id: str, wants: Sequence[Want]) -> list[Window | None]:
    """The wanted messages with neighbours, in the order asked; None where a place holds another message or none.

    One read by number for all of them. Only where rows between were deleted does a neighbourhood cost a read of its own.
    """
    keys: dict[tuple[str, int], None] = {}
    for want in wants:
        thread, first, end = want.header.thread.id, want.header.first_seq, want.header.next_seq
        start = want.seq - min(want.before, COMPUTED)
        stop = want.seq + min(want.after, COMPUTED)
        keys.update(dict.fromkeys((thread, seq) for seq in range(max(start, first), min(stop + 1, end))))
    if not keys:
        return [None for _ in wants]
    rows = {(row.thread_id or "", row.seq or 0): row for row in store.get_messages(resource_id, list(keys))}
    return [_window(store, resource_id, want, rows) for want in wants]


def read_headers(store: MessageStore, resource_id: str, thread_ids: Sequence[str]) -> dict[str, ThreadHeader]:
    """Headers of the threads that exist, read at the same time."""
    wanted = list(dict.fromkeys(thread_ids))
    if len(wanted) <= 1:
        found = [store.get_thread(resource_id, thread_id) for thread_id in wanted]
    else:
        with ThreadPoolExecutor(min(WORKERS, len(wanted))) as pool:
            calls = [
                pool.submit(contextvars.copy_context().run, store.get_thread, resource_id, thread_id)
                for thread_id in wanted
            ]
            found = [call.result() for call in calls]
    return {header.thread.id: header for header in found if header is not None}


def in_order(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Messages oldest first: by number within one thread, by date across threads."""
    if len({message.thread_id for message in messages}) <= 1:
        return tuple(sorted(messages, key=lambda m: m.seq or 0))
    return tuple(sorted(messages, key=lambda m: (m.created_at, m.thread_id or "", m.seq or 0)))


def _window(
    store: MessageStore, resource_id: str, want: Want, rows: Mapping[tuple[str, int], Message]
) -> Window | None:
    header, thread = want.header, want.header.thread.id
    target = rows.get((thread, want.seq))
    if target is None or target.id != want.message_id or not header.first_seq <= want.seq < header.next_seq:
        return None
    near_before = [rows[thread, seq] for seq in range(want.seq - want.before, want.seq) if (thread, seq) in rows]
    near_after = [rows[thread, seq] for seq in range(want.seq + 1, want.seq + want.after + 1) if (thread, seq) in rows]
    before = tuple(near_before)
    if len(before) < min(want.before, want.seq - header.first_seq):
        before = live(header, store.latest(resource_id, thread, want.before, before_seq=want.seq))
    after = tuple(near_after)
    if len(after) < min(want.after, header.next_seq - 1 - want.seq):
        after = _following(store, resource_id, want)
    return Window(target, before, after)


def _following(store: MessageStore, resource_id: str, want: Want) -> tuple[Message, ...]:
    found: list[Message] = []
    seq = want.seq + 1
    for _ in range(MAX_CHUNKS):
        if len(found) >= want.after or seq >= want.header.next_seq:
            break
        stop = min(seq + CHUNK, want.header.next_seq)
        keys = [(want.header.thread.id, number) for number in range(seq, stop)]
        found.extend(store.get_messages(resource_id, keys))
        seq = stop
    return tuple(found[: want.after])
