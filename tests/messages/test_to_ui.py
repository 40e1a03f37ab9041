import json
import random

import pytest

from agent_memory.errors import InvalidInputError
from agent_memory.messages.from_input import messages_from_input
from agent_memory.messages.message import message_from_json, message_to_json
from agent_memory.messages.to_ui import to_ui_messages
from tests.support import random_json
from tests.support.build import STEP, call, stored, text
from tests.support.page_schema import check_page_messages

PNG = "data:image/png;base64,iVBORw0KGgo="


def page(message):
    (shown,) = to_ui_messages([message])
    check_page_messages([shown])
    return shown


def page_part(part, role="assistant"):
    (shown,) = page(stored("m1", role, part))["parts"]
    return shown


def test_a_page_message_has_id_role_parts_and_metadata():
    shown = page(stored("u1", "user", "hi", metadata={"lang": "nb"}))

    assert shown == {
        "id": "u1",
        "role": "user",
        "parts": [{"type": "text", "text": "hi"}],
        "metadata": {"lang": "nb", "createdAt": "2026-03-04T05:06:07.089Z", "threadId": "trip-42", "resourceId": "ada"},
    }


def test_an_applications_own_date_stays_and_the_rows_place_wins_case_57():
    shown = page(stored("u1", "user", "hi", metadata={"createdAt": 17, "threadId": "copied-from"}))

    assert shown["metadata"] == {"createdAt": 17, "threadId": "trip-42", "resourceId": "ada"}


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (call("c1", args={"a": 1}), {"state": "input-available", "input": {"a": 1}}),
        (call("c1", "partial-call"), {"state": "input-streaming", "input": {}}),
        (call("c1", approval={"id": "p"}), {"state": "approval-requested", "input": {}, "approval": {"id": "p"}}),
        (
            call("c1", "approval-requested", approval={"id": "p"}),
            {"state": "approval-requested", "input": {}, "approval": {"id": "p"}},
        ),
        (call("c1", "approval-requested"), {"state": "approval-requested", "input": {}, "approval": {"id": "c1"}}),
        (
            call("c1", "approval-responded", approval={"id": "p", "approved": False, "reason": "no"}),
            {"state": "approval-responded", "input": {}, "approval": {"id": "p", "approved": False, "reason": "no"}},
        ),
        (call("c1", "result", result=[1]), {"state": "output-available", "input": {}, "output": [1]}),
        (
            call("c1", "result", result=1, approval={"id": "p", "approved": True}),
            {"state": "output-available", "input": {}, "output": 1, "approval": {"id": "p", "approved": True}},
        ),
        (call("c1", "output-error", errorText="e"), {"state": "output-error", "input": {}, "errorText": "e"}),
        (call("c1", "result", result="bad", isError=True), {"state": "output-error", "input": {}, "errorText": "bad"}),
        (
            call("c1", "output-denied", approval={"id": "p", "approved": False, "reason": "no"}),
            {"state": "output-denied", "input": {}, "approval": {"id": "p", "approved": False, "reason": "no"}},
        ),
        (
            call("c1", "output-denied"),
            {"state": "output-denied", "input": {}, "approval": {"id": "c1", "approved": False}},
        ),
        (
            call(
                "c1",
                "result",
                result=1,
                part={"title": "T", "preliminary": True, "providerExecuted": True, "createdAt": 5},
            ),
            {
                "state": "output-available",
                "input": {},
                "output": 1,
                "title": "T",
                "preliminary": True,
                "providerExecuted": True,
                "callProviderMetadata": {"mastra": {"createdAt": 5}},
            },
        ),
    ],
)
def test_the_states_of_a_tool_part(part, expected):
    assert page_part(part) == {"type": "tool-w", "toolCallId": "c1", **expected}


