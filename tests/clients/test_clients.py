"""Published web clients against the local stack with the conformance agents (`make test-clients`)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent

pytestmark = [
    pytest.mark.node,
    pytest.mark.timeout(300),
    pytest.mark.skipif(shutil.which("npm") is None, reason="Node.js is not installed"),
]


@pytest.fixture(scope="module")
def packages():
    """The packages of package-lock.json."""
    lock, mark = HERE / "package-lock.json", HERE / "node_modules" / ".installed"
    if not mark.exists() or mark.read_bytes() != lock.read_bytes():
        subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=HERE, check=True, timeout=240)
        mark.write_bytes(lock.read_bytes())


@pytest.mark.parametrize("file", sorted(path.name for path in HERE.glob("*.test.mjs")))
def test_client_works_unchanged(packages, address, file):
    done = subprocess.run(
        ["node", "--test", "--test-reporter=spec", file],
        cwd=HERE,
        env={"BASE_URL": address, "PATH": str(Path(shutil.which("node") or "node").parent)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
