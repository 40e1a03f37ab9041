"""Amazon Bedrock: chat models over Converse, and guardrails applied to texts."""

from __future__ import annotations

import base64
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from agent_memory.aws._converse import PROVIDER, converse_request
from agent_memory.errors import ConfigurationError, ModelError
from agent_memory.models._chunks import ChunkWriter, FinishReason
from agent_memory.models._errors import cut_off, refused, unreachable
from agent_memory.models._pump import Pump
from agent_memory.models.retry import TryAgain, with_retries
from agent_memory.ports import ModelChunk, ModelRequest, Usage

if TYPE_CHECKING:
    from mypy_boto3_bedrock_runtime import BedrockRuntimeClient

CONNECT_TIMEOUT_S: Final = 5.0
READ_TIMEOUT_S: Final = 120.0  # between two pieces of a stream; a model that thinks may be silent for long

_REASONS: Final[dict[str, FinishReason]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool-calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "guardrail_intervened": "content-filter",
    "content_filtered": "content-filter",
    "malformed_model_output": "error",
    "malformed_tool_use": "error",
}
# HTTP statuses of errors that come inside a stream, where botocore gives only their names.
_STATUS: Final = {
    "accessdeniedexception": 403,
    "internalserverexception": 500,
    "modelerrorexception": 424,
    "modelnotreadyexception": 429,
    "modelstreamerrorexception": 424,
    "modeltimeoutexception": 408,
    "resourcenotfoundexception": 404,
    "servicequotaexceededexception": 400,
    "serviceunavailableexception": 503,
    "throttlingexception": 429,
    "validationexception": 400,
}


@functools.cache
def bedrock_client(region: str | None = None, read_timeout_s: float = READ_TIMEOUT_S) -> BedrockRuntimeClient:
    """The Bedrock client of this process for a region (None: the environment's). It leaves retries to us."""
    import boto3
    from botocore.config import Config

    config = Config(
        connect_timeout=CONNECT_TIMEOUT_S,
        read_timeout=read_timeout_s,
        retries={"total_max_attempts": 1},
        tcp_keepalive=True,
    )
    return boto3.client("bedrock-runtime", region_name=region, config=config)


class BedrockModel:
    """A chat model on Amazon Bedrock, streamed over Converse.

    Sends tools, images, documents and the model's own signed reasoning. `provider_options["bedrock"]` may hold
    ``additionalModelRequestFields``, ``guardrailConfig``, ``performanceConfig``, ``requestMetadata`` and ``serviceTier``, which
    go along as they are.

    Args:
        model_id: Model id, inference profile id or ARN.
        region: AWS region; None takes the environment's.
        guardrail_id: A guardrail that Bedrock applies to each call, with its version; the finish reason is
            ``content-filter`` where it intervened.
        guardrail_version: A number or ``DRAFT``.
        read_timeout_s: How long the stream may be silent.
        client: A client to use instead of the process's own.
    """

    provider = PROVIDER

    def __init__(
        self,
        model_id: str,
        *,
        region: str | None = None,
        guardrail_id: str | None = None,
        guardrail_version: str = "DRAFT",
        read_timeout_s: float = READ_TIMEOUT_S,
        client: BedrockRuntimeClient | None = None,
    ) -> None:
        if not model_id:
            raise ConfigurationError("expected a Bedrock model id, found none", code="MODEL_UNKNOWN")
        self.model_id = model_id
        self._region = region
        self._read_timeout_s = read_timeout_s
        self._client = client
        self._guardrail: dict[str, Any] | None = None
        if guardrail_id:
            self._guardrail = {"guardrailIdentifier": guardrail_id, "guardrailVersion": guardrail_version}

    def stream(self, request: ModelRequest) -> Iterator[ModelChunk]:
        """Answer a request. Raises ModelError; retries throttling and failures of the service before the first piece."""
        body = converse_request(request, self.model_id, guardrail=self._guardrail)

        def read(stopped: Event) -> Iterator[Mapping[str, Any]]:
            return with_retries(
                lambda: self._events(body), deadline=request.deadline, stopped=stopped.is_set, sleep=stopped.wait
            )

        answer = _Answer(self.model_id)
        pump = Pump(read, request)
        for event in pump:
            yield from answer.take(event)
        yield from answer.end(early=pump.ended_early)

    def _events(self, body: dict[str, Any]) -> Iterator[Mapping[str, Any]]:
        client = self._client or bedrock_client(self._region, self._read_timeout_s)
        with _translated(f"bedrock/{self.model_id}"):
            response = client.converse_stream(**body)
            yield {"opened": response["ResponseMetadata"].get("RequestId")}
            stream = response["stream"]
            try:
                yield from cast("Iterator[Mapping[str, Any]]", stream)
            finally:
                stream.close()


