"""Embedders on Amazon Bedrock: Titan Text Embeddings V2, and Cohere Embed in batches."""

from __future__ import annotations

import contextvars
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, Literal

from agent_memory import embedding_usage
from agent_memory._json import dumps, loads
from agent_memory.errors import ConfigurationError, InvalidInputError, ModelError
from agent_memory.models._errors import refused, unreachable
from agent_memory.models.retry import QUESTION_S, TryAgain, with_retries

if TYPE_CHECKING:
    from mypy_boto3_bedrock_runtime import BedrockRuntimeClient

TITAN_DIMENSIONS: Final = (256, 512, 1024)
TITAN_MAX_CHARS: Final = 8_000
"""The model takes 8,192 tokens and 50,000 characters. A token of Chinese or base64 may be a single character."""
COHERE_DIMENSION: Final = 1024
COHERE_MAX_CHARS: Final = 2_048  # the model's own limit per text; it cuts what is longer than 512 tokens
COHERE_BATCH: Final = 96
PARALLEL: Final = 8
READ_TIMEOUT_S: Final = 20.0


def bedrock_embedder(model_id: str, **settings: Any) -> TitanEmbedder | CohereEmbedder:
    """The embedder of a Bedrock model id; inference profiles (``us.cohere…``) too. Raises ConfigurationError."""
    if "cohere.embed" in model_id:
        return CohereEmbedder(model_id, **settings)
    if "titan-embed-text-v2" in model_id:
        return TitanEmbedder(model_id, **settings)
    raise ConfigurationError(
        f"expected a Titan Text Embeddings V2 or Cohere Embed model, found {model_id!r:.80}", code="EMBEDDER_UNKNOWN"
    )


class _Bedrock:
    """Calls a model, with retries on throttling."""

    def __init__(self, model_id: str, region: str | None, client: BedrockRuntimeClient | None) -> None:
        self.id = f"bedrock:{model_id}"
        self._model_id = model_id
        self._region = region
        self._client = client

    def _invoke(self, body: Mapping[str, Any], *, question: bool) -> dict[str, Any]:
        """One call. A question gets few seconds, and no more tries after them."""
        if question:
            deadline = time.monotonic() + QUESTION_S
            return next(with_retries(lambda: self._attempt(body, QUESTION_S), deadline=deadline))
        return next(with_retries(lambda: self._attempt(body, READ_TIMEOUT_S)))

    def _attempt(self, body: Mapping[str, Any], timeout_s: float) -> Iterator[dict[str, Any]]:
        from botocore.exceptions import BotoCoreError, ClientError, ReadTimeoutError

        from agent_memory.aws.bedrock import bedrock_client

        client = self._client or bedrock_client(self._region, timeout_s)
        try:
            answer = client.invoke_model(
                modelId=self._model_id,
                body=dumps(body).encode("utf-8", "replace"),
                contentType="application/json",
                accept="application/json",
            )
            found: dict[str, Any] = loads(answer["body"].read())
            headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        except ClientError as error:
            status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
            # A refused text may be quoted in the reason; the code says enough.
            made = refused(self.id, status, str(error.response.get("Error", {}).get("Code", "")))
            raise (TryAgain(made) if made.retryable else made) from error
        except BotoCoreError as error:
            timeout = isinstance(error, ReadTimeoutError)
            raise TryAgain(unreachable(self.id, type(error).__name__, timeout=timeout)) from error
        # Every model's answer has the header; Titan's has the count in its body too.
        counted = str(headers.get("x-amzn-bedrock-input-token-count", ""))
        embedding_usage.note(int(counted) if counted.isdecimal() else found.get("inputTextTokenCount"))
        yield found

    def _checked(self, vectors: list[list[float]], count: int, dimension: int) -> list[list[float]]:
        if len(vectors) != count or any(len(vector) != dimension for vector in vectors):
            sizes = sorted({len(vector) for vector in vectors})
            raise ModelError(
                f"expected {count} vectors of {dimension} dimensions of {self.id}, found {len(vectors)} of {sizes}",
                code="EMBEDDING_INVALID",
            )
        return vectors


