"""What a processor is, and what its hooks are handed.

A processor is any object with an `id` and at least one hook; nothing needs to be inherited. Hooks may be ordinary or
``async`` methods. Each takes one context and returns what it wants changed, or None.

========================  =========================================  =====================================================
hook                      when                                       may return
========================  =========================================  =====================================================
load                      once, together with all other loads        anything; it is handed to process_input as `loaded`
process_input             once, before the first model call          messages, or InputChange, or the message list itself
process_input_step        before every model call                    messages, or StepChange
process_llm_request       on the prompt of one call                  a ModelRequest, or a list of ModelChunk (skips the model)
process_llm_response      after the model answered                   nothing
process_output_stream     for each event of the answer               an event, several, or None to drop it
process_output_step       after each model call, before its tools    messages
process_tool_result       after a tool ran                           a new result wrapped in ToolResultChange, or messages
process_output_result     once, at the end                           messages
process_api_error         when the provider refused the call         True to try again
========================  =========================================  =====================================================

Messages are unchangeable; return new ones (`message.with_parts(…)`). ``ctx.abort("why")`` stops the run: nothing of
the turn is stored, the answer carries a tripwire.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar, runtime_checkable

from agent_memory._json import EMPTY
from agent_memory.agent.events import RunEvent
from agent_memory.errors import Tripwire
from agent_memory.file_rules import FileRules
from agent_memory.messages import Message
from agent_memory.messages.list import MessageList
from agent_memory.ports import (
    NO_USAGE,
    BlobStore,
    ChatModel,
    Embedder,
    FileStore,
    MessageStore,
    ModelChunk,
    ModelRequest,
    ThreadHeader,
    ThreadUsage,
    TurnRecord,
    Usage,
    VectorIndex,
)

if TYPE_CHECKING:
    from agent_memory.messages.from_input import ToolOutcome
    from agent_memory.options import MemoryOptions

T = TypeVar("T")

INPUT_HOOKS = ("process_input", "process_input_step", "process_llm_request", "process_llm_response")
OUTPUT_HOOKS = ("process_output_stream", "process_output_step", "process_tool_result", "process_output_result")
HOOKS = (*INPUT_HOOKS, *OUTPUT_HOOKS, "process_api_error")


@runtime_checkable
class Processor(Protocol):
    """Anything with an `id` and at least one of the hooks in this module's table."""

    @property
    def id(self) -> str:
        """Names the processor in tripwires, state and deduplication."""


@dataclass(slots=True)
class RunContext:
    """One run, as processors see it.

    Attributes:
        run_id, agent_id: Of this run.
        thread_id, resource_id: The conversation and its owner; None when the run uses no memory.
        options: Memory options in force for this run; None without memory.
        store, blobs, files, index, embedder: The deployment's (or the agent's memory's) adapters; None where there is none.
        file_rules: What files are taken.
        header: The thread's header, read when the run began; None for a new thread (or without memory).
        turn: This turn's record; None for read-only runs.
        messages: The list of the run.
        request_context: What the application passed along.
        tool_outcomes: Outcomes of client tools that came without a message id (found by their tool call id).
        shared: What loads put here for each other, e.g. ``history``: the rows MessageHistory read.
        notes: Facts about the run that its metadata reports: counts and ids only.
        answer_id: Id under which the answer is stored.
        thread_title, thread_metadata: For the thread, applied by the turn's commit.
        removed, regenerates: Stored messages that this turn replaces, and the id of the question that it answers anew.
        usage: Tokens that the run has taken so far.
        submit: Runs a function on the run's small thread pool.
        emit: Sends a ``data-…`` event to the caller of a stream.
        should_stop: Whether the caller asked to stop.
    """

    run_id: str
    agent_id: str
    messages: MessageList
    thread_id: str | None = None
    resource_id: str | None = None
    options: MemoryOptions | None = None
    store: MessageStore | None = None
    blobs: BlobStore | None = None
    files: FileStore | None = None
    file_rules: FileRules = field(default_factory=FileRules)
    index: VectorIndex | None = None
    embedder: Embedder | None = None
    header: ThreadHeader | None = None
    turn: TurnRecord | None = None
    request_context: Mapping[str, Any] = EMPTY
    tool_outcomes: tuple[ToolOutcome, ...] = ()
    shared: dict[str, Any] = field(default_factory=dict)
    notes: MutableMapping[str, Any] = field(default_factory=dict)
    answer_id: str = ""
    thread_title: str | None = None
    thread_metadata: Mapping[str, Any] | None = None
    removed: tuple[Message, ...] = ()
    regenerates: str | None = None
    usage: ThreadUsage = NO_USAGE
    submit: Callable[..., Future[Any]] = field(default=lambda fn, *args: run_now(fn, *args))
    emit: Callable[[RunEvent], None] = field(default=lambda _event: None)
    should_stop: Callable[[], bool] = field(default=lambda: False)

    @property
    def read_only(self) -> bool:
        """Whether this run may store nothing."""
        return self.options is not None and self.options.read_only


def run_now(fn: Callable[..., T], *args: Any) -> Future[T]:
    """Call `fn` here and now and wrap what came of it in a finished future (for use without a pool)."""
    future: Future[T] = Future()
    try:
        future.set_result(fn(*args))
    except Exception as error:
        future.set_exception(error)
    return future


