"""Routes that watch or stop what runs on a thread."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from agent_memory import runtime
from agent_memory._json import dumps
from agent_memory.errors import NotSupportedError
from agent_memory.http.answering import read_kept
from agent_memory.http.background import running_in
from agent_memory.http.call import Call
from agent_memory.http.response import Response
from agent_memory.http.sse import CONNECTED, frame_text
from agent_memory.memory.base import Unset

if TYPE_CHECKING:
    from agent_memory.agent.events import RunEvent
    from agent_memory.ports import MessageStore, RunStore, TurnRecord

POLL_S: Final = 0.5
QUIET_LOOKS: Final = 20  # looks (of half a second) without a chunk after which a run beside another counts as gone
GONE_LOOKS: Final = 3  # the same where no run shows: a running one shows itself again within a second
COMMENT_EVERY_S: Final = 25.0
END_EARLY_S: Final = 5.0  # before the function's deadline
KEEP_ALIVE: Final = b": keep-alive\n\n"
ABORT_TRIES: Final = 4  # half a second apart


def subscribe(call: Call) -> Response:
    """The chunks of every run on a thread, until the caller leaves or the function's time is over."""
    agent = call.named_agent()
    runs = runtime.services().runs
    if runs is None or not agent.resumable:
        raise NotSupportedError(
            f"agent {agent.id} keeps no chunks of running answers; build it with resumable=True to subscribe"
        )
    thread_id = call.body["threadId"]
    owner = call.owner
    if isinstance(owner, Unset):
        owner = call.thread_owner(call.memory(), thread_id)
    call.check_thread(call.memory(), thread_id, owner)
    store = call.memory().storage
    return Response.events(_chunks_of_all_runs(runs, store, owner, thread_id, call.deadline))


def abort(call: Call) -> Any:
    """Ask the run on a thread to stop. It looks at most once a second."""
    call.named_agent()
    thread_id, expected = call.body["threadId"], call.body.get("expectedRunId")
    runs, owner = runtime.services().runs, call.owner
    if isinstance(owner, Unset):
        known = call.memory().storage.owner_of(thread_id)
        if known is None:
            return {"aborted": False}
        owner = known
    memory = call.memory()
    if runs is None:
        return {"aborted": False}
    call.check_thread(memory, thread_id, owner)
    for _ in range(ABORT_TRIES):
        if runs.request_abort(owner, thread_id, expected):
            return {"aborted": True}
        # A run registers itself after a second; until then only the header of its thread knows of it, and a thread in its
        # first turn has none.
        header = memory.storage.get_thread(owner, thread_id)
        if header is not None and (running_in(header) is None or expected not in (None, running_in(header))):
            break
        time.sleep(POLL_S)
    return {"aborted": False}


def run_events(
    runs: RunStore, owner: str, thread_id: str, run_id: str, *, deadline: float | None = None
) -> Iterator[RunEvent | None]:
    """The kept events of a run from its beginning, then live to its end; None for each look that found nothing new.

    The beginning of a run that went on after an approval is where it went on: what came before has been stored.
    """

    def looks_to_wait() -> int | None:
        return _looks_to_wait(runs.get_active(owner, thread_id), run_id)

    events = _numbered_events(runs, owner, thread_id, run_id, after=-1, looks_to_wait=looks_to_wait, deadline=deadline)
    return (event for _number, event in events)


def _looks_to_wait(active: Mapping[str, Any] | None, run_id: str) -> int | None:
    """How many looks without a chunk mean that a run is gone; None while it shows as the active one.

    Else it has ended without a word (waiting for approval), or a turn beside it shows (or just showed) as the active run;
    then it goes on until it says that it has ended.
    """
    if active is None:
        return GONE_LOOKS
    return None if active["run_id"] == run_id else QUIET_LOOKS


def _numbered_events(
    runs: RunStore,
    owner: str,
    thread_id: str,
    run_id: str,
    *,
    after: int,
    looks_to_wait: Callable[[], int | None],
    deadline: float | None,
) -> Iterator[tuple[int, RunEvent | None]]:
    """Events of a run with the numbers of their batches, above `after`; an `after` of -1 stands for where it went on last."""
    ended, quiet = False, 0
    while True:
        patience = looks_to_wait()
        batches = runs.read_chunks(owner, thread_id, run_id, after)
        if after < 0:
            batches = batches[max((place for place, (_, texts) in enumerate(batches) if _begins(texts)), default=0) :]
        for number, texts in batches:
            after, quiet = number, 0
            for text in texts:
                event = read_kept(text)
                ended = event.type in ("finish", "tripwire")
                yield number, event
        if batches:
            continue
        if patience is not None:
            quiet += 1
        if ended or (patience is not None and quiet > patience) or _is_over(deadline):
            return
        yield after, None
        time.sleep(POLL_S)