class _Answer:
    """Turns Converse's events into chunks."""

    def __init__(self, model_id: str) -> None:
        self._model_id = model_id
        self._writer = ChunkWriter()
        self._calls: set[int] = set()
        self._reason: FinishReason | None = None
        self._usage = Usage()

    def take(self, event: Mapping[str, Any]) -> Iterator[ModelChunk]:
        writer = self._writer
        if "opened" in event:
            yield writer.response(event["opened"], self._model_id)
        elif start := event.get("contentBlockStart"):
            if tool := start["start"].get("toolUse"):
                self._calls.add(start["contentBlockIndex"])
                yield from writer.call_start(start["contentBlockIndex"], tool["toolUseId"], tool["name"])
        elif delta := event.get("contentBlockDelta"):
            yield from self._delta(delta["contentBlockIndex"], delta["delta"])
        elif stop := event.get("contentBlockStop"):
            if stop["contentBlockIndex"] in self._calls:
                self._calls.discard(stop["contentBlockIndex"])
                yield from writer.call_end(stop["contentBlockIndex"])
            else:
                yield from writer.end_block()
        elif stop := event.get("messageStop"):
            self._reason = _REASONS.get(stop["stopReason"], "other")
        elif metadata := event.get("metadata"):
            self._usage = _usage(metadata["usage"])

    def end(self, *, early: bool) -> Iterator[ModelChunk]:
        if self._reason is None and not early:
            raise cut_off(f"bedrock/{self._model_id}")
        yield from self._writer.finish("other" if early or self._reason is None else self._reason, self._usage)

    def _delta(self, index: int, delta: Mapping[str, Any]) -> Iterator[ModelChunk]:
        writer = self._writer
        if "text" in delta:
            yield from writer.text(delta["text"])
        elif "toolUse" in delta:
            yield from writer.call_delta(index, delta["toolUse"]["input"])
        elif reasoning := delta.get("reasoningContent"):
            if "text" in reasoning:
                yield from writer.reasoning(reasoning["text"])
            own: dict[str, Any] = {"modelId": self._model_id}
            if "signature" in reasoning:
                yield from writer.sign_reasoning({PROVIDER: own | {"signature": reasoning["signature"]}})
            if "redactedContent" in reasoning:
                redacted = base64.b64encode(reasoning["redactedContent"]).decode()
                yield from writer.sign_reasoning({PROVIDER: own | {"redactedData": redacted}})
        elif citation := delta.get("citation"):
            web = citation.get("location", {}).get("web", {})
            if web.get("url"):
                source = {"sourceType": "url", "url": web["url"], "title": citation.get("title", "")}
                yield ModelChunk("source", {"source": source})


def _usage(raw: Mapping[str, int]) -> Usage:
    # Converse counts what came from and went to the prompt cache apart from inputTokens.
    cached, written = raw.get("cacheReadInputTokens", 0), raw.get("cacheWriteInputTokens", 0)
    return Usage(raw["inputTokens"] + cached + written, raw["outputTokens"], cached_input_tokens=cached)


