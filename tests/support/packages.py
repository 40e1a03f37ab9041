"""The deployed packages, built for this machine by their own makefiles, and processes that run them as Lambda does.

A process gets what Lambda's Python 3.13 has and nothing else: the standard library, boto3 and the genuine runtime client,
the function's layers merged into one folder, and the function's own folder.
"""

from __future__ import annotations

import functools
import hashlib
import platform
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from infra.local.template import ROOT, TEMPLATE, Function, Template, load
from tests.support.runtime_api import RuntimeApiServer

VERSION = "3.13"
RUNTIME = ROOT / ".venvs" / f"runtime-{VERSION}"
# What Lambda's Python brings by itself
BROUGHT = (
    "awslambdaric",
    "boto3",
    "botocore",
    "jmespath",
    "python-dateutil",
    "s3transfer",
    "simplejson",
    "six",
    "snapshot-restore-py",
    "urllib3",
)
# Every condition of the template holds, so that every function is there.
EVERYTHING = {
    "Search": "existing",
    "OpenSearchUrl": "https://search.local",
    "AuthMode": "jwt",
    "JwtIssuer": "https://issuer.local",
    "JwtAudience": "agent-memory",
}


class PackageError(RuntimeError):
    """A package could not be built; the message is what its makefile said."""


@dataclass(frozen=True)
class Package:
    """A built function: `task` is what lies below /var/task, `opt` what lies below /opt."""

    function: Function
    task: Path
    opt: Path

    @property
    def name(self) -> str:
        """The logical id."""
        return self.function.name


def missing() -> str | None:
    """Why packages cannot be run here, in a sentence; None where they can."""
    if sys.platform != "linux":
        return "the runtime client and the layers' wheels are for Linux"
    return None if python313() is not None else f"no Python {VERSION} here, which is what functions run on"


@functools.cache
def python313() -> str | None:
    """The interpreter that functions run on, or None."""
    found = subprocess.run([ROOT / "infra" / "find-python", VERSION], cwd=ROOT, capture_output=True, text=True)
    return found.stdout.strip() or None


def template() -> Template:
    """The template with every condition of a function fulfilled."""
    return Template(parameters=EVERYTHING)


def build(folder: Path) -> dict[str, Package]:
    """Build every function and layer of the template below `folder`; functions by logical id."""
    described = template()
    made: dict[str, Path] = {}
    for kind, key in (("AWS::Serverless::LayerVersion", "ContentUri"), ("AWS::Serverless::Function", "CodeUri")):
        for name, resource in described.of_type(kind).items():
            made[name] = _make(name, ROOT / resource[key], folder)
    common = [layer["Ref"] for layer in load(TEMPLATE)["Globals"]["Function"].get("Layers", ())]
    own = {
        name: resource.get("Layers", ()) for name, resource in described.of_type("AWS::Serverless::Function").items()
    }
    packages = {}
    for name, function in described.functions().items():
        opt = folder / "opt" / name
        for layer in [*common, *own[name]]:  # a later layer lies over an earlier one
            shutil.copytree(made[layer], opt, dirs_exist_ok=True)
        packages[name] = Package(function, made[name], opt)
    return packages


def _make(name: str, source: Path, folder: Path) -> Path:
    copy, target = folder / "source" / name, folder / "built" / name
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
    target.mkdir(parents=True)
    chosen = {
        "ARTIFACTS_DIR": str(target),
        "PYTHON": sys.executable,
        "PYTHON313": str(python313()),
        "PLATFORM": platform.machine(),
    }
    done = subprocess.run(
        ["make", "--no-print-directory", f"build-{name}", *(f"{key}={value}" for key, value in chosen.items())],
        cwd=copy,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise PackageError(f"make build-{name} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return target


def runtime_packages() -> Path:
    """A folder with what Lambda's Python brings, in the versions of the development lock; made on first use."""
    wanted = "".join(_locked(BROUGHT))
    stamp = RUNTIME / hashlib.sha256(wanted.encode()).hexdigest()[:16]
    if not stamp.exists():
        shutil.rmtree(RUNTIME, ignore_errors=True)
        RUNTIME.mkdir(parents=True)
        requirements = RUNTIME / "requirements.txt"
        requirements.write_text(wanted, encoding="utf-8")
        options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes", "--compile"]
        subprocess.run(
            [str(python313()), "-m", "pip", "install", *options, "--target", str(RUNTIME), "-r", str(requirements)],
            check=True,
        )
        stamp.touch()
    return RUNTIME


def _locked(names: Iterable[str]) -> list[str]:
    """The entries of packages in the development lock, hashes included."""
    text = (ROOT / "requirements-dev.lock").read_text(encoding="utf-8")
    found = []
    for name in names:
        match = re.search(rf"^{re.escape(name)}==.*?(?=^\S|\Z)", text, re.MULTILINE | re.DOTALL)
        if match is None:
            raise PackageError(f"expected {name} in requirements-dev.lock, found none")
        found.append(re.sub(r"^ +#.*\n", "", match[0], flags=re.MULTILINE))
    return found


@dataclass
class Running:
    """A process that serves a function's events from a stand-in of the Runtime API."""

    process: subprocess.Popen[bytes]
    log: Path
    _open: IO[bytes] = field(repr=False)

    def said(self) -> str:
        """What it has written to its output and errors."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def stop(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()
        self._open.close()


def start(
    function: Function, task: Path, opt: Path | None, api: RuntimeApiServer, folder: Path, env: Mapping[str, str]
) -> Running:
    """Start a function's process. Without `opt` it has no layers (baselines)."""
    folder.mkdir(parents=True, exist_ok=True)
    interpreter = folder / "python"
    # Without `site` nothing that is installed for this interpreter is seen.
    interpreter.write_text(f'#!/bin/sh\nexec "{python313()}" -S -s "$@"\n')
    interpreter.chmod(0o755)
    brought = str(runtime_packages())
    variables = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "en_US.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",  # Lambda's folders cannot be written
        "LAMBDA_TASK_ROOT": str(task),
        "_HANDLER": function.handler,
        "AWS_EXECUTION_ENV": f"AWS_Lambda_python{VERSION}",
        "AWS_LAMBDA_FUNCTION_NAME": function.name,
        "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function.memory_mb),
        "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
        "AWS_LAMBDA_RUNTIME_API": api.address,
        **env,
    }
    wrapper = variables.pop("AWS_LAMBDA_EXEC_WRAPPER", "")
    if wrapper:  # it puts the layers on the path itself
        assert opt is not None
        command = [str(opt / Path(wrapper).relative_to("/opt")), str(interpreter), "/var/runtime/bootstrap.py"]
        variables["PYTHONPATH"] = brought
    else:
        command = [str(interpreter), "-m", "awslambdaric", function.handler]
        layers = [] if opt is None else [str(opt / "python" / "lib" / f"python{VERSION}" / "site-packages")]
        layers += [] if opt is None else [str(opt / "python")]
        variables["PYTHONPATH"] = ":".join([str(task), *layers, brought])
    log = folder / f"{uuid.uuid4().hex}.log"
    output = log.open("wb")
    process = subprocess.Popen(command, cwd=task, env=variables, stdout=output, stderr=subprocess.STDOUT)
    return Running(process, log, output)


def size_of(folder: Path, pattern: str = "*") -> int:
    """Bytes of the files below a folder."""
    return sum(file.stat().st_size for file in folder.rglob(pattern) if file.is_file())
