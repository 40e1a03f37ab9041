"""The check of what `sam build` made."""

from __future__ import annotations

import py_compile

import pytest

from infra import check_build


@pytest.fixture
def build(tmp_path):
    for layer, module in (
        ("AgentMemoryLayer", "agent_memory"),
        ("AgentsLayer", "agents"),
        ("RuntimeLayer", "streaming_runtime"),
    ):
        file = tmp_path / layer / "python" / module / "__init__.py"
        file.parent.mkdir(parents=True)
        file.write_text("import json\n")
    for function, packages in check_build.OWN.items():
        for package in packages:
            (tmp_path / function / package).mkdir(parents=True)
    (tmp_path / "ChatFunction").mkdir()
    (tmp_path / "ChatFunction" / "app.py").write_text("import agent_memory\nimport boto3\n")
    return tmp_path


def test_a_good_build_is_weighed_and_passes(build, capsys):
    assert check_build.problems(build) == []
    said = capsys.readouterr().out
    assert "layers together" in said
    assert "ChatFunction" in said


def test_a_module_that_no_layer_holds_is_named(build):
    (build / "ChatFunction" / "app.py").write_text("import moonbeam\n")
    assert check_build.problems(build) == ["ChatFunction imports moonbeam, which no layer and not the runtime holds"]


@pytest.mark.parametrize("place", ["AgentMemoryLayer/python", "ChatFunction"])
def test_packages_of_development_are_refused(build, place):
    (build / place / "pytest").mkdir()
    (found,) = check_build.problems(build)
    assert found == f"expected no pytest in {place.partition('/')[0]}, found it"


def test_bytecode_is_there_for_all_modules_or_for_none(build):
    folder = build / "AgentMemoryLayer" / "python" / "agent_memory"
    py_compile.compile(str(folder / "__init__.py"), doraise=True)
    assert check_build.problems(build) == []
    (folder / "late.py").write_text("")
    (found,) = check_build.problems(build)
    assert "found none of agent_memory/late.py" in found


def test_the_librarys_own_layers_have_a_budget_and_the_agents_have_lambdas(build):
    big = build / "AgentMemoryLayer" / "python" / "blob.bin"
    with big.open("wb") as file:
        file.truncate(check_build.OWN_BYTES)
    (found,) = check_build.problems(build)
    assert "expected AgentMemoryLayer and RuntimeLayer to be at most 21.0 MB" in found
    big.unlink()
    with (build / "AgentsLayer" / "python" / "blob.bin").open("wb") as file:
        file.truncate(check_build.OWN_BYTES)
    assert check_build.problems(build) == []
    with (build / "AgentsLayer" / "python" / "blob.bin").open("wb") as file:
        file.truncate(check_build.MAX_BYTES)
    (found,) = check_build.problems(build)
    assert "expected a function and its layers" in found


def test_a_layer_that_was_built_empty_is_named_case_103(build):
    (build / "AgentMemoryLayer" / "python" / "agent_memory" / "__init__.py").rename(build / "x")
    (build / "AgentMemoryLayer" / "python" / "agent_memory").rmdir()
    found = check_build.problems(build)
    assert "expected agent_memory below python/ of a layer, found none" in found
