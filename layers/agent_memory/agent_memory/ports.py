"""What the library needs from the outside, as protocols named after what the caller wants.

Adapters live in `aws`, `openai` and `local`; each is held to its protocol by the contract suite of the same name.
All methods are synchronous and safe to call from several threads at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol, runtime_checkable

from agent_memory._json import EMPTY, FrozenDict
from agent_memory.messages import Message

# --------------------------------------------------------------------------------------------------- threads, turns

TitleSource = Literal["none", "given", "generated", "person"]
"""Who wrote the title: nobody, the creating call, the title job, or a person (who may also have cleared it)."""


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """What a thread's header remembers of one of its last few turns.

    `key` is the turn key. `deadline` (milliseconds since 1970) is when a running turn counts as dead. `answer_id` is
    the id of the stored answer, `user_ids` the ids of the user rows that the turn stored.
    """

    key: str
    state: Literal["running", "finished", "failed"]
    run_id: str
    started_at: int
    deadline: int
    answer_id: str | None = None
    user_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread as callers see it."""

    id: str
    resource_id: str
    created_at: datetime
    updated_at: datetime
    title: str = ""
    metadata: FrozenDict | None = None
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ThreadHeader:
    """A thread with the counters that a turn needs.

    Live rows are those with ``first_seq <= seq < next_seq``. `incarnation` changes when a thread is deleted, so that
    a late commit of the old one fails. `turns` are the newest turn records, oldest first. `rows_expire` is set once a
    row that expires was stored, `in_date_order` until rows may stand in another order than their dates.
    """

    thread: Thread
    next_seq: int
    first_seq: int
    message_count: int
    incarnation: str
    title_source: TitleSource = "none"
    last_created_at: datetime | None = None
    metadata_version: int = 0
    turns: tuple[TurnRecord, ...] = ()
    rows_expire: bool = False
    in_date_order: bool = True


@dataclass(frozen=True, slots=True)
class TurnStart:
    """The answer of `MessageStore.begin_turn`.

    `header` is None for a thread that does not exist (yet, or any more). `repeat` is the record of an earlier turn with the
    same key, as it was before this call; where it is None this turn was registered as running.
    """

    header: ThreadHeader | None
    repeat: TurnRecord | None = None


@dataclass(frozen=True, slots=True)
class TurnCommit:
    """Everything that one turn (or one save) writes, applied in one transaction.

    Attributes:
        thread_id: The thread.
        resource_id: Its owner.
        header: The header this commit was prepared against; None: the thread is expected to be new.
        appended: New messages in order; storage gives them the next numbers. A message whose id is already stored
            is not written again (its stored row stays as it is).
        updated: Stored messages (with `seq` and `version`) whose parts changed: outcomes of pending calls. Where the row
            changed meanwhile, only outcomes that still advance a pending call are applied.
        removed: Stored messages to delete in the same transaction (the old answer of a regenerate).
        title: Title for a thread that is created by this commit; ignored where it exists.
        metadata: Shallow-merged into the thread's metadata.
        turn: The turn's record to put (by key) into the header; None for a plain save.
        index: Id of the vector index that the new rows are stamped with, or None when recall is off.
        expires_at: When the new rows expire, or None.
    """

    thread_id: str
    resource_id: str
    header: ThreadHeader | None
    appended: tuple[Message, ...] = ()
    updated: tuple[Message, ...] = ()
    removed: tuple[Message, ...] = ()
    title: str | None = None
    metadata: Mapping[str, Any] | None = None
    turn: TurnRecord | None = None
    index: str | None = None
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """What a commit stored. `repeat` is set (and nothing was written) when a turn with the same key had finished first."""

    header: ThreadHeader
    appended: tuple[Message, ...] = ()
    updated: tuple[Message, ...] = ()
    repeat: TurnRecord | None = None


