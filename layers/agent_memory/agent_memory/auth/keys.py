"""The public keys of an OIDC issuer: found through its discovery document, kept, and asked for again when they change.

A key that the issuer withdrew is taken for at most `FRESH_S` longer, or `STALE_S` while the issuer cannot be reached:
an issuer that is down for an hour then locks nobody out.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from agent_memory.errors import UnavailableError

FRESH_S: Final = 600.0  # after which keys are fetched again
STALE_S: Final = 24 * 3600.0  # for which keys hold while the issuer cannot be reached
ASK_EVERY_S: Final = 30.0  # at most, whatever key ids callers make up
FIRST_ASK_EVERY_S: Final = 1.0  # the same while no keys are known and every call fails
CONNECT_TIMEOUT_S: Final = 2.0
READ_TIMEOUT_S: Final = 3.0
MAX_DOCUMENT_BYTES: Final = 512 * 1024

_CURVES: Final = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")

_log = logging.getLogger("agent_memory.auth")

Jwk = Mapping[str, Any]
Fetch = Callable[[str], Any]
"""Reads the JSON at an address. Raises UnavailableError."""


class IssuerKeys:
    """The keys of one issuer. Safe between threads.

    Args:
        issuer: Its address, exactly as tokens name it.
        fetch: Reads a document.
        clock: Seconds that never go back.
    """

    def __init__(self, issuer: str, *, fetch: Fetch | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._issuer = issuer
        self._fetch = fetch or fetch_json
        self._clock = clock
        self._lock = threading.Lock()
        self._keys: Sequence[Jwk] | None = None
        self._fetched_at = 0.0
        self._asked_at: float | None = None

    def find(self, key_id: str | None, algorithm: str) -> Jwk | None:
        """The key of that id for an algorithm. None: the issuer has no such key now.

        A token without a key id gets the only key that fits, if there is just one. Raises UnavailableError while the issuer
        cannot be reached and no keys are kept.
        """
        with self._lock:
            if self._keys is None or self._clock() - self._fetched_at >= FRESH_S:
                self._refresh()
            found = self._matching(key_id, algorithm)
            if found is None:  # the issuer may have begun to sign with another key
                self._refresh()
                found = self._matching(key_id, algorithm)
            return found

    def _matching(self, key_id: str | None, algorithm: str) -> Jwk | None:
        fitting = [key for key in self._keys or () if _fits(key, algorithm)]
        if key_id is None:
            return fitting[0] if len(fitting) == 1 else None
        return next((key for key in fitting if key.get("kid") == key_id), None)

    def _refresh(self) -> None:
        now = self._clock()
        usable = self._keys is not None and now - self._fetched_at < STALE_S
        wait = ASK_EVERY_S if usable else FIRST_ASK_EVERY_S
        if self._asked_at is not None and now - self._asked_at < wait:
            if usable:
                return
            raise UnavailableError("the issuer's keys could not be read; try again", code="ISSUER_UNREACHABLE")
        self._asked_at = now
        try:
            self._keys = self._read()
            self._fetched_at = now
        except UnavailableError as error:
            if not usable:
                self._keys = None
                raise
            _log.warning("age_s=<%d> | %s; the keys that are kept stay in use", now - self._fetched_at, error.message)

    def _read(self) -> Sequence[Jwk]:
        document = self._fetch(self._issuer.rstrip("/") + "/.well-known/openid-configuration")
        named = document.get("issuer") if isinstance(document, dict) else None
        if named != self._issuer:
            raise _unreachable(f"expected the discovery document of {self._issuer}, found one of {str(named)[:200]!r}")
        address = document.get("jwks_uri")
        if not isinstance(address, str) or not is_secure(address):
            raise _unreachable("expected a jwks_uri that begins with https:// in the discovery document, found none")
        found = self._fetch(address)
        keys = found.get("keys") if isinstance(found, dict) else None
        if not isinstance(keys, list) or not keys:
            raise _unreachable("expected a list of keys at the issuer's jwks_uri, found none")
        return [key for key in keys if isinstance(key, dict)]


def _fits(key: Jwk, algorithm: str) -> bool:
    """Whether a key is meant for signatures of that algorithm. A key of a shared secret never is."""
    if key.get("use") not in (None, "sig") or key.get("alg") not in (None, algorithm):
        return False
    if algorithm in _CURVES:
        return key.get("kty") == "EC" and key.get("crv") == _CURVES[algorithm]
    return key.get("kty") == "RSA"


def is_secure(address: str) -> bool:
    """Whether an address is https, or of this machine itself (the local stack's issuer)."""
    parts = urlsplit(address)
    return bool(parts.hostname) and (
        parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)
    )


def fetch_json(address: str) -> Any:
    """The JSON at an address. Follows no redirect, and gives up after seconds and at a size."""
    import urllib3

    timeout = urllib3.Timeout(connect=CONNECT_TIMEOUT_S, read=READ_TIMEOUT_S)
    try:
        # A pool of its own for each fetch: they are minutes apart, and a frozen function's connections are dead by then.
        with urllib3.PoolManager(timeout=timeout, retries=False) as pool:
            answer = pool.request("GET", address, redirect=False, preload_content=False)
            body = answer.read(MAX_DOCUMENT_BYTES + 1)
            answer.release_conn()
    except urllib3.exceptions.HTTPError as error:
        raise _unreachable(f"{address} could not be read ({type(error).__name__})") from None
    if answer.status != 200 or len(body) > MAX_DOCUMENT_BYTES:
        raise _unreachable(f"expected a document of the issuer at {address}, found status {answer.status}")
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise _unreachable(f"expected JSON at {address}, found something else") from None


def _unreachable(message: str) -> UnavailableError:
    return UnavailableError(message, code="ISSUER_UNREACHABLE")
