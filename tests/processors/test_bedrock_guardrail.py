"""A Bedrock guardrail on both sides of an agent, asked through the real client with stubbed answers."""

from __future__ import annotations

import boto3
import pytest
from botocore.stub import Stubber

from agent_memory.agent.agent import Agent
from agent_memory.agent.result import MemoryArgs
from agent_memory.aws.bedrock import GuardrailVerdict
from agent_memory.errors import ConfigurationError, ModelError, ProcessorError, UnavailableError
from agent_memory.memory import Memory
from agent_memory.messages import TextPart
from agent_memory.processors.bedrock_guardrail import DEFAULT_REASON, BedrockGuardrail
from tests.support.build import stored
from tests.support.fake_store import FakeStore
from tests.support.models import FakeModel, say
from tests.support.runs import seed

USAGE = {
    "topicPolicyUnits": 0,
    "contentPolicyUnits": 1,
    "wordPolicyUnits": 0,
    "sensitiveInformationPolicyUnits": 0,
    "sensitiveInformationPolicyFreeUnits": 0,
    "contextualGroundingPolicyUnits": 0,
}
PASSES = {"usage": USAGE, "action": "NONE", "outputs": [], "assessments": []}
BLOCKS = {
    "usage": USAGE,
    "action": "GUARDRAIL_INTERVENED",
    "outputs": [{"text": "Sorry, not that."}],
    "assessments": [
        {"contentPolicy": {"filters": [{"type": "HATE", "confidence": "HIGH", "action": "BLOCKED"}]}},
    ],
}


def masks(text):
    entity = {"match": "Ada", "type": "NAME", "action": "ANONYMIZED"}
    return {
        "usage": USAGE,
        "action": "GUARDRAIL_INTERVENED",
        "outputs": [{"text": text}],
        "assessments": [{"sensitiveInformationPolicy": {"piiEntities": [entity], "regexes": []}}],
    }


@pytest.fixture(autouse=True)
def no_long_waits(monkeypatch):
    monkeypatch.setattr("agent_memory.models.retry.FIRST_DELAY_S", 0.001)


@pytest.fixture
def bedrock():
    client = boto3.client(
        "bedrock-runtime", region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test"
    )
    with Stubber(client) as stub:
        stub.client = client
        yield stub
        stub.assert_no_pending_responses()


def expect(bedrock, answer, side, *texts):
    bedrock.add_response(
        "apply_guardrail",
        answer,
        {
            "guardrailIdentifier": "gr1",
            "guardrailVersion": "2",
            "source": side,
            "content": [{"text": {"text": text}} for text in texts],
        },
    )


def talk(bedrock, model, *, sides, rows=(), text="hello", more=(), **settings):
    guardrail = BedrockGuardrail("gr1", "2", client=bedrock.client, **settings)
    store = FakeStore()
    if rows:
        seed(store, list(rows))
    agent = Agent(
        "a",
        model=model,
        memory=Memory(storage=store),
        input_processors=[guardrail] if "in" in sides else [],
        output_processors=[*more, guardrail] if "out" in sides else [],
    )
    stream = agent.stream(text, memory=MemoryArgs("trip-42", "ada"))
    return stream, store


def finished(stream):
    events = list(stream)
    return stream.result, events


def test_what_passes_on_both_sides_is_answered_and_stored(bedrock):
    expect(bedrock, PASSES, "INPUT", "hello")
    expect(bedrock, PASSES, "OUTPUT", "hi there")
    stream, store = talk(bedrock, FakeModel(say("hi there")), sides=("in", "out"))
    result, events = finished(stream)
    assert result.text == "hi there"
    assert [e.payload["text"] for e in events if e.type == "text-delta"] == ["hi there"]
    assert [row.text for row in store.latest("ada", "trip-42", 9)] == ["hello", "hi there"]


def test_blocked_input_never_reaches_the_model_nor_storage(bedrock):
    expect(bedrock, BLOCKS, "INPUT", "hello")
    model = FakeModel(say("hi"))
    stream, store = talk(bedrock, model, sides=("in", "out"))
    result, events = finished(stream)
    assert [e.type for e in events] == ["tripwire"]
    assert result.tripwire.reason == "Sorry, not that."
    assert result.tripwire.processor_id == "bedrock-guardrail"
    assert result.tripwire.metadata == {"guardrailId": "gr1", "side": "input", "policies": ["contentPolicy"]}
    assert model.requests == []
    assert store.latest("ada", "trip-42", 9) == ()


def test_nothing_of_a_blocked_answer_is_shown_or_stored(bedrock):
    expect(bedrock, BLOCKS, "OUTPUT", "something bad")
    stream, store = talk(bedrock, FakeModel(say("something bad")), sides=("out",))
    result, events = finished(stream)
    assert events[-1].type == "tripwire"
    assert "bad" not in repr(events) + repr(result)
    assert store.latest("ada", "trip-42", 9) == ()


