"""The start and the failing of a turn: records of the last few turns in a thread's header."""

from __future__ import annotations

from typing import Any

from agent_memory import clock
from agent_memory.aws.dynamodb import keys
from agent_memory.aws.dynamodb.base import Base, being_built
from agent_memory.aws.dynamodb.client import ConditionFailed
from agent_memory.aws.dynamodb.items import TURN_FIELDS, StoredHeader, read_header, write_turn
from agent_memory.aws.dynamodb.values import expression
from agent_memory.ports import ThreadHeader, TurnRecord, TurnStart

# True while callers may see the thread.
LIVE = "#state = :live AND (attribute_not_exists(#expires_at) OR #expires_at > :now)"


class Turns(Base):
    """Registers turns."""

    def begin_turn(self, resource_id: str, thread_id: str, turn: TurnRecord | None) -> TurnStart:
        """See `MessageStore.begin_turn`."""
        if turn is None:
            return self._start_of(thread_id, self._stored_header(resource_id, thread_id), None)
        now_ms = clock.to_ms(self._clock())
        try:
            before = self._db.update(
                self._threads,
                self._header_key(resource_id, thread_id),
                returns="ALL_OLD",
                **expression(
                    update="SET #turns.#slot = :turn",
                    condition=f"{LIVE} AND (attribute_not_exists(#turns.#slot) OR #turns.#slot.#s = :failed"
                    " OR (#turns.#slot.#s = :running AND #turns.#slot.#d <= :now))",
                    given={"slot": keys.turn_slot(turn.key)},
                    turn=write_turn(turn),
                    live="live",
                    now=now_ms,
                    failed=TURN_FIELDS["failed"],
                    running=TURN_FIELDS["running"],
                ),
            )
        except ConditionFailed as refused:
            stored = None if refused.item is None else read_header(refused.item)
            return self._start_of(thread_id, stored, turn)
        stored = read_header(before)
        return TurnStart(stored.header, _record(stored.header, turn.key))

    def fail_turn(self, header: ThreadHeader, turn: TurnRecord) -> None:
        """See `MessageStore.fail_turn`."""
        drop = turn.state == "running"
        entry: dict[str, Any] = {} if drop else {"turn": write_turn(turn)}
        try:
            self._db.update(
                self._threads,
                self._header_key(header.thread.resource_id, header.thread.id),
                **expression(
                    update="REMOVE #turns.#slot" if drop else "SET #turns.#slot = :turn",
                    condition="#incarnation = :incarnation AND #state = :live AND #turns.#slot.#r = :run",
                    given={"slot": keys.turn_slot(turn.key)},
                    incarnation=header.incarnation,
                    live="live",
                    run=turn.run_id,
                    **entry,
                ),
            )
        except ConditionFailed:
            # The thread is gone, or another run has taken the turn over: then this record is nobody's concern.
            return

    def _start_of(self, thread_id: str, stored: StoredHeader | None, turn: TurnRecord | None) -> TurnStart:
        if stored is not None and stored.is_building(self._clock()):
            raise being_built(thread_id)
        if stored is None or not stored.is_live(self._clock()):
            return TurnStart(None)
        repeat = None if turn is None else _record(stored.header, turn.key)
        if turn is not None and repeat == turn:
            # A try of this very call, whose answer was lost, has registered it.
            repeat = None
        return TurnStart(stored.header, repeat)


def _record(header: ThreadHeader, key: str) -> TurnRecord | None:
    return next((turn for turn in header.turns if turn.key == key), None)
