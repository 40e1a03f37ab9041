"""Signatures of receipts."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class Signer(Protocol):
    """Signs what a deployment hands out as proof."""

    @property
    def key_id(self) -> str:
        """Names the key, for whoever verifies."""

    @property
    def algorithm(self) -> str:
        """``ECDSA_SHA_256`` (DER, over the SHA-256 of the bytes) or ``HMAC_SHA_256``."""

    def sign(self, data: bytes) -> bytes:
        """The signature. Raises UnavailableError, StorageError."""
