"""What API Gateway does with an authorizer: asks it for a token's policy, keeps the answer for a while, and obeys it."""

from __future__ import annotations

import fnmatch
import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from infra.local.gateway import ACCOUNT, API, STAGE, Match
from infra.local.template import AuthorizerSpec

MAX_KEPT: Final = 1_000

_log = logging.getLogger("infra.local")


class Refused(Exception):
    """The call goes no further; `status` and `error` are the gateway's answer."""

    def __init__(self, status: int, error: str) -> None:
        super().__init__(error)
        self.status = status
        self.error = error


class Authorizers:
    """Asks the authorizers of routes.

    Args:
        invoke: Calls a function by name with an event.
        clock: Seconds that never go back.
    """

    def __init__(self, invoke: Callable[[str, Any], Any], clock: Callable[[], float] = time.monotonic) -> None:
        self._invoke = invoke
        self._clock = clock
        self._kept: dict[tuple[str, str], tuple[float, Mapping[str, Any]]] = {}
        self._lock = threading.Lock()

    def context(self, spec: AuthorizerSpec, match: Match, path: str, header: str | None) -> dict[str, str]:
        """What the authorizer says about the caller, as text like the gateway's. Raises Refused."""
        if header is None or re.search(spec.expected, header) is None:
            raise Refused(401, "Unauthorized")
        arn = f"arn:aws:execute-api:us-east-1:{ACCOUNT}:{API}/{STAGE}/{match.route.method}{path}"
        answer = self._answer(spec, header, arn)
        statements = answer["policyDocument"]["Statement"]
        if not any(one["Effect"] == "Allow" and fnmatch.fnmatchcase(arn, one["Resource"]) for one in statements):
            raise Refused(403, "User is not authorized to access this resource")
        context = {"principalId": answer["principalId"], **answer.get("context", {})}
        return {name: _text(value) for name, value in context.items()}

    def _answer(self, spec: AuthorizerSpec, header: str, arn: str) -> Mapping[str, Any]:
        now, key = self._clock(), (spec.function, header)
        with self._lock:
            until, answer = self._kept.get(key, (now, None))
        if answer is not None and now < until:
            return answer
        event = {"type": "TOKEN", "authorizationToken": header, "methodArn": arn}
        try:
            found: Mapping[str, Any] = self._invoke(spec.function, event)
        except Exception as error:
            if str(error) == "Unauthorized":
                raise Refused(401, "Unauthorized") from None
            _log.exception("%s failed", spec.function)
            raise Refused(500, "Internal server error") from None
        with self._lock:
            if len(self._kept) >= MAX_KEPT:
                self._kept.clear()
            self._kept[key] = (now + spec.keeps_s, found)
        return found


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
