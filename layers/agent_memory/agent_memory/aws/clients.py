"""AWS clients: one session for the process, each client made when it is first asked for.

Timeouts and retries are explicit, because botocore's own (60 s, and 10 legacy retries for DynamoDB) outlast a request.
``AWS_ENDPOINT_URL`` and ``AWS_ENDPOINT_URL_<SERVICE>`` point them elsewhere, as botocore reads them.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agent_memory.aws.meter import Meter

if TYPE_CHECKING:
    from boto3.session import Session

CONNECT_TIMEOUT_S: Final = 2.0
POOL_CONNECTIONS: Final = 16  # the eight workers of the pool and the threads of a run


@dataclass(frozen=True, slots=True)
class _Limits:
    """Read timeout in seconds, and the attempts that botocore makes in all."""

    read_timeout_s: float
    attempts: int


# DynamoDB's retries are this library's own: they know which refusals a retry mends.
_LIMITS: Final = {
    "dynamodb": _Limits(5.0, 1),
    "s3": _Limits(20.0, 4),
    "lambda": _Limits(10.0, 3),
    "bedrock-runtime": _Limits(120.0, 1),  # a model may think; its adapter retries
}
_DEFAULT: Final = _Limits(10.0, 3)

meter: Final = Meter()
"""Counts what the DynamoDB and S3 clients of this process request: ``with meter.measure() as cost: …``."""

_lock = threading.Lock()
_session: Session | None = None
_clients: dict[str, Any] = {}


def client(service: str) -> Any:
    """The process's client of an AWS service, e.g. ``dynamodb``. Making one is not thread safe, so it is done here."""
    found = _clients.get(service)
    if found is not None:
        return found
    global _session
    with _lock:
        if service not in _clients:
            import boto3

            if _session is None:
                _session = boto3.session.Session()
            make: Any = _session.client
            made = make(service, config=config(service))
            if service in ("dynamodb", "s3"):
                meter.attach(made)
            _clients[service] = made
        return _clients[service]


def config(service: str) -> Any:
    """The botocore configuration of a service's client."""
    from botocore.config import Config

    limits = _LIMITS.get(service, _DEFAULT)
    options: dict[str, Any] = {}
    if service == "s3":
        # Virtual-host addresses need DNS names that an emulator on loopback has not; "auto" does the right thing on AWS.
        options = {"signature_version": "s3v4", "s3": {"addressing_style": "auto"}}
    return Config(
        connect_timeout=CONNECT_TIMEOUT_S,
        read_timeout=limits.read_timeout_s,
        retries={"mode": "standard", "total_max_attempts": limits.attempts},
        max_pool_connections=POOL_CONNECTIONS,
        tcp_keepalive=True,
        **options,
    )


def reset() -> None:
    """Forget session and clients, e.g. after the environment changed or after a snapshot was restored."""
    global _session
    with _lock:
        _session = None
        _clients.clear()
