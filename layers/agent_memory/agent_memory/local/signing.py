"""Signatures by a key in a file, for a machine without KMS: only who has the file can verify them."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
from pathlib import Path
from typing import Final


class FileSigner:
    """A `Signer` with a secret of 32 bytes in hexadecimal, made on first use and readable by its owner alone.

    Args:
        path: The file.
    """

    algorithm: Final = "HMAC_SHA_256"

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    @property
    def key_id(self) -> str:
        """``file:`` and the start of the key's hash, which tells two keys apart and no more."""
        return f"file:{hashlib.sha256(self._key()).hexdigest()[:16]}"

    def sign(self, data: bytes) -> bytes:
        """See `Signer.sign`."""
        return hmac.digest(self._key(), data, "sha256")

    def _key(self) -> bytes:
        if not self._path.exists():
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # Two processes that begin at once agree on the file that was there first.
            with contextlib.suppress(FileExistsError):
                file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with os.fdopen(file, "w", encoding="ascii") as opened:
                    opened.write(secrets.token_hex(32))
        return bytes.fromhex(self._path.read_text(encoding="ascii").strip())