def test_other_parts():
    assert page_part(STEP) == {"type": "step-start"}
    assert page_part({"type": "reasoning", "details": [{"text": "so"}]}) == {
        "type": "reasoning",
        "text": "so",
        "state": "done",
    }
    assert page_part({"type": "data-x", "id": "i", "data": None}) == {"type": "data-x", "id": "i", "data": None}
    assert page_part({"type": "error", "error": {"message": "m"}}) == {"type": "data-error", "data": {"message": "m"}}
    assert page_part({"type": "source", "source": {"url": "u", "id": "s", "title": "t"}}) == {
        "type": "source-url",
        "sourceId": "s",
        "url": "u",
        "title": "t",
    }
    document = {
        "type": "source-document",
        "sourceId": "s",
        "mediaType": "application/pdf",
        "title": "t",
        "filename": "f",
    }
    assert page_part(document) == document
    assert page_part({"type": "hologram", "a": 1}) == {"type": "data-hologram", "data": {"type": "hologram", "a": 1}}
    assert page_part({"type": "custom", "kind": "k", "more": 1}) == {"type": "custom", "kind": "k", "more": 1}


def test_metadata_of_providers_is_shown_in_the_shape_that_pages_accept():
    assert page_part(text("x", providerMetadata={"p": {"a": 1}, "odd": "x"})) == text(
        "x", providerMetadata={"p": {"a": 1}}
    )
    assert page_part(text("x", providerMetadata={"odd": "x"})) == text("x")


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (
            {"type": "file", "data": PNG, "mimeType": "image/png", "filename": "d.png"},
            {"mediaType": "image/png", "url": PNG, "filename": "d.png"},
        ),
        ({"type": "file", "data": "iVBORw0KGgo="}, {"mediaType": "image/png", "url": PNG}),
        ({"type": "file", "data": "https://e.example/a.pdf"}, {"mediaType": "application/pdf", "url": "https://e.example/a.pdf"}),
        ({"type": "file", "data": "https://e.example/a"}, {"mediaType": "application/octet-stream", "url": "https://e.example/a"}),
        ({"type": "file", "data": "AAAA", "mimeType": "a/b"}, {"mediaType": "a/b", "url": "data:a/b;base64,AAAA"}),
    ],
)  # fmt: skip
def test_a_file_has_a_type_and_a_url_case_90(part, expected):
    assert page_part(part, "user") == {"type": "file", **expected}


def test_attachments_are_shown_in_order_and_once_case_90():
    attachments = [
        {"url": "https://e.example/b.png", "contentType": "image/png", "name": "b.png"},
        {"url": PNG, "contentType": "image/png", "name": "dot.png"},
        {"url": "https://e.example/c.txt", "contentType": "text/plain"},
    ]
    message = stored(
        "u1",
        "user",
        "see",
        {"type": "file", "data": PNG, "mimeType": "image/png"},
        experimental_attachments=attachments,
    )

    files = [part for part in page(message)["parts"] if part["type"] == "file"]

    assert files == [
        {"type": "file", "mediaType": "image/png", "url": "https://e.example/b.png", "filename": "b.png"},
        {"type": "file", "mediaType": "text/plain", "url": "https://e.example/c.txt"},
        {"type": "file", "mediaType": "image/png", "url": PNG},
    ]


def test_consecutive_messages_stay_apart_and_system_messages_are_left_out():
    messages = [
        stored("a1", "assistant", "x"),
        stored("s1", "system", "obey"),
        stored("a2", "assistant", "y"),
        stored("u1", "user"),
    ]

    assert [m["id"] for m in to_ui_messages(messages)] == ["a1", "a2", "u1"]
    assert page(messages[3])["parts"] == [{"type": "text", "text": ""}]


def test_signals_are_user_messages_or_data():
    user = stored("x1", "signal", "news").replace(type="user")
    other = stored("x2", "signal", "tick").replace(type="timer")

    assert (page(user)["role"], page(user)["parts"]) == ("user", [text("news")])
    assert page(other)["role"] == "assistant"
    assert page(other)["parts"] == [{"type": "data-signal", "data": {"type": "timer", "parts": [text("tick")]}}]


def test_showing_changes_nothing_and_is_json():
    message = stored("a1", "assistant", "x", call("c1", "result", result={"a": [1]}), metadata={"m": {"n": 1}})
    before = json.dumps(message_to_json(message))

    json.dumps(to_ui_messages([message]))

    assert json.dumps(message_to_json(message)) == before


