"""The API against its own description: thousands of generated requests, none of which may be a server error."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LOCK = HERE / "requirements-schemathesis.lock"
HOME = ROOT / ".venvs" / "schemathesis"
SECONDS = 40

# Generated ids would be unknown ones, and nothing behind a 404 would be tried.
KNOWN: dict[str, list[str]] = {
    "agentId": ["conformance", "conformance-thread", "unknown"],
    "networkId": ["conformance"],
    "threadId": ["t1", "t2", "unknown"],
    "messageId": ["m1", "unknown"],
    "toolId": ["get_weather", "pick_color", "unknown"],
    "resourceId": ["ada", "bob", "undefined"],
}

pytestmark = [pytest.mark.node, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def schemathesis():
    """The tool, in an environment of its own."""
    mark = HOME / ".installed"
    python = HOME / "bin" / "python"
    if not mark.exists() or mark.read_bytes() != LOCK.read_bytes():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(HOME)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "-r", str(LOCK)]
        subprocess.run(install, check=True, timeout=200)
        mark.write_bytes(LOCK.read_bytes())
    return HOME / "bin" / "schemathesis"


def with_known_ids(document: dict[str, Any]) -> dict[str, Any]:
    for methods in document["paths"].values():
        for operation in methods.values():
            for parameter in operation["parameters"]:
                if parameter["name"] in KNOWN:
                    parameter["schema"] = {"type": "string", "enum": KNOWN[parameter["name"]]}
    return document


def test_no_generated_request_is_a_server_error(schemathesis, address, tmp_path):
    with urllib.request.urlopen(f"{address}/api/openapi.json") as answer:
        document = with_known_ids(json.load(answer))
    given = tmp_path / "openapi.json"
    given.write_text(json.dumps(document))
    done = subprocess.run(
        [
            str(schemathesis),
            "--config-file",
            str(HERE / "schemathesis.toml"),
            "run",
            str(given),
            "--url",
            address,
            "--checks=not_a_server_error,status_code_conformance,content_type_conformance",
            "--phases=examples,coverage,fuzzing",
            f"--max-time={SECONDS}",
            "--exclude-path-regex=subscribe",  # never ends by itself
            "--suppress-health-check=all",
            "--request-timeout=20",
            "--warnings=off",
            "--continue-on-failure",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SECONDS + 120,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr
