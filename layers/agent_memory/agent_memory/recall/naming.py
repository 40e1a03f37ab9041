"""Names of vector indexes."""

from __future__ import annotations

import re
from typing import Final

from agent_memory.ports import Embedder

_MAX_CHARS: Final = 120  # OpenSearch takes 255 bytes; a prefix and a number come to it
_OTHER: Final = re.compile(r"[^a-z0-9]+")


def index_name(embedder: Embedder) -> str:
    """The name of the index that holds an embedder's vectors: model and dimension, in a form every engine takes."""
    return name_of(embedder.id, embedder.dimension)


def name_of(embedder_id: str, dimension: int) -> str:
    """As `index_name`, from the two values that make up an index's identity."""
    words = _OTHER.sub("-", embedder_id.lower()).strip("-")[:_MAX_CHARS].rstrip("-")
    return f"{words or 'embedder'}-{dimension}"
