"""Keys: reversible, apart for different ids, within DynamoDB's limits."""

from __future__ import annotations

import itertools
import random

import pytest

from agent_memory import clock
from agent_memory.aws.dynamodb import keys

IDS = (
    "a",
    "#",
    "~",
    "~h",
    "~=",
    "~-",
    "a#b",
    "a~hb",
    "*?$",
    "{x}",
    "🙂",
    "#" * 512,
    "~" * 512,
    "x" * 512,
    "é" * 256,
    "🙂" * 128,
)


def test_every_id_comes_back_and_no_two_share_a_key() -> None:
    seen: dict[str, str] = {}
    rng = random.Random(1)
    more = ["".join(rng.choices("~#h=-ab*", k=rng.randint(1, 6))) for _ in range(3_000)]
    for id in {*IDS, *more}:
        escaped = keys.escape(id)
        assert keys.unescape(escaped) == id
        assert not set(escaped) & set("#*?${}")
        assert seen.setdefault(escaped, id) == id


def test_keys_stay_within_the_service_limits() -> None:
    for resource, thread in itertools.product(IDS, IDS):
        assert len(keys.messages_pk(resource, thread).encode()) <= 1_024
        assert len(keys.owner_pk(resource).encode()) <= 2_048
        for key in (keys.thread_sk(thread), keys.memory_sk(thread), keys.memory_version_sk(thread, 10**9)):
            assert len(key.encode()) <= 1_024


def test_a_message_partition_names_its_owner_and_thread() -> None:
    for resource, thread in itertools.product(IDS, IDS):
        pk = keys.messages_pk(resource, thread)
        assert pk.startswith(keys.messages_prefix(resource))
        assert keys.owner_and_thread(pk, **keys.long_ids(resource, thread)) == (resource, thread)
    assert len({keys.messages_pk(a, b) for a, b in itertools.product(IDS, IDS)}) == len(IDS) ** 2


@pytest.mark.parametrize(
    "date", ["0001-01-01", "1969-12-31T23:59:59.999", "1970-01-01", "2026-03-04T05:06:07.089", "9999-12-31"]
)
def test_dates_come_back_and_sort_as_text(date: str) -> None:
    value = clock.parse(date)
    assert keys.date_of(keys.date_key(value)) == value
    assert len(keys.date_key(value)) == 15
    dates = [clock.parse(text) for text in ("0001-01-01", "1969-12-31", "1970-01-02", "2026-01-01", "9999-01-01")]
    assert sorted(dates) == sorted(dates, key=keys.date_key)
