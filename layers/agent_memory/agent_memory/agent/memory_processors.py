"""The processors and tools that an agent's memory adds to a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent_memory.agent.tools import Tool
from agent_memory.processors.base import Processor, RunContext

if TYPE_CHECKING:
    from agent_memory.agent.run import Run


@dataclass(slots=True)
class MemoryProcessors:
    """What memory adds: processors per side, those behind the user's, and tools."""

    inputs: Sequence[Processor] = ()
    outputs: Sequence[Processor] = ()
    trailing: Sequence[Processor] = ()
    tools: Mapping[str, Tool] = field(default_factory=dict)


def memory_processors(run: Run, ctx: RunContext) -> MemoryProcessors:
    """Decide by the options in force for this call, and give the run its adapters.

    The input filter is on whenever a run uses memory, also with history off; the saver is on unless the run is read-only.
    """
    memory = run.agent.memory
    if run.memory is None or memory is None:
        return MemoryProcessors()
    options = memory.options.merged(run.memory.options, strict=False)
    ctx.options = options
    ctx.store = memory.storage
    ctx.blobs, ctx.files, ctx.file_rules = memory.blobs, memory.files, memory.file_rules
    ctx.thread_title = run.memory.title
    ctx.thread_metadata = run.memory.metadata

    from agent_memory.processors.input_filter import MemoryInputFilter
    from agent_memory.processors.message_history import MessageHistory

    history = MessageHistory(
        storage=memory.storage, last_messages=options.history_limit, token_limit=options.message_history
    )
    inputs: list[Processor] = [MemoryInputFilter(storage=memory.storage, retain_full_input=options.retain_full_input)]
    outputs: list[Processor] = [] if options.read_only else [history]
    trailing: list[Processor] = []
    tools: dict[str, Tool] = {}
    if options.loads_history:
        inputs.append(history)
    if options.working_memory is not None:
        from agent_memory.processors.working_memory import WorkingMemory

        keeper = WorkingMemory.of(options.working_memory, storage=memory.storage, read_only=options.read_only)
        inputs.append(keeper)
        tools.update(keeper.tools())
    if options.semantic_recall is not None:
        from agent_memory.processors.semantic_recall import SemanticRecall

        ctx.index, ctx.embedder = memory.vector, memory.embedder
        inputs.append(
            SemanticRecall.of(
                options.semantic_recall, storage=memory.storage, vector=memory.vector, embedder=memory.embedder
            )
        )
    if memory.blobs is not None and not options.read_only:
        from agent_memory.processors.attachment_uploader import AttachmentUploader

        trailing.append(AttachmentUploader(blobs=memory.blobs))
    return MemoryProcessors(inputs, outputs, trailing, tools)
