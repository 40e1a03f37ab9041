"""Loads the newest messages of a thread before the model is called, and stores the turn afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from agent_memory.errors import InvalidInputError
from agent_memory.messages import Message
from agent_memory.messages.list import MessageList
from agent_memory.ports import Committed, MessageStore, ThreadHeader, live
from agent_memory.processors._conversation import Conversation, needed_conversation
from agent_memory.processors._saving import save_turn
from agent_memory.processors._token_window import Cut, choose_cut, cut_of, load_window
from agent_memory.processors.base import InputContext, LoadContext, OutputContext, RunContext
from agent_memory.tokens import estimate_tokens

if TYPE_CHECKING:
    from agent_memory.options import TokenWindow
    from agent_memory.tokens import TokenCounter

DEFAULT_LAST_MESSAGES: Final = 10
MISSING_STORAGE: Final = "MESSAGE_HISTORY_MISSING_STORAGE_ADAPTER"


class MessageHistory:
    """Message history.

    Before the model: the newest messages of the thread, in their order. After it: the new messages and the outcomes of
    pending calls are stored in one transaction. A failure of either fails the run.

    Args:
        storage: Where the thread lies; None: the run's storage.
        last_messages: How many messages are loaded. 0 or False loads none; saving goes on. None: 10, or with
            `token_limit` as many as fit.
        token_limit: Limits history by tokens: a number, or a `TokenWindow`. When it is full the oldest quarter goes at
            once, and that cut is remembered with the thread, so that prompts of following turns begin with the same bytes.
        token_counter: Counts the tokens of a text.
        limit: Another name of `last_messages`.

    Raises:
        InvalidInputError: A number that is negative or no whole number.
    """

    id = "message-history"
    name = "MessageHistory"

    def __init__(
        self,
        storage: MessageStore | None = None,
        last_messages: int | bool | None = None,
        token_limit: TokenWindow | int | None = None,
        token_counter: TokenCounter = estimate_tokens,
        *,
        limit: int | bool | None = None,
    ) -> None:
        if limit is not None and last_messages is not None and limit != last_messages:
            raise InvalidInputError("limit", "is another name of last_messages, and both are given; remove one")
        wanted = limit if last_messages is None else last_messages
        self.storage = storage
        self.token_window = _window(token_limit)
        self.token_counter = token_counter
        self.last_messages: int | None = _count(wanted, None if self.token_window else DEFAULT_LAST_MESSAGES)

    def load(self, ctx: LoadContext) -> tuple[Message, ...]:
        """The newest rows, oldest first; with a token limit a few pages of them."""
        place = self._place(ctx.run)
        if place is None or self.last_messages == 0:
            return ()
        place.header()
        rows = self._read(place)
        place.keep_history(rows)
        return rows

    def process_input(self, ctx: InputContext) -> MessageList | None:
        """Add the rows that the thread shows."""
        place = self._place(ctx.run)
        if place is None or self.last_messages == 0:
            return None
        header = place.header()
        if header is None or header.message_count == 0:
            return None
        rows = live(header, self._read(place) if ctx.loaded is None else ctx.loaded)
        if rows and rows[-1].seq != header.next_seq - 1:
            # The rows were read beside the header and miss what was stored in between, unless the end was deleted.
            rows = live(header, self._read(place))
        place.keep_history(rows)
        if self.token_window is not None:
            rows = self._within_tokens(place, header, rows)
        ctx.message_list.add((row for row in rows if row.role != "system"), "memory")
        return ctx.message_list

    def process_output_result(self, ctx: OutputContext) -> None:
        """Store the turn."""
        place = self._place(ctx.run)
        if place is not None:
            save_turn(place.store, ctx.run, incomplete=ctx.incomplete)

    def _place(self, run: RunContext) -> Conversation | None:
        return needed_conversation(run, self.storage, name="MessageHistory", code=MISSING_STORAGE)

    def _read(self, place: Conversation) -> tuple[Message, ...]:
        if self.token_window is None:
            return place.store.latest(place.resource_id, place.thread_id, self.last_messages or 0)
        return load_window(place, self.token_window.max_tokens, most=self.last_messages, counter=self.token_counter)

    def _within_tokens(self, place: Conversation, header: ThreadHeader, rows: Sequence[Message]) -> tuple[Message, ...]:
        assert self.token_window is not None
        remembered = cut_of(header, self.token_window)
        cut: Cut = choose_cut(rows, remembered, self.token_window, counter=self.token_counter)
        if cut != remembered:
            place.run.shared["token_cut"] = cut.to_metadata(header, self.token_window)
        return tuple(row for row in rows if cut.shows(row))


def _window(value: Any) -> TokenWindow | None:
    from agent_memory.options import TokenWindow

    if value is None or isinstance(value, TokenWindow):
        return value
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidInputError("token_limit", "expected a whole number from 1 up or a TokenWindow")
    return TokenWindow(value)


def _count(value: Any, default: int | None) -> int | None:
    if value is None:
        return default
    if value is False:
        return 0
    if value is True or not isinstance(value, int) or value < 0:
        raise InvalidInputError("last_messages", f"expected a whole number from 0 up, or False; found {value!r:.20}")
    return value


__all__ = ["Committed", "MessageHistory", "save_turn"]
