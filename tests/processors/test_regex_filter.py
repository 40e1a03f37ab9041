"""What patterns describe is hidden, stopped or counted, on every way that text takes."""

from __future__ import annotations

import json
import random
import time

import pytest

from agent_memory.agent.agent import Agent
from agent_memory.agent.result import MemoryArgs
from agent_memory.agent.tools import tool
from agent_memory.errors import ConfigurationError
from agent_memory.memory import Memory
from agent_memory.messages.message import message_to_json
from agent_memory.ports import ModelChunk
from agent_memory.processors._held_text import HeldText
from agent_memory.processors._patterns import find_all, passes_luhn, pattern_rule, preset_rules, redacted
from agent_memory.processors.regex_filter import RegexFilter, RegexFilterProcessor
from tests.support.build import call as stored_call
from tests.support.build import stored
from tests.support.fake_store import FakeStore
from tests.support.models import FakeModel, call, say
from tests.support.runs import seed

CARD = "4111 1111 1111 1111"
PLAIN = "4111111111111111"


def hide(text, *presets):
    rules = preset_rules(presets)
    return redacted(text, find_all(text, rules))


def pieces(*texts, kind="text"):
    return [
        ModelChunk(f"{kind}-start", {"id": "t"}),
        *(ModelChunk(f"{kind}-delta", {"id": "t", "text": text}) for text in texts),
        ModelChunk(f"{kind}-end", {"id": "t"}),
    ]


DONE = [ModelChunk("finish", {"reason": "stop"})]


class Talk:
    """An agent with a filter on both sides, and everything it lets out."""

    def __init__(self, model, *, inputs=(), outputs=(), rows=(), tools=()):
        self.store = FakeStore()
        if rows:
            seed(self.store, list(rows))
        self.model = model
        self.agent = Agent(
            "a",
            model=model,
            memory=Memory(storage=self.store),
            tools=tools,
            input_processors=inputs,
            output_processors=outputs,
        )

    def send(self, text="hi"):
        stream = self.agent.stream(text, memory=MemoryArgs("trip-42", "ada"))
        self.events = list(stream)
        self.result = stream.result
        return self.result

    def rows(self):
        return self.store.latest("ada", "trip-42", 50)

    def raw(self):
        return json.dumps([message_to_json(row) for row in self.rows()], default=str)

    def streamed(self):
        return "".join(e.payload["text"] for e in self.events if e.type == "text-delta")


class TestPresets:
    @pytest.mark.parametrize(
        ("text", "shown"),
        [
            (f"card {CARD}.", "card [credit-card]."),
            (f"card {PLAIN}, ok", "card [credit-card], ok"),
            ("4111-1111-1111-1111", "[credit-card]"),
            ("378282246310005", "[credit-card]"),
            (f"{CARD} 5", "[credit-card] 5"),
            (f"12 {CARD}", "12 [credit-card]"),
            (f"{CARD} 5555 5555 5555 4444", "[credit-card] [credit-card]"),
            ("4111 1111 1111 1112", "4111 1111 1111 1112"),
            ("order 1234567890123", "order 1234567890123"),
            (f"{PLAIN}9999999999", f"{PLAIN}9999999999"),
        ],
    )
    def test_card_numbers_are_those_with_a_right_check_digit(self, text, shown):
        assert hide(text, "credit-card") == shown

    def test_check_digit(self):
        assert passes_luhn(PLAIN)
        assert not passes_luhn("4111111111111112")

    @pytest.mark.parametrize(
        ("text", "shown"),
        [
            ("write to ada.l+x@mail.example.org!", "write to [email]!"),
            ("a@b", "a@b"),
            ("call +44 20 7946 0958 now", "call [phone] now"),
            ("(212) 555-0123 or 212-555-0123", "[phone] or [phone]"),
            ("030/1234 567", "[phone]"),
            ("on 2026-03-04 at 10:30", "on 2026-03-04 at 10:30"),
            ("1 000 000 people", "1 000 000 people"),
        ],
    )
    def test_addresses_and_phone_numbers(self, text, shown):
        assert hide(text, "email", "phone") == shown

    @pytest.mark.parametrize(
        "secret",
        [
            "sk-proj-abcdefghijklmnopqrst",
            "sk_live_abcdefghijklmnopqrst",
            "AKIAIOSFODNN7EXAMPLE",
            "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
            "xoxb-1234567890-abcdef",
            "AIza" + "a" * 35,
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abc-def_ghi",
        ],
    )
    def test_keys_and_tokens(self, secret):
        assert hide(f"use {secret} here", "secrets") == "use [api-key] here"

    @pytest.mark.parametrize(
        "hostile",
        [
            "a" * 50_000,
            "a." * 25_000 + "@",
            " +1111111111111111111111" * 2_000,
            "4 " * 25_000,
            "sk-" * 17_000,
            "0" * 50_000,
        ],
    )
    def test_no_text_takes_long_to_search(self, hostile):
        started = time.process_time()
        hide(hostile, "pii", "secrets")
        assert time.process_time() - started < 2.0

    def test_groups_and_unknown_names(self):
        assert [rule.name for rule in preset_rules(["pii", "email"])] == ["credit-card", "email", "phone"]
        with pytest.raises(ConfigurationError, match="credit-card"):
            RegexFilter(presets=["cards"])


