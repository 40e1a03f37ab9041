"""History limited by tokens: which rows fit, and the cut that following turns begin at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agent_memory.messages import Message
from agent_memory.tokens import TokenCounter, count_message

if TYPE_CHECKING:
    from agent_memory.options import TokenWindow
    from agent_memory.ports import ThreadHeader
    from agent_memory.processors._conversation import Conversation

PAGE: Final = 40
METADATA_KEY: Final = "memoryTokenLimiter"


@dataclass(frozen=True, slots=True)
class Cut:
    """History begins behind the row with this number; 0: at the thread's beginning."""

    after_seq: int = 0

    def shows(self, row: Message) -> bool:
        """Whether a row is behind the cut."""
        return row.seq is not None and row.seq > self.after_seq

    def to_metadata(self, header: ThreadHeader, window: TokenWindow) -> dict[str, Any]:
        """What the thread's metadata remembers. A clone copies metadata and counts anew, so the thread is named."""
        return {
            "threadId": header.thread.id,
            "afterSeq": self.after_seq,
            "maxTokens": window.max_tokens,
            "atMaxRemoveTokens": window.at_max_remove_tokens,
        }


def cut_of(header: ThreadHeader, window: TokenWindow) -> Cut:
    """The remembered cut, as long as it was made for this thread and this window."""
    metadata = header.thread.metadata
    known = None if metadata is None else metadata.get(METADATA_KEY)
    if isinstance(known, dict) and isinstance(known.get("afterSeq"), int):
        cut = Cut(known["afterSeq"])
        if known == cut.to_metadata(header, window):
            return cut
    return Cut()


def load_window(
    place: Conversation, max_tokens: int, *, most: int | None, counter: TokenCounter
) -> tuple[Message, ...]:
    """The newest rows, page by page, until they are more than `max_tokens` (or `most`), oldest first."""
    rows: tuple[Message, ...] = ()
    total = 0
    while total <= max_tokens and (most is None or len(rows) < most):
        limit = PAGE if most is None else min(PAGE, most - len(rows))
        before = rows[0].seq if rows else None
        page = place.store.latest(place.resource_id, place.thread_id, limit, before_seq=before)
        rows = (*page, *rows)
        total += sum(count_message(row, counter) for row in page)
        if len(page) < limit:
            break
    return rows


def choose_cut(rows: Sequence[Message], remembered: Cut, window: TokenWindow, *, counter: TokenCounter) -> Cut:
    """The remembered cut while what is behind it fits, else one that lets `at_max_remove_tokens` go; never further back.

    A call and its outcome are parts of one message, so no cut parts them.
    """
    shown = [row for row in rows if remembered.shows(row)]
    sizes = [count_message(row, counter) for row in shown]
    total = sum(sizes)
    if total <= window.max_tokens:
        return remembered
    cut = remembered
    for row, size in zip(shown, sizes, strict=True):
        if total <= window.max_tokens - window.at_max_remove_tokens:
            break
        total -= size
        cut = Cut(row.seq or cut.after_seq)
    return cut