@pytest.mark.parametrize("seed", range(6))
def test_a_page_takes_whatever_was_stored(seed):
    rnd = random.Random(1000 + seed)
    shown = 0
    for _ in range(300):
        raw = {"id": "m", "role": rnd.choice(("user", "assistant", "signal")), "content": {"format": 2}}
        raw["content"] |= {
            "parts": [random_json.part(rnd) for _ in range(3)],
            "toolInvocations": random_json.value(rnd, 2),
        }
        try:
            message = message_from_json(raw)
        except InvalidInputError:
            continue
        shown += 1
        check_page_messages(to_ui_messages([message]))
    assert shown > 20


PAGE = [
    {
        "id": "u1",
        "role": "user",
        "parts": [
            {"type": "file", "mediaType": "image/png", "filename": "dot.png", "url": PNG},
            {"type": "file", "mediaType": "application/pdf", "url": "https://e.example/a.pdf"},
            {"type": "text", "text": " Will it rain? 漢字 "},
        ],
        "metadata": {"clientMsg": "c-77", "lang": "nb", "createdAt": 1772600768100},
    },
    {
        "id": "a1",
        "role": "assistant",
        "parts": [
            {"type": "step-start"},
            {"type": "reasoning", "text": "so", "state": "done", "providerMetadata": {"p": {"signature": "s"}}},
            {"type": "text", "text": "", "providerMetadata": {"p": {"id": "x"}}},
            {"type": "tool-w", "toolCallId": "c0", "state": "input-streaming", "input": {"a": 1}},
            {"type": "tool-w", "toolCallId": "c1", "state": "input-available", "input": {"a": [1, None]}},
            {"type": "tool-w", "toolCallId": "c2", "state": "approval-requested", "input": {}, "approval": {"id": "p"}},
            {
                "type": "tool-w",
                "toolCallId": "c3",
                "state": "approval-responded",
                "input": {},
                "approval": {"id": "p", "approved": True, "reason": "ok"},
            },
            {
                "type": "tool-w",
                "toolCallId": "c4",
                "state": "output-available",
                "input": {},
                "output": {"t": 3.5},
                "preliminary": False,
                "providerExecuted": True,
                "title": "Weather",
                "callProviderMetadata": {"p": {"id": "y"}, "mastra": {"createdAt": 5, "modelOutput": 1}},
                "resultProviderMetadata": {"p": {"id": "z"}},
                "toolMetadata": {"k": 1},
                "approval": {"id": "p", "approved": True},
            },
            {"type": "step-start"},
            {
                "type": "dynamic-tool",
                "toolName": "mcp x",
                "toolCallId": "c5",
                "state": "output-error",
                "input": 1,
                "errorText": "e",
            },
            {"type": "tool-w", "toolCallId": "c6", "state": "output-error", "rawInput": "{", "errorText": ""},
            {
                "type": "tool-w",
                "toolCallId": "c7",
                "state": "output-denied",
                "input": {},
                "approval": {"id": "p", "approved": False, "reason": "no", "isAutomatic": True},
            },
            {"type": "source-url", "sourceId": "s1", "url": "https://e.example", "title": "t"},
            {
                "type": "source-document",
                "sourceId": "s2",
                "mediaType": "application/pdf",
                "title": "t",
                "filename": "f",
            },
            {"type": "data-weather", "id": "w", "data": {"t": [3]}},
            {"type": "file", "mediaType": "image/png", "url": PNG},
            {"type": "custom", "kind": "k", "providerMetadata": {"p": {}}},
            {"type": "text", "text": "Yes."},
        ],
        "metadata": {"createdAt": "2026-03-04T05:06:07.089Z", "modelId": "m-1", "deep": {"a": [1]}},
    },
]


def test_page_messages_come_back_as_they_were_sent():
    messages = messages_from_input(PAGE).messages

    shown = to_ui_messages(messages)

    check_page_messages(shown)
    assert shown == PAGE
    through_storage = [message_from_json(json.loads(json.dumps(message_to_json(m)))) for m in messages]
    assert json.loads(json.dumps(to_ui_messages(through_storage))) == PAGE


def test_what_a_page_was_shown_reads_back_as_the_same_parts():
    messages = messages_from_input(PAGE).messages

    again = messages_from_input(to_ui_messages(messages)).messages

    assert [(m.id, m.role, m.parts) for m in again] == [(m.id, m.role, m.parts) for m in messages]