class TestStream:
    def test_a_number_in_pieces_is_never_shown_in_part(self):
        talk = Talk(FakeModel([*pieces("pay with 41", "11 1111 11", "11 11", "11 please"), *DONE]), outputs=[cards()])
        assert talk.send().text == "pay with [credit-card] please"
        shown = [e.payload["text"] for e in talk.events if e.type == "text-delta"]
        assert "".join(shown) == "pay with [credit-card] please"

    def test_text_flows_while_its_end_is_held(self):
        words = [f"word{n:03d} " for n in range(40)]
        talk = Talk(FakeModel([*pieces(*words), *DONE]), outputs=[cards()])
        talk.send()
        assert talk.streamed() == "".join(words)
        assert len([e for e in talk.events if e.type == "text-delta"]) > 20

    def test_reasoning_is_held_too(self):
        talk = Talk(
            FakeModel([*pieces("hm 4111 1111", " 1111 1111 hm", kind="reasoning"), *say("ok")]), outputs=[cards()]
        )
        talk.send()
        assert "".join(e.payload["text"] for e in talk.events if e.type == "reasoning-delta") == "hm [credit-card] hm"
        assert "1111" not in talk.raw() + repr(talk.result)

    @pytest.mark.parametrize("seed_", range(60))
    def test_any_cut_of_a_text_gives_what_the_whole_gives(self, seed_):
        choice = random.Random(seed_)
        parts = [
            CARD,
            PLAIN,
            "ada@example.org",
            "+44 20 7946 0958",
            "eyJ" + "ab" * 90 + ".cd.ef",
            "12",
            " ",
            "word",
            "\n",
        ]
        text = " ".join(choice.choice(parts) for _ in range(30))
        rules = preset_rules(["pii", "secrets"])
        held = HeldText(rules, 64, [])
        out, place = [], 0
        while place < len(text):
            step = choice.randint(1, 9)
            out.append(held.add(text[place : place + step]))
            place += step
        out.append(held.end())
        assert "".join(out) == redacted(text, find_all(text, rules))

    def test_a_match_far_longer_than_the_window_stays_hidden_and_takes_linear_time(self):
        calls = []

        def find(text):
            calls.append(len(text))
            return [match.span() for match in pattern.finditer(text)]

        import re

        from agent_memory.processors._patterns import Rule

        pattern = re.compile(r"<secret>.*?(?:</secret>|\Z)", re.DOTALL)
        held = HeldText([Rule("secret", find, "[secret]")], 16, [])
        text = "a <secret>" + "x" * 60_000 + "</secret> b"
        out = "".join(held.add(text[n : n + 5]) for n in range(0, len(text), 5)) + held.end()
        assert out == "a [secret] b"
        assert sum(calls) < 40 * len(text)

    def test_a_replacement_may_refer_to_groups_and_see_what_is_before_its_match(self):
        rule = pattern_rule("id", r"(?<=id=)(\d)\d+", r"\1…")
        held = HeldText([rule], 4, [])
        assert "".join([*(held.add(c) for c in "x id=123456 and id=98 "), held.end()]) == "x id=1… and id=9… "


