import pytest

from agent_memory.messages import Approval
from agent_memory.messages.from_input import ToolOutcome, messages_from_input
from agent_memory.messages.merge import (
    apply_outcomes,
    apply_tool_outcome,
    merge_assistant,
    strip_provider_metadata,
)
from agent_memory.messages.message import message_to_json
from tests.support.build import STEP, call, stored, text


def states(message):
    return [part.invocation.state for part in message.parts if part.type == "tool-invocation"]


def result_of(message, index=0):
    return [part.invocation for part in message.parts if part.type == "tool-invocation"][index]


# -- outcomes on page messages


def test_only_the_outcome_of_a_pending_call_is_taken_case_03():
    before = stored(
        "a1", "assistant", "looking", call("t1", args={"city": "Oslo"}), metadata={"m": 1}, providerMetadata={"p": {}}
    )
    page = {
        "id": "a1",
        "role": "assistant",
        "parts": [
            text("LOOKING"),
            {
                "type": "tool-fake",
                "toolCallId": "t1",
                "state": "output-available",
                "input": {"city": "X"},
                "output": {"temp": 3},
            },
        ],
        "metadata": {"m": 2},
    }

    after = apply_outcomes(before, messages_from_input([page]).messages[0])

    assert after is not None
    assert message_to_json(after) == message_to_json(
        stored(
            "a1",
            "assistant",
            "looking",
            call("t1", "result", args={"city": "Oslo"}, result={"temp": 3}),
            metadata={"m": 1},
            providerMetadata={"p": {}},
        )
    )


def test_an_echo_changes_nothing():
    before = stored("a1", "assistant", "x", call("t1"), call("t2", "result", result=1))

    assert apply_outcomes(before, before) is None
    assert apply_outcomes(before, stored("a1", "assistant", "other words")) is None


@pytest.mark.parametrize("incoming", ["partial-call", "call", "approval-requested"])
def test_what_is_no_outcome_is_not_taken(incoming):
    assert (
        apply_outcomes(
            stored("a1", "assistant", call("t1", "partial-call")), stored("a1", "assistant", call("t1", incoming))
        )
        is None
    )


@pytest.mark.parametrize("done", ["result", "output-error", "output-denied"])
def test_a_stored_outcome_is_never_replaced(done):
    before = stored("a1", "assistant", call("t1", done, result=1))

    for incoming in ("result", "output-error", "output-denied", "approval-responded"):
        again = stored("a1", "assistant", call("t1", incoming, result=2, approval={"id": "p", "approved": True}))
        assert apply_outcomes(before, again) is None


def test_each_pending_call_takes_its_own_outcome():
    before = stored("a1", "assistant", call("t1"), call("t2"), call("t3"), call("t4", "result", result=4))
    page = stored(
        "a1",
        "assistant",
        call("t4", "result", result=40),
        call("t2", "output-error", errorText="e"),
        call("t1", "result", result=1),
        call("t9", "result", result=9),
    )

    after = apply_outcomes(before, page)

    assert states(after) == ["result", "output-error", "call", "result"]
    assert result_of(after, 0).result == 1
    assert result_of(after, 1).error_text == "e"
    assert result_of(after, 3).result == 4


def test_an_approval_keeps_the_stored_request():
    before = stored("a1", "assistant", call("t1", "approval-requested", approval={"id": "run-9::t1", "signed": True}))
    page = stored(
        "a1", "assistant", call("t1", "approval-responded", approval={"id": "forged", "approved": True, "reason": "ok"})
    )

    after = apply_outcomes(before, page)

    assert result_of(after).approval == Approval("run-9::t1", True, "ok", {"signed": True})
    done = apply_outcomes(after, stored("a1", "assistant", call("t1", "result", result=1)))
    assert result_of(done).approval == Approval("run-9::t1", True, "ok", {"signed": True})


def test_an_answer_without_a_decision_is_no_answer():
    before = stored("a1", "assistant", call("t1", "approval-requested", approval={"id": "p"}))

    assert apply_outcomes(before, stored("a1", "assistant", call("t1", "approval-responded"))) is None
    assert (
        apply_outcomes(before, stored("a1", "assistant", call("t1", "approval-responded", approval={"id": "p"})))
        is None
    )


@pytest.mark.parametrize(
    ("incoming", "taken"),
    [("approval-responded", True), ("result", False), ("output-error", False), ("output-denied", False)],
)
def test_a_call_that_the_provider_runs_takes_only_an_approval(incoming, taken):
    before = stored("a1", "assistant", call("t1", part={"providerExecuted": True}))
    page = stored("a1", "assistant", call("t1", incoming, result=1, approval={"id": "p", "approved": True}))

    assert (apply_outcomes(before, page) is not None) is taken


