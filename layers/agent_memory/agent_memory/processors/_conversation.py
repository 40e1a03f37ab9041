"""Which conversation, in which storage, a memory processor works on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent_memory.errors import ConfigurationError
from agent_memory.messages import Message
from agent_memory.ports import MessageStore, ThreadHeader, live
from agent_memory.processors.base import RunContext

HISTORY = "history"  # in RunContext.shared: the rows that MessageHistory read


@dataclass(frozen=True, slots=True)
class Conversation:
    """A run's thread in the storage that a processor uses: its own, else the run's."""

    run: RunContext
    store: MessageStore
    resource_id: str
    thread_id: str

    def header(self) -> ThreadHeader | None:
        """The thread's header; None where it does not exist. Asks only a storage that is not the run's, and once."""
        if self.store is self.run.store:
            return self.run.header
        headers = self.run.shared.setdefault("headers", {})
        key = id(self.store)
        if key not in headers:
            headers[key] = self.store.get_thread(self.resource_id, self.thread_id)
        found: ThreadHeader | None = headers[key]
        return found

    def history(self) -> tuple[Message, ...]:
        """Rows that a history processor has read from this storage, oldest first; only those the thread shows."""
        rows: Sequence[Message] = self.run.shared.get(f"{HISTORY}:{id(self.store)}", ())
        return live(self.header(), rows)

    def keep_history(self, rows: Sequence[Message]) -> None:
        """Let the other processors of the run use rows that were read."""
        self.run.shared[f"{HISTORY}:{id(self.store)}"] = rows
        if self.store is self.run.store:
            self.run.shared[HISTORY] = rows


def conversation(run: RunContext, storage: MessageStore | None) -> Conversation | None:
    """The conversation of a run in `storage` (None: the run's); None where the run has no thread or no storage."""
    store = storage if storage is not None else run.store
    if store is None or run.thread_id is None or run.resource_id is None:
        return None
    return Conversation(run, store, run.resource_id, run.thread_id)


def needed_conversation(run: RunContext, storage: MessageStore | None, *, name: str, code: str) -> Conversation | None:
    """As `conversation`; raises ConfigurationError where the run has a thread and there is no storage for it."""
    if run.thread_id is not None and storage is None and run.store is None:
        raise ConfigurationError(f"{name} has no storage: pass storage=, or give the agent a memory", code=code)
    return conversation(run, storage)
