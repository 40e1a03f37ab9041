"""What a function writes to standard output on Lambda: log lines and metrics, read back."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import logging
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from aws_lambda_powertools.metrics.provider.cloudwatch_emf import cloudwatch

from agent_memory import observe

LIBRARIES = ("agent_memory", "streaming_runtime")


class OperatorLog:
    """Everything written so far."""

    def __init__(self, out: io.StringIO) -> None:
        self._out = out

    @property
    def text(self) -> str:
        return self._out.getvalue()

    @property
    def entries(self) -> list[dict[str, Any]]:
        """Every line, read as JSON: there is nothing else in the log."""
        return [json.loads(line) for line in self.text.splitlines()]

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Log lines."""
        return [entry for entry in self.entries if "_aws" not in entry]

    def of(self, message: str) -> list[dict[str, Any]]:
        """Log lines of one message."""
        return [line for line in self.lines if line["message"] == message]

    @property
    def metrics(self) -> dict[str, float]:
        """Sums of all metrics by name; namespace, dimensions and units are checked."""
        found: dict[str, float] = {}
        for entry in self.entries:
            for directive in entry.get("_aws", {}).get("CloudWatchMetrics", ()):
                assert directive["Namespace"] == observe.NAMESPACE
                assert directive["Dimensions"] == [["service"]]
                for metric in directive["Metrics"]:
                    assert metric["Unit"] == observe.METRICS[metric["Name"]]
                    found[metric["Name"]] = found.get(metric["Name"], 0.0) + sum(entry[metric["Name"]])
        return found

    def clear(self) -> None:
        self._out.seek(0)
        self._out.truncate()


@contextlib.contextmanager
def on_lambda(service: str = "chat") -> Iterator[OperatorLog]:
    """As if the code inside ran in a function on Lambda."""
    loggers = [logging.getLogger(name) for name in LIBRARIES]
    before = [(logger.handlers, logger.propagate, logger.level) for logger in loggers]
    out = io.StringIO()
    # pytest changes sys.stdout between a fixture and its test, so the two writers are led here one by one.
    with patch.object(cloudwatch, "print", functools.partial(print, file=out), create=True):
        try:
            observe.start(service)
            handler = loggers[0].handlers[0]
            assert isinstance(handler, logging.StreamHandler)
            handler.setStream(out)
            yield OperatorLog(out)
        finally:
            observe._service = None
            for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
                logger.handlers, logger.propagate = handlers, propagate
                logger.setLevel(level)
