"""From stored messages to what an index holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from agent_memory.errors import AgentMemoryError, ConfigurationError, ModelError, UnavailableError
from agent_memory.messages import Message
from agent_memory.ports import Embedder, IndexedMessage, VectorIndex
from agent_memory.recall.chunks import MAX_CHUNKS, chunks

BATCH: Final = 64  # chunks in one call of the embedder
_NOT_OF_ONE_MESSAGE: Final = ("MODEL_ACCESS_DENIED", "MODEL_NOT_FOUND", "EMBEDDING_INVALID")


def is_indexed(message: Message) -> bool:
    """Whether a message has anything to recall: a text, and not the system's."""
    return message.role in ("user", "assistant") and bool(message.text.strip())


def indexed_messages(embedder: Embedder, messages: Sequence[Message]) -> list[IndexedMessage]:
    """Messages with a vector per chunk of their text. Those without a text, and system rows, are left out.

    All chunks are embedded together, in as few calls as the batch size allows. Raises ModelError.
    """
    kept = [message for message in messages if is_indexed(message)]
    pieces = [passages(message.text, embedder.max_chars) for message in kept]
    flat = [piece for own in pieces for piece in own]
    vectors: list[list[float]] = []
    for start in range(0, len(flat), BATCH):
        vectors += embedder.embed_passages(flat[start : start + BATCH])
    results = []
    position = 0
    for message, own in zip(kept, pieces, strict=True):
        mine = vectors[position : position + len(own)]
        position += len(own)
        results.append(
            IndexedMessage(
                resource_id=message.resource_id or "",
                thread_id=message.thread_id or "",
                message_id=message.id,
                seq=message.seq or 0,
                version=message.version or 0,
                role=message.role,
                created_at=message.created_at,
                text=message.text,
                metadata=message.metadata,
                vectors=tuple(map(tuple, mine)),
            )
        )
    return results


def index_messages(index: VectorIndex, embedder: Embedder, messages: Sequence[Message]) -> int:
    """Embed messages and write them to an index. Returns how many have a text and were written.

    Raises ModelError, UnavailableError or ConfigurationError; a repeat of the whole call is harmless.
    """
    found = indexed_messages(embedder, messages)
    if found:
        index.upsert(found)
    return len(found)


@dataclass(slots=True)
class Written:
    """What `write_rows` came to.

    Attributes:
        written: How many messages the index holds now.
        failed: Rows that another try may write, or one after somebody has mended settings; `error` says why not.
        refused: Rows that no repeat would write.
        codes: Codes of the errors that were met.
    """

    written: int = 0
    failed: list[Message] = field(default_factory=list)
    refused: list[Message] = field(default_factory=list)
    error: AgentMemoryError | None = None
    codes: set[str] = field(default_factory=set)


def write_rows(index: VectorIndex, embedder: Embedder, rows: Sequence[Message]) -> Written:
    """As `index_messages`, but one message that the provider refuses does not hold up the rest."""
    result = Written()
    if not rows:
        return result
    try:
        result.written = index_messages(index, embedder, rows)
    except AgentMemoryError as error:
        result.codes.add(error.code)
        if not _is_of_one_message(error):
            result.failed, result.error = list(rows), error
        elif len(rows) == 1:
            result.refused = list(rows)
        else:
            # Halves, because each try embeds again.
            middle = len(rows) // 2
            for half in (rows[:middle], rows[middle:]):
                part = write_rows(index, embedder, half)
                result.written += part.written
                result.failed += part.failed
                result.refused += part.refused
                result.error = result.error or part.error
                result.codes |= part.codes
    return result


def _is_of_one_message(error: AgentMemoryError) -> bool:
    """Whether an error may be one message's own, so that the others can be written without it."""
    if isinstance(error, ConfigurationError):
        return error.code == "SEARCH_REFUSED"
    if isinstance(error, ModelError):
        return not error.retryable and error.code not in _NOT_OF_ONE_MESSAGE
    return not isinstance(error, UnavailableError)


def passages(text: str, max_chars: int) -> list[str]:
    """The chunks of a text as they are embedded: none blank, none longer than `max_chars`, at most 64 of them.

    Of a longer text the chunks that are embedded are spread evenly over it, its beginning and its end included.
    """
    found = [piece.strip() for piece in chunks(text, max_chars)]
    if len(found) > MAX_CHUNKS:
        last = len(found) - 1
        found = [found[round(i * last / (MAX_CHUNKS - 1))] for i in range(MAX_CHUNKS)]
    return found


def query_text(text: str, max_chars: int) -> str:
    """A question cut to what the embedder takes: of a long one its beginning and its end, where the request stands."""
    text = text.strip()
    if len(text) <= max_chars:
        return text
    half = max(max_chars // 2 - 1, 1)
    return f"{text[:half].rstrip()}\n{text[-half:].lstrip()}"[:max_chars]
