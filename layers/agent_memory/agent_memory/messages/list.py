"""The messages of one run: what memory loaded, what the caller sent, what the model answered.

Where a message came from is remembered here by id, not on the message and not by object identity, so a processor may
hand back copies freely.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Literal

from agent_memory import clock
from agent_memory.messages.merge import apply_outcomes
from agent_memory.messages.message import Message
from agent_memory.messages.parts import Part, ToolInvocation, ToolPart

Source = Literal["memory", "input", "response", "context"]
SOURCES: tuple[Source, ...] = ("memory", "input", "response", "context")
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(slots=True)
class _Entry:
    """One message of the list.

    `shown` is what processors and the model see. `stored` is the row as it was read, `base` that row with the
    outcomes and the continuation this run adds: only `base` may be written back, so what a processor does to a
    loaded message never reaches storage. Of an answer of this run, `before` counts the parts that `shown` and `base` had
    before it.
    """

    shown: Message
    sources: set[Source]
    order: tuple[int, int]
    stored: Message | None = None
    base: Message | None = None
    before: tuple[int, int] | None = None


@dataclass(slots=True)
class SystemMessages:
    """System texts, held beside the messages: untagged ones (instructions) first, then tagged ones in order of arrival."""

    untagged: list[str] = field(default_factory=list)
    tagged: dict[str, list[str]] = field(default_factory=dict)

    def add(self, text: str, tag: str | None = None) -> None:
        """Add a text unless the same one is there already."""
        bucket = self.untagged if tag is None else self.tagged.setdefault(tag, [])
        if text and text not in bucket:
            bucket.append(text)

    def clear(self, tag: str) -> None:
        """Remove all texts of a tag."""
        self.tagged.pop(tag, None)

    def all(self) -> tuple[str, ...]:
        """All texts in prompt order."""
        return (*self.untagged, *(text for bucket in self.tagged.values() for text in bucket))


class MessageList:
    """The list of a run. Order: stored messages by their number, then new ones as they arrived."""

    def __init__(self, *, thread_id: str | None = None, resource_id: str | None = None) -> None:
        self.thread_id = thread_id
        self.resource_id = resource_id
        self.system = SystemMessages()
        self._entries: dict[str, _Entry] = {}
        self.answer_id = ""
        self._own: list[Part] = []
        self._seed: Message | None = None
        self._arrivals = 0
        self._newest = clock.EPOCH

    # -- reading

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, message_id: str) -> bool:
        return message_id in self._entries

    def all(self) -> tuple[Message, ...]:
        """Every message, in order."""
        return tuple(entry.shown for entry in self._sorted())

    def of(self, *sources: Source) -> tuple[Message, ...]:
        """Messages whose reported source is one of `sources`, in order."""
        return tuple(entry.shown for entry in self._sorted() if _reported(entry) in sources)

    def new(self) -> tuple[Message, ...]:
        """Input and response messages that storage does not hold, in order."""
        return tuple(
            entry.shown for entry in self._sorted() if entry.stored is None and entry.sources & {"input", "response"}
        )

    def updated(self) -> tuple[Message, ...]:
        """Stored messages that this run changed (outcomes, a continued answer), as they shall be stored."""
        return tuple(entry.base for entry in self._sorted() if entry.base is not None and entry.base != entry.stored)

    def stored(self, message_id: str) -> Message | None:
        """The row of a loaded message as it was read."""
        entry = self._entries.get(message_id)
        return entry.stored if entry else None

    def get(self, message_id: str) -> Message | None:
        """A message by id."""
        entry = self._entries.get(message_id)
        return entry.shown if entry else None

    def source(self, message_id: str) -> Source | None:
        """The reported source of a message: the first of memory, input, response, context it has."""
        entry = self._entries.get(message_id)
        return _reported(entry) if entry else None

    # -- writing

    def add(self, messages: Iterable[Message], source: Source) -> None:
        """Add messages under a source.

        A stored message is the base layer of an input message with its id: of the input only outcomes for calls
        pending in the stored copy are taken. New messages get times that strictly increase, each at least a millisecond
        after the one before; stored ones keep theirs.
        """
        for message in messages:
            if message.role == "system":
                if source != "memory":
                    self.system.add(message.text, "user-provided")
                continue
            entry = self._entries.get(message.id)
            if entry is None:
                self._insert(message, source)
            elif source == "memory" and entry.stored is None:
                self._layer(entry, message)
            elif entry.stored is not None and source == "input":
                self._take_outcomes(entry, message)
            elif entry.stored is None and source != "memory":
                entry.shown = message.replace(created_at=entry.shown.created_at)
            entry = self._entries[message.id]
            entry.sources.add(source)

    def remove(self, message_ids: Iterable[str]) -> None:
        """Drop messages from the run. Stored rows stay as they are in storage."""
        for message_id in message_ids:
            self._entries.pop(message_id, None)

    def replace_input(self, messages: Sequence[Message]) -> None:
        """Put `messages` in place of all input messages."""
        self.remove([entry.shown.id for entry in self._sorted() if entry.sources == {"input"}])
        self.add(messages, "input")

    def apply_to(self, given: Sequence[Message], returned: Sequence[Message], *, default: Source) -> None:
        """Take over what a hook made of `given`: ids it left out are removed, changed and new messages are shown.

        Messages the hook was not given stay. Sources survive. A loaded message keeps its stored row whatever is shown
        in its place; an answer that continues a stored message changes that row too.
        """
        kept = {message.id for message in returned}
        self.remove([message.id for message in given if message.id not in kept])
        for message in returned:
            if message.role == "system":
                self.system.add(message.text)
                continue
            entry = self._entries.get(message.id)
            if entry is None:
                self._insert(message, default)
            elif entry.shown != message:
                entry.shown = message.replace(created_at=entry.shown.created_at, seq=entry.shown.seq)
                self._take_own(entry)

    # -- the answer of this run

    def begin_answer(self, message: Message) -> None:
        """Make `message` the answer of this run. One that is in the list already (stored, or sent) is continued.

        A new one joins the list with its first part. An answer that this run gave before stays as it is.
        """
        self.answer_id = message.id
        self._own = []
        self._seed = message
        entry = self._entries.get(message.id)
        if entry is not None:
            entry.sources.add("response")
            entry.before = (len(entry.shown.parts), len(entry.base.parts) if entry.base is not None else 0)

    @property
    def answer(self) -> Message | None:
        """The answer as it is shown; None while nothing was answered."""
        return self.get(self.answer_id)

    @property
    def answer_parts(self) -> tuple[Part, ...]:
        """The parts that this run added to the answer."""
        return tuple(self._own)

    def set_answer_parts(self, parts: Sequence[Part]) -> None:
        """Put `parts` in place of everything this run added to the answer. A new answer without parts leaves the list."""
        entry = self._entries.get(self.answer_id)
        if entry is None:
            if not parts or self._seed is None:
                return
            self._insert(self._seed, "response")
            entry = self._entries[self.answer_id]
        self._own = list(parts)
        if not parts and entry.sources == {"response"}:
            del self._entries[self.answer_id]
            return
        entry.before = entry.before or (0, 0)  # a hook may have taken the answer out and put it back
        entry.shown = entry.shown.with_parts((*entry.shown.parts[: entry.before[0]], *parts))
        self._take_own(entry)

    def set_invocation(self, message_id: str, invocation: ToolInvocation) -> None:
        """Put `invocation` in place of the call with its id, in what is shown and in what will be stored."""
        entry = self._entries[message_id]
        entry.shown = _with_invocation(entry.shown, invocation)
        if entry.base is not None:
            entry.base = _with_invocation(entry.base, invocation)
        if message_id == self.answer_id and entry.before is not None:
            self._own = list(entry.shown.parts[entry.before[0] :])

    def annotate_answer(self, **metadata: object) -> None:
        """Set keys of the answer's metadata; None removes a key."""
        entry = self._entries.get(self.answer_id)
        if entry is None:
            return
        entry.shown = entry.shown.with_metadata(**metadata)
        if entry.base is not None:
            entry.base = entry.base.with_metadata(**metadata)

    def _take_own(self, entry: _Entry) -> None:
        """After a change of what is shown of an answer of this run: its own parts are what shall be stored."""
        if entry.before is None:
            return
        own = entry.shown.parts[entry.before[0] :]
        if entry.shown.id == self.answer_id:
            self._own = list(own)
        if entry.stored is not None and entry.base is not None:
            # What was stored, as outcomes changed it, and then what this run added: never what hooks made of history.
            entry.base = entry.base.with_parts((*entry.base.parts[: entry.before[1]], *own))

    # -- inside

    def _sorted(self) -> list[_Entry]:
        return sorted(self._entries.values(), key=lambda entry: entry.order)

    def _insert(self, message: Message, source: Source) -> None:
        self._arrivals += 1
        if source == "memory":
            order = (0, message.seq if message.seq is not None else self._arrivals)
            if message.created_at <= clock.now():
                # A row that was saved with a date to come must not pull new messages after it.
                self._newest = max(self._newest, message.created_at)
            self._entries[message.id] = _Entry(message, {source}, order, stored=message, base=message)
            return
        created_at = max(clock.now(), self._newest + _MILLISECOND)
        self._newest = created_at
        stamped = message.replace(
            created_at=created_at,
            thread_id=self.thread_id or message.thread_id,
            resource_id=self.resource_id or message.resource_id,
        )
        self._entries[message.id] = _Entry(stamped, {source}, (1, self._arrivals))

    def _layer(self, entry: _Entry, stored: Message) -> None:
        incoming = entry.shown
        entry.stored = stored
        entry.base = apply_outcomes(stored, incoming) or stored
        entry.shown = entry.base
        entry.order = (0, stored.seq if stored.seq is not None else 0)

    def _take_outcomes(self, entry: _Entry, incoming: Message) -> None:
        changed = apply_outcomes(entry.base or entry.shown, incoming)
        if changed is not None:
            entry.base = changed
            entry.shown = apply_outcomes(entry.shown, incoming) or entry.shown


def _reported(entry: _Entry) -> Source:
    return next(source for source in SOURCES if source in entry.sources)


def _with_invocation(message: Message, invocation: ToolInvocation) -> Message:
    return message.with_parts(
        replace(part, invocation=invocation)
        if isinstance(part, ToolPart) and part.invocation.tool_call_id == invocation.tool_call_id
        else part
        for part in message.parts
    )
