"""The SAM command line, and a certificate for the emulator."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path

from infra.local.emulator import ROOT, Certificate
from infra.stack.derive import Host

BUILD = ROOT / "build" / "stack"
SAM = [str(ROOT / ".venvs" / "sam" / "bin" / "python"), "-m", "samcli"]  # its script names the place it was made in
TIMEOUT_S = 120.0
_ARCHITECTURES = {"x86_64": "x86_64", "aarch64": "arm64", "arm64": "arm64"}


class ToolError(RuntimeError):
    """A tool ended with an error; the message is what it said."""


def run(command: list[str], env: Mapping[str, str] | None = None) -> str:
    """Run a command in the project's folder; returns its output. Raises ToolError."""
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        # Bytes, also where text was asked for
        said = [(part or b"").decode(errors="replace") for part in (error.stdout, error.stderr)]
        raise ToolError(_said(command, f"did not end within {TIMEOUT_S:.0f} s", *said)) from error
    if done.returncode != 0:
        raise ToolError(_said(command, f"ended with {done.returncode}", done.stdout, done.stderr))
    return done.stdout


def _said(command: list[str], end: str, *said: str) -> str:
    return "\n".join([f"{' '.join(command)} {end}:", *(part.strip()[-4_000:] for part in said)])


def sam(*arguments: str, env: Mapping[str, str] | None = None) -> str:
    """Run SAM; returns its output. Raises ToolError."""
    return run([*SAM, *arguments], {"SAM_CLI_TELEMETRY": "0", "SAM_CLI_POLL_DELAY": "0.5", **(env or {})})


def host(python: Path) -> Host:
    """This machine with an interpreter, as SAM names them."""
    version = run([str(python), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]).strip()
    return Host(f"python{version}", _ARCHITECTURES[platform.machine()])


def build(template: Path, target: Path, python: Path) -> Path:
    """Build a derived template for the interpreter `python`; returns the built template's path."""
    env = {
        "PYTHON": str(ROOT / ".venv" / "bin" / "python"),
        "PYTHON313": str(python),  # compiles for the interpreter that the functions run on
        "PYTHON_VERSION": host(python).runtime.removeprefix("python"),
        "PLATFORM": platform.machine(),
    }
    sam("build", "--template", str(template), "--build-dir", str(target), "--parallel", env=env)
    return target / "template.yaml"


def certificate(folder: Path) -> Certificate:
    """A new self-signed certificate for 127.0.0.1 and localhost."""
    folder.mkdir(parents=True, exist_ok=True)
    made = Certificate(folder / "emulator.crt", folder / "emulator.key")
    names = ("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost")
    files = ("-keyout", str(made.key), "-out", str(made.file))
    run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names, *files])
    made.key.chmod(0o600)
    return made
