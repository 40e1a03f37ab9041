"""The template after SAM's transform: what CloudFormation gets to see, roles, permissions and triggers included."""

from __future__ import annotations

import functools
import json
import subprocess

import pytest

from infra.local.emulator import ensure_installed
from infra.local.template import TEMPLATE, load
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
for name, resource in document["Resources"].items():
    for key in {"CodeUri", "ContentUri"} & resource.get("Properties", {}).keys():
        resource["Properties"][key] = {"Bucket": "b", "Key": given["keys"].get(name, "k")}
defaults = {name: parameter.get("Default", "") for name, parameter in document["Parameters"].items()}
print(json.dumps(Translator({}, Parser(), boto_session=Session()).translate(document, defaults | given["parameters"])))
"""


@functools.cache
def transformed(everything: bool, changed: str = ""):
    """Resources by logical id; the code of `changed` is another than it was."""
    keys = {changed: "another"}
    given = {"template": str(TEMPLATE), "parameters": EVERYTHING if everything else {}, "keys": keys}
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


@pytest.mark.parametrize("changed", ["AgentsLayer", "AgentMemoryLayer", "RuntimeLayer"])
def test_new_code_in_a_layer_publishes_new_versions_of_the_functions_that_use_it(changed):
    def versions(resources):
        return {name for name, resource in resources.items() if resource["Type"] == "AWS::Lambda::Version"}

    before, after = versions(transformed(False)), versions(transformed(False, changed))
    assert len(before) == len(after) == 2
    new = {name.split("Function")[0] for name in after - before}
    assert new == ({"Chat"} if changed == "RuntimeLayer" else {"Chat", "Memory"})


def test_parameters_alone_reach_published_versions_by_another_release():
    for name in ("ChatFunction", "MemoryFunction"):
        found = transformed(False)
        (version,) = (
            resource["Properties"]
            for resource in found.values()
            if resource["Type"] == "AWS::Lambda::Version" and resource["Properties"]["FunctionName"] == {"Ref": name}
        )
        # CloudFormation replaces a version whose description changes, and Lambda publishes what differs from the last one.
        assert "${Release}" in version["Description"]["Fn::Sub"]
        assert "${SnapStart}" in version["Description"]["Fn::Sub"]
        assert "${Release}" in found[name]["Properties"]["Description"]["Fn::Sub"]


def test_every_deployment_puts_the_document_of_the_api_into_place():
    # Otherwise the deployment's name, and with it the stage, changes only with the document's text and not with parameters.
    assert load(TEMPLATE)["Resources"]["Api"]["Properties"]["AlwaysDeploy"] is True
