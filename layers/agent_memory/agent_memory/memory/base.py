"""What all parts of the Memory facade share: adapters, options, and whose thread a call means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from agent_memory.errors import AccessDeniedError, ConfigurationError, InvalidInputError, NotFoundError
from agent_memory.file_rules import FileRules
from agent_memory.ids import check_id
from agent_memory.options import MemoryOptions

if TYPE_CHECKING:
    from agent_memory.agent.services import Services
    from agent_memory.ports import BlobStore, Dispatcher, Embedder, FileStore, MessageStore, ThreadHeader, VectorIndex


class Unset:
    """The value of an argument that was not given, where None and '' are errors."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNSET"

    def __bool__(self) -> bool:
        return False


UNSET: Final = Unset()
Owner = str | Unset
"""A resource id, or not given: the thread's owner is then looked up where thread ids are unique."""


class MemoryBase:
    """Adapters and options of a memory.

    Args:
        storage: Threads, messages and working memory. None: the deployment's, given by `bind` or taken on first use.
        vector: The vector index of semantic recall; False: none, not the deployment's either.
        embedder: Turns texts into vectors.
        blobs: Attachments and overflow bodies.
        files: Which messages use an attachment, so that unused ones are removed.
        dispatcher: Starts clean-up that should not hold up a call.
        options: Memory options (see `agent_memory.options`), as an object or a mapping.
        more: The same options as keywords; an option given both ways with different values is an error.

    Raises:
        InvalidInputError: An option is wrong or unknown.
        ConfigurationError: Semantic recall is on without a vector index or an embedder.
    """

    def __init__(
        self,
        storage: MessageStore | None = None,
        vector: VectorIndex | Literal[False] | None = None,
        embedder: Embedder | None = None,
        blobs: BlobStore | None = None,
        options: Mapping[str, Any] | MemoryOptions | None = None,
        *,
        files: FileStore | None = None,
        dispatcher: Dispatcher | None = None,
        **more: Any,
    ) -> None:
        self._storage = storage
        self._vector = vector
        self._embedder = embedder
        self._blobs = blobs
        self._files = files
        self._dispatcher = dispatcher
        self._services: Services | None = None
        self._bound = storage is not None
        self.options = _both(options, more)
        if storage is not None or vector is False:
            # Built by hand: what is missing now stays missing.
            self._check_recall(self.options)

    def bind(self, services: Services) -> None:
        """Take the deployment's adapters for those this memory was not built with.

        Raises ConfigurationError where semantic recall is on and the deployment has no vector index or embedder.
        """
        self._storage = self._storage if self._storage is not None else services.store
        self._vector = self._vector if self._vector is not None else services.index
        self._embedder = self._embedder if self._embedder is not None else services.embedder
        if self._blobs is None:
            self._blobs, self._files = services.blobs, services.files
        self._dispatcher = self._dispatcher if self._dispatcher is not None else services.dispatcher
        self._services = services
        self._bound = True
        self._check_recall(self.options)

    # -- adapters

    @property
    def is_bound(self) -> bool:
        """Whether its adapters are settled: given when it was built, by `bind`, or taken from the deployment."""
        return self._bound

    @property
    def storage(self) -> MessageStore:
        """Threads, messages and working memory. Raises ConfigurationError where there is none."""
        self._bind_default()
        if self._storage is None:
            raise ConfigurationError(
                "memory has no storage: pass storage= or run where the deployment's tables are set",
                code="MESSAGE_HISTORY_MISSING_STORAGE_ADAPTER",
            )
        return self._storage

    @property
    def vector(self) -> VectorIndex | None:
        """The vector index, or None."""
        self._bind_default()
        return self._vector or None

    @property
    def embedder(self) -> Embedder | None:
        """The embedder, or None."""
        self._bind_default()
        return self._embedder

    @property
    def blobs(self) -> BlobStore | None:
        """Where attachments lie, or None."""
        self._bind_default()
        return self._blobs

    @property
    def files(self) -> FileStore | None:
        """What is known of attachments, or None where that is not kept."""
        self._bind_default()
        return self._files

    @property
    def file_rules(self) -> FileRules:
        """What attachments are taken."""
        self._bind_default()
        return self._services.file_rules if self._services is not None else FileRules()

    @property
    def dispatcher(self) -> Dispatcher | None:
        """Where work that may wait is handed over, or None."""
        self._bind_default()
        return self._dispatcher

    def index_id(self, options: MemoryOptions | None = None) -> str | None:
        """Id of the vector index that rows are stamped with under `options`; None where recall is off."""
        options = options or self.options
        return self.vector.id if options.semantic_recall is not None and self.vector is not None else None

    def _bind_default(self) -> None:
        if not self._bound:
            from agent_memory.runtime import services

            self.bind(services())

    # -- options

    def _merged(self, thread_config: Mapping[str, Any] | MemoryOptions | None) -> MemoryOptions:
        return self.options.merged(thread_config)

    def _check_recall(self, options: MemoryOptions) -> None:
        recall = options.semantic_recall
        if recall is None:
            return
        if not self._vector:
            raise ConfigurationError(
                "semantic recall is on and there is no vector index: pass vector= or switch semantic_recall off",
                code="SEMANTIC_RECALL_MISSING_VECTOR_ADAPTER",
            )
        if self._embedder is None:
            raise ConfigurationError(
                "semantic recall is on and there is no embedder: pass embedder= or switch semantic_recall off",
                code="SEMANTIC_RECALL_MISSING_EMBEDDER",
            )
        if recall.index_name is not None and recall.index_name != self._vector.id:
            raise ConfigurationError(
                f"semantic_recall.index_name is {recall.index_name} and the vector index is {self._vector.id}: "
                "build an index of that name and pass it as vector=",
                code="SEMANTIC_RECALL_INDEX_MISMATCH",
            )

    # -- whose thread

    def _owner(self, thread_id: str, resource_id: Owner = UNSET) -> str | None:
        """The resource that a call on a thread means: the given one, else the thread's owner; None where it has none."""
        check_id("thread_id", thread_id)
        if isinstance(resource_id, Unset):
            return self.storage.owner_of(thread_id)
        return check_id("resource_id", resource_id)

    def _header(self, thread_id: str, resource_id: Owner = UNSET) -> ThreadHeader:
        """The header of an existing thread of that owner. Raises NotFoundError, AccessDeniedError."""
        owner = self._owner(thread_id, resource_id)
        header = None if owner is None else self.storage.get_thread(owner, thread_id)
        if header is None:
            raise self._missing(thread_id, owner if not isinstance(resource_id, Unset) else None)
        return header

    def _missing(self, thread_id: str, resource_id: str | None) -> NotFoundError | AccessDeniedError:
        if resource_id is not None and self.storage.owner_of(thread_id) not in (None, resource_id):
            return AccessDeniedError(f"thread {thread_id} belongs to another resource than {resource_id}")
        advice = "" if resource_id is not None else "; name its resource_id where thread ids are per owner"
        return NotFoundError(f"No thread found with id {thread_id}{advice}", code="THREAD_NOT_FOUND")

    def _known_owner(self, thread_id: str, resource_id: Owner) -> str:
        """The resource a call on a thread means, without asking whether the thread exists."""
        owner = self._owner(thread_id, resource_id)
        if owner is None:
            raise self._missing(thread_id, None)
        return owner


def _both(options: Mapping[str, Any] | MemoryOptions | None, more: Mapping[str, Any]) -> MemoryOptions:
    if not more:
        return MemoryOptions.of(options)
    if isinstance(options, MemoryOptions):
        merged = options.merged(more)
        if merged != options:
            raise InvalidInputError("options", "given both as an object and as keywords; use one of the two")
        return merged
    direct = MemoryOptions.of(more)
    if not options:
        return direct
    MemoryOptions.of(options)
    return MemoryOptions.of(_joined(options, more))


def _joined(options: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Both mappings in one; a key of the two with different values is an error (spellings are compared by `of`)."""
    for key in options.keys() & more.keys():
        if options[key] is not None and more[key] is not None and options[key] != more[key]:
            raise InvalidInputError(key, "given on Memory(...) and under options= with different values; remove one")
    return {**options, **{key: value for key, value in more.items() if value is not None}}
