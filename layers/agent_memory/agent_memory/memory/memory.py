"""The Memory facade."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_memory.memory.base import UNSET, Owner
from agent_memory.memory.clone import Clones
from agent_memory.memory.recall import Recall
from agent_memory.memory.results import Context
from agent_memory.memory.working_memory import WorkingMemoryCalls


class Memory(Clones, Recall, WorkingMemoryCalls):
    """The memory of agents: threads, messages, recall, clones and working memory of resources.

    ::

        Memory(last_messages=20, semantic_recall=True)
        Memory(storage=store, options={"working_memory": {"scope": "thread"}})

    Without `storage` it uses the deployment's adapters. Every call on a thread names its owner with `resource_id`, or leaves it
    out: then the owner of the thread id is looked up, where thread ids are unique in the deployment. '', None and '*'
    are errors, never "all".

    Memory keeps resources apart, and does not know who is asking: an application checks that its user may see the
    resource before it calls (the HTTP functions do).
    """

    def get_context(
        self, thread_id: str, *, resource_id: Owner = UNSET, thread_config: Mapping[str, Any] | None = None
    ) -> Context:
        """The system text and the last messages of a thread, for a model call made by hand."""
        options = self._merged(thread_config)
        system = self.get_system_message(thread_id=thread_id, resource_id=resource_id, thread_config=thread_config)
        if options.history_limit == 0:
            return Context(system, ())
        found = self.recall(
            thread_id, resource_id=resource_id, per_page=options.history_limit or None, include_total=False
        )
        return Context(system, tuple(m for m in found.messages if m.role != "system"))
