"""The Memory facade: threads, messages, recall, clones and working memory of a resource."""

from agent_memory.memory.memory import Memory
from agent_memory.memory.results import (
    CloneMetadata,
    CloneResult,
    Context,
    RecallResult,
    SearchResult,
    ThreadList,
)

__all__ = ["CloneMetadata", "CloneResult", "Context", "Memory", "RecallResult", "SearchResult", "ThreadList"]
