"""Faults between a client and its service, put in by botocore's own event hooks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from botocore.awsrequest import AWSResponse
from botocore.exceptions import ReadTimeoutError


@dataclass
class _Rule:
    operation: str
    left: float
    answer: Callable[[Any], Any]
    after: bool = False


class Faults:
    """Makes requests of one client fail, and records what was sent."""

    def __init__(self, client: Any) -> None:
        self._rules: list[_Rule] = []
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self._quiet = False
        events = client.meta.events
        service = client.meta.service_model.service_id.hyphenize()
        events.register_first(f"provide-client-params.{service}.*", self._record)
        events.register_first(f"before-call.{service}.*", self._before)
        events.register_first(f"after-call.{service}.*", self._after)

    def throttle(self, operation: str, times: float = float("inf")) -> None:
        """Refuse an operation as the service does when it is busy."""
        self.refuse(operation, "ProvisionedThroughputExceededException", times)

    def refuse(self, operation: str, code: str, times: float = float("inf"), *, status: int = 400, **body: Any) -> None:
        """Answer an operation with an error code."""
        response = {"Error": {"Code": code, "Message": code}, "ResponseMetadata": {"HTTPStatusCode": status}, **body}
        self._rules.append(_Rule(operation, times, lambda _: (AWSResponse("", status, {}, None), response)))

    def conflict(self, times: float = float("inf")) -> None:
        """Cancel transactions because another one holds an item of theirs."""
        self.refuse(
            "TransactWriteItems",
            "TransactionCanceledException",
            times,
            CancellationReasons=[{"Code": "TransactionConflict"}],
        )

    def answer(self, operation: str, body: dict[str, Any], times: float = 1) -> None:
        """Answer an operation without asking the service."""
        response = {**body, "ResponseMetadata": {"HTTPStatusCode": 200}}
        self._rules.append(_Rule(operation, times, lambda _: (AWSResponse("", 200, {}, None), response)))

    def lose_answer(self, operation: str, times: float = 1) -> None:
        """Let an operation succeed and its answer be lost."""

        def lost(_: Any) -> None:
            raise ReadTimeoutError(endpoint_url="http://lost")

        self._rules.append(_Rule(operation, times, lost, after=True))

    def before(self, operation: str, action: Callable[[], Any], times: float = 1) -> None:
        """Do something of another writer's just before an operation is sent."""

        def act(_: Any) -> None:
            self._quiet = True
            try:
                action()
            finally:
                self._quiet = False

        self._rules.append(_Rule(operation, times, act))

    def clear(self) -> None:
        """No more faults, and nothing recorded."""
        self._rules.clear()
        self.sent.clear()

    def operations(self) -> list[str]:
        """Names of the operations that were sent."""
        return [name for name, _ in self.sent]

    def _record(self, params: dict[str, Any], model: Any, **_: Any) -> None:
        if not self._quiet:
            self.sent.append((model.name, params))

    def _before(self, model: Any, params: Any, **_: Any) -> Any:
        return self._apply(model, params, after=False)

    def _after(self, model: Any, parsed: Any, **_: Any) -> None:
        if "Error" not in parsed:
            self._apply(model, parsed, after=True)

    def _apply(self, model: Any, data: Any, *, after: bool) -> Any:
        if self._quiet:
            return None
        for rule in self._rules:
            if rule.operation == model.name and rule.left > 0 and rule.after == after:
                rule.left -= 1
                return rule.answer(data)
        return None
