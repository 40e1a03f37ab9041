"""What the functions tell their operators: log lines in JSON, and metrics in CloudWatch's embedded format.

Both are those of Powertools, and both exist only on Lambda: elsewhere lines go to Python's own logging, and metrics nowhere.
Every line and metric holds ids, counts, sizes and durations, and never text of a message: an exception is logged as its kind
and its place, because what it says may quote what somebody wrote.

A line carries the ids of its `scope`. ``correlation_id`` goes along with asynchronous events, so that the lines of a request
and of everything that it started are found by one id.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, Final

from agent_memory._json import EMPTY
from agent_memory.errors import AgentMemoryError, ConfigurationError
from agent_memory.settings import stack_name

NAMESPACE: Final = "AgentMemory"
METRICS: Final[Mapping[str, str]] = {
    "ColdStarts": "Count",
    "InvocationFailures": "Count",
    "SignInRefusals": "Count",
    "Turns": "Count",
    "TurnFailures": "Count",
    "TurnTime": "Milliseconds",
    "Tripwires": "Count",
    "RecallHits": "Count",
    "RecallFailures": "Count",
    "InputTokens": "Count",
    "OutputTokens": "Count",
    "EmbeddingTokens": "Count",
    "StorageRequests": "Count",
    "ReadUnits": "Count",
    "WriteUnits": "Count",
    "PartitionSize": "Gigabytes",
    "QuotaRefusals": "Count",
    "JobFailures": "Count",
    "IndexLag": "Seconds",
    "IndexedMessages": "Count",
    "IndexDeletions": "Count",
    "IndexFailures": "Count",
    "IndexRefusals": "Count",
    "FileUsesReleased": "Count",
    "BodiesRemoved": "Count",
    "FileFailures": "Count",
}
"""Every metric and its unit. The only dimension is `service`, because each further one multiplies what metrics cost.

``TurnFailures`` and ``RecallFailures`` have the value 0 or 1 for each turn, so that their average is a rate.
"""

MAX_ID_CHARS: Final = 128
_ID: Final = re.compile(rf"[A-Za-z0-9._:=+/@-]{{1,{MAX_ID_CHARS}}}")
_LIBRARIES: Final = ("agent_memory", "streaming_runtime")

Handler = Callable[[Any, Any], Any]

_scope: ContextVar[Mapping[str, Any]] = ContextVar("agent_memory_log_scope", default=EMPTY)
_service: str | None = None  # set on Lambda only


class HandlerError(Exception):
    """Takes the place of an exception whose own text must not reach the log of the platform or a queue of failures."""


def function(service: str, *, answers: tuple[type[Exception], ...] = ()) -> Callable[[Handler], Handler]:
    """Marks a function's handler: sets up log and metrics, gives each invocation its ids, and logs what it raises.

    Args:
        service: The function's name on log lines and metrics.
        answers: Exceptions that are no failures: the platform takes them for an answer.
    """
    if os.environ.get("AWS_LAMBDA_FUNCTION_NAME"):
        start(service)
    cold = [True]

    def mark(handler: Handler) -> Handler:
        @functools.wraps(handler)
        def observed(event: Any, context: Any) -> Any:
            request_id = getattr(context, "aws_request_id", None)
            given = event.get("correlationId") if isinstance(event, dict) else None
            with scope(request_id=request_id, correlation_id=known_id(given) or request_id):
                if cold:
                    cold.clear()
                    metrics(ColdStarts=1)
                try:
                    return handler(event, context)
                except Exception as error:
                    if _service is None or isinstance(error, answers):
                        raise
                    logging.getLogger("agent_memory.function").error("an invocation failed", exc_info=True)
                    metrics(InvocationFailures=1)
                    if isinstance(error, ConfigurationError):
                        raise  # names settings
                    code = f" {error.code}" if isinstance(error, AgentMemoryError) else ""
                    raise HandlerError(type(error).__name__ + code) from None

        return observed

    return mark


def start(service: str) -> None:
    """Write the library's log lines as JSON to standard output from now on, and its metrics too."""
    global _service
    from aws_lambda_powertools.logging import Logger
    from aws_lambda_powertools.metrics import EphemeralMetrics  # noqa: F401 - loaded while the start has the most CPU

    stack = stack_name()
    _service = service if stack is None else f"{stack}-{service}"
    logger = Logger(service=_service, utc=True, use_rfc3339=True, serialize_stacktrace=False)  # reads LOG_LEVEL itself
    handler = logger.logger_handler
    handler.addFilter(add_scope)
    for name in _LIBRARIES:
        library = logging.getLogger(name)
        library.handlers = [handler]
        library.propagate = False
        library.setLevel(logger.log_level)


# ---------------------------------------------------------------------------------------------------------------- ids


def enter(**ids: str | None) -> None:
    """Put ids on every line that is logged from now on in this context and in its copies. None adds nothing."""
    _scope.set({**_scope.get(), **{name: value for name, value in ids.items() if value}})


@contextlib.contextmanager
def scope(**ids: str | None) -> Iterator[None]:
    """The same for what is logged inside."""
    token = _scope.set(_scope.get())
    try:
        enter(**ids)
        yield
    finally:
        _scope.reset(token)


def correlation_id() -> str | None:
    """The id under which everything that a request started is found."""
    return _scope.get().get("correlation_id")


def with_correlation(event: Mapping[str, Any]) -> dict[str, Any]:
    """An asynchronous event with the correlation id of whoever sends it, unless it has one."""
    known = event.get("correlationId") or correlation_id()
    return {**event, "correlationId": known} if known else dict(event)


def known_id(value: object) -> str | None:
    """A caller's id if it is one: a short word, and no text that could smuggle something into the log."""
    return value if isinstance(value, str) and _ID.fullmatch(value) else None


def pseudonym(value: str | None) -> str | None:
    """16 hexadecimal digits in place of an owner's id or a key, which may be a name or an address."""
    return None if value is None else hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:16]


# -------------------------------------------------------------------------------------------------------------- lines


def add_scope(record: logging.LogRecord) -> bool:
    """A filter of log handlers: adds the scope's ids to a line, and cuts an exception down to its kind and place."""
    for name, value in _scope.get().items():
        if not hasattr(record, name):
            setattr(record, name, value)
    if record.exc_info and record.exc_info[1] is not None:
        for name, value in described(record.exc_info[1]).items():
            setattr(record, name, value)
    record.exc_info = record.exc_text = None
    return True


def described(error: BaseException) -> dict[str, Any]:
    """An exception as a log may hold it: its kind, its code, and where it came from."""
    places = [
        f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(error.__traceback__)[-12:]
    ]
    code = {"code": error.code} if isinstance(error, AgentMemoryError) else {}
    return {"error": type(error).__name__, **code, "places": places}


# ------------------------------------------------------------------------------------------------------------ metrics


def metrics(**values: float) -> None:
    """Emit metrics by their names in `METRICS`, as one line of standard output. Costs no call."""
    units = {name: METRICS[name] for name in values}
    if _service is None or not values:
        return
    from aws_lambda_powertools.metrics import EphemeralMetrics

    emitted = EphemeralMetrics(namespace=NAMESPACE, service=_service)
    for name, value in values.items():
        emitted.add_metric(name, units[name], value)
    correlation = correlation_id()
    if correlation is not None:
        emitted.add_metadata("correlation_id", correlation)
    emitted.flush_metrics()
    # Our own loop on Lambda has a buffered output, and no line may follow before the process is frozen.
    sys.stdout.flush()
