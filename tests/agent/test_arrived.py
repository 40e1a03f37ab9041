"""Messages that are sent to a thread while a run is at work on it."""

from __future__ import annotations

import time

import pytest

from agent_memory.agent.result import RunOptions
from agent_memory.agent.services import Services
from agent_memory.agent.tools import Tool
from agent_memory.aws.dynamodb.runs import DynamoRunStore
from agent_memory.errors import ModelError
from agent_memory.file_rules import FileRules
from agent_memory.processors.attachment_uploader import AttachmentUploader
from agent_memory.processors.regex_filter import RegexFilter
from tests.support.fake_blobs import FakeBlobs
from tests.support.models import FakeModel, call, say

LOOK = Tool("look", description="l", execute=lambda _a, _c: "seen")
ASKS_FIRST = Tool("delete", description="d", execute=lambda _a, _c: "gone", requires_approval=True)


class Inbox:
    """What a run is told when it asks: between steps, and before its end."""

    def __init__(self, *, between=(), ending=()):
        self.between, self.ending = list(between), list(ending)
        self.asked = []

    def __call__(self, ending):
        self.asked.append(ending)
        waiting = self.ending if ending else self.between
        return [waiting.pop(0)] if waiting else []


def message(text, id="m2"):
    return {"id": id, "role": "user", "content": [{"type": "text", "text": text}], "metadata": {"signal": {}}}


def test_a_message_before_the_end_is_answered_by_one_more_step(chat):
    model = FakeModel(say("one"), say("two"))
    talk = chat(model)
    inbox = Inbox(ending=[message("and?")])
    result = talk.send("hi", arrived=inbox)
    assert talk.said() == [("user", "hi"), ("assistant", "one"), ("user", "and?"), ("assistant", "two")]
    assert model.prompt() == [("user", "hi"), ("assistant", "one"), ("user", "and?")]
    assert inbox.asked == [True, True]
    assert result.text == "two"
    rows = talk.rows()
    assert rows[2].id == "m2"
    assert dict(rows[2].metadata["signal"]) == {}
    assert [answer.id for answer in result.response_messages] == [rows[1].id, rows[3].id]
    assert [row.seq for row in rows] == [1, 2, 3, 4]
    assert [row.created_at for row in rows] == sorted({row.created_at for row in rows})
    assert [row.metadata["modelId"] for row in rows if row.role == "assistant"] == ["fake-1", "fake-1"]
    assert len(talk.store.get_thread("ada", "t1").turns) == 1


def test_a_message_between_two_steps_stands_behind_the_tools_outcome(chat):
    model = FakeModel(call(("c1", "look", {})), say("both"))
    talk = chat(model, tools=[LOOK])
    inbox = Inbox(between=[message("also this")])
    talk.send("look", arrived=inbox)
    assert inbox.asked == [False, True]
    assert [role for role, _ in model.prompt()] == ["user", "assistant", "tool", "user"]
    assert model.prompt()[-1] == ("user", "also this")
    assert [row.role for row in talk.rows()] == ["user", "assistant", "user", "assistant"]
    assert talk.said()[-2:] == [("user", "also this"), ("assistant", "both")]


def test_a_message_gives_the_run_its_steps_anew(chat):
    model = FakeModel(call(("c1", "look", {})), call(("c2", "look", {})), say("done"))
    talk = chat(model, tools=[LOOK], max_steps=2)
    talk.send("look", arrived=Inbox(ending=[message("go on")]))
    assert [role for role, _ in talk.said()] == ["user", "assistant", "user", "assistant"]
    assert talk.said()[-1] == ("assistant", "done")
    model = FakeModel(call(("c1", "look", {})), call(("c2", "look", {})), say("done"))
    result = chat(model, tools=[LOOK], max_steps=2).send("look again", arrived=Inbox())
    assert (result.finish_reason, len(model.requests)) == ("tool-calls", 2)


@pytest.mark.parametrize("tool", [ASKS_FIRST, Tool("paint", description="p", input_schema={"type": "object"})])
def test_a_run_whose_calls_wait_for_somebody_asks_for_nothing(chat, store, dynamodb, names, tool):
    runs = DynamoRunStore(dynamodb, runs_table=names.runs)
    talk = chat(FakeModel(call(("c1", tool.id, {}))), tools=[tool], services=Services(store=store, runs=runs))
    inbox = Inbox(between=[message("a")], ending=[message("b")])
    talk.send("do it", arrived=inbox)
    assert inbox.asked == []
    assert len(talk.rows()) == 2


@pytest.mark.parametrize(
    "options",
    [
        {"memory": {"read_only": True}},
        {"structured_output": {"schema": {"type": "object"}}},
        {"deadline": True},
    ],
)
def test_a_run_that_could_not_keep_or_answer_it_asks_for_nothing(chat, options):
    talk = chat(FakeModel(say("{}")))
    if "deadline" in options:
        options = {"deadline": time.monotonic() + 15}
    inbox = Inbox(ending=[message("and?")])
    talk.send("hi", arrived=inbox, **options)
    assert inbox.asked == []


