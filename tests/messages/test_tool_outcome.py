import pytest

from agent_memory.messages.parts import Approval
from agent_memory.messages.tool_outcome import (
    ToolOutcome,
    is_tagged,
    merged_approval,
    model_output_of,
    untagged,
    with_model_output,
)


def test_a_lost_call_can_be_told_from_its_outcome():
    part = ToolOutcome("c1", "w", "output-error", error_text="e", args={"a": 1}).as_part()

    assert (part.invocation.state, part.invocation.args, part.invocation.error_text) == ("output-error", {"a": 1}, "e")


@pytest.mark.parametrize(
    ("output", "tagged"),
    [
        ({"type": "text", "value": "x"}, True),
        ({"type": "json", "value": None}, True),
        ({"type": "execution-denied"}, True),
        ({"type": "content", "value": []}, True),
        ({"type": "content", "value": "x"}, False),
        ({"type": "text"}, False),
        ({"type": "weather", "value": 1}, False),
        ({"type": [], "value": 1}, False),
        ({"type": "text", "value": "x", "more": 1}, False),
        ("text", False),
        (None, False),
    ],
)
def test_tagged_outputs_are_told_from_bare_ones(output, tagged):
    assert is_tagged(output) is tagged
    assert untagged(output) == (output.get("value") if tagged else output)


def test_the_stored_request_keeps_its_id_and_fields():
    stored = Approval("p", extra={"signed": True})

    assert merged_approval(stored, Approval("forged", True, "ok", {"signed": False, "more": 1})) == Approval(
        "p", True, "ok", {"signed": True, "more": 1}
    )
    assert merged_approval(stored, None) is stored
    assert merged_approval(None, stored) is stored
    assert merged_approval(None, None) is None


def test_what_the_model_sees_is_kept_beside_other_metadata():
    metadata = with_model_output({"p": {"a": 1}, "mastra": {"x": 1}}, 5)

    assert metadata == {"p": {"a": 1}, "mastra": {"x": 1, "modelOutput": 5}}
    assert model_output_of(metadata) == 5
    assert model_output_of("text") is model_output_of(None) is model_output_of({"mastra": 3}) is None
