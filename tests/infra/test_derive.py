"""The template as the emulator runs it keeps everything that is not named as a difference."""

from __future__ import annotations

import ast

import pytest

from infra.local.template import TEMPLATE
from infra.stack.derive import Host, derive, read, templates, without_action

HOST = Host("python3.11", "x86_64")


@pytest.fixture(scope="module")
def derived(tmp_path_factory):
    return derive(TEMPLATE, tmp_path_factory.mktemp("derived") / "source", HOST)


def differences(before, after, path=()):
    if isinstance(before, dict) and isinstance(after, dict):
        for key in before.keys() | after.keys():
            yield from differences(before.get(key), after.get(key), (*path, key))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, pair in enumerate(zip(before, after, strict=True)):
            yield from differences(*pair, (*path, number))
    elif before != after:
        yield path


def named_in_full(value):
    """GetAtt as a list, which both ways of writing it mean."""
    if isinstance(value, dict):
        if set(value) == {"Fn::GetAtt"} and isinstance(value["Fn::GetAtt"], str):
            return {"Fn::GetAtt": value["Fn::GetAtt"].split(".", 1)}
        return {key: named_in_full(item) for key, item in value.items()}
    return [named_in_full(item) for item in value] if isinstance(value, list) else value


def test_only_platform_and_streaming_differ(derived):
    changed = {
        (path[-2] if isinstance(path[-1], int) else path[-1])
        for path in differences(named_in_full(read(TEMPLATE)), read(derived))
    }
    assert changed <= {
        "Runtime",
        "Architectures",
        "CompatibleRuntimes",
        "CompatibleArchitectures",
        "BuildArchitecture",
        "Handler",
        "Fn::Sub",
        "responseTransferMode",
    }


def test_roles_are_the_same(derived):
    before, after = named_in_full(read(TEMPLATE))["Resources"], read(derived)["Resources"]
    roles = [name for name, resource in before.items() if resource["Type"] == "AWS::IAM::Role"]
    assert roles
    assert [before[name] for name in roles] == [after[name] for name in roles]


def test_streaming_function_is_buffered_in_front_of_its_own_handler(derived):
    resources = read(derived)["Resources"]
    assert "response-streaming-invocations" not in derived.read_text(encoding="utf-8")
    handler = resources["ChatFunction"]["Properties"]["Handler"]
    module, _, name = handler.rpartition(".")
    entry = derived.parent / resources["ChatFunction"]["Properties"]["CodeUri"] / f"{module}.py"
    tree = ast.parse(entry.read_text(encoding="utf-8"))
    assert any(isinstance(node, ast.ImportFrom) and node.module == "app" for node in tree.body)
    assert any(isinstance(node, ast.Assign) and node.targets[0].id == name for node in tree.body)
    assert "Handler" not in resources["MemoryFunction"]["Properties"]


def test_nested_templates_come_along(derived):
    found = [path.relative_to(TEMPLATE.parent) for path in templates(TEMPLATE)]
    assert len(found) > 1
    assert all((derived.parent / path).exists() for path in found)


def test_one_action_of_one_role_is_taken_away():
    document = read(TEMPLATE)
    without_action(document, "ChatRole", "dynamodb:PutItem")
    gone = list(differences(read(TEMPLATE)["Resources"], document["Resources"]))
    assert {path[0] for path in gone} == {"ChatRole"}
    assert "dynamodb:PutItem" not in str(document["Resources"]["ChatRole"])
    with pytest.raises(ValueError, match="expected the action dynamodb:PutItem"):
        without_action(document, "ChatRole", "dynamodb:PutItem")


def test_packages_can_be_built_for_another_python_and_platform():
    makefiles = [path for folder in ("functions", "layers") for path in (TEMPLATE.parent / folder).glob("*/Makefile")]
    installing = [text for path in makefiles if "pip install" in (text := path.read_text(encoding="utf-8"))]
    assert installing
    for text in installing:
        assert "--python-version $(PYTHON_VERSION)" in text
        assert "_$(PLATFORM)" in text