def cards(**more):
    return RegexFilter(presets=["credit-card"], **more)


@tool
def lookup() -> dict:
    """Looks an account up."""
    return {"card": CARD, "number": int(PLAIN), CARD: ["x", {"deep": PLAIN}]}


@tool
def broken() -> None:
    """Fails."""
    raise RuntimeError(f"card {CARD} was declined")


@tool
def pay(card: str) -> str:
    """Pays."""
    return f"paid with {card}"


class TestOutput:
    def test_case_59_what_is_redacted_is_nowhere(self):
        model = FakeModel(
            call(("c1", "lookup", {}), ("c2", "broken", {}), ("c3", "pay", {"card": CARD}), text=f"I try {CARD}"),
            [*pieces("your card is 4111 1111", " 1111 1111"), *DONE],
            say("second"),
        )
        both = cards()
        talk = Talk(model, inputs=[both], outputs=[both], tools=[lookup, broken, pay])
        result = talk.send(f"my card is {CARD}")
        assert result.text == "your card is [credit-card]"
        seen = [talk.raw(), repr(result), repr(talk.events), repr(model.requests)]
        talk.send("and again")
        seen += [talk.raw(), repr(talk.result), repr(talk.events), repr(model.requests)]
        assert not [text for text in seen if "1111" in text]
        assert all("[credit-card]" in text for text in seen[:4])
        assert model.prompt()[0] == ("user", "my card is [credit-card]")
        assert result.notes["regexFilter"]["credit-card"] >= 6

    def test_case_59_as_output_processor_alone(self):
        model = FakeModel(say(f"it is {CARD} ok"), say("second"))
        talk = Talk(model, outputs=[cards()])
        talk.send("tell me")
        talk.send("again")
        for text in (talk.raw(), repr(talk.events), repr(talk.result), repr(model.requests[1].messages)):
            assert "1111" not in text
        assert [row.text for row in talk.rows()][:2] == ["tell me", "it is [credit-card] ok"]

    def test_an_output_filter_leaves_the_prompt_alone(self):
        model = FakeModel(say("ok"))
        Talk(model, outputs=[cards()]).send(f"use {CARD}")
        assert model.prompt() == [("user", f"use {CARD}")]

    def test_arguments_in_pieces_are_not_shown_before_they_are_looked_at(self):
        chunks = [
            ModelChunk("tool-call-input-streaming-start", {"toolCallId": "c1", "toolName": "pay"}),
            ModelChunk("tool-call-delta", {"toolCallId": "c1", "argsTextDelta": '{"card": "4111 1111'}),
            ModelChunk("tool-call-delta", {"toolCallId": "c1", "argsTextDelta": ' 1111 1111"}'}),
            ModelChunk("tool-call-input-streaming-end", {"toolCallId": "c1"}),
            *call(("c1", "pay", {"card": CARD})),
        ]
        talk = Talk(FakeModel(chunks, say("done")), outputs=[cards()], tools=[pay])
        talk.send()
        assert "1111" not in repr(talk.events)
        [told] = [e.payload for e in talk.events if e.type == "tool-call"]
        assert told == {"toolCallId": "c1", "toolName": "pay", "args": {"card": "[credit-card]"}}

    def test_block_stops_the_answer_and_stores_nothing(self):
        talk = Talk(
            FakeModel([*pieces("well, 4111 1111", " 1111 1111 it is"), *DONE]), outputs=[cards(strategy="block")]
        )
        result = talk.send()
        assert result.tripwire.metadata == {"rules": ["credit-card"]}
        assert talk.events[-1].type == "tripwire"
        assert "4111" not in repr(talk.events)
        assert talk.rows() == ()

    def test_block_stops_at_a_tools_result(self):
        talk = Talk(FakeModel(call(("c1", "lookup", {}))), outputs=[cards(strategy="block")], tools=[lookup])
        assert talk.send().tripwire.processor_id == "regex-filter"
        assert talk.rows() == ()

    def test_warn_lets_pass_and_counts(self):
        model = FakeModel(call(("c1", "broken", {})), say(f"it is {CARD}"))
        talk = Talk(model, inputs=[cards(strategy="warn")], outputs=[cards(strategy="warn")], tools=[broken])
        result = talk.send(f"{CARD}?")
        assert result.text == f"it is {CARD}"
        assert result.notes["regexFilter"] == {"credit-card": 3}
        assert [row.text for row in talk.rows()] == [f"{CARD}?", f"it is {CARD}"]


