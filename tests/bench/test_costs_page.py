"""docs/costs.md says what the units of a turn come to."""

from __future__ import annotations

import re

import pytest

from agent_memory import observe
from infra.local.template import Template
from tests.bench import costs


@pytest.fixture(scope="module")
def figures():
    return costs.measured()


def test_the_page_holds_what_is_printed(figures):
    text = costs.PAGE.read_text(encoding="utf-8")
    shown = text.split(costs.BEGIN)[1].split(costs.END)[0]
    assert shown.strip() == costs.page(figures).strip(), "run python -m tests.bench.costs and put it into docs/costs.md"


def test_the_page_names_the_prices_it_computes_with():
    table = costs.PAGE.read_text(encoding="utf-8").split("| what | price |")[1].split("\n\n")[0]
    named = {float(number) for number in re.findall(r"\d+\.\d+", table)}
    per_million = (costs.WRITE_UNIT, costs.READ_UNIT, costs.LAMBDA_REQUEST, costs.API_REQUEST, costs.EMBEDDED_TOKEN)
    others = (
        costs.STORED_GB,
        costs.BACKUP_GB,
        costs.LAMBDA_GB_SECOND,
        costs.TRANSFER_GB,
        costs.LOG_GB,
        costs.METRIC,
        costs.ALARM,
        costs.DASHBOARD,
        costs.SEARCH_HOUR,
        costs.SEARCH_GB,
        costs.OCU_HOUR,
    )
    assert named == {round(price * 1e6, 6) for price in per_million} | set(others)


def test_a_bill_is_the_sum_of_its_lines(figures):
    bill = costs.turn(figures)
    assert costs.total(bill) == pytest.approx(sum(line.dollars for line in bill))
    assert all(line.dollars > 0 for line in (*bill, *costs.idle()))
    for turns, used, metrics, everything in costs.months(figures):
        assert used == pytest.approx(turns * costs.total(bill))
        assert everything == pytest.approx(used + metrics + costs.total(costs.idle()))


def test_metrics_that_are_paid_for_are_those_that_are_emitted():
    for names in costs.ACTIVE_METRICS.values():
        assert set(names) <= observe.METRICS.keys()
    services = {name.removesuffix("Function").lower() for name in Template().functions()}
    assert costs.ACTIVE_METRICS.keys() == services


def test_the_chat_functions_share_of_memory_is_the_templates_default():
    functions = Template().functions()
    assert functions["ChatFunction"].memory_mb == costs.CHAT_GB * 1024
    assert functions["IndexerFunction"].memory_mb == costs.INDEXER_GB * 1024
    assert functions["JanitorFunction"].memory_mb == costs.SWEEP_GB * 1024
