"""Chat models of any OpenAI-compatible service, over urllib3.

The openai package would cost 0.9 s of every cold start; the protocol is one POST and an event stream.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from threading import Event
from typing import TYPE_CHECKING, Any, Final

from agent_memory._json import dumps, loads
from agent_memory.models._errors import refused, unreachable
from agent_memory.models._pump import Pump
from agent_memory.models._words import estimated_usage
from agent_memory.models.retry import TryAgain, with_retries
from agent_memory.openai._answer import DONE, Answer
from agent_memory.openai._body import PROVIDER, completion_request
from agent_memory.openai._sse import events
from agent_memory.openai.keys import ApiKey, bearer
from agent_memory.ports import ModelChunk, ModelRequest

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse, PoolManager

OPENAI_URL: Final = "https://api.openai.com/v1"
CONNECT_TIMEOUT_S: Final = 5.0
READ_TIMEOUT_S: Final = 120.0  # between two pieces of a stream; a model that thinks may be silent for long
_READ_BYTES: Final = 65_536
_MAX_ERROR_BYTES: Final = 65_536


@functools.cache
def _pool() -> PoolManager:
    import urllib3

    return urllib3.PoolManager(maxsize=10, retries=False)


class OpenAIModel:
    """A chat model behind ``POST <base_url>/chat/completions``, streamed.

    Sends tools, images, audio, PDF and text files and asks for structured answers by ``response_format``. Fields of
    `provider_options["openai"]` go along in snake case (``reasoningEffort`` as ``reasoning_effort``). Reasoning is
    shown where a service sends it and never sent back.

    Args:
        model_id: The model's name at the service.
        base_url: The service's address, up to ``/v1``. None: OpenAI's own.
        api_key: The key, or a function that gives it (a `Secret`); asked for at each call, never logged.
        headers: More headers for each call.
        include_usage: Whether to ask for token counts in the stream; without them usage is estimated.
        connect_timeout_s, read_timeout_s: How long to wait for a connection, and between pieces of the answer.
    """

    provider = PROVIDER

    def __init__(
        self,
        model_id: str,
        base_url: str | None = None,
        api_key: ApiKey = None,
        *,
        headers: Mapping[str, str] | None = None,
        include_usage: bool = True,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        read_timeout_s: float = READ_TIMEOUT_S,
    ) -> None:
        self.model_id = model_id
        self._url = (base_url or OPENAI_URL).rstrip("/") + "/chat/completions"
        self._limit_name = "max_completion_tokens" if base_url in (None, OPENAI_URL) else "max_tokens"
        self._key = api_key
        self._headers = dict(headers or {})
        self._include_usage = include_usage
        self._timeouts = (connect_timeout_s, read_timeout_s)

    def __repr__(self) -> str:
        return f"OpenAIModel({self.model_id!r})"

    def stream(self, request: ModelRequest) -> Iterator[ModelChunk]:
        """Answer a request. Raises ModelError; retries throttling and failures of the service before the first piece."""
        body = dumps(
            completion_request(request, self.model_id, limit_name=self._limit_name, include_usage=self._include_usage)
        ).encode(errors="replace")
        headers = {"accept": "text/event-stream", "content-type": "application/json", **self._headers}
        headers |= bearer(self._key)

        def read(stopped: Event) -> Iterator[str]:
            return with_retries(
                lambda: self._events(body, headers, pump),
                deadline=request.deadline,
                stopped=stopped.is_set,
                sleep=stopped.wait,
            )

        pump: Pump[str] = Pump(read, request)
        answer = Answer(self._name, self.model_id, lambda said: estimated_usage(request, said))
        for data in pump:
            yield from answer.take(data)
            if answer.done:
                break
        yield from answer.end(early=pump.ended_early)

    @property
    def _name(self) -> str:
        return f"{PROVIDER}/{self.model_id}"

    def _events(self, body: bytes, headers: dict[str, str], pump: Pump[str]) -> Iterator[str]:
        from urllib3.exceptions import HTTPError, NewConnectionError, TimeoutError
        from urllib3.util import Timeout

        connect_s, read_s = self._timeouts
        try:
            response = _pool().request(
                "POST",
                self._url,
                body=body,
                headers=headers,
                timeout=Timeout(connect=connect_s, read=read_s),
                preload_content=False,
                redirect=False,
            )
            try:
                if response.status != 200:
                    raise self._refused(response, headers)
                pump.close = response.shutdown
                if "json" in response.headers.get("content-type", ""):
                    yield response.read().decode(errors="replace")  # a service that does not stream
                    yield DONE
                else:
                    yield from events(_pieces(response))
            finally:
                response.close()
        except HTTPError as error:
            # The error's own text may name the address with what a caller put into it.
            timeout = isinstance(error, TimeoutError) and not isinstance(error, NewConnectionError)
            raise TryAgain(unreachable(self._name, type(error).__name__, timeout=timeout)) from error

    def _refused(self, response: BaseHTTPResponse, headers: Mapping[str, str]) -> Exception:
        text = response.read(_MAX_ERROR_BYTES).decode(errors="replace")
        try:
            found = loads(text)
        except ValueError:
            found = None
        detail: Any = found.get("error", found.get("message")) if isinstance(found, dict) else None
        if isinstance(detail, Mapping):
            detail = detail.get("message")
        detail = str(detail or ("" if found else text))
        key = headers.get("authorization", "").removeprefix("Bearer ")
        # A service may quote the key it refused.
        error = refused(self._name, response.status, detail.replace(key, "[key]") if key else detail)
        return TryAgain(error, _retry_after(response)) if error.retryable else error


def _pieces(response: BaseHTTPResponse) -> Iterator[bytes]:
    """Bytes as they arrive, however few."""
    while piece := response.read1(_READ_BYTES):
        yield piece


def _retry_after(response: BaseHTTPResponse) -> float | None:
    try:
        return max(float(response.headers.get("retry-after", "")), 0.0)
    except ValueError:
        return None  # absent, or a date: our own waits do as well