class TitanEmbedder(_Bedrock):
    """Titan Text Embeddings V2. It takes one text a call; up to eight calls run at once.

    Args:
        model_id: The model's id.
        dimension: 256, 512 or 1024.
        region: AWS region; None takes the environment's.
        client: A Bedrock runtime client to use instead of the process's own.
    """

    def __init__(
        self,
        model_id: str = "amazon.titan-embed-text-v2:0",
        *,
        dimension: int = 1024,
        region: str | None = None,
        client: BedrockRuntimeClient | None = None,
    ) -> None:
        if dimension not in TITAN_DIMENSIONS:
            raise ConfigurationError(
                f"expected a dimension of {', '.join(map(str, TITAN_DIMENSIONS))}, found {dimension}",
                code="EMBEDDER_INVALID",
            )
        super().__init__(model_id, region, client)
        self.dimension = dimension
        self.max_chars = TITAN_MAX_CHARS

    def embed_passages(self, texts: Sequence[str]) -> list[list[float]]:
        """Vectors of stored texts. Raises ModelError."""
        if len(texts) < 2:
            return [self._embed(text) for text in texts]
        with ThreadPoolExecutor(max_workers=min(PARALLEL, len(texts))) as pool:
            calls = [pool.submit(contextvars.copy_context().run, self._embed, text) for text in texts]
            return [call.result() for call in calls]

    def embed_query(self, text: str) -> list[float]:
        """The vector of a question. Raises ModelError."""
        return self._embed(text, question=True)

    def _embed(self, text: str, *, question: bool = False) -> list[float]:
        check_texts([text])
        asked = {"inputText": text, "dimensions": self.dimension, "normalize": True}
        answer = self._invoke(asked, question=question)
        return self._checked([answer.get("embedding") or []], 1, self.dimension)[0]


class CohereEmbedder(_Bedrock):
    """Cohere Embed v3, 96 texts a call, with its own kinds of input for passages and questions.

    Args:
        model_id: ``cohere.embed-multilingual-v3`` or ``cohere.embed-english-v3``.
        region: AWS region; None takes the environment's.
        client: A Bedrock runtime client to use instead of the process's own.
    """

    def __init__(
        self,
        model_id: str = "cohere.embed-multilingual-v3",
        *,
        region: str | None = None,
        client: BedrockRuntimeClient | None = None,
    ) -> None:
        super().__init__(model_id, region, client)
        self.dimension = COHERE_DIMENSION
        self.max_chars = COHERE_MAX_CHARS

    def embed_passages(self, texts: Sequence[str]) -> list[list[float]]:
        """Vectors of stored texts. Raises ModelError."""
        vectors: list[list[float]] = []
        for start in range(0, len(texts), COHERE_BATCH):
            vectors += self._embed(texts[start : start + COHERE_BATCH], "search_document")
        return vectors

    def embed_query(self, text: str) -> list[float]:
        """The vector of a question. Raises ModelError."""
        return self._embed([text], "search_query")[0]

    def _embed(self, texts: Sequence[str], input_type: Literal["search_document", "search_query"]) -> list[list[float]]:
        check_texts(texts)
        asked = {"texts": list(texts), "input_type": input_type, "truncate": "END"}
        answer = self._invoke(asked, question=input_type == "search_query")
        found = answer.get("embeddings") or []
        if isinstance(found, dict):
            found = found.get("float") or []
        return self._checked(found, len(texts), self.dimension)


def check_texts(texts: Sequence[str]) -> None:
    """Raise InvalidInputError for a blank text, which providers refuse with a whole batch."""
    if any(not text.strip() for text in texts):
        raise InvalidInputError("text", "expected a text to embed, found a blank one")
