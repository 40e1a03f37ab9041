"""Embedders of any OpenAI-compatible service, over urllib3."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

from agent_memory import embedding_usage
from agent_memory._json import dumps, loads
from agent_memory.errors import ConfigurationError, InvalidInputError, ModelError
from agent_memory.models._errors import refused, unreachable
from agent_memory.models.retry import QUESTION_S, TryAgain, with_retries
from agent_memory.openai.keys import ApiKey, bearer

OPENAI_URL: Final = "https://api.openai.com/v1"
KNOWN_DIMENSIONS: Final = {
    "text-embedding-3-small": 1536,
    "text-embedding-3-large": 3072,
    "text-embedding-ada-002": 1536,
}
MAX_CHARS: Final = 8_000
"""The models take 8,191 tokens, and a token may be a single character of Chinese or base64."""
BATCH: Final = 32  # with 8,000 characters each a call stays below the service's 300,000 tokens
CONNECT_TIMEOUT_S: Final = 5.0
READ_TIMEOUT_S: Final = 20.0


class OpenAIEmbedder:
    """An embedder behind ``POST <base_url>/embeddings``.

    Args:
        model_id: The model's name at the service.
        base_url: The service's address, up to ``/v1``. None: OpenAI's own.
        api_key: The key, or a function that gives it; asked for at each call, never logged.
        dimension: Length of the vectors; known for OpenAI's own models, and sent along where it differs from that.
        max_chars: The longest text of one call.
    """

    def __init__(
        self,
        model_id: str,
        base_url: str | None = None,
        api_key: ApiKey = None,
        *,
        dimension: int | None = None,
        max_chars: int = MAX_CHARS,
    ) -> None:
        known = KNOWN_DIMENSIONS.get(model_id)
        if dimension is None and known is None:
            raise ConfigurationError(
                f"expected the dimension of {model_id!r:.80}, found none; pass dimension=…", code="EMBEDDER_INVALID"
            )
        self.id = f"openai:{model_id}"
        self.dimension: int = dimension or known or 0
        self.max_chars = max_chars
        self._model_id = model_id
        self._shortened = known is not None and self.dimension != known
        self._url = (base_url or OPENAI_URL).rstrip("/") + "/embeddings"
        self._key = api_key
        self._pool: Any = None

    def __repr__(self) -> str:
        return f"OpenAIEmbedder({self._model_id!r})"

    def embed_passages(self, texts: Sequence[str]) -> list[list[float]]:
        """Vectors of stored texts. Raises ModelError."""
        vectors: list[list[float]] = []
        for start in range(0, len(texts), BATCH):
            vectors += self._embed(list(texts[start : start + BATCH]))
        return vectors

    def embed_query(self, text: str) -> list[float]:
        """The vector of a question. Raises ModelError."""
        return self._embed([text], question=True)[0]

    def _embed(self, texts: list[str], *, question: bool = False) -> list[list[float]]:
        if any(not text.strip() for text in texts):
            raise InvalidInputError("text", "expected a text to embed, found a blank one")
        body: dict[str, Any] = {"model": self._model_id, "input": texts, "encoding_format": "float"}
        if self._shortened:
            body["dimensions"] = self.dimension
        data = dumps(body).encode("utf-8", "replace")
        # A question gets few seconds, and no more tries after them.
        timeout_s, deadline = (QUESTION_S, time.monotonic() + QUESTION_S) if question else (READ_TIMEOUT_S, None)
        answer = next(with_retries(lambda: self._attempt(data, timeout_s), deadline=deadline))
        rows = sorted(answer.get("data", ()), key=lambda row: int(row["index"]))
        vectors: list[list[float]] = [row["embedding"] for row in rows]
        if len(vectors) != len(texts) or any(len(vector) != self.dimension for vector in vectors):
            sizes = sorted({len(vector) for vector in vectors})
            raise ModelError(
                f"expected {len(texts)} vectors of {self.dimension} dimensions of {self.id}, "
                f"found {len(vectors)} of {sizes}",
                code="EMBEDDING_INVALID",
            )
        return vectors

    def _attempt(self, body: bytes, timeout_s: float) -> Iterator[dict[str, Any]]:
        import urllib3

        if self._pool is None:
            self._pool = urllib3.PoolManager(maxsize=8, retries=False)
        try:
            response = self._pool.request(
                "POST",
                self._url,
                body=body,
                headers={"content-type": "application/json", **bearer(self._key)},
                timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT_S, read=timeout_s),
                redirect=False,
            )
        except urllib3.exceptions.HTTPError as error:
            timeout = isinstance(error, urllib3.exceptions.TimeoutError)
            raise TryAgain(unreachable(self.id, type(error).__name__, timeout=timeout)) from error
        if response.status != 200:
            # The reason may quote the text or the key; the status says enough.
            made = refused(self.id, response.status, "")
            raise TryAgain(made) if made.retryable else made
        try:
            found: dict[str, Any] = loads(response.data)
        except ValueError as error:
            raise ModelError(f"{self.id} answered no JSON", code="EMBEDDING_INVALID") from error
        usage = found.get("usage")
        embedding_usage.note(usage.get("total_tokens") if isinstance(usage, dict) else None)
        yield found
