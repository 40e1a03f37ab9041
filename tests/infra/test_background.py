"""Asynchronous invokes by Lambda's rules."""

from __future__ import annotations

import json
import threading

import pytest

from agent_memory.errors import ConfigurationError, TooLargeError
from infra.local.background import Background, DeadLetters


class Function:
    """Fails as often as it is told to and keeps what it was called with."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.calls: list[tuple[str, object]] = []

    def __call__(self, name, event):
        self.calls.append((name, event))
        if len(self.calls) <= self.failures:
            raise ValueError("not yet")


def make(function, **options):
    dead = DeadLetters(options.pop("dead_file", None))
    return Background({"titles": "TitlesFunction"}, function, dead, delays_s=(0.01, 0.01), **options), dead


def test_an_event_is_delivered_as_json():
    function = Function()
    background, _ = make(function)
    background.dispatch("titles", {"threadId": "ø", "n": (1, 2)})

    assert background.wait_idle()
    background.stop()
    assert function.calls == [("TitlesFunction", {"threadId": "ø", "n": [1, 2]})]


def test_a_failing_event_is_tried_three_times_and_then_lies_with_the_dead_letters(tmp_path):
    function = Function(failures=99)
    background, _ = make(function, dead_file=tmp_path / "dead.jsonl")
    background.dispatch("titles", {"threadId": "t"})

    assert background.wait_idle()
    background.stop()
    assert len(function.calls) == 3
    (line,) = (tmp_path / "dead.jsonl").read_text().splitlines()
    letter = json.loads(line)
    assert (letter["function"], letter["tries"], letter["errorType"]) == ("TitlesFunction", 3, "ValueError")
    assert letter["payload"] == {"threadId": "t"}


def test_an_event_that_succeeds_at_last_is_no_dead_letter():
    function = Function(failures=2)
    background, dead = make(function)
    background.dispatch("titles", {})

    assert background.wait_idle()
    background.stop()
    assert len(function.calls) == 3
    assert dead.written == []


def test_events_that_were_not_done_come_again_after_a_restart(tmp_path):
    pending = tmp_path / "pending.jsonl"
    started, release = threading.Event(), threading.Event()

    def blocked(_name, _event):
        started.set()
        release.wait()

    background, _ = make(blocked, pending=pending, workers=1)
    for number in range(3):
        background.dispatch("titles", {"number": number})
    assert started.wait(60)
    background.stop(wait_s=0.05)
    again = Function()
    after, _ = make(again, pending=pending, workers=1)

    assert after.wait_idle()
    after.stop()
    release.set()
    assert [event["number"] for _, event in again.calls] == [0, 1, 2]
    assert not pending.exists()


def test_unknown_targets_and_oversized_events_are_refused_at_once():
    background, _ = make(Function())

    with pytest.raises(ConfigurationError, match="JANITOR_FUNCTION"):
        background.dispatch("janitor", {})
    with pytest.raises(TooLargeError):
        background.dispatch("titles", {"text": "x" * 300_000})
    background.stop()
