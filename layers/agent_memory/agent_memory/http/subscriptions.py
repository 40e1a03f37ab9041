"""Routes that watch or stop what runs on a thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
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
    from agent_memory.ports import MessageStore, RunStore

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
    after, ended, quiet = -1, False, 0
    while True:
        active = runs.get_active(owner, thread_id)
        batches = runs.read_chunks(owner, thread_id, run_id, after)
        if after < 0:
            batches = batches[max((place for place, (_, texts) in enumerate(batches) if _begins(texts)), default=0) :]
        for number, texts in batches:
            after, quiet = number, 0
            for text in texts:
                event = read_kept(text)
                ended = event.type in ("finish", "tripwire")
                yield event
        if batches:
            continue
        if active is None or active["run_id"] != run_id:
            # It has ended without a word (waiting for approval), or a turn beside it shows (or just showed) as the
            # active run; then it goes on until it says that it has ended.
            quiet += 1
        if ended or quiet > (GONE_LOOKS if active is None else QUIET_LOOKS) or _is_over(deadline):
            return
        yield None
        time.sleep(POLL_S)


def _begins(texts: Sequence[str]) -> bool:
    """Whether a batch holds the first events of a run; those are a batch of their own."""
    return read_kept(texts[0]).type == "start"


def _chunks_of_all_runs(
    runs: RunStore, store: MessageStore, owner: str, thread_id: str, deadline: float | None
) -> Iterator[bytes]:
    seen, last = set(_finished_turns(store, owner, thread_id)), None
    yield CONNECTED
    comment = _Comments(time.monotonic)
    while not _is_over(deadline):
        # A run may begin and end between two looks: then only the header of its thread tells of it. The header is read
        # first, so that a turn it calls finished while nothing is active has kept all its chunks.
        finished = _finished_turns(store, owner, thread_id)
        active = runs.get_active(owner, thread_id)
        if active is None:
            last = None
            run_id = next((turn for turn in finished if turn not in seen), None)
        else:
            run_id = str(active["run_id"])
        if run_id is None or run_id == last:
            yield from comment.due()
            time.sleep(POLL_S)
            continue
        seen.add(run_id)
        last = run_id
        for event in run_events(runs, owner, thread_id, run_id, deadline=deadline):
            if event is None:
                yield from comment.due()
            else:
                comment.sent()
                yield frame_text(dumps(event.to_wire(run_id)))


def _finished_turns(store: MessageStore, owner: str, thread_id: str) -> list[str]:
    """The runs of a thread's last turns that have ended, oldest first."""
    header = store.get_thread(owner, thread_id)
    return [] if header is None else [turn.run_id for turn in header.turns if turn.state != "running"]


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