class _translated:
    """Turns botocore's errors into ours: TryAgain where another attempt may help, ModelError elsewhere."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is None or isinstance(error, ModelError | GeneratorExit):
            return
        from botocore.exceptions import (
            BotoCoreError,
            ClientError,
            ConnectionError,
            ConnectTimeoutError,
            HTTPClientError,
            NoCredentialsError,
            ReadTimeoutError,
        )
        from urllib3.exceptions import HTTPError, TimeoutError

        if isinstance(error, ClientError):
            code = str(error.response.get("Error", {}).get("Code", ""))
            metadata: Mapping[str, Any] = error.response.get("ResponseMetadata") or {}
            status = _STATUS.get(code.lower()) or metadata.get("HTTPStatusCode") or 500
            made = refused(self._name, status, f"{code}: {error.response.get('Error', {}).get('Message', '')}")
            if made.retryable:
                raise TryAgain(made) from error
            raise made from error
        # botocore hands on urllib3's own errors while it reads a stream.
        if isinstance(error, HTTPClientError | ConnectionError | HTTPError):
            timeout = isinstance(error, ReadTimeoutError | ConnectTimeoutError | TimeoutError)
            raise TryAgain(unreachable(self._name, type(error).__name__, timeout=timeout)) from error
        if isinstance(error, BotoCoreError):
            code = "MODEL_ACCESS_DENIED" if isinstance(error, NoCredentialsError) else "MODEL_REQUEST_REFUSED"
            raise ModelError(f"{self._name} could not be called: {error}", code=code) from error


@dataclass(frozen=True, slots=True)
class GuardrailVerdict:
    """What a guardrail said of texts.

    Attributes:
        action: ``GUARDRAIL_INTERVENED`` or ``NONE``.
        outputs: What may be shown instead: masked texts, or the guardrail's blocked message. Empty without intervention.
        assessments: Which policies found what, as Bedrock tells it. May quote the texts: not for logs.
        blocked: Whether something was blocked, rather than only masked.
    """

    action: Literal["NONE", "GUARDRAIL_INTERVENED"]
    outputs: tuple[str, ...] = ()
    assessments: tuple[Mapping[str, Any], ...] = ()
    blocked: bool = False


class BedrockGuardrailClient:
    """Applies a Bedrock guardrail to texts, without a model.

    Args:
        guardrail_id: Id or ARN.
        version: A number or ``DRAFT``.
        region: AWS region; None takes the environment's.
        client: A client to use instead of the process's own.
    """

    def __init__(
        self,
        guardrail_id: str,
        version: str = "DRAFT",
        *,
        region: str | None = None,
        client: BedrockRuntimeClient | None = None,
    ) -> None:
        if not guardrail_id:
            raise ConfigurationError("expected the id or ARN of a guardrail, found none", code="GUARDRAIL_MISSING")
        self._id = guardrail_id
        self._version = version
        self._region = region
        self._client = client

    def apply(self, texts: str | Sequence[str], source: Literal["INPUT", "OUTPUT"]) -> GuardrailVerdict:
        """Judge texts as what a user sends (``INPUT``) or a model answers (``OUTPUT``).

        Blank texts are left out; where all are blank no call is made. Raises ModelError, after retries.
        """
        shown = [text for text in ([texts] if isinstance(texts, str) else texts) if text.strip()]
        if not shown:
            return GuardrailVerdict("NONE")
        return next(with_retries(lambda: self._apply(shown, source)))

    def _apply(self, texts: list[str], source: Literal["INPUT", "OUTPUT"]) -> Iterator[GuardrailVerdict]:
        client = self._client or bedrock_client(self._region)
        with _translated(f"guardrail {self._id}"):
            answer = client.apply_guardrail(
                guardrailIdentifier=self._id,
                guardrailVersion=self._version,
                source=source,
                content=[{"text": {"text": text}} for text in texts],
            )
        assessments = cast("tuple[Mapping[str, Any], ...]", tuple(answer.get("assessments", ())))
        yield GuardrailVerdict(
            action=answer["action"],
            outputs=tuple(output.get("text", "") for output in answer.get("outputs", ())),
            assessments=assessments,
            blocked=answer["action"] == "GUARDRAIL_INTERVENED" and any(_blocks(a) for a in assessments),
        )


def _blocks(found: Any) -> bool:
    if isinstance(found, Mapping):
        return found.get("action") == "BLOCKED" or any(_blocks(value) for value in found.values())
    return isinstance(found, list) and any(_blocks(value) for value in found)
