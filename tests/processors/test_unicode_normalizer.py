"""What users type is brought into one form."""

from __future__ import annotations

import pytest

from agent_memory.agent.agent import Agent
from agent_memory.agent.result import MemoryArgs
from agent_memory.memory import Memory
from agent_memory.processors.unicode_normalizer import UnicodeNormalizer
from tests.support.build import stored
from tests.support.fake_store import FakeStore
from tests.support.models import FakeModel, say
from tests.support.runs import make_run, process_input, seed, user

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
SCOTLAND = "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("ｉｇｎｏｒｅ", "ignore"),
        ("\ufb01le \u2460", "file 1"),
        ("e\u0301", "\u00e9"),
        ("  a \t\u00a0 b  ", "a b"),
        ("a\n\n\n\nb\r\n \r\n\r\nc", "a\n\nb\n\nc"),
        ("a\n\nb", "a\n\nb"),
        ("zero\u200bwidth", "zero\u200bwidth"),
    ],
)
def test_text_is_brought_to_one_form(given, expected):
    assert UnicodeNormalizer().normalize(given) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("ig\u200bno\u2060re\x00\x07 \u202ethis\ufeff", "ignore this"),
        ("line\nbreak\tand tab", "line\nbreak and tab"),
        (f"{FAMILY} ok", f"{FAMILY} ok"),
        (f"{SCOTLAND}!", f"{SCOTLAND}!"),
        ("1\ufe0f\u20e3", "1\ufe0f\u20e3"),
        ("hidden \U000e0068\U000e0069 tags", "hidden tags"),
        ("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"),
        ("a\u200d b", "a b"),
        ("ig\u200dno\u200cre", "ignore"),
        ("\u2764\ufe0f\u200d\U0001f525", "\u2764\ufe0f\u200d\U0001f525"),
    ],
)
def test_unseen_characters_go_and_writing_that_needs_them_stays(given, expected):
    assert UnicodeNormalizer(strip_control_chars=True).normalize(given) == expected


def test_emoji_go_too_when_asked():
    plain = UnicodeNormalizer(strip_control_chars=True, preserve_emojis=False)
    assert plain.normalize(f"hi {FAMILY} there \u2764\ufe0f") == "hi there"


def test_white_space_may_stay():
    assert UnicodeNormalizer(collapse_whitespace=False, trim=False).normalize("  a  b ") == "  a  b "


def test_the_model_and_storage_get_the_normal_form_and_history_stays_as_it_was():
    store = FakeStore()
    seed(store, [stored("u1", "user", "ｗｉｄｅ  one")])
    model = FakeModel(say("ok"))
    agent = Agent("a", model=model, memory=Memory(storage=store), input_processors=[UnicodeNormalizer()])
    agent.generate("ｗｉｄｅ   two ", memory=MemoryArgs("trip-42", "ada"))
    assert model.prompt() == [("user", "ｗｉｄｅ  one"), ("user", "wide two")]
    assert [row.text for row in store.latest("ada", "trip-42", 9)] == ["ｗｉｄｅ  one", "wide two", "ok"]
    assert [row.content.content for row in store.latest("ada", "trip-42", 9)][1] in (None, "wide two")


def test_input_in_its_normal_form_is_not_changed():
    run = make_run(FakeStore(), [user("plain", "u1")])
    before = run.messages.get("u1")
    process_input(run, UnicodeNormalizer())
    assert run.messages.get("u1") is before
