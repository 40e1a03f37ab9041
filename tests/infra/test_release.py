"""Zips of the layers."""

from __future__ import annotations

import os
import zipfile

import pytest

from infra import release


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "built"
    (made / "python" / "agent_memory").mkdir(parents=True)
    (made / "python" / "agent_memory" / "__init__.py").write_text("x = 1\n")
    (made / "streaming").write_text("#!/bin/sh\n")
    (made / "streaming").chmod(0o755)
    return made


def test_the_same_files_give_the_same_bytes_whatever_their_dates(folder, tmp_path):
    first = release.pack(folder, tmp_path / "one.zip")
    os.utime(folder / "streaming", (0, 0))
    assert release.pack(folder, tmp_path / "two.zip") == first
    (folder / "streaming").write_text("#!/bin/sh -e\n")
    assert release.pack(folder, tmp_path / "three.zip") != first


def test_a_zip_holds_what_lies_below_opt_and_keeps_what_may_be_run(folder, tmp_path):
    release.pack(folder, tmp_path / "one.zip")
    with zipfile.ZipFile(tmp_path / "one.zip") as archive:
        rights = {entry.filename: entry.external_attr >> 16 & 0o777 for entry in archive.infolist()}
    assert rights == {"python/agent_memory/__init__.py": 0o644, "streaming": 0o755}


def test_a_version_has_its_section_in_the_changelog(monkeypatch, tmp_path):
    assert release.version()
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "9.9.9"\n')
    (tmp_path / "CHANGELOG.md").write_text("## 0.1.0 – today\n")
    monkeypatch.setattr(release, "ROOT", tmp_path)
    with pytest.raises(release.ReleaseError, match=r"## 9\.9\.9"):
        release.version()


def test_layers_that_are_released_are_those_of_the_template():
    from infra.local.template import TEMPLATE, load

    layers = {
        name: resource["Properties"]["ContentUri"].rstrip("/")
        for name, resource in load(TEMPLATE)["Resources"].items()
        if resource["Type"] == "AWS::Serverless::LayerVersion"
    }
    released = {target.removeprefix("build-"): source for source, target, _ in release.LAYERS.values()}
    assert released == {name: place for name, place in layers.items() if name != "AgentsLayer"}
