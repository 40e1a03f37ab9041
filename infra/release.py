"""Packs the layers for use elsewhere: one zip each, named after the version, with a list of checksums. Run by `make release`.

The same sources give the same bytes: entries are sorted, carry one date, and hold bytecode that no date is part of.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "build" / "release"
VERSION_OF_PYTHON = "3.13"
# Name of a zip, the layer's folder, the target of its makefile, and for which architectures; the streaming loop is Python
# alone and fits all. The agents' layer is each deployment's own.
PLATFORMS = {"arm64": "aarch64", "x86_64": "x86_64", "": "aarch64"}
LAYERS = {
    "agent-memory": ("layers/agent_memory", "build-AgentMemoryLayer", ("arm64", "x86_64")),
    "agent-memory-runtime": ("layers/runtime", "build-RuntimeLayer", ("",)),
}
DATE = (1980, 1, 1, 0, 0, 0)  # the first that a zip knows


class ReleaseError(RuntimeError):
    """A layer could not be built or packed; the message says why."""


def version() -> str:
    """The version in pyproject.toml. Raises ReleaseError where the changelog says nothing about it."""
    found: str = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    if f"\n## {found} " not in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"):
        raise ReleaseError(f"expected a section ## {found} in CHANGELOG.md, found none; write what is new in it")
    return found


def pack(folder: Path, target: Path) -> str:
    """Zip a folder; returns the zip's SHA-256 as hexadecimal digits."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            entry = zipfile.ZipInfo(file.relative_to(folder).as_posix(), DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # Unix, so that the rights below count
            executable = file.stat().st_mode & 0o100
            entry.external_attr = (0o100755 if executable else 0o100644) << 16
            archive.writestr(entry, file.read_bytes())
    return hashlib.sha256(target.read_bytes()).hexdigest()


def build(layer: str, architecture: str, python: str, folder: Path) -> Path:
    """Build a layer with its own makefile below `folder`; returns what lies below /opt. Raises ReleaseError."""
    source, target, _ = LAYERS[layer]
    copy, built = folder / "source", folder / "built"
    shutil.copytree(ROOT / source, copy, ignore=shutil.ignore_patterns("__pycache__"))
    built.mkdir()
    chosen: Mapping[str, str] = {
        "ARTIFACTS_DIR": str(built),
        "PYTHON": sys.executable,
        "PYTHON313": python,
        "PLATFORM": PLATFORMS[architecture],
    }
    done = subprocess.run(
        ["make", "--no-print-directory", target, *(f"{name}={value}" for name, value in chosen.items())],
        cwd=copy,
        env={**os.environ, "PYTHONHASHSEED": "0"},  # or sets of names in bytecode would lie in another order each time
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise ReleaseError(f"make {target} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    shutil.copyfile(ROOT / "LICENSE", built / "LICENSE")
    return built


def python313() -> str:
    """The interpreter whose bytecode is packed. Raises ReleaseError."""
    found = subprocess.run(
        [str(ROOT / "infra" / "find-python"), VERSION_OF_PYTHON], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if found.returncode != 0:
        raise ReleaseError(found.stderr.strip())
    return found.stdout.strip()


def release(target: Path = TARGET) -> dict[str, str]:
    """Build and pack every layer for every architecture; checksums by file name, which are written to SHA256SUMS too."""
    number, python = version(), python313()
    shutil.rmtree(target, ignore_errors=True)
    sums = {}
    for layer, (_, _, architectures) in LAYERS.items():
        for architecture in architectures:
            name = "-".join(filter(None, [layer, number, f"python{VERSION_OF_PYTHON}", architecture])) + ".zip"
            with tempfile.TemporaryDirectory(prefix="agent-memory-release-") as folder:
                sums[name] = pack(build(layer, architecture, python, Path(folder)), target / name)
    lines = [f"{digest}  {name}\n" for name, digest in sums.items()]
    (target / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")
    return sums


def main() -> int:
    """Pack and print; 1 when something is missing."""
    try:
        sums = release()
    except ReleaseError as error:
        print(error, file=sys.stderr)
        return 1
    for name, digest in sums.items():
        print(f"{digest}  {name}  {(TARGET / name).stat().st_size / 1e6:.2f} MB")
    print(f"in {TARGET.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
