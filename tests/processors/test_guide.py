"""The code in docs/processors.md runs, as it stands there, and does what the text around it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent_memory import Memory, MemoryArgs
from agent_memory import processors as public
from agent_memory.agent.agent import Agent
from agent_memory.agent.tools import tool
from agent_memory.processors.base import INPUT_HOOKS, OUTPUT_HOOKS
from tests.support.fake_store import FakeStore
from tests.support.models import FakeModel, call, say

GUIDE = Path(__file__).parents[2] / "docs" / "processors.md"


@pytest.fixture(scope="module")
def guide() -> str:
    return GUIDE.read_text(encoding="utf-8")


@pytest.fixture
def names(guide):
    """What the blocks of code define, run in their order."""
    defined = {"InputChange": public.InputChange}
    blocks = re.findall(r"^```python\n(.*?)^```", guide, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 4
    for block in blocks:
        exec(compile(block, str(GUIDE), "exec"), defined)
    return defined


def test_its_code_runs_and_its_assertions_hold(names):
    assert names["desk"].id == "desk"
    assert names["careful"].id == "careful"


def test_the_first_example_adds_a_system_text(names):
    agent = Agent("a", model="scripted/conformance", input_processors=[names["HouseName"]()])
    assert agent.generate("system").text == "You speak for the Harbour Hotel."


def test_what_the_example_hides_is_not_stored_and_what_it_stops_leaves_nothing(names):
    store = FakeStore()
    rules = names["rules"]
    agent = Agent(
        "desk",
        model="scripted/conformance",
        memory=Memory(storage=store),
        input_processors=[rules],
        output_processors=[rules],
    )
    memory = MemoryArgs("trip-42", "ada")
    agent.generate("say key-1234", memory=memory)
    assert [row.text for row in store.rows("trip-42")] == ["say key-1234", "[key]"]
    before = store.rows("trip-42")
    assert agent.generate("the casino?", memory=memory).tripwire is not None
    assert agent.generate("say refund", memory=memory).tripwire is not None
    assert store.rows("trip-42") == before


def test_the_example_asks_again_and_trims_tool_results(names):
    @tool
    def room() -> dict:
        """Looks a room up."""
        return {"number": 7, "_cost": 3}

    rules = names["rules"]
    model = FakeModel(say("a refund"), call(("c1", "room", {})), say("room 7"))
    agent = Agent(
        "desk", model=model, tools=[room], input_processors=[rules], output_processors=[rules], max_processor_retries=1
    )
    result = agent.generate("which room?")
    assert result.text == "room 7"
    assert "Never promise a refund" in model.system(1)
    assert result.tool_results[0]["result"] == {"number": 7}


def test_it_names_every_hook_and_every_built_in_processor(guide):
    for hook in (*INPUT_HOOKS, *OUTPUT_HOOKS, "load", "process_api_error"):
        assert f"| `{hook}` |" in guide
    built_in = [name for name in public.__all__ if getattr(getattr(public, name), "id", None).__class__ is str]
    for name in built_in:
        if not name.endswith("Processor"):
            assert f"| `{name}` |" in guide
