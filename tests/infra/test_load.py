"""A short run of the load driver, and what its look into the table finds."""

from __future__ import annotations

import pytest

from tests.bench import load
from tests.bench.load import Turn


@pytest.mark.timeout(180)
def test_chats_side_by_side_lose_and_double_nothing():
    """Six chats for a few seconds, two of them on one thread, some messages sent twice, against the real server."""
    figures = load.run(4, 6)

    assert figures["problems"] == []
    assert figures["statuses"].keys() == {"200"}
    assert figures["turns"] >= 6


def row(number, message_id, role, text, created=None):
    return {
        "sk": {"N": str(number)},
        "mid": {"S": message_id},
        "role": {"S": role},
        "created": {"N": str(created or number)},
        "content": {"S": text},
    }


TURNS = [Turn("o", "t", "c", number) for number in (1, 2)]
GOOD = [
    row(1, "c-1", "user", TURNS[0].text),
    row(2, "a-1", "assistant", f"You said: {TURNS[0].text}"),
    row(3, "c-2", "user", TURNS[1].text),
    row(4, "a-2", "assistant", f"You said: {TURNS[1].text}"),
]


def test_a_good_thread_has_nothing_wrong():
    assert load.check_thread("k", TURNS, GOOD) == []


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (GOOD[:2], "c-2 is there 0 times"),
        (GOOD[:3], "c-2 at 2 has answers at []"),
        ([*GOOD, row(5, "a-3", "assistant", f"You said: {TURNS[1].text}")], "has answers at [3, 4]"),
        ([*GOOD, row(5, "c-2", "user", TURNS[1].text)], "c-2 is there 2 times"),
        ([GOOD[2], GOOD[3], GOOD[0], GOOD[1]], "out of order"),
        ([GOOD[0], GOOD[3], GOOD[2], GOOD[1]], "has answers at"),
        ([*GOOD[:3], row(4, "a-2", "assistant", f"You said: {TURNS[1].text}", created=1)], "dates go back"),
        ([GOOD[0], GOOD[2], GOOD[1], GOOD[3]], "do not take turns"),
    ],
)
def test_what_is_lost_doubled_or_exchanged_is_named(rows, words):
    assert any(words in problem for problem in load.check_thread("k", TURNS, rows))


def test_a_log_is_searched_for_errors_with_their_tracebacks():
    said = ["INFO x: fine\n", "ERROR y: bad\n", "Traceback (most recent call last):\n", "  File z\n", "KeyError: 1\n"]
    assert load.complaints([*said, "INFO x: fine\n"]) == ["the server said: " + "".join(said[1:]).strip()]


def test_some_threads_have_two_writers_and_owners_several_threads():
    made = load.chats(10)
    assert len({thread for _, thread, _ in made}) == 8
    assert {owner for owner, _, _ in made} == {"owner-0", "owner-1"}
    assert all(owner == "owner-0" for owner, thread, _ in made if thread == "thread-3")
