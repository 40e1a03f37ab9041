"""Many chats at once against `make dev`'s server, and a look into the table afterwards: was anything lost or doubled?

The server runs in a process of its own on a temporary folder. Each chat sends one message after another and reads the whole
stream; some threads have two writers, as with two open pages, and some messages are sent again, as after a lost answer. Then
the server is stopped, and what it kept is read from the emulator's tables. Prints a table and writes ``build/load.json``.
Run it with ``make load``; LOAD_SECONDS and LOAD_CHATS change its size.

The driver is our own because it must check every stream to its end and the rows behind it; the tools for load that are there
count status codes, and would be a further environment to install.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import urllib3

from infra.local import resources
from infra.local.emulator import Emulator
from infra.local.stack import PREFIX
from infra.local.template import ROOT, Template

SECONDS = 60.0
CHATS = 50
CHATS_OF_AN_OWNER = 5  # they share the owner's items
SHARED_EVERY = 5  # one thread in so many has a second writer
REPEAT_EVERY = 7  # one message in so many is sent again
START_S = 60.0
ANSWER_S = 60.0


@dataclass(frozen=True)
class Turn:
    """A message that was sent. `number` counts the messages of its chat; several chats may write to one thread."""

    owner: str
    thread: str
    chat: str
    number: int

    @property
    def message_id(self) -> str:
        """Unique among all turns."""
        return f"{self.chat}-{self.number}"

    @property
    def text(self) -> str:
        """What the user says; the demo model says it back, so an answer shows to which message it belongs."""
        return f"message {self.number} of chat {self.chat}."


@dataclass
class Sent:
    """What came of the turns."""

    turns: list[Turn] = field(default_factory=list)
    first_byte_s: list[float] = field(default_factory=list)
    whole_s: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    repeats: int = 0
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0


class DevServer:
    """`make dev` as a process, on a free port."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self.address = ""

    def __enter__(self) -> DevServer:
        environment = {key: value for key, value in os.environ.items() if key not in ("MODEL", "OPENSEARCH_URL")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "infra.local", "--port", "0", "--data", str(self._data)],
            cwd=ROOT,
            env={**environment, "EMBEDDER": "hashing", "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._process.stdout is not None
        lines: queue.Queue[str] = queue.Queue()
        self.said: list[str] = []

        def read(stream: Iterable[str]) -> None:
            for line in stream:
                self.said.append(line)
                lines.put(line)
            lines.put("")

        self._reader = threading.Thread(target=read, args=(self._process.stdout,), daemon=True)
        self._reader.start()
        until = time.monotonic() + START_S
        while not self.address:
            line = lines.get(timeout=max(0.1, until - time.monotonic()))
            if not line:
                raise RuntimeError("the server did not start:\n" + "".join(self.said))
            if "is ready on " in line:
                self.address = line.split("is ready on ")[1].split()[0]
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        finally:
            self._reader.join(10)
            assert self._process.stdout is not None
            self._process.stdout.close()


def chats(count: int) -> list[tuple[str, str, str]]:
    """Owner, thread and name of each chat. A chat in `SHARED_EVERY` writes to the thread of the one before it."""
    made = []
    for number in range(count):
        owner = f"owner-{number // CHATS_OF_AN_OWNER}"
        shared = number % SHARED_EVERY == SHARED_EVERY - 1
        made.append((owner, f"thread-{number - 1 if shared else number}", f"chat-{number}"))
    return made


def drive(address: str, count: int, seconds: float) -> Sent:
    """Run the chats side by side until the time is over; the message that is under way is brought to its end."""
    sent, lock = Sent(), threading.Lock()
    pool = urllib3.PoolManager(maxsize=count, block=False, retries=False, timeout=ANSWER_S)
    started = time.monotonic()

    def chat(owner: str, thread: str, name: str) -> None:
        number = 0
        while time.monotonic() - started < seconds:
            number += 1
            turn = Turn(owner, thread, name, number)
            with lock:
                sent.turns.append(turn)
            first, whole, status, problem = send(pool, address, turn)
            again = number % REPEAT_EVERY == 0
            if again and problem is None:
                _, _, repeated, problem = send(pool, address, turn)
                status = max(status, repeated)
            with lock:
                sent.statuses[status] += 1
                sent.repeats += again
                if problem is not None:
                    sent.problems.append(f"{turn.message_id}: {problem}")
                else:
                    sent.first_byte_s.append(first)
                    sent.whole_s.append(whole)
            if problem is not None:
                return  # an ill server is not asked a thousand times more

    threads = [threading.Thread(target=chat, args=one) for one in chats(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sent.seconds = time.monotonic() - started
    return sent


def send(pool: urllib3.PoolManager, address: str, turn: Turn) -> tuple[float, float, int, str | None]:
    """Send a message and read the stream: seconds to the first byte and to the end, the status, and what was wrong."""
    body = {
        "id": turn.thread,
        "agentId": "assistant",
        "resourceId": turn.owner,
        "trigger": "submit-message",
        "messages": [{"id": turn.message_id, "role": "user", "parts": [{"type": "text", "text": turn.text}]}],
    }
    started = time.monotonic()
    try:
        answer = pool.request(
            "POST",
            f"{address}/api/chat",
            body=json.dumps(body),
            headers={"content-type": "application/json", "idempotency-key": turn.message_id},
            preload_content=False,
        )
        first = answer.read1(1)
        first_s = time.monotonic() - started
        text = (first + answer.read()).decode()
        answer.release_conn()
    except (urllib3.exceptions.HTTPError, OSError) as error:
        return 0.0, 0.0, 599, f"no answer: {type(error).__name__} {error}"
    whole_s = time.monotonic() - started
    if answer.status != 200:
        return first_s, whole_s, answer.status, f"status {answer.status}: {text[:300]}"
    if not text.endswith("data: [DONE]\n\n"):
        return first_s, whole_s, 200, f"the stream ended early: …{text[-200:]!r}"
    kinds = Counter(json.loads(line[6:])["type"] for line in text.split("\n\n") if line.startswith("data: {"))
    if kinds["error"] or not kinds["finish"]:
        return first_s, whole_s, 200, f"the stream told of an error: {text[-400:]}"
    if turn.text not in "".join(
        json.loads(line[6:]).get("delta", "") for line in text.split("\n\n") if line.startswith("data: {")
    ):
        return first_s, whole_s, 200, "the stream answered another message"
    return first_s, whole_s, 200, None


def check_tables(data: Path, turns: Sequence[Turn]) -> list[str]:
    """Compare what was sent with the rows that the stopped server has kept; returns what is wrong."""
    template = Template()
    names = resources.names(template, PREFIX)
    with Emulator(state_dir=data) as emulator:
        client = emulator.client("dynamodb")
        messages = all_items(client, names["MessagesTable"])
        threads = all_items(client, names["ThreadsTable"])
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for item in messages:
        rows[item["pk"]["S"]].append(item)
    sent: dict[str, list[Turn]] = defaultdict(list)
    for turn in turns:
        sent[f"R#{turn.owner}#{turn.thread}"].append(turn)
    found = [f"{key}: rows of a thread that nobody wrote to" for key in rows.keys() - sent.keys()]
    for key, of_thread in sent.items():
        found += check_thread(key, of_thread, sorted(rows[key], key=lambda row: int(row["sk"]["N"])))
    headers = {f"{item['pk']['S']}#{item['sk']['S'][2:]}": item for item in threads if item["sk"]["S"].startswith("T#")}
    for key in sent:
        header, last = headers.get(key), max((int(row["sk"]["N"]) for row in rows[key]), default=0)
        if header is None:
            found.append(f"{key}: no header")
        elif (count_of(header, "message_count"), count_of(header, "next_seq")) != (len(rows[key]), last + 1):
            found.append(f"{key}: the header counts {header}, the table {len(rows[key])} rows up to {last}")
    return found


def check_thread(key: str, turns: Sequence[Turn], rows: Sequence[dict[str, Any]]) -> list[str]:
    """What is wrong with a thread: lost, doubled or exchanged messages, and wrong order."""
    found = []
    place = {row["mid"]["S"]: number for number, row in enumerate(rows)}
    stored = Counter(row["mid"]["S"] for row in rows if row["role"]["S"] == "user")
    for turn in turns:
        if stored[turn.message_id] != 1:
            found.append(f"{key}: {turn.message_id} is there {stored[turn.message_id]} times")
            continue
        answers = [
            number
            for number, row in enumerate(rows)
            if row["role"]["S"] == "assistant" and turn.text in row["content"]["S"].split("I was shown")[0]
        ]
        if len(answers) != 1 or answers[0] <= place[turn.message_id]:
            found.append(f"{key}: {turn.message_id} at {place[turn.message_id]} has answers at {answers}")
    if len(rows) != 2 * len(turns):
        found.append(f"{key}: {len(turns)} turns left {len(rows)} rows")
    for chat in {turn.chat for turn in turns}:
        order = [place.get(turn.message_id, -1) for turn in turns if turn.chat == chat]
        if order != sorted(order):
            found.append(f"{key}: the messages of {chat} are out of order: {order}")
    created = [int(row["created"]["N"]) for row in rows]
    if created != sorted(created):
        found.append(f"{key}: dates go back")
    if len({turn.chat for turn in turns}) == 1 and [row["role"]["S"] for row in rows] != ["user", "assistant"] * len(
        turns
    ):
        found.append(f"{key}: questions and answers do not take turns")
    return found


def count_of(header: dict[str, Any], name: str) -> int:
    """A number of a header."""
    return int(header[name]["N"])


def all_items(client: Any, table: str) -> list[dict[str, Any]]:
    """Every item of a table."""
    pages = client.get_paginator("scan").paginate(TableName=table)
    return [item for page in pages for item in page["Items"]]


def run(seconds: float, count: int) -> dict[str, Any]:
    """Start, drive, stop and check; the figures and what was wrong."""
    with tempfile.TemporaryDirectory(prefix="agent-memory-load-") as folder:
        data = Path(folder)
        with DevServer(data) as server:
            sent = drive(server.address, count, seconds)
        # Every message that was sent to its end must be there; one that failed is a problem of its own already.
        wrong = [*sent.problems, *check_tables(data, sent.turns)]
        wrong += complaints(server.said)
    turns = len(sent.whole_s)
    return {
        "chats": count,
        "seconds": round(sent.seconds, 1),
        "turns": turns,
        "turns_per_second": round(turns / sent.seconds, 1),
        "repeats": sent.repeats,
        "first_byte_ms_p50": percentile(sent.first_byte_s, 50),
        "first_byte_ms_p99": percentile(sent.first_byte_s, 99),
        "turn_ms_p50": percentile(sent.whole_s, 50),
        "turn_ms_p99": percentile(sent.whole_s, 99),
        "statuses": {str(status): number for status, number in sorted(sent.statuses.items())},
        "problems": wrong,
    }


def complaints(said: Sequence[str]) -> list[str]:
    """Errors in the server's log, each with its traceback."""
    found = []
    for number, line in enumerate(said):
        if line.startswith("ERROR"):
            lines = [line]
            for more in said[number + 1 :]:
                if not more.startswith(("Traceback", " ")) and not lines[-1].startswith("  "):
                    break
                lines.append(more)
            found.append("the server said: " + "".join(lines).strip())
    return found


def percentile(seconds: Sequence[float], part: int) -> float:
    """A percentile in milliseconds."""
    if len(seconds) < 2:
        return round(1000 * sum(seconds), 1)
    return round(1000 * statistics.quantiles(seconds, n=100, method="inclusive")[part - 1], 1)


def main() -> int:
    """Run, print and write; 1 when anything was wrong."""
    figures = run(float(os.environ.get("LOAD_SECONDS", SECONDS)), int(os.environ.get("LOAD_CHATS", CHATS)))
    for name, value in figures.items():
        if name != "problems":
            print(f"{name:20} {value}")
    for problem in figures["problems"][:20]:
        print(problem, file=sys.stderr)
    print(f"problems             {len(figures['problems'])}")
    (ROOT / "build").mkdir(exist_ok=True)
    (ROOT / "build" / "load.json").write_text(
        json.dumps(figures, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    return 1 if figures["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
