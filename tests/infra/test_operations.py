"""Alarms, dashboard and runbook belong together, and all of them to what the code emits."""

from __future__ import annotations

import json
import re

import pytest

from agent_memory import observe
from infra.local.template import ROOT, Template
from tests.infra.test_template import EVERYTHING

FULL = Template(parameters=EVERYTHING)
JWT = Template(parameters={**EVERYTHING, "AuthMode": "jwt"})
ALARMS = JWT.of_type("AWS::CloudWatch::Alarm") | FULL.of_type("AWS::CloudWatch::Alarm")
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
LINK = re.compile(r"See docs/runbook\.md#([a-z-]+)$")
# Metrics of AWS's own that are used here, as CloudWatch documents them
OF_AWS = {
    "AWS/ApiGateway": {"Count", "4XXError", "5XXError"},
    "AWS/DynamoDB": {"WriteThrottleEvents"},
    "AWS/Lambda": {"ConcurrentExecutions", "Errors", "IteratorAge", "Throttles"},
    "AWS/SQS": {"ApproximateNumberOfMessagesVisible"},
}
SERVICES = {"chat", "memory", "titles", "indexer", "janitor", "authorizer"}


def sections() -> dict[str, str]:
    """The alarms' part of the runbook: text by the anchor of its heading."""
    part = RUNBOOK.split("\n## Alarms\n")[1].split("\n## ")[0]
    found = {}
    for section in part.split("\n### ")[1:]:
        heading, _, text = section.partition("\n")
        found[heading.lower().replace(" ", "-")] = text
    return found


def known(namespace: str, name: str, dimensions: dict[str, str]) -> bool:
    if namespace == observe.NAMESPACE:
        service = dimensions["service"].removeprefix("local-")
        return name in observe.METRICS and set(dimensions) == {"service"} and service in SERVICES
    return name in OF_AWS.get(namespace, ())


def test_each_alarm_has_its_section_and_each_section_its_alarms():
    linked: dict[str, set[str]] = {}
    for name, alarm in ALARMS.items():
        match = LINK.search(alarm["AlarmDescription"])
        assert match, name
        linked.setdefault(match[1], set()).add(name)
    found = sections()
    assert linked.keys() == found.keys()
    for anchor, text in found.items():
        assert set(re.findall(r"`(\w+Alarm)`", text)) == linked[anchor], anchor


@pytest.mark.parametrize("anchor", sorted(sections()))
def test_a_section_tells_meaning_first_look_and_fix(anchor):
    text = sections()[anchor]
    places = [text.index(f"**{title}.**") for title in ("Meaning", "First look", "Fix")]
    assert places == sorted(places)


@pytest.mark.parametrize("name", sorted(ALARMS))
def test_an_alarm_watches_a_metric_that_somebody_emits(name):
    alarm = ALARMS[name]
    dimensions = {entry["Name"]: entry["Value"] for entry in alarm["Dimensions"]}
    assert known(alarm["Namespace"], alarm["MetricName"], dimensions)
    assert alarm["TreatMissingData"] == "notBreaching"
    assert alarm["AlarmActions"] == [EVERYTHING["AlarmTopicArn"]]
    assert len(alarm["AlarmDescription"]) <= 1024


def test_the_dashboard_shows_only_metrics_that_somebody_emits():
    body = json.loads(FULL.of_type("AWS::CloudWatch::Dashboard")["Dashboard"]["DashboardBody"])
    shown = set()
    for widget in body["widgets"]:
        properties = widget["properties"]
        assert properties["region"] == "us-east-1"
        assert properties["title"]
        for entry in properties.get("metrics", ()):
            options = entry[-1] if isinstance(entry[-1], dict) else {}
            namespace, name, *pairs = [part for part in entry if not isinstance(part, dict)]
            assert known(namespace, name, dict(zip(pairs[::2], pairs[1::2], strict=True))), entry
            assert options.keys() <= {"stat", "label", "yAxis"}
            shown.add(name)
    # What a widget would have to show twice, or only counts what went well, is left to the log.
    assert observe.METRICS.keys() - shown == {"FileUsesReleased", "BodiesRemoved"}


def test_widgets_do_not_overlap_and_stay_on_the_page():
    body = json.loads(FULL.of_type("AWS::CloudWatch::Dashboard")["Dashboard"]["DashboardBody"])
    taken = set()
    for widget in body["widgets"]:
        cells = {
            (x, y)
            for x in range(widget["x"], widget["x"] + widget["width"])
            for y in range(widget["y"], widget["y"] + widget["height"])
        }
        assert not taken & cells
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_every_function_and_every_queue_of_failures_has_an_alarm():
    watched = {value for alarm in ALARMS.values() for entry in alarm["Dimensions"] for value in [entry["Value"]]}
    for name in JWT.functions():
        service = name.removesuffix("Function").lower()
        assert name in watched or f"local-{service}" in watched, name
    for queue in JWT.of_type("AWS::SQS::Queue"):
        assert f"{queue}.QueueName" in watched


def test_functions_name_themselves_as_the_alarms_do():
    for name, function in JWT.functions().items():
        source = (function.folder / "app.py").read_text(encoding="utf-8")
        assert re.search(rf'observe\.function\("{name.removesuffix("Function").lower()}"', source), name
        assert function.variables["STACK_NAME"] == "local"
