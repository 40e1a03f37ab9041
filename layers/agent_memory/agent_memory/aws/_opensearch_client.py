"""The requests to OpenSearch over urllib3, signed where they go to AWS, and their errors.

This library makes six kinds of request. The published client for all of them is larger than the rest of this package with
everything that it needs, and the first search of each process would wait 0.3 s for its import.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import quote, unquote, urlencode, urlsplit

from agent_memory._json import dumps, loads
from agent_memory.errors import AgentMemoryError, ConfigurationError, UnavailableError

TIMEOUT_S: Final = 5.0  # a turn waits for a search no longer than this, and goes on without it
TRIES: Final = 2  # an idle connection may have been closed by the other side, and a node may just be going
CONNECTIONS: Final = 8
COMPRESS_FROM_BYTES: Final = 1_024
_GONE: Final = (502, 503, 504)
_PASSING: Final = (429, *_GONE)

Signer = Callable[[str, str, Mapping[str, str], bytes], dict[str, str]]
"""Takes method, address, headers and body; gives the headers to send."""


class SearchStatusError(Exception):
    """An answer of 400 or above. `kind` is the engine's word for it, e.g. ``index_not_found_exception``."""

    def __init__(self, status: int, kind: str) -> None:
        super().__init__(f"{status} {kind}")
        self.status, self.kind = status, kind


class SearchConnectionError(Exception):
    """No answer, or one that cannot be read."""


class SearchClient:
    """One address of OpenSearch. Threads may share it.

    Args:
        url: Address of the domain, collection or node. A user and a password in it are sent as basic authentication.
        timeout_s: Seconds that a request waits for its connection, and again for its answer.
        sign: Adds the signature to a request's headers; None sends it unsigned.
    """

    def __init__(self, url: str, *, timeout_s: float = TIMEOUT_S, sign: Signer | None = None) -> None:
        import urllib3

        parts = urlsplit(url)
        self._base = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")
        self._headers = {"accept-encoding": "gzip", "user-agent": "agent-memory"}
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers |= urllib3.make_headers(basic_auth=pair)
        self._pool = urllib3.PoolManager(
            maxsize=CONNECTIONS, block=True, retries=False, timeout=urllib3.Timeout(connect=timeout_s, read=timeout_s)
        )
        self.sign = sign

    def call(
        self, method: str, path: str, body: Mapping[str, Any] | Sequence[Any] | None = None, **params: str
    ) -> dict[str, Any]:
        """Send a request and return its answer. A sequence as `body` goes as one line of JSON for each item.

        Raises SearchStatusError, and SearchConnectionError for timeouts, lost connections and answers without JSON.
        """
        address = f"{self._base}/{quote(path.lstrip('/'), safe='/_.-')}"
        if params:
            address += "?" + urlencode(params, quote_via=quote, safe="-_.~")
        data, headers = b"", dict(self._headers)
        if isinstance(body, Mapping):
            data = dumps(body).encode()
            headers["content-type"] = "application/json"
        elif body is not None:
            data = "".join(f"{dumps(line)}\n" for line in body).encode()
            headers["content-type"] = "application/x-ndjson"
        if len(data) >= COMPRESS_FROM_BYTES:
            data = gzip.compress(data, 1, mtime=0)
            headers["content-encoding"] = "gzip"
        status, content = self._send(method, address, headers, data)
        if status >= 400:
            raise SearchStatusError(status, _kind(content))
        try:
            answer: dict[str, Any] = loads(content)
        except ValueError:
            raise SearchConnectionError("it answered no JSON") from None
        return answer

    def _send(self, method: str, address: str, headers: Mapping[str, str], data: bytes) -> tuple[int, bytes]:
        from urllib3.exceptions import HTTPError, TimeoutError

        for left in reversed(range(TRIES)):
            sent = dict(headers) if self.sign is None else self.sign(method, address, headers, data)
            try:
                answer = self._pool.request(method, address, body=data or None, headers=sent)
            except TimeoutError as error:  # a second wait would outlast the turn's patience
                raise SearchConnectionError(type(error).__name__) from error
            except HTTPError as error:
                if not left:
                    raise SearchConnectionError(type(error).__name__) from error
                continue
            if answer.status not in _GONE or not left:
                return answer.status, answer.data
        raise AssertionError("every last try returns or raises")


def connect(
    url: str, *, serverless: bool = False, timeout_s: float = TIMEOUT_S, region: str | None = None
) -> SearchClient:
    """A client for a domain or collection. Requests to an ``https`` address of AWS are signed with the environment's role.

    Raises ConfigurationError where signing needs credentials or a region and finds none.
    """
    host = urlsplit(url).hostname or ""
    if not (serverless or host.endswith((".amazonaws.com", ".on.aws"))):
        return SearchClient(url, timeout_s=timeout_s)
    import boto3

    session = boto3.session.Session()
    credentials, place = session.get_credentials(), region or session.region_name
    if credentials is None or place is None:
        raise ConfigurationError(
            f"expected AWS credentials and a region to sign requests to {host}, found "
            f"{'no credentials' if credentials is None else 'no region'}; run with a role, and set AWS_REGION",
            code="SEARCH_CREDENTIALS",
        )
    if not url.startswith("https://"):
        return SearchClient(url, timeout_s=timeout_s)
    return SearchClient(url, timeout_s=timeout_s, sign=_signer(credentials, place, "aoss" if serverless else "es"))


def _signer(credentials: Any, region: str, service: str) -> Signer:
    def sign(method: str, address: str, headers: Mapping[str, str], data: bytes) -> dict[str, str]:
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest

        request = AWSRequest(method=method, url=address, data=data, headers=dict(headers))
        # One look at credentials that another thread may be renewing: key and secret must belong together.
        auth = SigV4Auth(credentials.get_frozen_credentials(), service, region)
        request.headers["X-Amz-Content-SHA256"] = auth.payload(request)  # collections ask for it, and it must be signed
        auth.add_auth(request)
        return dict(request.headers.items())

    return sign


def _kind(content: bytes) -> str:
    """The engine's word for an error; never its reason, which may quote a document."""
    try:
        error = loads(content)["error"]
        return str(error["type"] if isinstance(error, Mapping) else error)
    except (ValueError, KeyError, TypeError):
        return "no reason given"


@contextmanager
def translated(name: str) -> Iterator[None]:
    """Turn the client's errors into this library's. What a repeat may mend is UnavailableError."""
    try:
        yield
    except SearchConnectionError as error:  # timeouts included
        raise _unavailable(name, str(error)) from error
    except SearchStatusError as error:
        raise refused(name, error.status, error.kind) from error


def refused(name: str, status: object, reason: str) -> AgentMemoryError:
    """The error for a status and its reason. Reasons are error types, never document text."""
    if status in _PASSING:
        return _unavailable(name, f"{status} {reason}")
    if status in (401, 403):
        return ConfigurationError(
            f"search index {name} refused this role ({status}); allow it in the domain's or collection's access policy",
            code="SEARCH_ACCESS",
        )
    if status == 404:
        return ConfigurationError(
            f"expected the search index {name}, found none; call ensure() first", code="INDEX_MISSING"
        )
    return ConfigurationError(f"search index {name} refused a request: {status} {reason[:200]}", code="SEARCH_REFUSED")


def _unavailable(name: str, detail: str) -> UnavailableError:
    return UnavailableError(f"search index {name} does not answer: {detail[:200]}", code="INDEX_UNAVAILABLE")
