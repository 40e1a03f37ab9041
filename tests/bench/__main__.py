"""Measures a turn, a thread list, a clone, the input filter and the import of the chat function, from real calls.

Prints a table with the budgets and writes ``build/bench.json``. Counts and units come from the emulator through the
meter; times are medians of five on this machine. Run it with ``make bench``.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from agent_memory.agent.agent import Agent
from agent_memory.agent.result import MemoryArgs
from agent_memory.agent.services import Services
from agent_memory.aws.dynamodb import DynamoMessageStore
from agent_memory.aws.meter import Meter
from agent_memory.memory import Memory
from agent_memory.messages import Message
from agent_memory.ports import Thread, ThreadQuery
from tests.support import tables
from tests.support.emulator import shared_emulator
from tests.support.models import FakeModel, say

ROOT = Path(__file__).resolve().parents[2]
TEXT = ("The quick brown fox jumps over the lazy dog while the river runs by. " * 9)[:600]  # ASCII, 600 characters
RESOURCE = "bench-user"
BUDGETS: dict[str, float] = {
    "dynamodb_requests_per_turn": 6,
    "search_requests_per_turn": 1,
    "hops_before_model": 3,
    "hops_after_model": 1,
    "read_units_at_20": 12,
    "read_units_at_5000": 12,
    "write_units_at_20": 16,
    "write_units_at_5000": 16,
    "bytes_read_per_turn": 40_000,
    "overhead_ms_p50": 5,
    "input_filter_ms_1000": 5,
    "list_threads_requests_of_10000": 2,
    "list_threads_units_of_10000": 5,
    "clone_requests_1000": 50,
    "import_cpu_ratio": 1.5,
}


class Timeline:
    """When requests and the model ran, for counting hops: requests that follow each other in time."""

    def __init__(self) -> None:
        self.spans: list[tuple[float, float]] = []
        self.model_at = 0.0
        self._lock = threading.Lock()

    def attach(self, client: Any) -> None:
        def before(context: dict[str, Any], **_: Any) -> None:
            context["bench_start"] = time.perf_counter()

        def after(context: dict[str, Any], **_: Any) -> None:
            with self._lock:
                self.spans.append((context["bench_start"], time.perf_counter()))

        client.meta.events.register("before-call.*.*", before)
        client.meta.events.register("after-call.*.*", after)

    def hops(self) -> tuple[int, int]:
        """The longest chain of requests that begin after another ended, before and after the model was called."""
        before = [span for span in self.spans if span[1] <= self.model_at]
        after = [span for span in self.spans if span[0] >= self.model_at]
        return _chain(before), _chain(after)


def _chain(spans: list[tuple[float, float]]) -> int:
    end, length = 0.0, 0
    for start, stop in sorted(spans, key=lambda span: span[1]):
        if start >= end:
            length, end = length + 1, stop
    return length


class Bench:
    """One set of tables on the emulator, with a store whose requests are counted."""

    def __init__(self) -> None:
        self.client = shared_emulator().client("dynamodb")
        self.names = tables.create(self.client)
        self.meter, self.timeline = Meter(), Timeline()
        self.meter.attach(self.client)
        self.timeline.attach(self.client)
        self.store = DynamoMessageStore(
            self.client,
            threads_table=self.names.threads,
            messages_table=self.names.messages,
            claims_table=self.names.claims,
            blobs=None,
        )

    def fill(self, thread_id: str, count: int, *, owner: str = RESOURCE) -> None:
        """A thread of `count` messages of 600 characters."""
        from agent_memory import clock

        thread = Thread(thread_id, owner, clock.now(), clock.now())
        roles = ("user", "assistant")
        self.store.build_thread(
            thread,
            [
                Message.text_message(
                    roles[n % 2], f"{n:06d} {TEXT}"[:600], id=f"{thread_id}-{n}", thread_id=thread_id, resource_id=owner
                )
                for n in range(count)
            ],
        )


def turn_figures(bench: Bench, sizes: tuple[int, int] = (20, 5_000)) -> dict[str, float]:
    """One turn with last 10, recall top 4 ± 1, working memory and two saved messages; at 20 and 5,000 messages."""
    from agent_memory.local.hashing import HashingEmbedder
    from agent_memory.local.index import EmbeddedIndex
    from agent_memory.recall.indexing import index_messages

    embedder = HashingEmbedder()
    index = EmbeddedIndex(":memory:", embedder.id, embedder.dimension)
    index.ensure()
    for number in range(4):
        thread_id = f"old-{number}"
        bench.fill(thread_id, 12)
        rows = bench.store.latest(RESOURCE, thread_id, 12)
        middle = rows[5].with_parts([type(rows[5].parts[0])(f"fact {number} " + "kiwi " * 20)])
        index_messages(index, embedder, [middle])
    searches: list[float] = []
    search = index.search

    def counted(query: Any) -> Any:
        started = time.perf_counter()
        found = search(query)
        searches.append(started)
        bench.timeline.spans.append((started, time.perf_counter()))
        return found

    index.search = counted  # type: ignore[method-assign]
    bench.store.put_working_memory(RESOURCE, None, "# User\n- Name: Ada\n" * 10, expected_version=0)
    memory = Memory(
        storage=bench.store,
        vector=index,
        embedder=embedder,
        last_messages=10,
        semantic_recall={"top_k": 4, "message_range": 1},
        working_memory={"scope": "resource"},
    )

    def mark(_request: Any) -> Any:
        bench.timeline.model_at = time.perf_counter()
        return say(TEXT)

    agent = Agent("bench", model=FakeModel(mark), memory=memory).bind(Services(store=bench.store, meter=bench.meter))
    out: dict[str, float] = {}
    for size in sizes:
        thread_id = f"size-{size}"
        bench.fill(thread_id, size)
        costs = []
        for repeat in range(5):
            bench.timeline.spans.clear()
            searches.clear()
            text = ("kiwi " * 3 + TEXT)[:600]
            message = {"id": f"u-{size}-{repeat}", "role": "user", "content": text}
            result = agent.generate([message], memory=MemoryArgs(thread_id, RESOURCE))
            hops = bench.timeline.hops()
            costs.append((result.notes["cost"], len(searches), hops, result.notes["recall"]["hits"]))
        cost, searched, _hops, recalled = costs[-1]
        out[f"read_units_at_{size}"] = statistics.median(c[0]["readUnits"] for c in costs)
        out[f"write_units_at_{size}"] = statistics.median(c[0]["writeUnits"] for c in costs)
        if size == sizes[0]:
            out["dynamodb_requests_per_turn"] = max(c[0]["requests"] for c in costs)
            out["search_requests_per_turn"] = searched
            out["recalled_hits"] = recalled
            # Requests of one hop may follow each other on a busy machine; those that wait for each other always do.
            out["hops_before_model"] = min(c[2][0] for c in costs)
            out["hops_after_model"] = min(c[2][1] for c in costs)
            out["bytes_read_per_turn"] = cost["bytesRead"]
    return out


def overhead_ms() -> float:
    """In-process time of a turn without any network: the same turn over a store in memory, median of 50."""
    from tests.support.fake_store import FakeStore

    store = FakeStore()
    agent = Agent("bench", model=FakeModel(say("ok")), memory=Memory(storage=store, last_messages=10))
    agent.bind(Services(store=store))
    times = []
    for number in range(60):
        started = time.perf_counter()
        agent.generate([{"id": f"u{number}", "role": "user", "content": TEXT}], memory=MemoryArgs("t", "r"))
        times.append((time.perf_counter() - started) * 1000)
    return statistics.median(times[10:])


def input_filter_ms() -> float:
    """The input filter on 1,000 echoed messages and one new one, median of five."""
    from agent_memory.messages.list import MessageList
    from agent_memory.processors.base import InputContext, LoadContext, RunContext
    from agent_memory.processors.input_filter import MemoryInputFilter
    from tests.support.fake_store import FakeStore

    store = FakeStore()
    stored = Message.text_message("user", "stored", id="s-0", thread_id="t", resource_id="r")
    store.save_messages("r", "t", [stored])
    roles = ("user", "assistant")
    sent = [Message.text_message(roles[n % 2], TEXT, id=f"e-{n}") for n in range(1_000)]
    sent.append(Message.text_message("user", "new", id="n-1"))
    times = []
    for _ in range(5):
        messages = MessageList(thread_id="t", resource_id="r")
        messages.add(sent, "input")
        run = RunContext("run", "agent", messages, thread_id="t", resource_id="r", store=store)
        run.header = store.get_thread("r", "t")
        keeper = MemoryInputFilter()
        started = time.perf_counter()
        loaded = keeper.load(LoadContext(run, keeper.id, {}, messages.of("input")))
        keeper.process_input(InputContext(run, keeper.id, {}, messages.of("input"), loaded=loaded))
        times.append((time.perf_counter() - started) * 1000)
        assert [m.id for m in messages.all()] == ["n-1"]
    return statistics.median(times)


def list_figures(bench: Bench) -> dict[str, float]:
    """One page of 20 of a resource's 10,000 threads, in both orders; the dearer one."""
    from agent_memory import clock

    owner = "many-threads"
    bench.store.create_thread(Thread("seed", owner, clock.now(), clock.now(), title="A title of usual length"))
    items = bench.client.scan(TableName=bench.names.threads)["Items"]
    seed = next(item for item in items if "title" in item and item["title"].get("S", "").startswith("A title"))
    resource = next((item for item in items if item["pk"] == seed["pk"] and item["sk"]["S"] == "R"), None)
    batch: list[dict[str, Any]] = []
    for number in range(9_999):
        stamp = f"{number:05d}"
        copy = {**seed, "sk": {"S": seed["sk"]["S"].replace("seed", f"n{stamp}")}}
        for key in ("created_key", "updated_key"):
            copy[key] = {"S": seed[key]["S"].replace("seed", f"n{stamp}")}
        batch.append({"PutRequest": {"Item": copy}})
    for start in range(0, len(batch), 25):
        bench.client.batch_write_item(RequestItems={bench.names.threads: batch[start : start + 25]})
    if resource is not None:
        counted = {**resource}
        for key, value in resource.items():
            if value == {"N": "1"} and key not in ("v",):
                counted[key] = {"N": "10000"}
        bench.client.put_item(TableName=bench.names.threads, Item=counted)
    worst = (0.0, 0.0)
    for order in ("createdAt", "updatedAt"):
        with bench.meter.measure() as cost:
            page = bench.store.list_threads(owner, ThreadQuery(per_page=20, order_by=order))  # type: ignore[arg-type]
        assert len(page.threads) == 20
        assert page.total == 10_000
        worst = max(worst, (cost.requests, cost.read_units))
    return {"list_threads_requests_of_10000": worst[0], "list_threads_units_of_10000": worst[1]}


