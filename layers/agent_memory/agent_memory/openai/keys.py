"""Where the key of an OpenAI-compatible service comes from."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from agent_memory.errors import ConfigurationError

if TYPE_CHECKING:
    from agent_memory.settings import Settings

ApiKey = str | Callable[[], str | None] | None
"""A key, a function that gives one when it is needed, or None for a service that wants none."""


def key_of(settings: Settings) -> ApiKey:
    """The key that the settings name: a secret in the cloud, a plain value on a local machine.

    Raises ConfigurationError where a deployed function was given the key itself: values of a function's environment
    can be read by anyone who may describe the function.
    """
    if settings.openai_api_key_secret_arn:
        from agent_memory.aws.secrets import secret

        return secret(settings.openai_api_key_secret_arn)
    # Lambda sets this variable; a local server that runs the same handlers does not.
    if settings.openai_api_key and os.environ.get("AWS_EXECUTION_ENV", "").startswith("AWS_Lambda_"):
        raise ConfigurationError(
            "a deployed function takes its key from Secrets Manager: expected OPENAI_API_KEY_SECRET_ARN, "
            "found OPENAI_API_KEY",
            code="KEY_IN_ENVIRONMENT",
        )
    return settings.openai_api_key


def bearer(key: ApiKey) -> dict[str, str]:
    """The header that carries the key; empty without one."""
    value = key() if callable(key) else key
    if not value:
        return {}
    if not value.isascii() or not value.isprintable():
        raise ConfigurationError("the provider's key holds characters that a header cannot carry", code="KEY_INVALID")
    return {"authorization": f"Bearer {value}"}
