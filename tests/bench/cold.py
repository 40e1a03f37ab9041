"""What a cold start of each built function costs, beside two baselines of the same run.

Every figure is a median of fresh processes on Python 3.13 that see only the built package (see tests/support/packages.py) and
talk to a stand-in of the Runtime API; tables are the emulator's. The budget is a ratio to a handler that imports boto3 and
makes one client, because times of different machines cannot be compared. Prints a table and writes
``build/bench-cold.json``. Run it with ``make bench-cold``.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.local.template import ROOT, Function
from tests.support import events, packages
from tests.support.events import CASES, Feeder, World
from tests.support.runtime_api import Answer, RuntimeApiServer

RUNS = int(os.environ.get("COLD_RUNS", "5"))
WARM = 5
BUDGET_RATIO = 1.5
EMPTY, BOTO3 = "empty handler", "boto3 and a client"
BASELINES = {
    EMPTY: "def handler(event, context):\n    return {}\n",
    BOTO3: "import boto3\n\nclient = boto3.client('dynamodb')\n\n\ndef handler(event, context):\n    return {}\n",
}
# What a function is asked: the everyday event of its files
EVERYDAY = {
    "authorizer": "authorizer/token.json",
    "chat": "chat/stream.v1.json",
    "indexer": "indexer/insert.stream.json",
    "janitor": "janitor/sweep.schedule.json",
    "memory": "memory/list-threads.v1.json",
    "titles": "titles/title.async.json",
}
COLUMNS = {
    "init_cpu_ms": "init CPU ms",
    "next_ms": "to first next ms",
    "first_ms": "first call ms",
    "warm_ms": "warm call ms",
    "rss_mb": "memory MB",
}


@dataclass(frozen=True)
class Target:
    """A function that is started, its event, and its variables."""

    function: Function
    task: Path
    opt: Path | None
    variables: Mapping[str, str]
    event: Any


def once(target: Target, folder: Path) -> dict[str, float]:
    """Start the process, send a first event and some more, and end it."""
    with RuntimeApiServer() as api:
        started = time.perf_counter()
        running = packages.start(target.function, target.task, target.opt, api, folder, target.variables)
        try:
            while not api.asked.wait(0.001):
                if api.init_failed.is_set() or running.process.poll() is not None:
                    raise RuntimeError(f"{target.function.name} did not start: {running.said()}")
            asked = time.perf_counter()
            cpu_ms = cpu_ms_of(running.process.pid)
            calls = []
            for number in range(1 + WARM):
                sent = time.perf_counter()
                answer = api.invoke(fresh(target.event, number), timeout_s=target.function.timeout_s).wait(60)
                calls.append((time.perf_counter() - sent) * 1000)
                check(target, answer, running)
            rss_mb = peak_rss_mb(running.process.pid)
        finally:
            running.stop()
    return {
        "init_cpu_ms": cpu_ms,
        "next_ms": (asked - started) * 1000,
        "first_ms": calls[0],
        "warm_ms": statistics.median(calls[1:]),
        "rss_mb": rss_mb,
    }


def check(target: Target, answer: Answer, running: packages.Running) -> None:
    """A call that fails measures nothing."""
    if answer.error is not None or answer.trailers:
        raise RuntimeError(f"{target.function.name} failed; it said: {running.said()}")


def fresh(event: Any, number: int) -> Any:
    """The event as a new one: a chat request that repeats an earlier one would get that one's answer."""
    if not isinstance(event.get("body"), str) or "Idempotency-Key" not in event["headers"]:
        return event
    body = json.loads(event["body"])
    body["messages"] = f"{body['messages']} {number}"
    without = {name: value for name, value in event["headers"].items() if name != "Idempotency-Key"}
    many = {name: value for name, value in event["multiValueHeaders"].items() if name != "Idempotency-Key"}
    return {**event, "body": json.dumps(body), "headers": without, "multiValueHeaders": many}


def cpu_ms_of(pid: int) -> float:
    """CPU milliseconds of a process and of those it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(value) for value in fields[11:15]) * 1000 / os.sysconf("SC_CLK_TCK")


def peak_rss_mb(pid: int) -> float:
    """The most memory that a process has had, in MB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024 / 1e6


def targets(folder: Path, world: World) -> dict[str, Target]:
    """The baselines and every function of the template."""
    found = {}
    for name, code in BASELINES.items():
        task = folder / "baselines" / name.replace(" ", "-")
        task.mkdir(parents=True)
        (task / "app.py").write_text(code)
        compiled = ["-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", str(task)]
        subprocess.run([str(packages.python313()), *compiled], check=True)
        function = Function(name, task, "app.handler", 30, 1024, {})
        found[name] = Target(function, task, None, world.variables({}), {})
    feeder = Feeder(world, lambda *_: events.Answer())
    for name, package in packages.build(folder / "packages").items():
        event = feeder.event(EVERYDAY[package.function.folder.name])
        variables = world.variables(package.function.variables)
        found[name] = Target(package.function, package.task, package.opt, variables, event)
    return found


def prepare(world: World, found: Mapping[str, Target], folder: Path) -> None:
    """Store what the everyday events ask about, through the built memory function."""
    memory = found["MemoryFunction"]
    with RuntimeApiServer() as api:
        running = packages.start(memory.function, memory.task, memory.opt, api, folder, memory.variables)
        try:
            feeder = Feeder(world, lambda *_: events.Answer())
            for name in [name for name in CASES if name.startswith(("memory/create", "memory/save"))]:
                check(memory, api.invoke(feeder.event(name)).wait(60), running)
        finally:
            running.stop()


def measure(folder: Path) -> dict[str, dict[str, float]]:
    """Medians by function and figure; rounds go over all functions, so that a busy moment hits them alike."""
    with events.world(packages.template(), f"cold-{uuid.uuid4().hex[:8]}") as world:
        found = targets(folder, world)
        prepare(world, found, folder / "run")
        rounds = [{name: once(target, folder / "run") for name, target in found.items()} for _ in range(RUNS)]
    return {
        name: {figure: statistics.median(one[name][figure] for one in rounds) for figure in COLUMNS} for name in found
    }


def ratio(figures: Mapping[str, Mapping[str, float]], name: str) -> float:
    """Init CPU of a function over that of the handler with boto3 and one client."""
    return figures[name]["init_cpu_ms"] / figures[BOTO3]["init_cpu_ms"]


def main() -> int:
    """Measure, print and write; 1 when the chat function is over its budget."""
    reason = packages.missing()
    if reason is not None:
        print(f"bench-cold: not run, {reason}")
        return 1
    with tempfile.TemporaryDirectory(prefix="agent-memory-cold-") as folder:
        figures = measure(Path(folder))
    print(f"Median of {RUNS} fresh processes each, Python {packages.VERSION}, AWS from the emulator")
    print(f"{'':20}" + "".join(f"{title:>18}" for title in COLUMNS.values()) + f"{'x ' + BOTO3:>22}")
    for name, values in figures.items():
        print(f"{name:20}" + "".join(f"{values[key]:18.1f}" for key in COLUMNS) + f"{ratio(figures, name):22.2f}")
    (ROOT / "build").mkdir(exist_ok=True)
    (ROOT / "build" / "bench-cold.json").write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    found = ratio(figures, "ChatFunction")
    print(f"chat: {found:.2f} x {BOTO3}, budget {BUDGET_RATIO}")
    return 0 if found <= BUDGET_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
