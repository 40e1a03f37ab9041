"""What a turn, a list and a clone may cost: the figures of ``make bench`` that are counts, held here."""

from __future__ import annotations

import pytest

from tests.bench import __main__ as bench


@pytest.fixture(scope="module")
def figures():
    return bench.turn_figures(bench.Bench(), sizes=(20, 400))


@pytest.mark.parametrize(
    "name", ["dynamodb_requests_per_turn", "search_requests_per_turn", "hops_before_model", "hops_after_model"]
)
def test_a_turn_keeps_its_number_of_requests(figures, name):
    assert figures["recalled_hits"] == 4
    assert figures[name] <= bench.BUDGETS[name]


@pytest.mark.parametrize("kind", ["read", "write"])
def test_units_are_within_budget_and_do_not_grow_with_the_thread(figures, kind):
    short, long = figures[f"{kind}_units_at_20"], figures[f"{kind}_units_at_400"]
    assert short <= bench.BUDGETS[f"{kind}_units_at_20"]
    assert long == short


def test_a_turn_reads_few_bytes(figures):
    assert 0 < figures["bytes_read_per_turn"] <= bench.BUDGETS["bytes_read_per_turn"]


def test_a_clone_of_1000_messages_stays_within_its_requests():
    assert 0 < bench.clone_requests(bench.Bench()) <= bench.BUDGETS["clone_requests_1000"]


def test_the_chat_function_imports_little():
    assert bench.import_cpu_ratio() <= bench.BUDGETS["import_cpu_ratio"]
