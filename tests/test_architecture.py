"""docs/architecture.md names what there is."""

from __future__ import annotations

import re

import pytest

from agent_memory.jobs.kinds import KINDS
from infra.local.template import ROOT, TEMPLATE, load

TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
RESOURCES = load(TEMPLATE)["Resources"]
LIBRARY = ROOT / "layers" / "agent_memory" / "agent_memory"


@pytest.mark.parametrize("folder", sorted(path.name for path in (ROOT / "functions").iterdir() if path.is_dir()))
def test_every_function_is_in_the_diagram(folder):
    assert f'["functions/{folder}"]' in TEXT


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_of_job_is_explained(kind):
    assert re.search(rf"^\|.*`{kind}`.*\|.+\|$", TEXT, re.MULTILINE)


def test_no_job_is_explained_that_is_not_there():
    section = TEXT.split("## Jobs")[1].split("## ")[0]
    told = {
        name for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE) for name in re.findall(r"`([\w-]+)`", row)
    }
    assert told == KINDS.keys()


def test_every_table_is_in_the_data_model():
    tables = {
        name.removesuffix("Table") for name, value in RESOURCES.items() if value["Type"] == "AWS::DynamoDB::Table"
    }
    assert tables
    for table in tables:
        assert re.search(rf"^\| {table} \|", TEXT, re.MULTILINE), table


def test_every_part_of_the_library_is_placed():
    parts = {path.name for path in LIBRARY.iterdir() if path.is_dir() and not path.name.startswith("_")}
    assert {part for part in parts if not re.search(rf"\b{part}\b", TEXT)} == set()
