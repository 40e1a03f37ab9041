"""What the library needs from the outside, as protocols named after what the caller wants.

Adapters live in `aws`, `openai` and `local`; each is held to its protocol by the contract suite of the same name.
All methods are synchronous and safe to call from several threads at once.
"""

from agent_memory.ports.jobs import Job, JobStore
from agent_memory.ports.model import (
    ChatModel,
    ChunkType,
    ModelChunk,
    ModelRequest,
    PromptFile,
    PromptMessage,
    PromptPart,
    PromptReasoning,
    PromptText,
    PromptToolCall,
    PromptToolResult,
    ToolSpec,
    Usage,
)
from agent_memory.ports.recall import Embedder, Hit, IndexedMessage, IndexQuery, VectorIndex
from agent_memory.ports.records import (
    Committed,
    DateRange,
    MessagePage,
    MessageQuery,
    MessageRef,
    Thread,
    ThreadHeader,
    ThreadPage,
    ThreadQuery,
    TitleSource,
    TurnCommit,
    TurnRecord,
    TurnStart,
    WorkingMemoryRecord,
)
from agent_memory.ports.runs import BlobStore, Dispatcher, RunStore, StoredBlob, SuspendedRun
from agent_memory.ports.store import MessageStore, live

__all__ = [
    "BlobStore",
    "ChatModel",
    "ChunkType",
    "Committed",
    "DateRange",
    "Dispatcher",
    "Embedder",
    "Hit",
    "IndexQuery",
    "IndexedMessage",
    "Job",
    "JobStore",
    "MessagePage",
    "MessageQuery",
    "MessageRef",
    "MessageStore",
    "ModelChunk",
    "ModelRequest",
    "PromptFile",
    "PromptMessage",
    "PromptPart",
    "PromptReasoning",
    "PromptText",
    "PromptToolCall",
    "PromptToolResult",
    "RunStore",
    "StoredBlob",
    "SuspendedRun",
    "Thread",
    "ThreadHeader",
    "ThreadPage",
    "ThreadQuery",
    "TitleSource",
    "ToolSpec",
    "TurnCommit",
    "TurnRecord",
    "TurnStart",
    "Usage",
    "VectorIndex",
    "WorkingMemoryRecord",
    "live",
]
