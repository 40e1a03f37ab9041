"""Tool calls are left out of the prompt, and only there."""

from __future__ import annotations

import pytest

from agent_memory.agent.agent import Agent
from agent_memory.agent.result import MemoryArgs
from agent_memory.agent.tools import tool
from agent_memory.errors import ConfigurationError
from agent_memory.memory import Memory
from agent_memory.messages import ToolPart
from agent_memory.processors.tool_call_filter import ToolCallFilter
from tests.support.build import call as stored_call
from tests.support.build import stored
from tests.support.fake_store import FakeStore
from tests.support.models import FakeModel, call, say
from tests.support.runs import assistant, seed, user

ARGS = {"city": "Oslo"}


@tool
def weather(city: str) -> dict:
    """Current weather."""
    return {"city": city, "tempC": 21}


@tool
def clock_time(city: str) -> str:
    """Current time."""
    return "noon"


@pytest.fixture
def store():
    store = FakeStore()
    seed(
        store,
        [
            stored("u1", "user", "weather in Oslo?"),
            stored(
                "a1",
                "assistant",
                "let me look",
                stored_call("c1", "result", "weather", ARGS, result={"tempC": 3}),
                stored_call("c2", "result", "clock_time", ARGS, result="one"),
                {"type": "step-start"},
                "cold",
            ),
        ],
    )
    return store


def ask(store, model, processor, text="and now?", tools=(weather, clock_time)):
    agent = Agent("a", model=model, memory=Memory(storage=store), tools=tools, input_processors=[processor])
    return agent.generate(text, memory=MemoryArgs("trip-42", "ada"))


def test_calls_of_earlier_turns_are_left_out_and_those_of_this_turn_stay(store):
    model = FakeModel(call(("c3", "weather", ARGS)), say("mild"))
    result = ask(store, model, ToolCallFilter())
    assert result.text == "mild"
    before = [("user", "weather in Oslo?"), ("assistant", "let me look"), ("assistant", "cold"), ("user", "and now?")]
    assert model.prompt(0) == before
    assert model.prompt(1) == [
        *before,
        ("assistant", "[call c3 weather]"),
        ("tool", "[result c3 {'city': 'Oslo', 'tempC': 21}]"),
    ]


def test_what_is_stored_keeps_its_calls(store):
    ask(store, FakeModel(call(("c3", "weather", ARGS)), say("mild")), ToolCallFilter())
    rows = store.latest("ada", "trip-42", 10)
    calls = [p.invocation.tool_call_id for row in rows for p in row.parts if isinstance(p, ToolPart)]
    assert calls == ["c1", "c2", "c3"]


def test_only_the_excluded_tools_are_left_out(store):
    model = FakeModel(say("ok"))
    ask(store, model, ToolCallFilter(exclude=["weather"]))
    assert model.prompt()[1:4] == [
        ("assistant", "let me look[call c2 clock_time]"),
        ("tool", "[result c2 one]"),
        ("assistant", "cold"),
    ]


def test_an_empty_list_leaves_nothing_out(store):
    model = FakeModel(say("ok"))
    ask(store, model, ToolCallFilter(exclude=[]))
    assert model.prompt()[1] == ("assistant", "let me look[call c1 weather][call c2 clock_time]")


def test_only_the_newest_tool_steps_of_a_turn_are_shown(store):
    model = FakeModel(call(("c3", "weather", ARGS)), call(("c4", "clock_time", ARGS)), say("done"))
    ask(store, model, ToolCallFilter(filter_after_tool_steps=1))
    assert model.prompt(1)[-2:] == [
        ("assistant", "[call c3 weather]"),
        ("tool", "[result c3 {'city': 'Oslo', 'tempC': 21}]"),
    ]
    assert model.prompt(2)[-3:] == [
        ("user", "and now?"),
        ("assistant", "[call c4 clock_time]"),
        ("tool", "[result c4 noon]"),
    ]


def test_the_result_a_page_has_just_sent_for_a_stored_call_is_shown(store):
    seed(
        store, [stored("u2", "user", "where am I?"), stored("a2", "assistant", stored_call("c9", "call", "locate", {}))]
    )
    model = FakeModel(say("you are in Oslo"))
    outcome = {
        "role": "tool",
        "content": [
            {
                "type": "tool-result",
                "toolCallId": "c9",
                "toolName": "locate",
                "output": {"type": "text", "value": "Oslo"},
            }
        ],
    }
    ask(store, model, ToolCallFilter(), [outcome])
    assert model.prompt()[-2:] == [("assistant", "[call c9 locate]"), ("tool", "[result c9 Oslo]")]
    assert "[call c1" not in str(model.prompt())


def test_a_result_that_comes_with_the_next_question_is_shown(store):
    located = stored_call("c9", "call", "locate", {})
    seed(store, [stored("u2", "user", "where am I?"), stored("a2", "assistant", located)])
    told = stored_call("c9", "result", "locate", {}, result="Oslo")
    model = FakeModel(say("Norway"))
    ask(store, model, ToolCallFilter(), [assistant(told, id="a2"), user("and the country?", "u3")])
    assert model.prompt()[-3:] == [
        ("assistant", "[call c9 locate]"),
        ("tool", "[result c9 Oslo]"),
        ("user", "and the country?"),
    ]
    assert "[call c1" not in str(model.prompt())


def test_what_a_tool_wrote_for_the_model_may_be_kept_as_text():
    store = FakeStore()
    written = {"providerMetadata": {"mastra": {"modelOutput": {"type": "text", "value": "3 degrees, dry"}}}}
    seed(
        store,
        [
            stored("u1", "user", "weather?"),
            stored("a1", "assistant", stored_call("c1", "result", "weather", ARGS, result={"tempC": 3}, part=written)),
        ],
    )
    model = FakeModel(say("ok"))
    ask(store, model, ToolCallFilter(preserve_model_output=True))
    assert model.prompt() == [("user", "weather?"), ("assistant", "3 degrees, dry"), ("user", "and now?")]
    ask(store, model, ToolCallFilter())
    assert model.prompt()[:2] == [("user", "weather?"), ("user", "and now?")]


@pytest.mark.parametrize("wrong", [{"exclude": "weather"}, {"filter_after_tool_steps": 0}])
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ConfigurationError, match="expected"):
        ToolCallFilter(**wrong)
