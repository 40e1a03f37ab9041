"""The errors a caller can meet, as one tree.

::

    AgentMemoryError
    ├── ConfigurationError        a wrong or missing setting, found at construction or start
    ├── InvalidInputError         bad input: the field, what was expected, what was found (400)
    ├── AuthenticationError       no identity where one is needed (401)
    ├── AccessDeniedError         a thread or message of another resource (403)
    ├── NotFoundError             an unknown thread, agent, tool or message (404)
    ├── ConflictError             a state that a repeat of the same call cannot change (409)
    │   └── TurnInProgressError   the same turn is running; retry after `retry_after_s` (409)
    ├── TooLargeError             a body, page or item over its limit (413)
    ├── QuotaError                a limit per resource was met (429)
    ├── NotSupportedError         a method this server does not offer (501)
    ├── UnavailableError          storage or platform stayed busy; nothing was half saved (503)
    ├── StorageError              storage answered something that a retry does not mend (500)
    ├── ModelError                the model provider failed (500)
    └── ProcessorError            a processor raised; the run failed closed (500)

`Tripwire` is not in the tree: it is how a processor stops a run on purpose, and never an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping


class AgentMemoryError(Exception):
    """Base of all errors raised on purpose.

    Attributes:
        code: Stable upper-case name for clients, e.g. ``THREAD_NOT_FOUND``.
        message: What was expected, what was found and what to do. Holds ids and sizes, never message text.
        status: The HTTP status that fits this error.
    """

    default_code: ClassVar[str] = "INTERNAL"
    status: ClassVar[int] = 500

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code


class ConfigurationError(AgentMemoryError):
    """A setting is missing or wrong. `code` is one of the names in the README's table where it has one."""

    default_code = "CONFIGURATION"


class InvalidInputError(AgentMemoryError, ValueError):
    """Bad input.

    Attributes:
        field: Dotted path of the field, e.g. ``filter.metadata.a``.
        where: Which part of an HTTP request held it.
    """

    default_code = "INVALID_INPUT"
    status = 400

    def __init__(
        self,
        field: str,
        message: str,
        *,
        code: str | None = None,
        where: Literal["body", "query", "path"] = "body",
    ) -> None:
        super().__init__(f"{field}: {message}", code=code)
        self.field = field
        self.detail = message
        self.where = where


class AuthenticationError(AgentMemoryError):
    """The call needs an identity and has none."""

    default_code = "NOT_SIGNED_IN"
    status = 401


class AccessDeniedError(AgentMemoryError):
    """The thread, message or run belongs to another resource."""

    default_code = "ACCESS_DENIED"
    status = 403


class NotFoundError(AgentMemoryError, LookupError):
    """What was named does not exist, or the caller may not know that it does."""

    default_code = "NOT_FOUND"
    status = 404


class ConflictError(AgentMemoryError):
    """The stored state does not allow the call, e.g. a clone id that is taken or a version that is not current."""

    default_code = "CONFLICT"
    status = 409


class TurnInProgressError(ConflictError):
    """The same turn (same turn key) is running now."""

    default_code = "TURN_IN_PROGRESS"

    def __init__(self, message: str, *, retry_after_s: int = 2) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class TooLargeError(AgentMemoryError):
    """A body, a page or an item is over its limit."""

    default_code = "TOO_LARGE"
    status = 413


class QuotaError(AgentMemoryError):
    """A limit per resource was met."""

    default_code = "QUOTA_EXCEEDED"
    status = 429

    def __init__(self, message: str, *, retry_after_s: int = 60) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class NotSupportedError(AgentMemoryError):
    """A method or feature that this server does not offer."""

    default_code = "NOT_SUPPORTED"
    status = 501


class StorageError(AgentMemoryError):
    """Storage answered something that a retry does not mend."""

    default_code = "STORAGE"


class UnavailableError(AgentMemoryError):
    """Storage or the platform stayed busy after all retries. Nothing was half saved; call again later."""

    default_code = "UNAVAILABLE"
    status = 503

    def __init__(self, message: str, *, code: str | None = None, retry_after_s: int = 2) -> None:
        super().__init__(message, code=code)
        self.retry_after_s = retry_after_s


class ModelError(AgentMemoryError):
    """The model provider failed.

    Attributes:
        provider_status: HTTP status the provider answered, or None where there was no answer.
        retryable: Whether the adapter's own retries were spent on it (throttling, timeouts, 5xx).
    """

    default_code = "MODEL_FAILED"

    def __init__(
        self, message: str, *, code: str | None = None, provider_status: int | None = None, retryable: bool = False
    ) -> None:
        super().__init__(message, code=code)
        self.provider_status = provider_status
        self.retryable = retryable


class ProcessorError(AgentMemoryError):
    """A processor's hook raised something other than a tripwire; the run failed closed."""

    default_code = "PROCESSOR_FAILED"


class Tripwire(Exception):
    """Raised by `abort()` inside a processor: stops the run, stores nothing of the turn."""

    def __init__(
        self,
        reason: str,
        *,
        processor_id: str,
        retry: bool = False,
        metadata: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.processor_id = processor_id
        self.retry = retry
        self.metadata = metadata
