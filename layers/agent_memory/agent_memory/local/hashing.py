"""An embedder without a model: bags of words, hashed. Deterministic and quick, for tests and machines without weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final
from zlib import crc32

from agent_memory.errors import InvalidInputError
from agent_memory.recall.words import plain, words

DIMENSION: Final = 256
MAX_CHARS: Final = 8_000


class HashingEmbedder:
    """Unit vectors of hashed words; texts that share words (in Chinese: pairs of characters) are near each other.

    It knows no meaning: "car" and "automobile" are as far apart as any two words.
    """

    def __init__(self, dimension: int = DIMENSION, *, max_chars: int = MAX_CHARS) -> None:
        self.id = "hashing"
        self.dimension = dimension
        self.max_chars = max_chars

    def embed_passages(self, texts: Sequence[str]) -> list[list[float]]:
        """Vectors of stored texts. Raises InvalidInputError for a blank one."""
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """The vector of a question. Raises InvalidInputError for a blank one."""
        if not text.strip():
            raise InvalidInputError("text", "expected a text to embed, found a blank one")
        vector = [0.0] * self.dimension
        for feature, weight in _features(text):
            number = crc32(feature.encode("utf-8", "surrogatepass"))
            # One bit chooses the sign, so that words which meet in one place cancel out instead of adding up.
            vector[(number >> 1) % self.dimension] += weight if number & 1 else -weight
        length = math.hypot(*vector)
        if length == 0.0:
            vector[0], length = 1.0, 1.0
        return [value / length for value in vector]


def _features(text: str) -> list[tuple[str, float]]:
    found = words(text)
    if not found:
        return [(character, 1.0) for character in plain(text) if not character.isspace()]
    features = [(word, 1.0) for word in found]
    # Single characters of unspaced scripts tie texts whose pairs differ.
    features += [(character, 0.3) for word in found if not word.isascii() and len(word) == 2 for character in word]
    return features