def test_history_is_not_judged_again(bedrock):
    expect(bedrock, PASSES, "INPUT", "hello")
    stream, _store = talk(bedrock, FakeModel(say("ok")), sides=("in",), rows=[stored("u1", "user", "older words")])
    assert finished(stream)[0].text == "ok"


def test_masked_text_takes_the_place_of_what_was_said(bedrock):
    expect(bedrock, masks("I am {NAME}"), "INPUT", "I am Ada")
    expect(bedrock, masks("hi {NAME}"), "OUTPUT", "hi Ada")
    model = FakeModel(say("hi Ada"))
    stream, store = talk(bedrock, model, sides=("in", "out"), text="I am Ada", masked=True)
    result, events = finished(stream)
    assert model.prompt() == [("user", "I am {NAME}")]
    assert result.text == "hi {NAME}"
    assert "Ada" not in repr(events) + repr(result)
    assert [row.text for row in store.latest("ada", "trip-42", 9)] == ["I am {NAME}", "hi {NAME}"]


def test_masking_stops_the_run_unless_it_is_asked_for_and_does_not_quote(bedrock):
    expect(bedrock, masks("I am {NAME}"), "INPUT", "I am Ada")
    stream, _store = talk(bedrock, FakeModel(), sides=("in",), text="I am Ada")
    assert finished(stream)[0].tripwire.reason == DEFAULT_REASON


def test_what_is_blocked_is_stopped_with_masking_too(bedrock):
    expect(bedrock, BLOCKS, "INPUT", "hello")
    stream, _store = talk(bedrock, FakeModel(), sides=("in",), masked=True)
    assert finished(stream)[0].tripwire.reason == "Sorry, not that."


def test_text_that_another_processor_adds_is_judged_before_it_is_stored(bedrock):
    class Signs:
        id = "signs"

        def process_output_result(self, ctx):
            return [m.with_parts([*m.parts, TextPart("yours, bad words")]) for m in ctx.messages]

    expect(bedrock, PASSES, "OUTPUT", "hi")
    expect(bedrock, BLOCKS, "OUTPUT", "yours, bad words")
    stream, store = talk(bedrock, FakeModel(say("hi")), sides=("out",), more=[Signs()])
    assert finished(stream)[0].tripwire.reason == "Sorry, not that."
    assert store.latest("ada", "trip-42", 9) == ()


def test_a_guardrail_that_refuses_fails_the_run_closed(bedrock):
    bedrock.add_client_error("apply_guardrail", "AccessDeniedException", "no", http_status_code=403)
    model = FakeModel(say("hi"))
    with pytest.raises(ProcessorError, match="bedrock:ApplyGuardrail"):
        talk(bedrock, model, sides=("in",))
    assert model.requests == []


class _Odd:
    """An adapter that misbehaves."""

    def __init__(self, outcome):
        self.outcome = outcome

    def apply(self, texts, source):
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


def test_a_guardrail_that_is_away_fails_the_run_closed():
    away = BedrockGuardrail("gr1", client=_Odd(ModelError("away", provider_status=503, retryable=True)))
    store = FakeStore()
    agent = Agent("a", model=FakeModel(say("unjudged words")), memory=Memory(storage=store), output_processors=[away])
    stream = agent.stream("hello", memory=MemoryArgs("trip-42", "ada"))
    result, events = finished(stream)
    assert isinstance(result.error, UnavailableError)
    assert result.error.code == "GUARDRAIL_UNAVAILABLE"
    assert "unjudged" not in repr(events) + repr(result)
    assert [row.text for row in store.latest("ada", "trip-42", 9)] == ["hello"]


@pytest.mark.parametrize("outcome", [KeyError("action"), GuardrailVerdict("ERROR"), None])
def test_whatever_else_goes_wrong_is_never_a_pass(outcome):
    model = FakeModel(say("hi"))
    agent = Agent("a", model=model, input_processors=[BedrockGuardrail("gr1", client=_Odd(outcome))])
    with pytest.raises(ProcessorError, match="the run was stopped"):
        agent.generate("hello")
    assert model.requests == []


def test_a_masking_that_answers_with_several_texts_stops_the_run():
    odd = _Odd(GuardrailVerdict("GUARDRAIL_INTERVENED", ("one", "two")))
    agent = Agent("a", model=FakeModel(), input_processors=[BedrockGuardrail("gr1", client=odd, masked=True)])
    assert agent.generate("hello").tripwire.reason == DEFAULT_REASON


def test_a_guardrail_needs_an_id():
    with pytest.raises(ConfigurationError, match="expected the id"):
        BedrockGuardrail("")
