"""Keeps of a request only what storage does not have, so that echoes neither change nor double stored messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from agent_memory._json import EMPTY
from agent_memory.messages import DataPart, Message, ToolPart
from agent_memory.messages.list import MessageList
from agent_memory.messages.merge import apply_outcomes, apply_tool_outcome, strip_provider_metadata
from agent_memory.messages.tool_outcome import ToolOutcome
from agent_memory.ports import MessageStore, ThreadHeader, live
from agent_memory.processors._conversation import Conversation, conversation
from agent_memory.processors.base import InputContext, LoadContext, RunContext

MADE_IDS: Final = "made_ids"  # in RunContext.shared: ids that the server gave to messages of this input
OUTCOME_WINDOW: Final = 40  # newest rows in which the call of an outcome without a message id is looked for


@dataclass(frozen=True, slots=True)
class Reduced:
    """An input without what a thread with stored messages has already.

    `kept` are the new messages at the end, `answer` the assistant message before them, or the one the input ends in.
    """

    kept: tuple[Message, ...]
    answer: Message
    ends_in_answer: bool


def reduce_input(messages: Sequence[Message]) -> Reduced | None:
    """What is kept of `messages`; None where nothing is dropped, or where they end in neither user nor assistant."""
    if not messages or messages[-1].role not in ("user", "assistant"):
        return None
    last = len(messages) - 1
    while last >= 0 and messages[last].role != "assistant":
        last -= 1
    if last < 0:
        return None
    return Reduced(tuple(messages[last + 1 :]), messages[last], last == len(messages) - 1)


class MemoryInputFilter:
    """Filters a request against stored history before any loader reads it.

    In a thread with stored messages, of an input that ends in user messages those are kept, and of the assistant
    message before them the outcomes of calls that are pending in its stored copy. Of an input that ends in an assistant
    message such outcomes are kept; an echo is dropped, a message that was never stored stays. In a thread without
    messages the whole input is kept and assistant messages lose their provider metadata. A message whose id is stored
    is shown and kept as it is stored.

    Requests: none for new user messages without ids of the caller's; one per id that must be looked up, all together
    with the run's other loads; one more for a stored message that history did not bring.

    Args:
        storage: Where the thread lies; None: the run's storage.
        retain_full_input: Take the input exactly as supplied. Stored copies still win over echoes.
    """

    id = "memory-input-filter"
    name = "MemoryInputFilter"

    def __init__(self, storage: MessageStore | None = None, *, retain_full_input: bool = False) -> None:
        self.storage = storage
        self.retain_full_input = retain_full_input

    def load(self, ctx: LoadContext) -> Found:
        """Look up those input messages that no other load can tell about."""
        place = conversation(ctx.run, self.storage)
        if place is None:
            return Found()
        place.header()
        if self.retain_full_input:
            return Found()
        reduced = reduce_input(ctx.messages)
        asked = list(ctx.messages if reduced is None else reduced.kept)
        options = ctx.run.options
        if reduced is not None and options is not None and not options.loads_history:
            asked.append(reduced.answer)
        ids = _given(ctx.run, asked)
        numbers = place.store.find(place.resource_id, place.thread_id, ids) if ids else EMPTY
        return Found(frozenset(ids), numbers)

    def process_input(self, ctx: InputContext) -> MessageList | None:
        """Reduce the input, and put stored copies in place of echoes."""
        place = conversation(ctx.run, self.storage)
        if place is None:
            return None
        given = ctx.message_list.of("input")
        header = place.header()
        if header is None or header.message_count == 0:
            return None if self.retain_full_input else _seed(ctx.message_list, given)
        rows = _Rows(place, header, ctx.loaded or Found())
        reduced = None if self.retain_full_input else reduce_input(given)
        if reduced is not None:
            _reduce(ctx.run, rows, reduced)
        changed = _show_stored(ctx.run, rows, given if reduced is None else reduced.kept)
        changed = _settle(ctx.run, rows) or changed
        return ctx.message_list if changed or reduced is not None else None


@dataclass(frozen=True, slots=True)
class Found:
    """What was looked up: the ids, and the numbers of those that storage has (also rows that the thread hides)."""

    asked: frozenset[str] = frozenset()
    numbers: Mapping[str, int] = EMPTY


class _Rows:
    """Stored messages by id: those that history has read, else looked up, each id at most once."""

    def __init__(self, place: Conversation, header: ThreadHeader, found: Found) -> None:
        self._place = place
        self._header = header
        self.newest = place.history()
        self._known = {row.id: row for row in self.newest}
        self._asked = set(found.asked)
        self._numbers = self._shown(found.numbers)

    def _shown(self, numbers: Mapping[str, int]) -> dict[str, int]:
        header = self._header
        return {id: seq for id, seq in numbers.items() if header.first_seq <= seq < header.next_seq}

    def find(self, ids: Sequence[str]) -> dict[str, Message]:
        """The stored messages among `ids`."""
        place = self._place
        unknown = [id for id in ids if id not in self._known and id not in self._asked]
        if unknown:
            self._asked.update(unknown)
            self._numbers.update(self._shown(place.store.find(place.resource_id, place.thread_id, unknown)))
        missing = {id: self._numbers[id] for id in ids if id in self._numbers and id not in self._known}
        if missing:
            keys = [(place.thread_id, seq) for seq in missing.values()]
            for row in place.store.get_messages(place.resource_id, keys):
                if row.id in missing:
                    self._known[row.id] = row
        return {id: self._known[id] for id in ids if id in self._known}

    def tail(self) -> tuple[Message, ...]:
        """The newest rows, as many as an outcome's call is looked for in."""
        wanted = min(OUTCOME_WINDOW, self._header.next_seq - self._header.first_seq)
        if len(self.newest) < wanted:
            place = self._place
            self.newest = live(self._header, place.store.latest(place.resource_id, place.thread_id, OUTCOME_WINDOW))
        return self.newest


