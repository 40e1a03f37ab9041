"""What a deployment costs, from the units of a measured turn and list prices: the tables of docs/costs.md.

``python -m tests.bench.costs`` measures a turn on the emulator and prints them; a test holds the page to what it prints.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from infra.local.template import Template
from tests.bench import __main__ as bench

PAGE = Path(__file__).resolve().parents[2] / "docs" / "costs.md"
BEGIN, END = "<!-- python -m tests.bench.costs -->\n", "<!-- end -->\n"
SIZE = 20  # messages in the thread; the units are the same at 5,000

# US dollars in us-east-1, without free tiers and discounts; docs/costs.md says when and where they were looked up.
WRITE_UNIT = 0.625 / 1e6
READ_UNIT = 0.125 / 1e6
STORED_GB = 0.25
BACKUP_GB = 0.20
LAMBDA_REQUEST = 0.20 / 1e6
LAMBDA_GB_SECOND = 0.0000133334  # arm64
API_REQUEST = 3.50 / 1e6
TRANSFER_GB = 0.09
LOG_GB = 0.50
METRIC = 0.30
ALARM = 0.10
DASHBOARD = 3.00
EMBEDDED_TOKEN = 0.02 / 1e6  # Titan Text Embeddings V2
SEARCH_HOUR = 0.036  # t3.small.search
SEARCH_GB = 0.122  # gp3
OCU_HOUR = 0.24
HOURS = 730

# What nobody can measure here, because it is the model's and the platform's time
CHAT_S = 5.0
CHAT_GB = 1.0
INDEXER_S = 0.3
INDEXER_GB = 0.5
INDEXER_READ_UNITS = 2.0  # the two rows are read again
LOG_BYTES = 4_000  # lines and metrics of chat and indexer, and Lambda's own
ANSWER_BYTES = 4_000
TEXT_TOKENS = 150  # of 600 characters
EMBEDDED_TEXTS = 3  # the question, and two messages when they are indexed
SWEEPS = 24 * 30 + 30  # scheduled calls of the janitor in a month
SWEEP_S = 2.0
SWEEP_GB = 1.0

# Metrics that have a value in every hour with traffic, by service
ACTIVE_METRICS: Mapping[str, tuple[str, ...]] = {
    "chat": (
        "Turns",
        "TurnTime",
        "TurnFailures",
        "InputTokens",
        "OutputTokens",
        "EmbeddingTokens",
        "StorageRequests",
        "ReadUnits",
        "WriteUnits",
        "RecallHits",
        "RecallFailures",
        "ColdStarts",
    ),
    "memory": ("ColdStarts",),
    "titles": ("InputTokens", "OutputTokens", "ColdStarts"),
    "indexer": ("IndexLag", "IndexedMessages", "EmbeddingTokens", "ColdStarts"),
    "janitor": ("ColdStarts",),
}


@dataclass(frozen=True)
class Line:
    """One line of a bill: how much of what, at which price."""

    what: str
    amount: str
    dollars: float


def turn(figures: Mapping[str, float]) -> list[Line]:
    """The bill of one turn with recall; the model is left out."""
    writes, reads = figures[f"write_units_at_{SIZE}"], figures[f"read_units_at_{SIZE}"]
    tokens = EMBEDDED_TEXTS * TEXT_TOKENS
    seconds = CHAT_S * CHAT_GB
    indexing = INDEXER_S * INDEXER_GB
    return [
        Line("DynamoDB writes", f"{writes:g} units", writes * WRITE_UNIT),
        Line("DynamoDB reads", f"{reads:g} units", reads * READ_UNIT),
        Line("API Gateway", "1 request", API_REQUEST),
        Line("Lambda, chat", f"1 request, {seconds:g} GB-seconds *", LAMBDA_REQUEST + seconds * LAMBDA_GB_SECOND),
        Line(
            "Lambda and reads, indexer",
            f"1 request, {indexing:g} GB-seconds *, {INDEXER_READ_UNITS:g} units",
            LAMBDA_REQUEST + indexing * LAMBDA_GB_SECOND + INDEXER_READ_UNITS * READ_UNIT,
        ),
        Line("Embedding", f"{tokens} tokens *", tokens * EMBEDDED_TOKEN),
        Line("Logs", f"{LOG_BYTES / 1000:g} KB *", LOG_BYTES / 1e9 * LOG_GB),
        Line("Data out", f"{ANSWER_BYTES / 1000:g} KB *", ANSWER_BYTES / 1e9 * TRANSFER_GB),
    ]


def idle() -> list[Line]:
    """The bill of a month in which nobody calls, with default parameters."""
    alarms = len(Template().of_type("AWS::CloudWatch::Alarm"))
    sweeping = SWEEPS * SWEEP_S * SWEEP_GB
    return [
        Line("Alarms", f"{alarms}", alarms * ALARM),
        Line("Dashboard", "1", DASHBOARD),
        Line(
            "Janitor's schedule",
            f"{SWEEPS} requests, {sweeping:g} GB-seconds *",
            SWEEPS * LAMBDA_REQUEST + sweeping * LAMBDA_GB_SECOND,
        ),
    ]


def months(figures: Mapping[str, float]) -> list[tuple[int, float, float, float]]:
    """Turns a month, and what they, the metrics, and all of it with the idle cost come to."""
    each, standing = total(turn(figures)), total(idle())
    metrics = sum(map(len, ACTIVE_METRICS.values())) * METRIC
    return [(turns, turns * each, metrics, turns * each + metrics + standing) for turns in (3_000, 300_000, 3_000_000)]


def total(lines: list[Line]) -> float:
    """The sum of a bill."""
    return sum(line.dollars for line in lines)


def page(figures: Mapping[str, float]) -> str:
    """The tables in Markdown."""
    bill, standing = turn(figures), idle()
    ocu = OCU_HOUR * HOURS
    rows = [
        "| one turn | amount | US$ for 1,000 |",
        "|---|---|---|",
        *(f"| {line.what} | {line.amount} | {line.dollars * 1000:.4f} |" for line in bill),
        f"| **all, without the model** | | **{total(bill) * 1000:.4f}** |",
        "",
        "| a month without a call | amount | US$ |",
        "|---|---|---|",
        *(f"| {line.what} | {line.amount} | {line.dollars:.2f} |" for line in standing),
        f"| **all** | | **{total(standing):.2f}** |",
        "",
        "| turns a month | turns, US$ | metrics, US$ | with the idle cost, US$ |",
        "|---|---|---|---|",
        *(
            f"| {turns:,} | {used:,.2f} | {metrics:.2f} | {all_of_it:,.2f} |"
            for turns, used, metrics, all_of_it in months(figures)
        ),
        "",
        "| added to a month by | US$ |",
        "|---|---|",
        f"| 1 GB in tables, with its continuous backup | {STORED_GB + BACKUP_GB:.2f} |",
        f"| `Search: domain`, one t3.small.search with 10 GB | {SEARCH_HOUR * HOURS + 10 * SEARCH_GB:.2f} |",
        f"| `Search: serverless`, half an OCU each for indexing and search | {ocu:.2f} |",
        f"| the same with `SearchStandby` | {2 * ocu:.2f} |",
        "",
    ]
    return "\n".join(rows)


def measured() -> dict[str, float]:
    """The units of a turn, from the emulator."""
    return bench.turn_figures(bench.Bench(), sizes=(SIZE,))


if __name__ == "__main__":
    print(page(measured()))