def clone_requests(bench: Bench) -> float:
    """Requests of a clone of 1,000 messages without files, reading included."""
    bench.fill("to-clone", 1_000)
    memory = Memory(storage=bench.store)
    with bench.meter.measure() as cost:
        made = memory.clone_thread(source_thread_id="to-clone", resource_id=RESOURCE)
    assert len(made.message_id_map) == 1_000
    return cost.requests


def import_cpu_ratio() -> float:
    """CPU time of importing the chat function's module over that of boto3 with one client, fresh processes, median of 5."""
    environment = {
        "PATH": "/usr/bin:/bin",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_LAMBDA_FUNCTION_NAME": "chat",  # so that log and metrics are loaded as they are on Lambda
        "PYTHONPATH": str(ROOT / "layers/agents"),
    }
    chat = f"import sys; sys.path.insert(0, {str(ROOT / 'functions/chat')!r}); import app"
    baseline = "import boto3; boto3.client('dynamodb')"

    def cpu(code: str) -> float:
        timed = f"import time; {code}; print(time.process_time())"
        times = []
        for _ in range(6):
            done = subprocess.run(
                [sys.executable, "-c", timed], env=environment, capture_output=True, text=True, check=True
            )
            times.append(float(done.stdout.strip().splitlines()[-1]))
        return statistics.median(times[1:])

    return cpu(chat) / cpu(baseline)


def measure() -> dict[str, float]:
    """All figures by name."""
    bench = Bench()
    figures = turn_figures(bench)
    figures["overhead_ms_p50"] = overhead_ms()
    figures["input_filter_ms_1000"] = input_filter_ms()
    figures.update(list_figures(bench))
    figures["clone_requests_1000"] = clone_requests(bench)
    figures["import_cpu_ratio"] = import_cpu_ratio()
    return figures


def main() -> None:
    """Print the table, write the file; counts over their budget fail the run."""
    figures = measure()
    target = ROOT / "build" / "bench.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(figures, indent=2, sort_keys=True) + "\n")
    print("Recall: the embedded index with the hashing embedder, four threads of twelve messages.")
    for name, value in sorted(figures.items()):
        budget = BUDGETS.get(name)
        mark = "" if budget is None else f"  budget {budget:g}" + ("" if value <= budget else "  OVER")
        print(f"{name:36} {value:10.2f}{mark}")
    over = [n for n, b in BUDGETS.items() if figures[n] > b and not n.endswith(("_ms_p50", "_ms_1000", "_ratio"))]
    if over:
        raise SystemExit(f"over budget: {', '.join(over)}")


if __name__ == "__main__":
    main()