def _seed(messages: MessageList, given: Sequence[Message]) -> MessageList | None:
    """Begin a thread: item references of another conversation must not be replayed in this one."""
    seeded = [strip_provider_metadata(message) for message in given]
    if all(new is old for new, old in zip(seeded, given, strict=True)):
        return None
    messages.replace_input(seeded)
    return messages


def _reduce(run: RunContext, rows: _Rows, reduced: Reduced) -> None:
    """Leave in the input what is new, and move pending calls of the stored answer forward."""
    answer, kept, row = reduced.answer, reduced.kept, None
    if reduced.ends_in_answer or any(isinstance(p, ToolPart) and p.invocation.is_outcome for p in answer.parts):
        row = rows.find(_given(run, [answer])).get(answer.id)
    if reduced.ends_in_answer and row is None and not _ends_in_outcome(answer):
        kept = (answer,)
    run.messages.replace_input(kept)
    if row is not None and apply_outcomes(row, answer) is not None:
        run.messages.add([row], "memory")
        run.messages.add([answer], "input")


def _show_stored(run: RunContext, rows: _Rows, kept: Sequence[Message]) -> bool:
    """Put stored copies in place of those of `kept` that have one."""
    stored = rows.find(_given(run, kept))
    run.messages.add(stored.values(), "memory")
    return bool(stored)


def _settle(run: RunContext, rows: _Rows) -> bool:
    """Put outcomes that came without a message id into the newest stored message whose call waits for them."""
    settled = False
    for outcome in run.tool_outcomes:
        found = _moved(rows.newest, outcome) or _moved(rows.tail(), outcome)
        if found is not None:
            row, changed = found
            run.messages.add([row], "memory")
            run.messages.add([changed], "input")
            settled = True
    return settled


def _moved(rows: Sequence[Message], outcome: ToolOutcome) -> tuple[Message, Message] | None:
    """The newest of `rows` whose call waits for `outcome`, without and with it."""
    for row in reversed(rows):
        changed = apply_tool_outcome(row, outcome)
        if changed is not None:
            return row, changed
    return None


def _given(run: RunContext, messages: Iterable[Message]) -> list[str]:
    """Ids of `messages` that a caller chose: only those may be stored already."""
    made: frozenset[str] = run.shared.get(MADE_IDS, frozenset())
    return [message.id for message in messages if message.id not in made]


def _ends_in_outcome(message: Message) -> bool:
    """Whether the last part, custom data aside, is the outcome of a tool call."""
    last = next((part for part in reversed(message.parts) if not isinstance(part, DataPart)), None)
    return isinstance(last, ToolPart) and last.invocation.is_outcome
