"""An OIDC issuer for the local stack: a key of its own, the two documents that name it, and tokens.

Whoever can read the key can sign in as anybody, so the key stays in the data folder of the stack and serves it alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

ALGORITHM: Final = "ES256"
AUDIENCE: Final = "agent-memory-local"
ADMIN_CLAIM: Final = "admin"
PATH: Final = "/issuer"  # on the stack's own address
KEY_FILE: Final = "issuer-key.pem"
HOURS: Final = 12.0


class Issuer:
    """Signs tokens for one stack.

    Args:
        address: The stack's address; its port is part of the issuer's name.
        folder: Where the key is kept, made on first use; None keeps it in memory.
    """

    def __init__(self, address: str, folder: Path | None = None) -> None:
        self.name = address.rstrip("/") + PATH
        self._key = _new_key() if folder is None else _kept_key(folder / KEY_FILE)

    def token(self, resource: str, *, admin: bool = False, hours: float = HOURS) -> str:
        """A token for a resource, or for an admin of that name."""
        import jwt

        now = int(time.time())
        claims: dict[str, Any] = {"iss": self.name, "aud": AUDIENCE, "sub": resource, "iat": now}
        claims["exp"] = now + int(hours * 3600)
        if admin:
            claims[ADMIN_CLAIM] = True
        return jwt.encode(claims, self._key, ALGORITHM, headers={"kid": self._key_id()})

    def page(self, path: str) -> tuple[str, bytes] | None:
        """Content type and bytes of the documents that an issuer serves."""
        documents = {
            f"{PATH}/.well-known/openid-configuration": {"issuer": self.name, "jwks_uri": f"{self.name}/keys"},
            f"{PATH}/keys": {"keys": [self._jwk()]},
        }
        found = documents.get(path)
        return None if found is None else ("application/json", json.dumps(found).encode())

    def _jwk(self) -> dict[str, Any]:
        from jwt.algorithms import ECAlgorithm

        jwk: dict[str, Any] = ECAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        return {**jwk, "use": "sig", "alg": ALGORITHM, "kid": self._key_id()}

    def _key_id(self) -> str:
        return f"{self._key.public_key().public_numbers().x:064x}"[:16]


def _new_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _kept_key(file: Path) -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        text = _new_key().private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        with contextlib.suppress(FileExistsError):  # the stack or the token command has just made it
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as opened:
                opened.write(text)
    key = serialization.load_pem_private_key(file.read_bytes(), password=None)
    if not isinstance(key, EllipticCurvePrivateKey):
        raise ValueError(
            f"expected a key for {ALGORITHM} in {file}, found another kind; remove the file to make a new one"
        )
    return key
