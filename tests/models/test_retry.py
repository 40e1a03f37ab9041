import time

import pytest

from agent_memory.errors import ModelError
from agent_memory.models.retry import FIRST_DELAY_S, MAX_DELAY_S, TryAgain, with_retries

BUSY = ModelError("busy", retryable=True)


class Attempts:
    """Fails as often as it is told, then gives its pieces."""

    def __init__(self, *failures, pieces=("a", "b")):
        self.failures = list(failures)
        self.pieces = pieces
        self.made = 0
        self.waits = []

    def __call__(self):
        self.made += 1
        if self.failures:
            raise self.failures.pop(0)
        yield from self.pieces

    def run(self, **fields):
        return list(with_retries(self, sleep=self.waits.append, **fields))


def test_a_first_success_waits_for_nothing():
    attempts = Attempts()
    assert attempts.run() == ["a", "b"]
    assert attempts.waits == []


def test_waits_are_random_within_a_bound_that_doubles():
    seen = []
    for _ in range(200):
        attempts = Attempts(*[TryAgain(BUSY)] * 3)
        assert attempts.run() == ["a", "b"]
        seen.append(attempts.waits)
    for place in range(3):
        waits = [found[place] for found in seen]
        bound = FIRST_DELAY_S * 2**place
        assert all(0 <= wait <= bound for wait in waits)
        assert max(waits) > bound * 0.8
        assert min(waits) < bound * 0.2


def test_the_providers_own_wait_is_kept():
    attempts = Attempts(TryAgain(BUSY, 3.0))
    attempts.run()
    assert attempts.waits == [3.0]


def test_a_wait_longer_than_ours_is_not_waited_for():
    attempts = Attempts(TryAgain(BUSY, MAX_DELAY_S + 1))
    with pytest.raises(ModelError):
        attempts.run()
    assert attempts.waits == []


def test_the_last_failure_is_told():
    attempts = Attempts(*[TryAgain(BUSY)] * 4)
    with pytest.raises(ModelError, match="busy"):
        attempts.run()
    assert attempts.made == 4


def test_other_errors_are_told_at_once():
    attempts = Attempts(ModelError("no"))
    with pytest.raises(ModelError, match="no"):
        attempts.run()
    assert attempts.made == 1


def test_nothing_is_tried_again_once_a_piece_has_arrived():
    made = []

    def attempt():
        made.append(1)
        yield "a"
        raise TryAgain(BUSY)

    got = []
    with pytest.raises(ModelError, match="busy"):
        got.extend(piece for piece in with_retries(attempt, sleep=made.append) if got.append(piece))
    assert got == ["a"]
    assert made == [1]


def test_no_wait_passes_the_deadline():
    attempts = Attempts(TryAgain(BUSY, 2.0))
    with pytest.raises(ModelError):
        attempts.run(deadline=time.monotonic() + 1)
    assert attempts.made == 1


def test_no_try_is_made_for_a_caller_who_left():
    attempts = Attempts(TryAgain(BUSY))
    with pytest.raises(ModelError):
        attempts.run(stopped=lambda: True)
    assert attempts.made == 1
