"""Secrets from Secrets Manager, read when first needed and kept for a while."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from agent_memory._json import loads
from agent_memory.errors import ConfigurationError, UnavailableError

if TYPE_CHECKING:
    from mypy_boto3_secretsmanager import SecretsManagerClient

KEEP_S: Final = 300.0  # a rotated key is taken up within five minutes
_TIMEOUT_S: Final = 5.0


@functools.cache
def _client(region: str | None) -> SecretsManagerClient:
    import boto3
    from botocore.config import Config

    config = Config(connect_timeout=_TIMEOUT_S, read_timeout=_TIMEOUT_S, retries={"mode": "standard"})
    return boto3.client("secretsmanager", region_name=region, config=config)


class Secret:
    """A secret text. Call it for its value; the value shows in no repr and no error.

    Args:
        arn: ARN or name of the secret. ``<arn>#<field>`` takes one field of a secret that is a JSON object.
        client: A client to use instead of the process's own.
        clock: Seconds, for tests.
    """

    def __init__(
        self,
        arn: str,
        *,
        client: SecretsManagerClient | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._arn, _, self._field = arn.partition("#")
        self._given = client
        self._clock = clock
        self._lock = threading.Lock()
        self._value: str | None = None
        self._until = 0.0

    def __call__(self) -> str:
        """The value. One request at first and after each five minutes.

        Raises ConfigurationError where it cannot be read (no such secret, no permission, no such field), and
        UnavailableError where Secrets Manager gives no answer and no earlier value is known.
        """
        with self._lock:
            if self._value is None or self._clock() >= self._until:
                self._value = self._read()
                self._until = self._clock() + KEEP_S
            return self._value

    def __repr__(self) -> str:
        return f"Secret({self._arn!r})"

    def _read(self) -> str:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            text = self._secrets().get_secret_value(SecretId=self._arn)["SecretString"]
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) >= 500:
                return self._known_or(error)
            raise ConfigurationError(
                f"the secret {self._arn} cannot be read ({code}); check its ARN and that the function's role may read it",
                code="SECRET_UNREADABLE",
            ) from error
        except BotoCoreError as error:
            return self._known_or(error)
        except KeyError:
            raise ConfigurationError(
                f"the secret {self._arn} is binary; expected text", code="SECRET_UNREADABLE"
            ) from None
        return self._picked(text.strip())

    def _secrets(self) -> SecretsManagerClient:
        # An ARN names its region; the function may run in another one.
        parts = self._arn.split(":")
        return self._given or _client(parts[3] if len(parts) > 3 and parts[3] else None)

    def _known_or(self, error: Exception) -> str:
        if self._value is not None:
            return self._value
        raise UnavailableError(f"the secret {self._arn} could not be read: {type(error).__name__}") from error

    def _picked(self, text: str) -> str:
        if not self._field:
            return text
        try:
            value = loads(text)[self._field]
        except (ValueError, KeyError, TypeError):
            value = None
        if not isinstance(value, str) or not value:
            raise ConfigurationError(
                f"the secret {self._arn} has no text field {self._field!r}", code="SECRET_UNREADABLE"
            ) from None
        return value


@functools.cache
def secret(arn: str) -> Secret:
    """The process's one Secret of an ARN."""
    return Secret(arn)
