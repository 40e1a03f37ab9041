"""The loop of a Lambda runtime: fetch an event, run the handler, stream its answer, again."""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from streaming_runtime.answer import Streamed
from streaming_runtime.api import Invocation, ResponseStream, RuntimeApi, RuntimeApiError
from streaming_runtime.pump import KEEP_ALIVE, SILENCE_S, Pump, Silence

Handler = Callable[[Any, Any], Any]

LAST_MOMENT_S: Final = 0.3  # before the deadline, when Lambda would kill the process and cut the stream without a word

_log = logging.getLogger("streaming_runtime")


class DeadlineError(Exception):
    """The handler was still at work when the function's time ended."""


class Context:
    """What a handler may ask about its invocation; the names are those of Lambda's own context."""

    def __init__(self, invocation: Invocation) -> None:
        self.aws_request_id = invocation.request_id
        self.invoked_function_arn = invocation.function_arn
        self.function_name = os.environ.get("AWS_LAMBDA_FUNCTION_NAME", "")
        self.function_version = os.environ.get("AWS_LAMBDA_FUNCTION_VERSION", "")
        self.memory_limit_in_mb = os.environ.get("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "")
        self.log_group_name = os.environ.get("AWS_LAMBDA_LOG_GROUP_NAME", "")
        self.log_stream_name = os.environ.get("AWS_LAMBDA_LOG_STREAM_NAME", "")
        self.client_context = json.loads(invocation.client_context) if invocation.client_context else None
        self.identity = json.loads(invocation.identity) if invocation.identity else None
        self._deadline_ms = invocation.deadline_ms

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until Lambda ends this invocation."""
        return max(0, self._deadline_ms - int(time.time() * 1000)) if self._deadline_ms else 0


class Loop:
    """Runs one handler.

    Args:
        api: The Runtime API.
        handler: The function to run.
        silence_s: Seconds without a piece after which an event stream gets a comment.
    """

    def __init__(self, api: RuntimeApi, handler: Handler, *, silence_s: float = SILENCE_S) -> None:
        self._api = api
        self._handler = handler
        self._silence_s = silence_s

    def run_one(self) -> None:
        """Fetch and answer one event. Raises DeadlineError after an answer that had to be broken off."""
        invocation = self._api.next()
        if invocation.trace_id:
            os.environ["_X_AMZN_TRACE_ID"] = invocation.trace_id
        else:
            os.environ.pop("_X_AMZN_TRACE_ID", None)
        try:
            answer = self._handler(invocation.event, Context(invocation))
            streamed = Streamed.of(answer)
            plain = b"" if streamed is not None else json.dumps(answer).encode()
        except Exception as error:
            _log.exception("the handler failed before its answer")
            self._api.fail(f"invocation/{invocation.request_id}/error", error)
            return
        if streamed is None:
            self._api.respond(invocation.request_id, plain)
        else:
            self._stream(invocation, streamed)

    def _stream(self, invocation: Invocation, answer: Streamed) -> None:
        pump = Pump(answer.body)
        last_moment = invocation.deadline_ms / 1000 - LAST_MOMENT_S if invocation.deadline_ms else None
        stream: ResponseStream | None = None
        try:
            stream = self._api.stream(invocation.request_id)
            stream.write(answer.prelude())
            self._send(pump, stream, answer.is_event_stream, last_moment)
        except (OSError, RuntimeApiError, ValueError) as error:
            # The reader is gone. The answer runs to its end all the same, because running it is what stores it.
            _log.warning("error=<%s> | the answer could not be sent; it runs to its end unsent", type(error).__name__)
            if stream is not None:
                stream.abandon()
            if not pump.drain(None if last_moment is None else max(0.0, last_moment - time.time())):
                _log.warning("an answer that nobody read did not end well")

    def _send(self, pump: Pump, stream: ResponseStream, comments: bool, last_moment: float | None) -> None:
        comment_at = time.monotonic() + self._silence_s
        while True:
            waits = [comment_at - time.monotonic()] if comments else []
            if last_moment is not None:
                waits.append(last_moment - time.time())
            try:
                piece = pump.next(max(0.0, min(waits)) if waits else None)
            except Silence:
                if last_moment is not None and time.time() >= last_moment:
                    late = DeadlineError("the function's time ended before its answer did; raise its timeout")
                    stream.end(late, error_type="Function.Deadline")
                    raise late from None
                piece = KEEP_ALIVE
            except Exception as error:
                _log.exception("the answer failed after its first byte")
                # What an error says may quote what somebody wrote, and the platform keeps reports.
                told = RuntimeError("the answer failed after its first byte").with_traceback(error.__traceback__)
                stream.end(told, error_type=type(error).__name__)
                return
            if piece is None:
                stream.end()
                return
            stream.write(piece)
            comment_at = time.monotonic() + self._silence_s


def load(name: str) -> Handler:
    """The handler that ``module.function`` (or ``folder/module.function``) names."""
    module_name, _, function = name.rpartition(".")
    if not module_name:
        raise ValueError(f"expected a handler like app.handler, found {name!r}; set the function's Handler")
    handler: Handler = getattr(importlib.import_module(module_name.replace("/", ".")), function)
    return handler


def main() -> None:
    """Run until Lambda ends the process."""
    logging.basicConfig(stream=sys.stdout, level=os.environ.get("AWS_LAMBDA_LOG_LEVEL", "WARNING"))
    api = RuntimeApi(os.environ["AWS_LAMBDA_RUNTIME_API"])
    sys.path.insert(0, os.environ.get("LAMBDA_TASK_ROOT", os.getcwd()))
    try:
        handler = load(os.environ["_HANDLER"])
    except BaseException as error:
        api.fail("init/error", error, error_type=f"Runtime.{type(error).__name__}")
        raise
    if os.environ.get("AWS_LAMBDA_INITIALIZATION_TYPE") == "snap-start":
        _through_snapshot(api)
    loop = Loop(api, handler)
    while True:
        try:
            loop.run_one()
        except DeadlineError:
            # The handler's thread still runs; a fresh process is the only way to be rid of it.
            os._exit(1)


def _through_snapshot(api: RuntimeApi) -> None:
    """Run the hooks that the process registered (package snapshot_restore_py, part of the runtime) around a snapshot."""
    try:
        hooks: Any = importlib.import_module("snapshot_restore_py")
    except ImportError:
        hooks = None
    try:
        for function, args, kwargs in reversed(hooks.get_before_snapshot() if hooks else ()):
            function(*args, **kwargs)
    except BaseException as error:
        api.fail("init/error", error, error_type="Runtime.BeforeSnapshotError")
        raise
    api.restore_next()
    try:
        for function, args, kwargs in hooks.get_after_restore() if hooks else ():
            function(*args, **kwargs)
    except BaseException as error:
        api.fail("restore/error", error, error_type="Runtime.AfterRestoreError")
        raise