@dataclass(slots=True)
class HookContext:
    """What every hook is handed.

    Attributes:
        run: The run.
        processor_id: Whose hook this is.
        state: A dict of this processor's own, shared by all its hooks within the run.
        messages: The messages this hook may change (see each hook).
        retry_count: How many times the step was tried again.
    """

    run: RunContext
    processor_id: str
    state: dict[str, Any]
    messages: tuple[Message, ...] = ()
    retry_count: int = 0

    @property
    def message_list(self) -> MessageList:
        """The list of the run."""
        return self.run.messages

    @property
    def system_messages(self) -> tuple[str, ...]:
        """The untagged system texts (instructions)."""
        return tuple(self.run.messages.system.untagged)

    @property
    def request_context(self) -> Mapping[str, Any]:
        """What the application passed along."""
        return self.run.request_context

    def abort(
        self, reason: str | None = None, *, retry: bool = False, metadata: Mapping[str, Any] | None = None
    ) -> NoReturn:
        """Stop the run here: the tripwire. Nothing of the turn is stored."""
        raise Tripwire(
            reason or f"Tripwire triggered by {self.processor_id}",
            processor_id=self.processor_id,
            retry=retry,
            metadata=metadata,
        )

    def emit(self, name: str, data: Any, *, id: str | None = None, transient: bool = False) -> None:
        """Send a ``data-<name>`` event to the caller of a stream."""
        self.run.emit(RunEvent(f"data-{name.removeprefix('data-')}", data, id=id, transient=transient))


@dataclass(slots=True)
class LoadContext(HookContext):
    """For `load`: `messages` are the input messages. The header is not known yet; loads run beside each other."""


@dataclass(slots=True)
class InputContext(HookContext):
    """For `process_input`.

    `messages` are the input messages until a processor before this one has returned or changed the list, then all of them.
    `loaded` is what this processor's `load` returned; None where it has none (or is called by hand).
    """

    loaded: Any = None


@dataclass(frozen=True, slots=True)
class InputChange:
    """New messages together with new untagged system texts."""

    messages: Sequence[Message] | None = None
    system_messages: Sequence[str] | None = None


@dataclass(slots=True)
class StepContext(HookContext):
    """For `process_input_step`: `messages` are all messages of the run."""

    step_number: int = 0
    steps: tuple[Any, ...] = ()
    message_id: str = ""
    model: ChatModel | None = None
    tools: Mapping[str, Any] = EMPTY
    tool_choice: Any = "auto"
    active_tools: Sequence[str] | None = None
    provider_options: Mapping[str, Any] = EMPTY
    model_settings: Mapping[str, Any] = EMPTY
    structured_output: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class StepChange:
    """What a step hook changes; None keeps what was."""

    messages: Sequence[Message] | None = None
    system_messages: Sequence[str] | None = None
    model: ChatModel | str | None = None
    tools: Mapping[str, Any] | None = None
    tool_choice: Any = None
    active_tools: Sequence[str] | None = None
    provider_options: Mapping[str, Any] | None = None
    model_settings: Mapping[str, Any] | None = None
    structured_output: Mapping[str, Any] | None = None
    message_id: str | None = None


@dataclass(slots=True)
class RequestContext(HookContext):
    """For `process_llm_request`: the request as it is about to be sent. Changes hold for this call only."""

    request: ModelRequest = field(default_factory=lambda: ModelRequest(messages=()))
    step_number: int = 0


@dataclass(slots=True)
class ResponseContext(HookContext):
    """For `process_llm_response`."""

    chunks: tuple[ModelChunk, ...] = ()
    from_cache: bool = False
    step_number: int = 0


@dataclass(slots=True)
class StreamContext(HookContext):
    """For `process_output_stream`: one event, and the events of this answer so far."""

    part: RunEvent = field(default_factory=lambda: RunEvent(""))
    stream_parts: tuple[RunEvent, ...] = ()


@dataclass(slots=True)
class OutputStepContext(HookContext):
    """For `process_output_step`: `messages` are the run's response messages, this step's parts included."""

    step_number: int = 0
    finish_reason: str = "stop"
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    text: str = ""
    usage: Usage = field(default_factory=Usage)
    provider_metadata: Any = None
    steps: tuple[Any, ...] = ()


@dataclass(slots=True)
class ToolResultContext(HookContext):
    """For `process_tool_result`: `messages` are the run's response messages.

    Of a tool that failed, `result` is the text of its error, and `is_error` is True.
    """

    tool_name: str = ""
    tool_call_id: str = ""
    args: Any = None
    result: Any = None
    is_error: bool = False
    provider_executed: bool = False
    step_number: int = 0
    steps: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolResultChange:
    """The result that takes the place of what the tool returned."""

    result: Any


@dataclass(slots=True)
class OutputContext(HookContext):
    """For `process_output_result`: `messages` are the run's response messages (then all, as for input).

    `result` has `text`, `usage`, `finish_reason` and `steps`.
    """

    result: Any = None
    incomplete: bool = False


@dataclass(slots=True)
class ErrorContext(HookContext):
    """For `process_api_error`: the provider's refusal, and how often the call was tried again because of this hook."""

    error: Exception = field(default_factory=lambda: Exception())
