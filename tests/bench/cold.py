"""Import cost of each function's module beside boto3 with one client: CPU time of a fresh process, median of five.

Prints a table and writes ``build/bench-cold.json``. The budget is a ratio of figures from the same run, because CPU
times of different machines cannot be compared. Run it with ``make bench-cold``.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys

from infra.local.template import ROOT, Function, Template

RUNS = 5
BUDGET_RATIO = 1.5
BASE = "import boto3; boto3.client('dynamodb', region_name='us-east-1')"
LAYERS = ":".join(str(ROOT / "layers" / name) for name in ("agent_memory", "agents", "runtime"))


def cpu_ms(code: str, folder: str) -> float:
    """CPU milliseconds of a process that runs `code`, above those of one that runs nothing."""
    return statistics.median(_once(code, folder) for _ in range(RUNS))


def _once(code: str, folder: str) -> float:
    timed = f"import time; a = time.process_time()\n{code}\nprint((time.process_time() - a) * 1000)"
    answer = subprocess.run(
        [sys.executable, "-c", timed],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": LAYERS},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(answer.stdout.splitlines()[-1])


def measure(functions: dict[str, Function]) -> dict[str, float]:
    """CPU milliseconds by function, and those of boto3 under ``boto3``."""
    cpu_ms("import app", str(next(iter(functions.values())).folder))  # compiles the bytecode that a build ships
    figures = {"boto3": cpu_ms(BASE, str(ROOT))}
    for name, function in functions.items():
        figures[name] = cpu_ms("import app", str(function.folder))
    return figures


def main() -> int:
    """Measure, print and write; 1 when the chat function is over its budget."""
    functions = Template(parameters={"OpenSearchUrl": "https://search.local"}).functions()
    figures = measure(functions)
    for name, found in figures.items():
        print(f"{name:18} {found:7.0f} ms CPU   {found / figures['boto3']:5.2f} x boto3 with one client")
    (ROOT / "build").mkdir(exist_ok=True)
    (ROOT / "build" / "bench-cold.json").write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 0 if figures["ChatFunction"] <= BUDGET_RATIO * figures["boto3"] else 1


if __name__ == "__main__":
    sys.exit(main())
