"""Starts other functions asynchronously."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from agent_memory import observe
from agent_memory._json import dumps
from agent_memory.errors import ConfigurationError, TooLargeError, UnavailableError

MAX_EVENT_BYTES = 256 * 1024  # what Lambda took before October 2025 (1 MB since), and more than any event here needs


class LambdaDispatcher:
    """A Dispatcher over Lambda's asynchronous invocation.

    Args:
        functions: Function name or ARN by target.
        client: A boto3 Lambda client; made on first use.
    """

    def __init__(self, functions: Mapping[str, str | None], client: Any = None) -> None:
        self._functions = functions
        self._client = client

    def dispatch(self, target: Literal["titles", "janitor", "chat"], event: Mapping[str, Any]) -> None:
        """Hand over an event, with the sender's correlation id in it.

        Raises ConfigurationError for a target without a function, UnavailableError if refused.
        """
        name = self._functions.get(target)
        if not name:
            raise ConfigurationError(f"no function is set for {target}; set {target.upper()}_FUNCTION to its name")
        payload = dumps(observe.with_correlation(event)).encode()
        if len(payload) > MAX_EVENT_BYTES:
            raise TooLargeError(f"an asynchronous event holds at most {MAX_EVENT_BYTES} bytes; found {len(payload)}")
        from botocore.exceptions import BotoCoreError, ClientError

        if self._client is None:
            from agent_memory.aws.clients import client

            self._client = client("lambda")
        try:
            self._client.invoke(FunctionName=name, InvocationType="Event", Payload=payload)
        except (ClientError, BotoCoreError) as error:
            raise UnavailableError(f"the asynchronous call of {target} was refused: {type(error).__name__}") from error