@dataclass(frozen=True, slots=True)
class DateRange:
    """Bounds on `created_at`; both ends belong to the range unless marked exclusive."""

    start: datetime | None = None
    end: datetime | None = None
    start_exclusive: bool = False
    end_exclusive: bool = False

    def contains(self, value: datetime) -> bool:
        """Whether `value` lies in the range."""
        if self.start is not None and (value < self.start or (self.start_exclusive and value == self.start)):
            return False
        return not (self.end is not None and (value > self.end or (self.end_exclusive and value == self.end)))


@dataclass(frozen=True, slots=True)
class MessageQuery:
    """Which messages of a thread, and which page of them.

    `newest_first` chooses the window (pages count from the newest end); results are always oldest first.
    `per_page` None means all. `cursor` comes from an earlier page and replaces `page`.
    `max_bytes` cuts a page by size (it then holds fewer messages and a cursor).
    """

    page: int = 0
    per_page: int | None = 40
    newest_first: bool = True
    date_range: DateRange | None = None
    metadata: Mapping[str, Any] | None = None
    cursor: str | None = None
    include_total: bool = True
    max_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class MessagePage:
    """One page, oldest first. `total` is None where it was not asked for. `next_cursor` is None on the last page."""

    messages: tuple[Message, ...]
    total: int | None
    has_more: bool
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True)
class ThreadQuery:
    """Which threads of a resource. `metadata` pairs must all match by deep equality. `per_page` None means all."""

    page: int = 0
    per_page: int | None = 100
    order_by: Literal["createdAt", "updatedAt"] = "createdAt"
    newest_first: bool = True
    metadata: Mapping[str, Any] | None = None
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class ThreadPage:
    """One page of threads."""

    threads: tuple[Thread, ...]
    total: int
    has_more: bool
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True)
class WorkingMemoryRecord:
    """Working memory as stored: `text` (markdown or JSON text) and its version, which counts from 1."""

    text: str
    version: int
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class MessageRef:
    """The place of a stored message, found by its id."""

    resource_id: str
    thread_id: str
    message_id: str
    seq: int


