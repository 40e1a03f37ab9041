"""``python -m infra.stack``: validate and build the template, start the emulator, and run the tests that deploy and call it.

Arguments go to pytest.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from infra.local.emulator import ROOT, Emulator, EmulatorError, ensure_installed, free_port
from infra.stack import tools
from infra.stack.derive import derive, templates

TEMPLATE = ROOT / "template.yaml"


def main(arguments: list[str]) -> int:
    """Run all steps; the exit code. What was built and written stays where a step failed."""
    tools.BUILD.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=tools.BUILD))
    try:
        code = _run(folder, arguments)
    except (tools.ToolError, EmulatorError) as error:
        print(error, file=sys.stderr)
        code = 1
    if code == 0:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        log = folder / "emulator.log"
        lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
        # Functions that could not be started are told here and nowhere else.
        told = [line for line in lines if " ERROR [" in line and "[asyncio]" not in line]
        print(*told[-20:], f"Left for a look: {folder}", sep="\n", file=sys.stderr)
    return code


def _run(folder: Path, arguments: list[str]) -> int:
    python = ensure_installed()
    with _step("sam validate --lint, sam build"), ThreadPoolExecutor(2) as pool:
        checks = [pool.submit(_validate, template) for template in templates(TEMPLATE)]
        derived = derive(TEMPLATE, folder / "source", tools.host(python))
        built = tools.build(derived, folder / "built", python)
        for check in checks:
            check.result()
    certificate = tools.certificate(folder)
    search_port = free_port()  # of the search service that the tests bring
    settings = {"AUTH": "true", "MINISTACK_OPENSEARCH_ENDPOINT": f"127.0.0.1:{search_port}"}
    emulator = Emulator(env=settings, certificate=certificate, log_file=folder / "emulator.log")
    with emulator:
        environment = {
            **os.environ,
            **emulator.environment(),
            "STACK_BUILT": str(built),
            "STACK_CERTIFICATE": str(certificate.file),
            "STACK_CERTIFICATE_KEY": str(certificate.key),
            "STACK_SEARCH_PORT": str(search_port),
        }
        command = [sys.executable, "-m", "pytest", "-m", "stack", "tests/e2e", *arguments]
        return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def _validate(template: Path) -> None:
    tools.sam("validate", "--lint", "--region", "us-east-1", "--template", str(template))


@contextmanager
def _step(name: str) -> Iterator[None]:
    started = time.monotonic()
    yield
    print(f"{name}: {time.monotonic() - started:.1f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
