"""Tools that need a person: the run waits, survives the process, and a decision counts once."""

from __future__ import annotations

import pytest

from agent_memory.agent.services import Services
from agent_memory.agent.tools import Tool
from agent_memory.aws.dynamodb.runs import DynamoRunStore
from agent_memory.errors import ConflictError, NotFoundError
from tests.support.models import FakeModel, call, say


@pytest.fixture
def runs(dynamodb, names):
    return DynamoRunStore(dynamodb, runs_table=names.runs, claims_table=names.claims)


class Deleter:
    def __init__(self):
        self.ran = []

    def tool(self):
        return Tool(
            "delete_record",
            execute=lambda args, context: self.ran.append(args["id"]) or {"deleted": args["id"]},
            input_schema={"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]},
            requires_approval=True,
        )


@pytest.fixture
def waiting(chat, store, runs):
    """A chat whose run waits for approval of c1."""
    deleter = Deleter()
    model = FakeModel(call(("c1", "delete_record", {"id": "r1"})), say("gone"), say("later"))
    talk = chat(model, tools=[deleter.tool()], services=Services(store=store, runs=runs))
    stream = talk.stream([{"id": "u1", "role": "user", "content": "delete r1"}])
    events = list(stream)
    return talk, stream, events, deleter


def states(talk):
    return [p.invocation.state for row in talk.rows() for p in row.parts if p.type == "tool-invocation"]


def test_case_112_question_and_request_are_stored_at_the_pause(waiting):
    talk, stream, events, deleter = waiting
    assert [e.type for e in events][-2:] == ["tool-call", "tool-call-approval"]
    assert stream.result.finish_reason == "suspended"
    assert stream.result.suspend_payload["toolCallId"] == "c1"
    assert [row.role for row in talk.rows()] == ["user", "assistant"]
    assert states(talk) == ["approval-requested"]
    assert deleter.ran == []


def test_approved_runs_the_tool_and_goes_on_in_the_same_message(waiting):
    talk, stream, _events, deleter = waiting
    resumed = talk.agent.resume(stream.run_id, "c1", approved=True)
    kinds = [e.type for e in resumed]
    assert kinds[:5] == ["start", "tool-call", "tool-result", "step-finish", "step-start"]
    assert resumed.result.text == "gone"
    assert resumed.message_id == stream.message_id
    assert deleter.ran == ["r1"]
    rows = talk.rows()
    assert len(rows) == 2
    assert states(talk) == ["result"]
    part = next(p for p in rows[1].parts if p.type == "tool-invocation")
    assert part.invocation.approval.approved is True


def test_declined_tells_the_model_why_and_runs_nothing(waiting):
    talk, stream, _events, deleter = waiting
    resumed = talk.agent.resume(stream.run_id, approved=False, reason="too risky")
    events = list(resumed)
    denied = next(e for e in events if e.type == "tool-output-denied")
    assert denied.payload["approval"]["reason"] == "too risky"
    assert "too risky" in talk.agent.model.prompt()[-1][1]
    assert deleter.ran == []
    assert states(talk) == ["output-denied"]


def test_a_decision_counts_once(waiting):
    talk, stream, _events, deleter = waiting
    talk.agent.resume(stream.run_id, "c1", approved=True).drain()
    with pytest.raises((ConflictError, NotFoundError)):
        talk.agent.resume(stream.run_id, "c1", approved=True)
    assert deleter.ran == ["r1"]


def test_another_owner_finds_no_run(waiting):
    talk, stream, _events, _deleter = waiting
    with pytest.raises(NotFoundError):
        talk.agent.resume(stream.run_id, "c1", approved=True, owner="eve")


def page_answer(stream, approved=True):
    return {
        "id": stream.message_id,
        "role": "assistant",
        "parts": [
            {
                "type": "tool-delete_record",
                "toolCallId": "c1",
                "state": "approval-responded",
                "input": {"id": "r1"},
                "approval": {"id": f"{stream.run_id}::c1", "approved": approved},
            }
        ],
    }


def test_a_page_approves_by_posting_its_assistant_message_back(waiting):
    talk, stream, _events, deleter = waiting
    result = talk.send([page_answer(stream)])
    assert result.text == "gone"
    assert deleter.ran == ["r1"]
    assert talk.send([page_answer(stream)]).repeated
    assert deleter.ran == ["r1"]
    assert len(talk.rows()) == 2


def test_case_109_a_call_that_nobody_answers_does_not_stop_the_thread(waiting):
    talk, _stream, _events, _deleter = waiting
    assert talk.send([{"id": "u2", "role": "user", "content": "hello?"}]).text == "gone"
    assert states(talk) == ["approval-requested"]
    assert "[call" not in str(talk.agent.model.prompt())


def test_two_calls_wait_until_both_are_decided(chat, store, runs):
    deleter = Deleter()
    model = FakeModel(call(("c1", "delete_record", {"id": "a"}), ("c2", "delete_record", {"id": "b"})), say("done"))
    talk = chat(model, tools=[deleter.tool()], services=Services(store=store, runs=runs))
    first = talk.send([{"id": "u1", "role": "user", "content": "go"}])
    second = talk.agent.resume(first.run_id, "c1", approved=True).drain()
    assert second.finish_reason == "suspended"
    third = talk.agent.resume(first.run_id, "c2", approved=False).drain()
    assert third.text == "done"
    assert deleter.ran == ["a"]
    assert states(talk) == ["result", "output-denied"]


def test_a_run_without_memory_waits_too(make_agent, store, runs):
    deleter = Deleter()
    model = FakeModel(call(("c1", "delete_record", {"id": "a"})), say("done"))
    agent = make_agent(model, tools=[deleter.tool()], services=Services(store=store, runs=runs))
    first = agent.generate("delete a")
    assert first.finish_reason == "suspended"
    assert agent.resume(first.run_id, approved=True).drain().text == "done"
    assert deleter.ran == ["a"]
    assert model.prompt()[0] == ("user", "delete a")
