"""The threat model names checks and tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "docs" / "threat-model.md").read_text()
MODULES = ROOT / "layers" / "agent_memory" / "agent_memory"


def test_every_module_and_test_that_is_named_exists():
    named = set(re.findall(r"`([\w/.]+\.py)", TEXT))
    missing = {name for name in named if not (MODULES / name).exists() and not (ROOT / "tests" / name).exists()}

    assert len(named) > 30
    assert missing == set()


def test_every_threat_has_a_check_and_a_test():
    table = TEXT.split("## Threats")[1].split("\n## ")[0]
    rows = [line.strip("|").split(" | ") for line in table.splitlines() if line.startswith("| ")][1:]

    assert len(rows) > 15
    for row in rows:
        assert len(row) == 3, row
        assert re.search(r"`[\w/]*test_\w+\.py", row[2]), row
