"""Clients: made once, on first use, with timeouts of their own."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from agent_memory.aws import clients
from tests.support.emulator import shared_emulator


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in shared_emulator().environment().items():
        monkeypatch.setenv(name, value)
    clients.reset()
    yield
    clients.reset()


def test_one_client_is_made_for_all_who_ask_at_once() -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(clients.client, ["dynamodb"] * 8))
    assert len({id(each) for each in found}) == 1


def test_the_environment_says_where_a_service_is_case_102(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    assert clients.client("dynamodb").meta.endpoint_url == shared_emulator().endpoint
    assert clients.client("s3").meta.endpoint_url == "http://127.0.0.1:9"


@pytest.mark.parametrize(("service", "attempts"), [("dynamodb", 1), ("s3", 4), ("lambda", 3), ("sts", 3)])
def test_timeouts_and_attempts_are_explicit(service: str, attempts: int) -> None:
    config = clients.client(service).meta.config
    assert config.connect_timeout == 2
    assert config.read_timeout <= 20
    assert config.retries["total_max_attempts"] == attempts


def test_the_meter_of_the_process_counts_its_clients() -> None:
    with clients.meter.measure() as cost:
        clients.client("dynamodb").list_tables()
        clients.client("s3").list_buckets()
    assert (cost.requests, cost.s3_requests) == (1, 1)