class TestInput:
    def test_input_is_stored_as_the_model_sees_it(self):
        model = FakeModel(say("ok"))
        talk = Talk(model, inputs=[RegexFilter(presets="pii")])
        talk.send(f"I am ada@example.org, {CARD}")
        assert model.prompt() == [("user", "I am [email], [credit-card]")]
        assert talk.rows()[0].text == "I am [email], [credit-card]"
        assert "1111" not in talk.raw()

    def test_block_stops_before_the_model_and_stores_nothing(self):
        model = FakeModel(say("ok"))
        talk = Talk(model, inputs=[cards(strategy="block")])
        result = talk.send(f"use {CARD}")
        assert (result.tripwire.reason, model.requests, talk.rows()) == (
            "the text holds what is not allowed here: credit-card",
            [],
            (),
        )

    def test_case_83_history_is_hidden_from_the_model_and_stays_stored(self):
        done = stored_call("c1", "result", "lookup", {"q": CARD}, result={"card": PLAIN})
        rows = [stored("u1", "user", f"mine is {CARD}"), stored("a1", "assistant", "noted", done)]
        model = FakeModel(say("ok"))
        talk = Talk(model, inputs=[cards()], rows=rows)
        talk.send("what was it?")
        assert "1111" not in repr(model.requests)
        assert talk.rows()[0].text == f"mine is {CARD}"

    def test_block_does_not_judge_history(self):
        model = FakeModel(say("ok"))
        talk = Talk(model, inputs=[cards(strategy="block")], rows=[stored("u1", "user", f"mine is {CARD}")])
        assert talk.send("hello").text == "ok"

    def test_instructions_are_not_searched(self):
        model = FakeModel(say("ok"))
        agent = Agent(
            "a", model=model, instructions="Write to help@example.org", input_processors=[RegexFilter(presets="pii")]
        )
        agent.generate("hi")
        assert model.system() == "Write to help@example.org"

    def test_the_outcome_of_a_pages_own_tool_is_filtered(self):
        rows = [stored("u1", "user", "go"), stored("a1", "assistant", stored_call("c9", "call", "locate", {}))]
        model = FakeModel(say("ok"))
        talk = Talk(model, inputs=[cards()], rows=rows)
        output = {"type": "text", "value": f"near {CARD}"}
        part = {"type": "tool-result", "toolCallId": "c9", "toolName": "locate", "output": output}
        talk.send([{"role": "tool", "content": [part]}])
        assert model.prompt()[-1] == ("tool", "[result c9 near [credit-card]]")
        assert "1111" not in talk.raw()
        assert "near [credit-card]" in talk.raw()


class TestSettings:
    def test_rules_of_ones_own(self):
        talk = Talk(
            FakeModel(say("ticket ACME-123 is open")),
            outputs=[RegexFilter([{"name": "ticket", "pattern": r"ACME-\d+", "replacement": "a ticket"}])],
        )
        assert talk.send().text == "ticket a ticket is open"
        assert RegexFilterProcessor is RegexFilter

    def test_two_filters_do_their_work_side_by_side(self):
        first, second = cards(), RegexFilter([{"name": "name", "pattern": "Ada"}])
        talk = Talk(FakeModel(say(f"Ada has {CARD} here")), outputs=[first, second])
        assert talk.send().text == "[name] has [credit-card] here"

    @pytest.mark.parametrize(
        "wrong",
        [
            {},
            {"rules": [{"name": "x"}]},
            {"rules": [{"name": "x", "pattern": "("}]},
            {"rules": [{"name": "x", "pattern": "a", "flags": "i"}]},
            {"rules": ["a"]},
            {"presets": "pii", "strategy": "hide"},
            {"presets": "pii", "window": 0},
        ],
    )
    def test_settings_that_make_no_sense_are_refused(self, wrong):
        with pytest.raises(ConfigurationError):
            RegexFilter(**wrong)