@runtime_checkable
class MessageStore(Protocol):
    """Threads, messages and working memory of resources.

    Every read that builds a prompt, checks ownership or asks whether something is stored is strongly consistent.
    Errors: UnavailableError after throttling or conflicts that outlasted the retries (nothing half saved),
    StorageError for the rest, ConflictError and NotFoundError where a method says so.
    """

    # A turn. Each of the loads is one request, and they may run at the same time.

    def begin_turn(self, resource_id: str, thread_id: str, turn: TurnRecord | None) -> TurnStart:
        """Register `turn` as running in the header and return the header. One request.

        Where a record of the same key is there already and is neither failed nor past its deadline, nothing changes and it is
        returned as `repeat`; a failed or dead one is replaced by this one and returned as `repeat` too.
        With `turn` None only the header is read. Raises ConflictError for a thread that is being built by a clone.
        """

    def latest(
        self, resource_id: str, thread_id: str, limit: int, *, before_seq: int | None = None
    ) -> tuple[Message, ...]:
        """The newest `limit` rows (before `before_seq`), oldest first. One request for up to 1 MB.

        Rows may belong to an earlier incarnation of the thread: filter them with `live`.
        """

    def find(self, resource_id: str, thread_id: str, message_ids: Sequence[str]) -> Mapping[str, int]:
        """Numbers of the rows of this thread with these ids; unknown ids are left out. One request per id, together."""

    def get_messages(
        self,
        resource_id: str,
        keys: Sequence[tuple[str, int]],
        *,
        consistent: bool = True,
        live_only: bool = False,
    ) -> tuple[Message, ...]:
        """Rows by (thread id, seq), in the order asked; missing and expired ones are left out. One request per 100.

        With `live_only` rows that their thread does not show any more (it was deleted or emptied) are left out too; the
        threads' headers come in the same request, which then holds 50 rows.
        """

    def commit(self, commit: TurnCommit) -> Committed:
        """Write one turn in one transaction.

        On a conflict it re-reads the header, takes new numbers and tries again (full jitter, 8 tries, then
        UnavailableError). `created_at` of new rows is raised to the thread's newest where it would go back.
        Raises ConflictError when the thread was deleted meanwhile, AccessDeniedError when the thread id is claimed by another resource.
        """

    def fail_turn(self, header: ThreadHeader, turn: TurnRecord) -> None:
        """Replace the turn's record (or drop it, when its state is ``running``) without touching `updated_at`. One request."""

    # Threads.

    def get_thread(self, resource_id: str, thread_id: str) -> ThreadHeader | None:
        """The header, or None. One request."""

    def owner_of(self, thread_id: str) -> str | None:
        """The resource that a thread id belongs to, where ids are unique in the deployment; else None. One request."""

    def create_thread(self, thread: Thread, *, title_source: TitleSource = "given") -> ThreadHeader:
        """Create a thread; one of the same owner that exists is returned unchanged.

        Raises AccessDeniedError when the id belongs to another resource, ConflictError while a clone builds it.
        """

    def update_thread(
        self,
        resource_id: str,
        thread_id: str,
        *,
        title: str | None = None,
        title_source: TitleSource = "person",
        metadata: Mapping[str, Any] | None = None,
        replace_metadata: bool = False,
        expires_at: datetime | None = None,
    ) -> Thread:
        """Change the given fields and `updated_at`, nothing else. Metadata is merged unless `replace_metadata`.

        Parallel merges of different keys all survive. Raises NotFoundError.
        """

    def set_generated_title(self, resource_id: str, thread_id: str, title: str) -> bool:
        """Set the title if it is still empty and no person ever set or cleared it. One conditional request.

        Never creates a thread. Returns whether it was set.
        """

    def list_threads(self, resource_id: str, query: ThreadQuery) -> ThreadPage:
        """One page of a resource's threads: one request for the page, one for the total."""

    def delete_thread(self, resource_id: str, thread_id: str) -> bool:
        """Hide a thread at once and for good; False when there was none. Its rows are purged by `purge_thread`."""

    def purge_thread(self, resource_id: str, thread_id: str) -> int:
        """Remove rows that no live thread shows any more (of a deleted or emptied thread). Repeatable. Returns how many."""

    def transfer_thread(self, resource_id: str, thread_id: str, new_resource_id: str) -> Thread:
        """Move a thread with its messages and thread working memory to another resource, keeping dates.

        Raises NotFoundError, ConflictError when the target has a thread of that id.
        """

    def build_thread(self, thread: Thread, messages: Sequence[Message], *, index: str | None = None) -> ThreadHeader:
        """Create a thread with all `messages` at once (clone): hidden until the last row is written.

        Raises ConflictError when the id is taken.
        """

    # Messages.

    def list_messages(self, header: ThreadHeader, query: MessageQuery) -> MessagePage:
        """One page. Without a filter its cost does not grow with the thread."""

    def save_messages(
        self, resource_id: str, thread_id: str, messages: Sequence[Message], *, index: str | None = None
    ) -> tuple[Message, ...]:
        """Upsert by id into a thread, which is created if needed. Known ids are replaced in place.

        Messages dated before stored ones are put in their place (the tail is renumbered) within one transaction's
        limits, else ConflictError.
        """

    def update_message(
        self, resource_id: str, thread_id: str, message_id: str, change: Callable[[Message], Message]
    ) -> Message:
        """Apply `change` to a stored message under its version; tried again on a conflict. Raises NotFoundError."""

    def delete_messages(self, resource_id: str, refs: Sequence[MessageRef]) -> int:
        """Delete rows; unknown ones are left out. Returns how many were deleted."""

    def clear_thread(self, resource_id: str, thread_id: str) -> int:
        """Hide all messages of a thread at once and keep the thread. Returns how many there were."""

    def locate(self, resource_id: str | None, message_ids: Sequence[str]) -> tuple[MessageRef, ...]:
        """Find messages by bare id among this resource's threads (a message id may be in more than one).

        `resource_id` None: among everybody's, for a trusted caller that names bare ids alone.
        """

    # Working memory: `thread_id` None is the resource's own.

    def get_working_memory(self, resource_id: str, thread_id: str | None) -> WorkingMemoryRecord | None:
        """The current text, or None where it was never written or was deleted. One request."""

    def put_working_memory(
        self, resource_id: str, thread_id: str | None, text: str, *, expected_version: int | None
    ) -> WorkingMemoryRecord:
        """Write a new version on condition that the current one is `expected_version` (0: none yet; None: any).

        Raises ConflictError otherwise. The history item is written in the same transaction.
        """

    def delete_working_memory(self, resource_id: str, thread_id: str | None, *, expected_version: int | None) -> None:
        """Clear the text; the version goes on counting."""

    def working_memory_history(self, resource_id: str, thread_id: str | None) -> tuple[WorkingMemoryRecord, ...]:
        """The last 20 versions, newest first."""


