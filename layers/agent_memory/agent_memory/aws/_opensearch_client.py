"""The OpenSearch client and its errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from agent_memory.errors import AgentMemoryError, ConfigurationError, UnavailableError

if TYPE_CHECKING:
    from opensearchpy import OpenSearch

TIMEOUT_S: Final = 5.0  # a turn waits for a search no longer than this, and goes on without it
PASSING: Final = (408, 429, 500, 502, 503, 504)
_AWS: Final = (".amazonaws.com", ".amazonaws.com.cn", ".on.aws")


def connect(
    url: str, *, serverless: bool = False, timeout_s: float = TIMEOUT_S, region: str | None = None
) -> OpenSearch:
    """A client for a domain or collection. Requests to an ``https`` address of AWS are signed with the environment's role.

    Raises ConfigurationError where signing needs credentials or a region and finds none.
    """
    from opensearchpy import OpenSearch, Urllib3AWSV4SignerAuth, Urllib3HttpConnection

    options: dict[str, Any] = {}
    host = urlsplit(url).hostname or ""
    if serverless or host.endswith(_AWS):
        import boto3

        session = boto3.session.Session()
        credentials, place = session.get_credentials(), region or session.region_name
        if credentials is None or place is None:
            raise ConfigurationError(
                f"expected AWS credentials and a region to sign requests to {host}, found "
                f"{'no credentials' if credentials is None else 'no region'}; run with a role, and set AWS_REGION",
                code="SEARCH_CREDENTIALS",
            )
        if url.startswith("https://"):
            options["http_auth"] = Urllib3AWSV4SignerAuth(credentials, place, "aoss" if serverless else "es")
    return OpenSearch(
        hosts=[url],
        connection_class=Urllib3HttpConnection,
        timeout=timeout_s,
        max_retries=1,
        retry_on_timeout=False,
        http_compress=True,
        pool_maxsize=8,
        **options,
    )


@contextmanager
def translated(name: str) -> Iterator[None]:
    """Turn the client's errors into this library's. What a repeat may mend is UnavailableError."""
    from opensearchpy.exceptions import ConnectionError, SerializationError, TransportError

    try:
        yield
    except ConnectionError as error:  # timeouts included
        raise _unavailable(name, type(error).__name__) from error
    except SerializationError as error:
        raise _unavailable(name, "it answered no JSON") from error
    except TransportError as error:
        raise refused(name, error.status_code, str(error.error)) from error


def refused(name: str, status: object, reason: str) -> AgentMemoryError:
    """The error for a status and its reason. Reasons are error types, never document text."""
    if status in PASSING:
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