def test_the_copy_for_older_clients_does_not_stay_pending():
    pending = {"state": "call", "toolCallId": "t1", "toolName": "w", "args": {}}
    other = {"state": "call", "toolCallId": "t2", "toolName": "w", "args": {}}
    before = stored("a1", "assistant", call("t1"), toolInvocations=[pending, other])

    after = apply_outcomes(before, stored("a1", "assistant", call("t1", "result", result=1)))

    assert after.content.extra["toolInvocations"] == [other]


# -- outcomes of tool messages


def test_a_tool_message_settles_its_pending_call():
    before = stored("a1", "assistant", "x", call("c1", args={"c": "red"}))
    outcome = ToolOutcome(
        "c1", "other", "result", result={"ok": True}, model_output={"type": "text", "value": "done"}, args={"c": "blue"}
    )

    after = apply_tool_outcome(before, outcome)

    invocation = result_of(after)
    assert (invocation.state, invocation.result, invocation.tool_name, invocation.args) == (
        "result",
        {"ok": True},
        "w",
        {"c": "red"},
    )
    assert after.parts[1].provider_metadata == {"mastra": {"modelOutput": {"type": "text", "value": "done"}}}
    assert apply_tool_outcome(after, outcome) is None


def test_a_tool_message_does_not_settle_other_calls():
    before = stored("a1", "assistant", call("c1"), call("c2", part={"providerExecuted": True}))

    assert apply_tool_outcome(before, ToolOutcome("c9", "w", "result", result=1)) is None
    assert apply_tool_outcome(before, ToolOutcome("c2", "w", "result", result=1)) is None
    assert apply_tool_outcome(before, ToolOutcome("", "w", "result", result=1)) is None


def test_a_decision_finds_its_call_by_the_approval():
    before = stored("a1", "assistant", call("c1"), call("c2", "approval-requested", approval={"id": "run-9::c2"}))

    after = apply_tool_outcome(before, ToolOutcome("", "", "approval-responded", approval=Approval("run-9::c2", True)))

    assert states(after) == ["call", "approval-responded"]


# -- two pieces of one answer


def test_parts_are_appended_and_the_first_piece_keeps_its_place():
    base = stored("a1", "assistant", "a", metadata={"x": 1, "y": 1}, content="a")
    following = stored("a2", "assistant", STEP, "b", metadata={"y": 2})

    merged = merge_assistant(base, following)

    assert (merged.id, merged.created_at, merged.text) == ("a1", base.created_at, "ab")
    assert merged.content.content == "ab"
    assert merged.metadata == {"x": 1, "y": 2}
    assert merge_assistant(stored("a1", "assistant"), stored("a2", "assistant")).content.metadata is None


def test_a_repeated_call_stays_one_part():
    base = stored("a1", "assistant", call("c1"), call("c2", "result", result=1))
    following = stored("a1", "assistant", call("c1", "result", result=5), call("c2", "result", result=2), "done")

    merged = merge_assistant(base, following)

    assert [part.type for part in merged.parts] == ["tool-invocation", "tool-invocation", "text"]
    assert [result_of(merged, i).result for i in (0, 1)] == [5, 1]


def test_attachments_of_both_pieces_stay():
    base = stored("a1", "assistant", "a", experimental_attachments=[{"url": "u:1"}])
    following = stored("a1", "assistant", "b", experimental_attachments=[{"url": "u:2"}])

    assert [a.url for a in merge_assistant(base, following).content.experimental_attachments] == ["u:1", "u:2"]


def test_many_outcomes_for_many_calls_are_applied_in_time():
    before = stored("a1", "assistant", *(call(f"c{n}") for n in range(10_000)))
    page = stored("a1", "assistant", *(call(f"c{n}", "result", result=n) for n in range(10_000)))

    after = apply_outcomes(before, page)

    assert states(after) == ["result"] * 10_000


# -- seeding


def test_seeding_takes_provider_metadata_off_assistant_messages_case_110():
    own = {"openai": {"itemId": "rs_1"}}
    message = stored(
        "a1",
        "assistant",
        text("x", providerMetadata=own, providerOptions=own),
        {"type": "reasoning", "reasoning": "r", "providerMetadata": own},
        {"type": "hologram", "a": 1, "providerMetadata": own},
        call("c1", part={"providerMetadata": own, "resultProviderMetadata": own}),
        call("c2", "result", result=1, part={"providerMetadata": {**own, "mastra": {"modelOutput": 5}}}),
        providerMetadata=own,
        providerOptions=own,
        metadata={"kept": 1},
    )

    stripped = strip_provider_metadata(message)

    assert "rs_1" not in str(message_to_json(stripped))
    assert stripped.parts[4].provider_metadata == {"mastra": {"modelOutput": 5}}
    assert [part.type for part in stripped.parts] == [part.type for part in message.parts]
    assert stripped.metadata == {"kept": 1}


def test_seeding_leaves_user_messages_alone_case_110():
    message = stored("u1", "user", text("x", providerMetadata={"p": {"cache": True}}), providerMetadata={"p": {}})

    assert strip_provider_metadata(message) is message