def live(header: ThreadHeader | None, messages: Sequence[Message]) -> tuple[Message, ...]:
    """Those of `messages` that the thread shows: none without a header, else those from `first_seq` up."""
    if header is None:
        return ()
    return tuple(m for m in messages if m.seq is not None and header.first_seq <= m.seq < header.next_seq)


# ------------------------------------------------------------------------------------------------------- runs, blobs


@dataclass(frozen=True, slots=True)
class SuspendedRun:
    """A run that waits for approvals, with what is needed to go on. `state` is JSON."""

    run_id: str
    agent_id: str
    resource_id: str | None
    thread_id: str | None
    suspended_at: datetime
    tool_calls: tuple[Mapping[str, Any], ...]
    state: Mapping[str, Any]


@runtime_checkable
class RunStore(Protocol):
    """Short-lived state of runs: suspensions, chunks of running answers, stop flags, results by idempotency key.

    Everything here expires. `owner` is the resource, or None for a run without memory (it then lives apart).
    """

    def suspend(self, run: SuspendedRun) -> None:
        """Keep a suspended run (7 days)."""

    def find_suspended(self, run_id: str, *, owner: str | None) -> SuspendedRun | None:
        """A suspended run by id. `owner` None: any (trusted callers); otherwise only that resource's."""

    def decide(self, run: SuspendedRun, tool_call_id: str, decision: Mapping[str, Any]) -> SuspendedRun | None:
        """Record the decision on one call, once (conditional). None when it had been decided before.

        The run is returned with all decisions so far in ``state["decisions"]``.
        """

    def finish_suspended(self, run: SuspendedRun) -> None:
        """Forget a suspended run."""

    def list_suspended(self, owner: str, *, thread_id: str | None = None) -> tuple[SuspendedRun, ...]:
        """Suspended runs of a resource, newest first."""

    def append_chunk(self, owner: str, thread_id: str, run_id: str, number: int, events: Sequence[str]) -> None:
        """Keep a batch of a running answer's events (1 hour)."""

    def read_chunks(
        self, owner: str, thread_id: str, run_id: str, after: int
    ) -> tuple[tuple[int, tuple[str, ...]], ...]:
        """Batches numbered above `after`, in order."""

    def set_active(self, owner: str, thread_id: str, run_id: str, *, agent_id: str, expires_at: int) -> None:
        """Note that `run_id` is running on the thread (until `expires_at`, milliseconds since 1970)."""

    def get_active(self, owner: str, thread_id: str) -> Mapping[str, Any] | None:
        """The running run: ``{"run_id", "agent_id", "abort"}``, or None."""

    def clear_active(self, owner: str, thread_id: str, run_id: str) -> None:
        """The run ended."""

    def request_abort(self, owner: str, thread_id: str, run_id: str | None) -> bool:
        """Ask the running run (that one, if given) to stop. False when nothing runs."""

    def remember(
        self, owner: str | None, key: str, body_hash: str, result: Mapping[str, Any] | None, *, run_id: str
    ) -> Mapping[str, Any] | None:
        """Claim an idempotency key, or look up what it answered.

        With `result` None: claims the key and returns None, or returns ``{"hash", "result" | None}`` of the earlier call.
        With a `result`: keeps it for 24 hours.
        """

    def forget(self, owner: str | None, key: str) -> None:
        """Release a key whose call failed."""


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """Bytes in storage. `key` is relative to the store and begins with the owner's prefix."""

    key: str
    size: int
    content_type: str | None = None


