"""Answers CloudFormation for a resource of our own: the search index of a stack."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from agent_memory._json import dumps
from agent_memory.errors import AgentMemoryError, ConfigurationError

RESOURCE_ID: Final = "search-index"  # never another one: CloudFormation deletes what an update replaces
WAIT_S: Final = 10.0  # between tries; a data access policy that was just made takes about a minute to work
ANSWER_S: Final = 20.0  # of the function's time, kept for the answer: without one the stack waits for an hour
_REASON_CHARS: Final = 1_000  # an answer holds at most 4 KB

_log = logging.getLogger("agent_memory.search")


def is_request(event: Any) -> bool:
    """Whether an event is a request of CloudFormation."""
    return isinstance(event, Mapping) and "RequestType" in event and "ResponseURL" in event


def answer(
    event: Mapping[str, Any],
    context: Any,
    make: Callable[[], str],
    *,
    sleep: Callable[[float], None] = time.sleep,
    send: Callable[[str, bytes], None] | None = None,
) -> dict[str, Any]:
    """Make the index for a create or an update, and tell CloudFormation how that went.

    A delete leaves the index as it is: it goes with its domain, and one that was there before the stack outlives it.

    Args:
        event: The request.
        context: Lambda's.
        make: Makes the index if needed and returns its name; called again while the search service is not ready.
        sleep: Waits between the tries, in seconds.
        send: Puts an answer to an address.

    Returns:
        What was answered.
    """
    told: dict[str, Any] = {
        "Status": "SUCCESS",
        "PhysicalResourceId": RESOURCE_ID,
        "StackId": event["StackId"],
        "RequestId": event["RequestId"],
        "LogicalResourceId": event["LogicalResourceId"],
    }
    if event["RequestType"] != "Delete":
        try:
            told["Data"] = {"Index": _made(context, make, sleep)}
        except Exception as error:
            _log.exception("the search index could not be made")
            reason = error.message if isinstance(error, AgentMemoryError) else type(error).__name__
            told |= {"Status": "FAILED", "Reason": reason[:_REASON_CHARS]}
    (send or _put)(event["ResponseURL"], dumps(told).encode())
    return told


def _made(context: Any, make: Callable[[], str], sleep: Callable[[float], None]) -> str:
    while True:
        try:
            return make()
        except ConfigurationError:
            raise
        except AgentMemoryError:
            if context.get_remaining_time_in_millis() / 1000 < ANSWER_S + WAIT_S:
                raise
        sleep(WAIT_S)


def _put(address: str, body: bytes) -> None:
    import urllib3

    # Signed without a content type, so none may be sent.
    response = urllib3.request("PUT", address, body=body, headers={"content-type": ""}, timeout=10.0)
    if response.status >= 300:
        raise ConfigurationError(f"expected CloudFormation to take the answer, found status {response.status}")
