"""The examples of docs/processors.md run, and do what the guide says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from agent_memory import Agent, Memory, MemoryArgs, processors
from agent_memory.processors.base import HOOKS
from agent_memory.processors.pipeline import arrange, check_processor
from tests.support.build import stored
from tests.support.fake_store import FakeStore
from tests.support.models import FakeModel, say
from tests.support.runs import seed

GUIDE = (Path(__file__).parents[2] / "docs" / "processors.md").read_text()
ARGS = MemoryArgs(thread="trip-42", resource="ada")


@pytest.fixture(scope="module")
def guide() -> dict[str, Any]:
    """The names that the guide's Python blocks define, run in order."""
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", GUIDE, re.S):
        exec(compile(block, "docs/processors.md", "exec"), names)
    return names


@pytest.fixture
def store() -> FakeStore:
    return FakeStore()


def ask(store, text, *answers, inputs=(), outputs=(), **fields):
    model = FakeModel(*(say(answer) for answer in answers or ("ok",)))
    agent = Agent(
        "helper",
        model=model,
        memory=Memory(storage=store),
        input_processors=inputs,
        output_processors=outputs,
        **fields,
    )
    return agent.generate(text, memory=ARGS), model


def test_every_class_of_the_table_exists_under_its_id():
    rows = re.findall(r"^\| `(\w+)` \| `([\w-]+)` \|", GUIDE, re.M)
    assert len(rows) == 10
    assert {name: getattr(processors, name).id for name, _ in rows} == dict(rows)


def test_every_hook_is_in_the_table():
    assert set(re.findall(r"^\| `(load|process_\w+)` \|", GUIDE, re.M)) == {"load", *HOOKS}


def test_the_order_is_the_one_the_guide_draws():
    class Mine:
        id = "mine"

        def process_input(self, ctx):
            return None

    made = {
        "memory-input-filter": processors.MemoryInputFilter(),
        "working-memory": processors.WorkingMemory(),
        "message-history": processors.MessageHistory(),
        "semantic-recall": processors.SemanticRecall(),
    }
    inputs, outputs = arrange(
        list(made.values()), [made["message-history"]], [Mine()], [Mine()], [processors.AttachmentUploader()]
    )
    drawn = re.search(r"^in    (.*)\nout   (.*)$", GUIDE, re.M)
    for line, found in zip(drawn.groups(), (inputs, outputs), strict=True):
        names = ["mine" if name.startswith("yours") else name for name in line.split(" → ")]
        assert [p.id for p in found] == names


def test_a_hand_placed_history_loads_its_own_number(guide, store):
    history = guide["MessageHistory"](storage=store, last_messages=20)
    seed(store, [stored(f"m{n}", "user", f"text {n}") for n in range(30)])
    _, model = ask(store, "now", inputs=[history, guide["TokenLimiter"](4000)])
    assert len(model.prompt()) == 21


def test_masked_words_reach_neither_model_nor_storage(guide, store):
    _, model = ask(store, "say Rosebud", inputs=[guide["Masked"]("Rosebud")])
    assert model.prompt() == [("user", "say ***")]
    assert store.rows("trip-42")[0].text == "say ***"


def test_a_stream_hook_changes_screen_and_storage(guide, store):
    result, _ = ask(store, "hi", "hello there", outputs=[guide["Shouting"]()])
    assert result.text == "HELLO THERE"
    assert store.rows("trip-42")[1].text == "HELLO THERE"


def test_a_guardrail_stops_and_stores_nothing_or_asks_again(guide, store):
    guard = guide["NoMedicalAdvice"]()
    result, _ = ask(store, "how much?", "take 50 mg a day", outputs=[guard])
    assert result.tripwire.reason == "The answer names a dose"
    assert result.tripwire.metadata == {"step": 0}
    assert store.rows("trip-42") == ()
    result, model = ask(
        store, "how much?", "take 50 mg a day", "ask a doctor", outputs=[guard], max_processor_retries=1
    )
    assert result.text == "ask a doctor"
    assert "names a dose" in model.system()


def test_a_load_of_ones_own_becomes_a_system_text_that_is_not_stored(guide, store):
    orders = guide["Orders"](lambda owner: [f"lamp for {owner}"])
    _, model = ask(store, "hi", inputs=[orders])
    assert "Open orders: lamp for ada" in model.system()
    assert len(store.rows("trip-42")) == 2


def test_the_examples_are_processors(guide):
    for made in (guide["Masked"](), guide["Shouting"](), guide["NoMedicalAdvice"](), guide["Orders"](list)):
        assert check_processor(made) is made
