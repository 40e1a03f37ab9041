"""Which turn a call is: its key, and what to do when the same turn was seen before."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agent_memory import clock
from agent_memory._json import dumps
from agent_memory.messages.parts import ToolPart
from agent_memory.ports import TurnRecord

if TYPE_CHECKING:
    from agent_memory.messages import Message
    from agent_memory.messages.from_input import ToolOutcome

REPEAT_WINDOW_MS: Final = 30_000  # without an id or a key, the same words later than this are a new turn
LEASE_MS: Final = 15 * 60 * 1000  # Lambda's longest run; a turn that runs longer is dead


@dataclass(frozen=True, slots=True)
class TurnKey:
    """The name of a turn.

    `guessed`: it was made from the body, so equal words may also be a new turn. `given`: the caller made it for this turn and
    no other, so an equal one is always a repeat.
    """

    value: str
    guessed: bool = False
    given: bool = False


def turn_key(
    *,
    idempotency_key: str | None,
    messages: Sequence[Message],
    given_ids: frozenset[str],
    outcomes: Sequence[ToolOutcome],
    regenerate: bool,
    run_id: str,
) -> TurnKey:
    """The key of a turn.

    `Idempotency-Key`, else the outcomes that came in, else the last user message's id if the caller gave it, else a
    hash of the input. A regenerate without a key is always a turn of its own.
    """
    if idempotency_key:
        return TurnKey(f"k:{_digest(idempotency_key)}", given=True)
    if regenerate:
        return TurnKey(f"g:{run_id}")
    if outcomes:
        told = [[o.tool_call_id, o.state, o.result, o.error_text] for o in outcomes]
        return TurnKey(f"o:{_digest(dumps(told))}")
    last = messages[-1] if messages else None
    if last is not None and last.role == "assistant":
        told = [
            [part.invocation.tool_call_id, part.invocation.state]
            for part in last.parts
            if isinstance(part, ToolPart) and part.invocation.is_outcome
        ]
        return TurnKey(f"a:{_digest(dumps([last.id, told]))}", guessed=not told)
    if last is not None and last.id in given_ids:
        return TurnKey(f"m:{_digest(last.id)}")
    said = [[m.role, m.text] for m in messages]
    return TurnKey(f"h:{_digest(dumps(said))}", guessed=True)


def new_record(key: TurnKey, run_id: str, *, lease_ms: int = LEASE_MS) -> TurnRecord:
    """The record of a turn that starts now."""
    now = clock.now_ms()
    return TurnRecord(key=key.value, state="running", run_id=run_id, started_at=now, deadline=now + lease_ms)


def is_repeat(key: TurnKey, earlier: TurnRecord, turns: Sequence[TurnRecord]) -> bool:
    """Whether a finished or running record of the same key means that this call is a repeat of it.

    A finished turn counts while it is the newest finished one, because a message of old that is sent again asks for another
    answer; under a given key it counts always. A guessed key counts only within 30 seconds of a turn that did not finish.
    """
    if key.guessed and (earlier.state == "finished" or clock.now_ms() - earlier.started_at > REPEAT_WINDOW_MS):
        return False
    if earlier.state != "finished" or key.given:
        return True
    finished = [turn for turn in turns if turn.state == "finished"]
    return not finished or finished[-1].key == earlier.key


def _digest(value: Any) -> str:
    return hashlib.sha256(str(value).encode("utf-8", "surrogatepass")).hexdigest()[:32]
