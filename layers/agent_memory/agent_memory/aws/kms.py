"""Signatures by an asymmetric key in KMS, which never leaves it: whoever has its public half can verify them."""

from __future__ import annotations

from typing import Any, Final

from botocore.exceptions import ClientError, ConnectionError, HTTPClientError

from agent_memory.errors import StorageError, UnavailableError

_BUSY: Final = frozenset({"DependencyTimeoutException", "KeyUnavailableException", "KMSInternalException"})


class KmsSigner:
    """A `Signer` with a key of the spec ``ECC_NIST_P256``.

    Args:
        client: A boto3 ``kms`` client.
        key_arn: ARN of the key.
    """

    algorithm: Final = "ECDSA_SHA_256"

    def __init__(self, client: Any, key_arn: str) -> None:
        self._client = client
        self.key_id: Final = key_arn

    def sign(self, data: bytes) -> bytes:
        """See `Signer.sign`. One request, which takes up to 4,096 bytes; a receipt has about 2,000."""
        try:
            answer = self._client.sign(
                KeyId=self.key_id,
                Message=data,
                MessageType="RAW",
                SigningAlgorithm=self.algorithm,
            )
        except ClientError as error:
            response: Any = error.response
            code = response.get("Error", {}).get("Code", "")
            if code in _BUSY or response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) >= 500:
                raise UnavailableError("sign: expected KMS to answer, found it busy; call again later") from error
            raise StorageError(
                f"sign: expected success, found {code}; check the key's spec (ECC_NIST_P256), its state and its policy"
            ) from error
        except (ConnectionError, HTTPClientError) as error:
            raise UnavailableError("sign: expected KMS to answer, found no answer; call again later") from error
        signature: bytes = answer["Signature"]
        return signature
