import copy
import pickle
from dataclasses import FrozenInstanceError

import pytest

from agent_memory.errors import InvalidInputError
from agent_memory.messages.parts import (
    MISSING,
    DataPart,
    ReasoningPart,
    TextPart,
    ToolInvocation,
    ToolPart,
    UnknownPart,
    part_from_json,
    part_to_json,
)

PARTS = [
    {"type": "text", "text": ""},
    {
        "type": "text",
        "text": "héllo 漢字",
        "providerMetadata": {"p": {"a": [1, 2.5, None]}},
        "createdAt": 1772600768100,
    },
    {"type": "text", "text": "x", "unheard": {"of": [1]}, "createdAt": "a date as text", "providerMetadata": None},
    {"type": "reasoning", "reasoning": "so", "details": [{"type": "text", "text": "so", "signature": "s"}]},
    {"type": "reasoning", "details": "not a list"},
    {"type": "file", "data": "data:text/plain,hi", "mimeType": "text/plain", "filename": "a.txt"},
    {"type": "file", "data": "AAAA", "mimeType": 7},
    {"type": "source", "source": {"url": "https://e.example", "id": "1", "title": "t"}},
    {"type": "source"},
    {"type": "source", "source": None},
    {"type": "error"},
    {"type": "error", "error": None},
    {"type": "reasoning"},
    {"type": "reasoning", "reasoning": ""},
    {"type": "source-document", "sourceId": "s", "mediaType": "application/pdf", "title": "t"},
    {"type": "step-start"},
    {"type": "step-start", "model": {"id": "m"}},
    {"type": "error", "error": {"name": "E", "message": "m"}},
    {"type": "data-weather", "data": None, "id": "w"},
    {"type": "data-weather", "id": 4},
    {"type": "data-"},
    {"type": "hologram", "beam": [{"a": 1}], "text": 3},
    {
        "type": "tool-invocation",
        "toolInvocation": {"state": "call", "toolCallId": "c", "toolName": "n", "args": None, "result": None},
        "providerExecuted": True,
        "title": "T",
        "preliminary": False,
    },
    {
        "type": "tool-invocation",
        "toolInvocation": {
            "state": "output-denied",
            "toolCallId": "c",
            "toolName": "n",
            "args": {"a": {"b": [1]}},
            "approval": {"id": "p", "approved": False, "reason": "no", "who": "me"},
            "step": True,
            "isError": "maybe",
            "more": 1,
        },
    },
    {
        "type": "tool-invocation",
        "toolInvocation": {
            "state": "output-error",
            "toolCallId": "c",
            "toolName": "n",
            "errorText": "e",
            "rawInput": "{",
        },
    },
]


@pytest.mark.parametrize("raw", PARTS, ids=lambda raw: raw["type"])
def test_every_part_comes_back_exactly(raw):
    before = copy.deepcopy(raw)

    part = part_from_json(raw)

    assert part_to_json(part) == before
    assert raw == before
    assert pickle.loads(pickle.dumps(part)) == part
    assert copy.deepcopy(part) == part


def test_a_part_of_an_unknown_type_is_kept_as_it_came():
    part = part_from_json({"type": "hologram", "beam": 1})

    assert isinstance(part, UnknownPart)
    assert part.type == "hologram"
    assert part.provider_metadata is None


def test_the_type_of_a_data_part_is_its_whole_wire_type():
    part = part_from_json({"type": "data-x", "data": 1})

    assert isinstance(part, DataPart)
    assert part.type == "data-x"


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        (None, "p"),
        ([], "p"),
        ({}, "p"),
        ({"type": 3}, "p"),
        ({"type": "text"}, "p.text"),
        ({"type": "text", "text": None}, "p.text"),
        ({"type": "file", "data": {}}, "p.data"),
        ({"type": "tool-invocation"}, "p.toolInvocation"),
        ({"type": "tool-invocation", "toolInvocation": {"state": "call"}}, "p.toolInvocation.toolCallId"),
        (
            {"type": "tool-invocation", "toolInvocation": {"state": [], "toolCallId": "c", "toolName": "n"}},
            "p.toolInvocation.state",
        ),
        (
            {
                "type": "tool-invocation",
                "toolInvocation": {"state": "call", "toolCallId": "c", "toolName": "n", "approval": 1},
            },
            "p.toolInvocation.approval",
        ),
    ],
)
def test_a_bad_part_names_its_field(raw, field):
    with pytest.raises(InvalidInputError) as caught:
        part_from_json(raw, "p")

    assert caught.value.field == field


def test_parts_and_the_values_in_them_refuse_change():
    part = part_from_json(
        {
            "type": "tool-invocation",
            "toolInvocation": {"state": "call", "toolCallId": "c", "toolName": "n", "args": {"a": [1]}},
        }
    )
    assert isinstance(part, ToolPart)

    with pytest.raises(FrozenInstanceError):
        part.title = "x"
    with pytest.raises(TypeError):
        part.invocation.args["a"] = 2
    with pytest.raises(TypeError):
        part.invocation.args["a"].append(2)
    with pytest.raises(TypeError):
        part.invocation.args |= {"b": 1}


def test_a_missing_field_is_not_the_same_as_null():
    without = part_from_json({"type": "data-x"})
    with_null = part_from_json({"type": "data-x", "data": None})

    assert without.data is MISSING
    assert with_null.data is None
    assert not MISSING
    assert repr(MISSING) == "MISSING"


def test_reasoning_text_is_taken_from_details_where_needed_and_survives_odd_ones():
    assert ReasoningPart(reasoning="a").text == "a"
    odd = part_from_json(
        {"type": "reasoning", "details": [{"text": "b"}, 1, {"text": 5}, {"type": "redacted"}, {"text": "c"}]}
    )
    assert odd.text == "bc"


@pytest.mark.parametrize(
    ("stored", "incoming", "advances"),
    [
        ("call", "result", True),
        ("call", "approval-responded", True),
        ("approval-requested", "approval-responded", True),
        ("approval-responded", "output-denied", True),
        ("partial-call", "call", True),
        ("call", "call", False),
        ("result", "output-error", False),
        ("output-error", "result", False),
        ("approval-responded", "approval-requested", False),
    ],
)
def test_a_call_only_moves_forward(stored, incoming, advances):
    def call(state):
        return ToolInvocation(state=state, tool_call_id="c", tool_name="n")

    assert call(stored).advanced_by(call(incoming)) is advances


def test_outcomes_are_answers_and_terminal_states():
    states = (
        "partial-call",
        "call",
        "approval-requested",
        "approval-responded",
        "result",
        "output-error",
        "output-denied",
    )
    calls = [ToolInvocation(state=state, tool_call_id="c", tool_name="n") for state in states]

    assert [call.is_outcome for call in calls] == [False, False, False, True, True, True, True]
    assert [call.is_pending for call in calls] == [True, True, True, True, False, False, False]


def test_parts_are_hashable():
    part = part_from_json({"type": "file", "data": "AAAA", "odd": {"a": [1]}})

    assert len({part, part_from_json({"type": "file", "data": "AAAA", "odd": {"a": [1]}}), TextPart("x")}) == 2
