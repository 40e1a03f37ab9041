"""Prompts and answers stay within a number of tokens."""

from __future__ import annotations

import pytest

from agent_memory.agent.agent import Agent
from agent_memory.agent.result import MemoryArgs
from agent_memory.agent.tools import tool
from agent_memory.errors import ConfigurationError
from agent_memory.memory import Memory
from agent_memory.ports import PromptToolCall, PromptToolResult
from agent_memory.processors.token_limiter import TokenLimiter, TokenLimiterProcessor
from agent_memory.tokens import count_prompt, estimate_tokens
from tests.support.build import call as stored_call
from tests.support.build import stored
from tests.support.fake_store import FakeStore
from tests.support.models import FakeModel, call, say
from tests.support.runs import seed


def words(text: str) -> int:
    """A counter that a reader can follow: one token a word."""
    return len(text.split())


def history(count, *, size=8):
    """`count` messages of `size` words, user and assistant in turn."""
    return [
        stored(f"m{n}", "user" if n % 2 else "assistant", f"message{n} " + "word " * (size - 1))
        for n in range(1, count + 1)
    ]


def talk(model, limiter, rows=(), text="what now", *, last=100, sides=("in",), tools=(), **more):
    store = FakeStore()
    if rows:
        seed(store, list(rows))
    agent = Agent(
        "a",
        model=model,
        memory=Memory(storage=store, last_messages=last),
        tools=tools,
        input_processors=[limiter] if "in" in sides else [],
        output_processors=[limiter] if "out" in sides else [],
        **more,
    )
    stream = agent.stream(text, memory=MemoryArgs("trip-42", "ada"))
    events = list(stream)
    return stream.result, events, store


def shown(model, number=-1):
    return [text.split(" ")[0] for _role, text in model.prompt(number)]


def test_the_oldest_history_goes_first():
    model = FakeModel(say("ok"))
    # 24 for the prompt, 4 + 2 for the question, 12 for each of the others.
    talk(model, TokenLimiter(24 + 6 + 3 * 12, token_counter=words), history(10))
    assert shown(model) == ["message8", "message9", "message10", "what"]


def test_system_texts_stay_and_count_first():
    model = FakeModel(say("ok"))
    talk(model, TokenLimiter(24 + 9 + 6 + 12, token_counter=words), history(4), instructions="one two three four five")
    assert model.system() == "one two three four five"
    assert shown(model) == ["message4", "what"]


def test_best_fit_goes_on_past_a_message_that_does_not_fit_and_contiguous_stops():
    rows = [*history(3), stored("big", "assistant", "big " + "word " * 200), stored("m5", "user", "message5 x")]
    for mode, expected in (
        ("best-fit", ["message1", "message2", "message3", "message5", "what"]),
        ("contiguous", ["message5", "what"]),
    ):
        model = FakeModel(say("ok"))
        talk(model, TokenLimiter(100, trim_mode=mode, token_counter=words), rows)
        assert shown(model) == expected


def test_a_call_goes_with_its_result():
    done = stored_call("c1", "result", "look", {}, result="word " * 40)
    rows = [stored("u1", "user", "first"), stored("a1", "assistant", "looking", done), stored("u2", "user", "second")]
    model = FakeModel(say("ok"))
    talk(model, TokenLimiter(60, token_counter=words), rows)
    assert shown(model) == ["first", "second", "what"]
    parts = [part for message in model.requests[0].messages for part in message.content]
    assert not [part for part in parts if isinstance(part, PromptToolCall | PromptToolResult)]


@pytest.mark.parametrize("mode", ["best-fit", "contiguous"])
@pytest.mark.parametrize(("limit", "most"), [(500, 0), (560, 39)])
def test_case_62_the_result_this_run_waits_for_stays_and_the_oldest_go(mode, limit, most):
    @tool
    def look() -> str:
        """Looks something up."""
        return "result " * 334

    assert estimate_tokens("result " * 334) == 450
    model = FakeModel(call(("c1", "look", {})), say("thanks"))
    result, _events, store = talk(
        model, TokenLimiter(limit=limit, trim_mode=mode), history(40), tools=[look], max_steps=5
    )
    assert result.text == "thanks"
    assert len(model.requests) == 2
    for request in model.requests:
        assert count_prompt(request.messages) <= limit
    before = [text for text in shown(model, 1) if text.startswith("message")]
    assert before == [f"message{n}" for n in range(41 - len(before), 41)]
    assert len(before) <= most
    assert bool(before) == bool(most)
    assert model.prompt(1)[-3] == ("user", "what now")
    assert model.prompt(1)[-2] == ("assistant", "[call c1 look]")
    assert model.prompt(1)[-1][1].startswith("[result c1 result ")
    assert len(store.latest("ada", "trip-42", 100)) == 42


def test_case_62_a_result_that_cannot_fit_stops_the_run_and_says_why():
    @tool
    def look() -> str:
        """Looks something up."""
        return "result " * 700

    model = FakeModel(call(("c1", "look", {})))
    result, events, store = talk(model, TokenLimiter(500), history(40), tools=[look])
    assert len(model.requests) == 1
    assert events[-1].type == "tripwire"
    assert result.tripwire.processor_id == "token-limiter"
    assert result.tripwire.retry is False
    assert result.tripwire.metadata == {
        "systemTokens": 0,
        "limit": 500,
        "remainingBudget": 476,
        "messageCount": 43,
    }
    assert len(store.latest("ada", "trip-42", 100)) == 40


def test_instructions_over_the_limit_stop_the_run_before_the_model():
    model = FakeModel(say("ok"))
    result, _events, _store = talk(model, TokenLimiter(30, token_counter=words), instructions="word " * 30)
    assert model.requests == []
    assert result.tripwire.metadata["remainingBudget"] == 0
    assert result.tripwire.metadata["systemTokens"] == 34