@runtime_checkable
class BlobStore(Protocol):
    """Bytes too large for an item: attachments and overflow bodies."""

    def put(self, key: str, data: bytes, content_type: str | None = None) -> StoredBlob:
        """Write bytes under a key; writing the same again is harmless."""

    def get(self, key: str) -> bytes:
        """Read bytes. Raises NotFoundError."""

    def delete(self, keys: Sequence[str]) -> None:
        """Remove keys; unknown ones are not an error."""

    def link(self, key: str, *, expires_in_s: int = 3600, filename: str | None = None) -> str:
        """A URL that yields the bytes, signed now."""


# --------------------------------------------------------------------------------------------------------- the model


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
    """A file for the model: bytes or a URL."""

    media_type: str
    data: bytes | None = None
    url: str | None = None
    filename: str | None = None


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


# ------------------------------------------------------------------------------------------------- embeddings, index


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors of one dimension. `id` names the model and belongs to the index's identity."""

    @property
    def id(self) -> str:
        """E.g. ``bedrock:amazon.titan-embed-text-v2:0``."""

    @property
    def dimension(self) -> int:
        """Length of every vector."""

    @property
    def max_chars(self) -> int:
        """The longest text (in characters) that one call embeds; longer text is chunked before."""

    def embed_passages(self, texts: Sequence[str]) -> list[list[float]]:
        """Vectors of stored texts, one each. Raises ModelError."""

    def embed_query(self, text: str) -> list[float]:
        """The vector of a question. Raises ModelError."""


@dataclass(frozen=True, slots=True)
class IndexedMessage:
    """A message as an index holds it: one vector per chunk of its text."""

    resource_id: str
    thread_id: str
    message_id: str
    seq: int
    version: int
    role: str
    created_at: datetime
    text: str
    metadata: Mapping[str, Any]
    vectors: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Hit:
    """A found message. `score` is the true cosine in mode ``vector``, a word score in ``text``, a fused one in ``hybrid``."""

    resource_id: str
    thread_id: str
    message_id: str
    seq: int
    score: float
    version: int = 0


@dataclass(frozen=True, slots=True)
class IndexQuery:
    """A search, always within one resource."""

    resource_id: str
    limit: int
    thread_id: str | None = None
    vector: Sequence[float] | None = None
    text: str | None = None
    mode: Literal["vector", "text", "hybrid"] = "vector"
    metadata: Mapping[str, Any] | None = None
    threshold: float | None = None


@runtime_checkable
class VectorIndex(Protocol):
    """Search over messages by meaning and by words, within a resource. One index holds one embedder's vectors."""

    @property
    def id(self) -> str:
        """The index's name, which rows are stamped with; holds the embedder and its dimension."""

    def ensure(self) -> None:
        """Create the index if needed; ConfigurationError naming expected and found where it is another embedder's."""

    def search(self, query: IndexQuery) -> tuple[Hit, ...]:
        """The best hits, one per message, best first. One request. Raises UnavailableError."""

    def upsert(self, messages: Sequence[IndexedMessage]) -> None:
        """Write messages; an older version never replaces a newer one. Writing the same again changes nothing."""

    def delete(self, resource_id: str, thread_id: str, message_ids: Sequence[str] | None = None) -> int:
        """Remove these messages, or the whole thread's. Returns how many entries went."""


# ------------------------------------------------------------------------------------------------- asynchronous work


@runtime_checkable
class Dispatcher(Protocol):
    """Starts work that must outlive the request: an asynchronous Lambda invoke, or its local twin."""

    def dispatch(self, target: Literal["titles", "janitor", "chat"], event: Mapping[str, Any]) -> None:
        """Hand over an event; it is delivered at least once. One request."""
