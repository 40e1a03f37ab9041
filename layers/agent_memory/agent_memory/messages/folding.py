"""Outcomes of tool messages, put into the assistant messages that hold their calls."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace

from agent_memory.messages.message import Message
from agent_memory.messages.parts import ToolPart
from agent_memory.messages.tool_outcome import ToolOutcome, settle


def fold(
    messages: list[Message], outcomes: list[tuple[int, ToolOutcome]]
) -> tuple[tuple[ToolOutcome, ...], tuple[ToolOutcome, ...]]:
    """Put outcomes into the calls of `messages`, which is changed in place.

    The call is the nearest pending one before the tool message, else the nearest behind it. One whose call is there
    but settled already is dropped: what came first stays. Time grows with the size of the input, not with its square.

    Args:
        messages: The messages of the input.
        outcomes: Outcomes, each with the number of messages before it.

    Returns:
        The outcomes whose call is not there, and those that were put in.
    """
    if not outcomes:
        return (), ()
    calls = _Calls(messages)
    unmatched: list[ToolOutcome] = []
    folded: list[ToolOutcome] = []
    for position, given in outcomes:
        outcome = calls.named(given)
        settled = calls.settle(position, outcome)
        if outcome.state == "approval-requested":
            continue
        if settled is not None:
            folded.append(settled)
        elif outcome.tool_call_id not in calls.pending:
            unmatched.append(outcome)
    calls.write_to(messages)
    return tuple(unmatched), tuple(folded)


class _Calls:
    """The calls of some messages: `pending` holds the places of those without an outcome, in order, for every call id."""

    def __init__(self, messages: list[Message]) -> None:
        self._ids = [message.id for message in messages]
        self._parts = [list(message.parts) for message in messages]
        self._changed: set[int] = set()
        self._approvals: dict[str, str] = {}
        self.pending: dict[str, list[tuple[int, int]]] = {}
        for number, parts in enumerate(self._parts):
            for index, part in enumerate(parts):
                if isinstance(part, ToolPart):
                    self._note(part, (number, index))

    def named(self, outcome: ToolOutcome) -> ToolOutcome:
        """The outcome with the id of its call, where only its approval was named; requests are remembered."""
        approval_id = outcome.approval.id if outcome.approval else None
        if approval_id is None:
            return outcome
        if outcome.tool_call_id:
            self._approvals.setdefault(approval_id, outcome.tool_call_id)
            return outcome
        return replace(outcome, tool_call_id=self._approvals.get(approval_id, ""))

    def settle(self, position: int, outcome: ToolOutcome) -> ToolOutcome | None:
        """Put an outcome into its call; None where no pending call takes it."""
        places = self.pending.get(outcome.tool_call_id)
        if not places:
            return None
        behind = bisect_left(places, (position, 0))
        choice = behind - 1 if behind > 0 else behind
        number, index = places[choice]
        part = self._parts[number][index]
        if not isinstance(part, ToolPart):
            return None
        settled = settle(part, outcome)
        if not part.invocation.advanced_by(settled.invocation):
            return None
        self._parts[number][index] = settled
        self._changed.add(number)
        if not settled.invocation.is_pending:
            del places[choice]
        return replace(outcome, message_id=self._ids[number], tool_name=part.invocation.tool_name)

    def write_to(self, messages: list[Message]) -> None:
        """Put the changed parts into their messages."""
        for number in self._changed:
            messages[number] = messages[number].with_parts(self._parts[number])

    def _note(self, part: ToolPart, place: tuple[int, int]) -> None:
        invocation = part.invocation
        places = self.pending.setdefault(invocation.tool_call_id, [])
        if invocation.is_pending:
            places.append(place)
        if invocation.approval is not None and invocation.approval.id is not None:
            self._approvals[invocation.approval.id] = invocation.tool_call_id