def _begins(texts: Sequence[str]) -> bool:
    """Whether a batch holds the first events of a run; those are a batch of their own."""
    return read_kept(texts[0]).type == "start"


def _chunks_of_all_runs(
    runs: RunStore, store: MessageStore, owner: str, thread_id: str, deadline: float | None
) -> Iterator[bytes]:
    turns = _Turns(runs, store, owner, thread_id)
    yield CONNECTED
    comment = _Comments(time.monotonic)
    read: dict[str, int] = {}
    while not _is_over(deadline):
        turns.look()
        if not turns.waiting:
            yield from comment.due()
            time.sleep(POLL_S)
            continue
        run_id, before = turns.waiting.popleft()
        events = _numbered_events(
            runs,
            owner,
            thread_id,
            run_id,
            after=max(before, read.get(run_id, -1)),
            looks_to_wait=lambda run_id=run_id: turns.looks_to_wait(run_id),  # type: ignore[misc]
            deadline=deadline,
        )
        for number, event in events:
            if event is None:
                yield from comment.due()
            else:
                read[run_id] = number
                comment.sent()
                yield frame_text(dumps(event.to_wire(run_id)))


class _Turns:
    """The turns of a thread that a subscriber has not been shown, in `waiting`: run, and the number before its chunks.

    A run may begin and end between two looks, or beside another one that is being shown: then only the header of its
    thread tells of it, for as long as it is one of the last few. A run that goes on after an approval is another turn of
    the same run. Turns that had ended before the first look are left out.
    """

    def __init__(self, runs: RunStore, store: MessageStore, owner: str, thread_id: str) -> None:
        self._runs = runs
        self._store = store
        self._place = (owner, thread_id)
        self._seen = {(turn.key, turn.run_id) for turn in self._turns() if turn.state != "running"}
        self._unlisted: dict[str, bool] = {}  # active runs that no header names: whether they are shown
        self._active: Mapping[str, Any] | None = None
        self._states: dict[str, bool] = {}  # runs that the header names: whether they are at work
        self.waiting: deque[tuple[str, int]] = deque()

    def look(self) -> None:
        """Find what is new. Two requests."""
        # The header first: what it calls ended while nothing is active has kept all its chunks.
        turns = self._turns()
        self._active = self._runs.get_active(*self._place)
        active = None if self._active is None else str(self._active["run_id"])
        at_work = {turn.run_id for turn in turns if turn.state == "running"}
        self._states = {turn.run_id: turn.run_id in at_work for turn in turns}
        for turn in turns:
            if (turn.key, turn.run_id) in self._seen or (turn.state == "running" and turn.run_id != active):
                continue
            self._seen.add((turn.key, turn.run_id))
            if not self._unlisted.pop(turn.run_id, False):
                # Batches are numbered from the tenth of a second on in which the turn began to answer.
                self.waiting.append((turn.run_id, turn.started_at // 100 - 1))
        if active is None or any(active == run_id for _key, run_id in self._seen):
            return
        # The first turn of a thread; or one that was registered since the header was read, which the next look finds there.
        if self._unlisted.get(active) is False:
            self._unlisted[active] = True
            self.waiting.append((active, -1))
        self._unlisted.setdefault(active, False)

    def looks_to_wait(self, run_id: str) -> int | None:
        """As `_looks_to_wait`, after a look."""
        self.look()
        patience = _looks_to_wait(self._active, run_id)
        if patience is None or run_id not in self._states:
            return patience
        return QUIET_LOOKS if self._states[run_id] else GONE_LOOKS

    def _turns(self) -> Sequence[TurnRecord]:
        header = self._store.get_thread(*self._place)
        return () if header is None else header.turns


class _Comments:
    """A comment whenever nothing was sent for a while."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last = clock()

    def sent(self) -> None:
        self._last = self._clock()

    def due(self) -> Iterator[bytes]:
        if self._clock() - self._last >= COMMENT_EVERY_S:
            self.sent()
            yield KEEP_ALIVE


def _is_over(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() >= deadline - END_EARLY_S
