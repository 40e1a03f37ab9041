"""The model: its prompt, its request, its chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from agent_memory._json import EMPTY


@dataclass(frozen=True, slots=True)
class PromptText:
    """Text for the model."""

    text: str


@dataclass(frozen=True, slots=True)
class PromptReasoning:
    """Reasoning of an earlier step. `provider_metadata` holds signatures that only their own provider may see again."""

    text: str
    provider_metadata: Any = None


@dataclass(frozen=True, slots=True)
class PromptFile:
    """A file for the model: bytes or a URL. A file that is too large for a prompt comes as a URL with its `size`."""

    media_type: str
    data: bytes | None = None
    url: str | None = None
    filename: str | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True)
class PromptToolCall:
    """A tool call the model made."""

    tool_call_id: str
    tool_name: str
    args: Any


@dataclass(frozen=True, slots=True)
class PromptToolResult:
    """The outcome of a tool call. For a failed or denied call `output` is the error text or reason."""

    tool_call_id: str
    tool_name: str
    output: Any
    is_error: bool = False


PromptPart = PromptText | PromptReasoning | PromptFile | PromptToolCall | PromptToolResult


@dataclass(frozen=True, slots=True)
class PromptMessage:
    """One message of a prompt. Role ``tool`` holds only tool results; `message_id` is the stored message it came from.

    `origin` is where the message came from, for processors that treat history and the current turn differently.
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: tuple[PromptPart, ...]
    message_id: str | None = None
    origin: Literal["memory", "input", "response", "context", "system"] = "input"

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return "".join(part.text for part in self.content if isinstance(part, PromptText))


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model sees it. `input_schema` is JSON Schema."""

    name: str
    description: str
    input_schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One call of a model.

    `tool_choice` is ``auto``, ``none``, ``required`` or ``{"type": "tool", "toolName": …}``. `settings` are
    temperature, topP, maxOutputTokens, stopSequences and so on, under these names. `response_schema` asks for JSON of that schema.
    `should_stop` is asked between chunks; `deadline` is in `time.monotonic()` seconds.
    """

    messages: tuple[PromptMessage, ...]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: Any = "auto"
    settings: Mapping[str, Any] = EMPTY
    provider_options: Mapping[str, Any] = EMPTY
    response_schema: Mapping[str, Any] | None = None
    should_stop: Callable[[], bool] | None = None
    deadline: float | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens."""

    input_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cached_input_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            self.cached_input_tokens + other.cached_input_tokens,
        )


ChunkType = Literal[
    "text-start",
    "text-delta",
    "text-end",
    "reasoning-start",
    "reasoning-delta",
    "reasoning-end",
    "tool-call-input-streaming-start",
    "tool-call-delta",
    "tool-call-input-streaming-end",
    "tool-call",
    "tool-result",
    "file",
    "source",
    "response-metadata",
    "finish",
]


@dataclass(frozen=True, slots=True)
class ModelChunk:
    """One piece of a model's answer. `payload` has the keys of the run event of the same name.

    text-start/-end ``{id}``; text-delta ``{id, text}``; reasoning-start/-end ``{id, providerMetadata?}``; reasoning-delta ``{id, text}``;
    tool-call-input-streaming-start ``{toolCallId, toolName}``; tool-call-delta ``{toolCallId, toolName, argsTextDelta}``;
    tool-call-input-streaming-end ``{toolCallId}``; tool-call ``{toolCallId, toolName, args, providerExecuted?}``;
    tool-result ``{toolCallId, toolName, result}`` (run by the provider); file ``{mimeType, data}`` with base64; source ``{source}``;
    response-metadata ``{id, modelId}``; finish ``{reason}`` with `usage` set, exactly once and last.
    `reason` is ``stop``, ``length``, ``tool-calls``, ``content-filter``, ``error`` or ``other``.
    """

    type: ChunkType
    payload: Mapping[str, Any] = field(default_factory=dict)
    usage: Usage | None = None


@runtime_checkable
class ChatModel(Protocol):
    """A model that streams. Raises ModelError, before or between chunks; its own retries happen before the first chunk."""

    @property
    def provider(self) -> str:
        """E.g. ``bedrock``, ``openai``, ``demo``."""

    @property
    def model_id(self) -> str:
        """The model's id at its provider."""

    def stream(self, request: ModelRequest) -> Iterator[ModelChunk]:
        """Answer a request, chunk by chunk. Blocks start before their deltas and end after them; ids are unique per answer."""
