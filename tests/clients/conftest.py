"""A running local stack with the conformance agents and one with a guardrail."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="package")
def address(tmp_path_factory):
    """Where it listens."""
    log = (tmp_path_factory.mktemp("stack") / "log").open("w")
    command = [sys.executable, "-m", "tests.clients.stack"]
    with log, subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True) as stack:
        assert stack.stdout is not None
        try:
            for line in stack.stdout:
                found = re.search(r"http://[\w.:]+", line)
                if found:
                    break
            else:
                raise AssertionError("expected the stack to tell its address, found the end of its output")
            yield found[0]
        finally:
            stack.terminate()
            stack.wait(30)
