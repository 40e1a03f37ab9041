"""The template after SAM's transform: what CloudFormation gets to see, roles, permissions and triggers included."""

from __future__ import annotations

import functools
import json
import subprocess

import pytest

from infra.local.emulator import ensure_installed
from infra.local.template import TEMPLATE
from tests.infra.test_template import EVERYTHING, references

# The transform lives in the emulator's environment. Code addresses stand for what `sam deploy` uploads.
TRANSFORM = """
import json, sys
from samtranslator.parser.parser import Parser
from samtranslator.translator.translator import Translator
from samtranslator.yaml_helper import yaml_parse

class Session:
    region_name = "eu-west-1"

given = json.load(sys.stdin)
document = yaml_parse(open(given["template"]).read())
for resource in document["Resources"].values():
    for key in {"CodeUri", "ContentUri"} & resource.get("Properties", {}).keys():
        resource["Properties"][key] = {"Bucket": "b", "Key": "k"}
defaults = {name: parameter.get("Default", "") for name, parameter in document["Parameters"].items()}
print(json.dumps(Translator({}, Parser(), boto_session=Session()).translate(document, defaults | given["parameters"])))
"""


@functools.cache
def transformed(everything: bool):
    given = {"template": str(TEMPLATE), "parameters": EVERYTHING if everything else {}}
    done = subprocess.run(
        [str(ensure_installed()), "-c", TRANSFORM], input=json.dumps(given), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])["Resources"]


@pytest.mark.parametrize("everything", [False, True])
def test_no_resources_wait_for_each_other_after_the_transform_case_101(everything):
    resources = transformed(everything)
    assert {"AWS::Lambda::Function", "AWS::Lambda::EventSourceMapping", "AWS::ApiGateway::Stage"} <= {
        resource["Type"] for resource in resources.values()
    }
    edges = {name: references(resource) & resources.keys() for name, resource in resources.items()}
    while edges:
        free = [name for name, needs in edges.items() if not needs & edges.keys()]
        assert free, f"a cycle among {sorted(edges)}"
        for name in free:
            del edges[name]


def test_a_cycle_is_seen_case_101():
    resources = {
        "A": {"Properties": {"Role": {"Fn::GetAtt": ["B", "Arn"]}}},
        "B": {"Properties": {"Text": {"Fn::Sub": "arn:${A}"}}},
    }
    assert references(resources["A"]) & resources.keys() == {"B"}
    assert references(resources["B"]) & resources.keys() == {"A"}