def test_memory_only_takes_a_quarter_off_the_list_at_once_and_leaves_the_turn_alone():
    model = FakeModel(say("ok"))
    talk(model, TokenLimiter(150, trim_mode="memory-only", token_counter=words), history(10))
    # 150 are 24 + 6 + 12 * 10: it fits.
    assert len(shown(model)) == 11
    talk(model, TokenLimiter(149, trim_mode="memory-only", token_counter=words), history(10))
    # 112 are left: 24 + 6 + 12 * 6.
    assert shown(model) == [*(f"message{n}" for n in range(5, 11)), "what"]
    talk(model, TokenLimiter(149, trim_mode="memory-only", at_max_remove_tokens=0, token_counter=words), history(10))
    assert shown(model)[0] == "message2"


def test_memory_only_stops_a_run_whose_input_alone_is_too_long():
    model = FakeModel(say("ok"))
    limiter = TokenLimiter(100, trim_mode="memory-only", token_counter=words)
    result, _events, store = talk(model, limiter, history(4), text="word " * 90)
    assert result.tripwire.metadata == {"systemTokens": 0, "limit": 100, "remainingBudget": 76, "messageCount": 1}
    assert model.requests == []
    assert len(store.latest("ada", "trip-42", 100)) == 4


@pytest.mark.parametrize("mode", ["best-fit", "memory-only"])
def test_what_was_recalled_from_elsewhere_is_given_up_before_the_run_is(mode):
    from agent_memory.processors.semantic_recall import block

    class Recalls:
        id = "recalls"

        def process_input(self, ctx):
            ctx.message_list.system.add(block([stored("o1", "user", "old " * 200)]), "memory")
            ctx.message_list.system.add("what is known of the user", "memory")

    for limit, kept in ((100, False), (400, True)):
        model = FakeModel(say("ok"))
        limiter = TokenLimiter(limit, trim_mode=mode, token_counter=words)
        agent = Agent("a", model=model, input_processors=[Recalls(), limiter])
        assert agent.generate("what now").text == "ok"
        assert ("old old" in model.system()) is kept
        assert "what is known of the user" in model.system()


def test_an_answer_over_the_limit_is_cut_and_says_so_once():
    limiter = TokenLimiter(3, token_counter=words)
    result, events, store = talk(FakeModel(say("one two three four five")), limiter, sides=("out",))
    assert [e.payload["text"] for e in events if e.type == "text-delta"] == ["one ", "two ", "three "]
    told = [e for e in events if e.type == "data-token-limit-reached"]
    assert [(e.payload, e.transient) for e in told] == [({"limit": 3}, True)]
    assert result.text == "one two three "
    assert [row.text for row in store.latest("ada", "trip-42", 9)] == ["what now", "one two three "]


def test_the_limit_of_an_answer_spans_its_steps():
    @tool
    def look() -> str:
        """Looks something up."""
        return "seen"

    model = FakeModel(call(("c1", "look", {}), text="one two"), say("three four five"))
    result, events, store = talk(model, TokenLimiter(3, token_counter=words), sides=("out",), tools=[look])
    assert "".join(e.payload["text"] for e in events if e.type == "text-delta") == "one twothree "
    assert result.text == "three "
    stored_texts = [part.text for part in store.latest("ada", "trip-42", 1)[0].parts if part.type == "text"]
    assert stored_texts == ["one two", "three "]


def test_count_mode_part_judges_each_piece_by_itself():
    chunks = say("one two")
    chunks[1:1] = [type(chunks[1])("text-delta", {"id": "t", "text": "a b c d e "})]
    limiter = TokenLimiter(4, count_mode="part", token_counter=words)
    result, _events, _store = talk(FakeModel(chunks), limiter, sides=("out",))
    assert result.text == "one two"


def test_strategy_abort_stores_nothing():
    limiter = TokenLimiter(3, strategy="abort", token_counter=words)
    result, events, store = talk(FakeModel(say("one two three four five")), limiter, sides=("out",))
    assert result.tripwire.processor_id == "token-limiter"
    assert events[-1].type == "tripwire"
    assert store.latest("ada", "trip-42", 9) == ()


def test_text_that_other_processors_add_is_cut_too():
    class Verbose:
        id = "verbose"

        def process_output_result(self, ctx):
            from agent_memory.messages import TextPart

            return [m.with_parts([TextPart("a b c d e")]) for m in ctx.messages]

    agent = Agent("a", model=FakeModel(say("hi")), output_processors=[Verbose(), TokenLimiter(3, token_counter=words)])
    assert agent.generate("go").text.split() == ["a", "b", "c"]


def test_settings_may_come_as_one_mapping():
    limiter = TokenLimiter({"limit": 4000, "trimMode": "memory-only", "atMaxRemoveTokens": 100, "countMode": "part"})
    assert (limiter.limit, limiter.trim_mode, limiter.at_max_remove_tokens) == (4000, "memory-only", 100)
    assert limiter.count_mode == "part"
    assert TokenLimiter(4000).at_max_remove_tokens == 1000
    assert TokenLimiterProcessor is TokenLimiter
    assert TokenLimiter(1).id == "token-limiter"


@pytest.mark.parametrize(
    "wrong",
    [
        (0, {}),
        (True, {}),
        ({"limit": "9"}, {}),
        ({"limit": 9, "mode": "x"}, {}),
        (9, {"strategy": "cut"}),
        (9, {"trim_mode": "newest"}),
        (9, {"at_max_remove_tokens": 9}),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong):
    limit, more = wrong
    with pytest.raises(ConfigurationError):
        TokenLimiter(limit, **more)
