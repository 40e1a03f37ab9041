"""Semantic recall below its processor: chunks, words, fused scores, and what feeds an index."""

from agent_memory.recall.chunks import chunks
from agent_memory.recall.fusion import fuse, smooth
from agent_memory.recall.naming import index_name

__all__ = ["chunks", "fuse", "index_name", "smooth"]