def test_a_message_that_is_given_twice_is_taken_once(chat):
    model = FakeModel(say("one"), say("two"), say("three"))
    talk = chat(model)
    talk.send("hi", arrived=Inbox(ending=[message("and?"), message("and?"), message("more", id="m3")]))
    assert [text for _, text in talk.said()] == ["hi", "one", "and?", "two"]
    assert len(model.requests) == 2


def test_guardrails_look_at_it_and_leave_out_what_they_stop(chat):
    stops = RegexFilter(rules=[{"name": "word", "pattern": "secret"}], strategy="block")
    model = FakeModel(say("one"), say("two"))
    talk = chat(model, input_processors=[stops])
    result = talk.send("hi", arrived=Inbox(ending=[message("the secret")]))
    assert talk.said() == [("user", "hi"), ("assistant", "one")]
    assert result.tripwire is None
    assert len(model.requests) == 1


def test_a_message_with_a_file_that_is_refused_is_left_out_and_the_run_goes_on(chat):
    blobs = FakeBlobs()
    uploader = AttachmentUploader(blobs, rules=FileRules(denied_types=("text/html",)))
    page = {"type": "file", "mediaType": "text/html", "url": "data:text/html,<b>hi</b>"}
    bad = {"id": "m2", "role": "user", "content": [{"type": "text", "text": "see"}, page]}
    talk = chat(FakeModel(say("one")), input_processors=[uploader], output_processors=[uploader])
    result = talk.send("hi", arrived=Inbox(ending=[bad]))
    assert result.error is None
    assert talk.said() == [("user", "hi"), ("assistant", "one")]
    assert blobs.objects == {}


def test_guardrails_may_change_it_and_see_it_alone(chat):
    seen = []

    class Looks:
        id = "looks"

        def process_input(self, ctx):
            seen.append([message.text for message in ctx.messages])

    redacts = RegexFilter(rules=[{"name": "word", "pattern": "secret", "replacement": "…"}], strategy="redact")
    model = FakeModel(say("one"), say("two"))
    talk = chat(model, input_processors=[Looks(), redacts])
    talk.send("hi", arrived=Inbox(ending=[message("the secret")]))
    assert seen == [["hi"], ["the secret"]]
    assert talk.said()[2] == ("user", "the …")


def test_both_answers_pass_the_output_guardrails(chat):
    redacts = RegexFilter(rules=[{"name": "word", "pattern": "secret", "replacement": "…"}], strategy="redact")
    talk = chat(FakeModel(say("secret one"), say("secret two")), output_processors=[redacts])
    talk.send("hi", arrived=Inbox(ending=[message("and?")]))
    assert [text for _, text in talk.said()] == ["hi", "… one", "and?", "… two"]


def test_a_model_that_fails_on_it_keeps_the_first_answer_and_the_message(chat):
    talk = chat(FakeModel(say("one"), ModelError("no capacity")))
    with pytest.raises(ModelError):
        talk.send("hi", arrived=Inbox(ending=[message("and?")]))
    assert talk.said() == [("user", "hi"), ("assistant", "one"), ("user", "and?")]
    talk.agent.model = FakeModel(say("fine"))
    talk.send("again")
    assert talk.said()[-1] == ("assistant", "fine")


@pytest.mark.parametrize("save_per_step", [False, True])
def test_a_guardrail_that_stops_the_second_answer_leaves_nothing_of_the_turn(chat, save_per_step):
    stops = RegexFilter(rules=[{"name": "word", "pattern": "secret"}], strategy="block")
    talk = chat(FakeModel(say("fine"), say("fine"), say("the secret")), output_processors=[stops])
    talk.send("hello")
    result = talk.send("hi", arrived=Inbox(ending=[message("and?")]), save_per_step=save_per_step)
    assert result.tripwire is not None
    assert talk.said() == [("user", "hello"), ("assistant", "fine")]


def test_a_stored_answer_that_goes_on_stays_one_row_and_the_next_is_its_own(chat, store, dynamodb, names):
    runs = DynamoRunStore(dynamodb, runs_table=names.runs)
    model = FakeModel(call(("c1", "delete", {})), say("gone"), say("yes"))
    talk = chat(model, tools=[ASKS_FIRST], services=Services(store=store, runs=runs))
    run_id = talk.send("delete it").run_id
    options = RunOptions(arrived=Inbox(ending=[message("sure?")]))
    result = talk.agent.resume(run_id, approved=True, owner="ada", options=options).drain()
    rows = talk.rows()
    assert [row.role for row in rows] == ["user", "assistant", "user", "assistant"]
    assert [row.text for row in rows] == ["delete it", "gone", "sure?", "yes"]
    assert [answer.id for answer in result.response_messages] == [rows[1].id, rows[3].id]


def test_a_repeat_of_the_turn_answers_what_was_said_last(chat):
    talk = chat(FakeModel(say("one"), say("two"), say("three")))
    talk.send("hi", arrived=Inbox(ending=[message("and?")]), idempotency_key="k")
    again = talk.send("hi", idempotency_key="k")
    assert (again.text, again.repeated) == ("two", True)
    assert len(talk.rows()) == 4
