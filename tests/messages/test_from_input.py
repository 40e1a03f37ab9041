import itertools
import random
import time

import pytest

from agent_memory.errors import InvalidInputError
from agent_memory.messages import (
    Approval,
    Attachment,
    DataPart,
    FilePart,
    Message,
    ReasoningPart,
    SourcePart,
    StepStartPart,
    TextPart,
    ToolPart,
)
from agent_memory.messages.checks import MAX_DEPTH
from agent_memory.messages.from_input import messages_from_input
from agent_memory.messages.message import message_to_json
from agent_memory.messages.parts import MISSING
from agent_memory.messages.to_prompt import to_prompt
from agent_memory.messages.to_ui import to_ui_messages, to_ui_messages_v4
from tests.support import random_json
from tests.support.page_schema import check_page_messages

PNG = "data:image/png;base64,iVBORw0KGgo="


def read(raw, **options):
    numbers = itertools.count(1)
    return messages_from_input(raw, new_id=lambda: f"new-{next(numbers)}", **options)


def only(raw):
    result = read([raw])
    assert len(result.messages) == 1
    return result.messages[0]


def only_part(raw, role="user"):
    (part,) = only({"role": role, "content": [raw]}).parts
    return part


def only_call(raw):
    (part,) = only({"id": "a1", "role": "assistant", "parts": [raw]}).parts
    assert isinstance(part, ToolPart)
    return part


def test_a_string_is_a_user_message():
    (message,) = read("What should I pack?", thread_id="t", resource_id="r").messages

    assert (message.id, message.role, message.text) == ("new-1", "user", "What should I pack?")
    assert (message.thread_id, message.resource_id) == ("t", "r")


def test_a_list_of_strings_is_that_many_user_messages():
    assert [m.text for m in read(["a", "", "c"]).messages] == ["a", "", "c"]


def test_an_empty_list_is_no_message():
    assert read([]).messages == ()


def test_one_message_needs_no_list():
    assert read({"role": "user", "content": "x"}).messages[0].text == "x"


def test_messages_of_the_library_are_taken_as_they_are():
    given = Message.text_message("user", "x", id="u1")

    result = read([given, "y"], thread_id="t")

    assert result.messages[0] == given.replace(thread_id="t")
    assert result.given_ids == {"u1"}


def test_system_messages_are_returned_apart():
    result = read(
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "hi"},
            {"id": "s", "role": "system", "parts": [{"type": "text", "text": "Be kind."}]},
            {"role": "system", "content": "  "},
        ]
    )

    assert result.system == ("Be brief.", "Be kind.")
    assert [m.role for m in result.messages] == ["user"]


# ------------------------------------------------------------------------------------------------------------- ids


def test_missing_empty_and_blank_ids_get_server_ids_case_10():
    result = read(
        [
            {"role": "user", "parts": [{"type": "text", "text": "a"}]},
            {"id": "", "role": "user", "parts": [{"type": "text", "text": "b"}]},
            {"id": "   ", "role": "user", "parts": [{"type": "text", "text": "c"}]},
            {"id": "ok-1", "role": "user", "parts": [{"type": "text", "text": "d"}]},
            {"id": None, "role": "user", "parts": [{"type": "text", "text": "e"}]},
        ]
    )

    assert [m.text for m in result.messages] == ["a", "b", "c", "d", "e"]
    assert [m.id for m in result.messages] == ["new-1", "new-2", "new-3", "ok-1", "new-4"]
    assert result.given_ids == {"ok-1"}


def test_server_ids_are_distinct_case_10():
    ids = [m.id for m in messages_from_input(["a", "b", "c"]).messages]

    assert len(set(ids)) == 3


@pytest.mark.parametrize("bad", [5, True, [], {}, "x" * 513, "é" * 257, "*"])
def test_an_id_that_is_no_string_or_too_long_is_refused_case_10(bad):
    with pytest.raises(InvalidInputError) as caught:
        read(["first", {"id": bad, "role": "user", "content": "x"}])

    assert caught.value.field == "messages.1.id"
    assert caught.value.status == 400


def test_an_id_of_512_bytes_is_taken():
    assert only({"id": "é" * 256, "role": "user", "content": "x"}).id == "é" * 256


def test_the_same_message_twice_is_one_message():
    message = {"id": "u1", "role": "user", "content": "x"}

    assert len(read([message, dict(message)]).messages) == 1


def test_two_texts_under_one_id_are_both_kept():
    result = read([{"id": "u1", "role": "user", "content": "x"}, {"id": "u1", "role": "user", "content": "y"}])

    assert [(m.id, m.text) for m in result.messages] == [("u1", "x"), ("new-1", "y")]


def test_two_pieces_of_one_answer_become_one_message():
    result = read(
        [
            {"id": "a1", "role": "assistant", "content": [{"type": "text", "text": "x"}]},
            {"id": "a1", "role": "assistant", "content": [{"type": "text", "text": "y"}]},
        ]
    )

    assert [(m.id, m.text) for m in result.messages] == [("a1", "xy")]


# ---------------------------------------------------------------------------------------------- thread, owner, dates


@pytest.mark.parametrize("key", ["threadId", "resourceId"])
def test_a_message_that_names_another_thread_or_owner_is_refused(key):
    raw = {"role": "user", "content": "x", key: "other"}

    with pytest.raises(InvalidInputError) as caught:
        read([raw], thread_id="t", resource_id="r")

    assert caught.value.field == f"messages.0.{key}"
    assert only(raw).id


def test_a_callers_date_does_not_move_a_message():
    raw = {"id": "m", "role": "user", "createdAt": "2001-01-01T00:00:00Z", "content": {"format": 2, "parts": []}}

    assert only(raw).created_at.year != 2001
    assert read([raw], keep_dates=True).messages[0].created_at.year == 2001


@pytest.mark.parametrize("date", ["soon", [], {}, {"a": 1}, True, 10**30, "2025-02-30"])
def test_a_bad_date_is_refused_where_dates_are_kept(date):
    with pytest.raises(InvalidInputError) as caught:
        read([{"role": "user", "content": "x", "createdAt": date}], keep_dates=True)

    assert caught.value.field == "messages.0.createdAt"


# -------------------------------------------------------------------------------------------------------- metadata


def test_metadata_of_a_page_message_is_kept_unchanged_case_57():
    metadata = {"clientMsg": "c-77", "lang": "nb", "deep": {"a": [1, None]}}
    raw = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "x"}], "metadata": metadata}

    message = only(raw)

    assert message.metadata == metadata
    assert message_to_json(message)["content"]["metadata"] == metadata


@pytest.mark.parametrize("raw", [{"content": "x"}, {"content": [{"type": "text", "text": "x"}]}])
def test_metadata_of_a_model_message_is_kept_case_57(raw):
    assert only({"role": "user", "metadata": {"lang": "nb"}, **raw}).metadata == {"lang": "nb"}


def test_fields_without_a_name_are_kept():
    message = only({"id": "u1", "role": "user", "content": "x", "shownIn": ["a"], "annotations": [{"a": 1}]})

    assert message.extra == {"shownIn": ["a"]}
    assert message.content.extra == {"annotations": [{"a": 1}]}


# -------------------------------------------------------------------------------------------------- model messages


def test_text_and_reasoning_of_model_messages():
    message = only(
        {
            "role": "assistant",
            "providerOptions": {"p": {"id": "m"}},
            "content": [
                {"type": "reasoning", "text": "so", "providerOptions": {"p": {"signature": "s"}}},
                {"type": "text", "text": "x", "providerOptions": {"p": {"cache": True}}},
            ],
        }
    )

    reasoning, text = message.parts
    assert isinstance(reasoning, ReasoningPart)
    assert reasoning.reasoning == "so"
    assert reasoning.details == [{"type": "text", "text": "so"}]
    assert reasoning.provider_metadata == {"p": {"signature": "s"}}
    assert text == TextPart("x", provider_metadata={"p": {"cache": True}})
    assert message.content.provider_metadata == {"p": {"id": "m"}}


def test_signed_and_hidden_reasoning_is_kept():
    message = only(
        {
            "role": "assistant",
            "content": [
                {"type": "reasoning", "text": "so", "signature": "s"},
                {"type": "redacted-reasoning", "data": "zzz"},
            ],
        }
    )

    assert [part.details for part in message.parts] == [
        [{"type": "text", "text": "so", "signature": "s"}],
        [{"type": "redacted", "data": "zzz"}],
    ]


@pytest.mark.parametrize(
    ("raw", "data", "media_type"),
    [
        ({"type": "file", "data": "AAAA", "mediaType": "text/plain"}, "data:text/plain;base64,AAAA", "text/plain"),
        ({"type": "file", "data": "AAAA", "mimeType": "text/plain"}, "data:text/plain;base64,AAAA", "text/plain"),
        ({"type": "file", "data": "-_8", "mediaType": "a/b"}, "data:a/b;base64,+/8=", "a/b"),
        ({"type": "file", "data": PNG, "mediaType": "image/png"}, PNG, "image/png"),
        ({"type": "file", "data": "https://e.example/a.pdf", "mediaType": "application/pdf"}, "https://e.example/a.pdf", "application/pdf"),
        ({"type": "file", "data": {"type": "url", "url": "https://e.example/a.pdf"}}, "https://e.example/a.pdf", "application/pdf"),
        ({"type": "file", "data": {"type": "data", "data": "AAAA"}, "mediaType": "a/b"}, "data:a/b;base64,AAAA", "a/b"),
        ({"type": "file", "data": {"type": "Buffer", "data": [0, 0, 0]}, "mediaType": "a/b"}, "data:a/b;base64,AAAA", "a/b"),
        ({"type": "file", "data": {"1": 0, "0": 0, "2": 0}, "mediaType": "a/b"}, "data:a/b;base64,AAAA", "a/b"),
        ({"type": "file", "data": {"type": "text", "text": "é"}, "mediaType": "text/plain"}, "data:text/plain;base64,w6k=", "text/plain"),
        ({"type": "image", "image": "iVBORw0KGgo="}, PNG, "image/png"),
        ({"type": "image", "image": "/9j/4AAQ"}, "data:image/jpeg;base64,/9j/4AAQ", "image/jpeg"),
        ({"type": "image", "image": "/9j/4AAQ", "mediaType": "image/*"}, "data:image/jpeg;base64,/9j/4AAQ", "image/jpeg"),
        ({"type": "image", "image": "https://e.example/a.gif?x=1"}, "https://e.example/a.gif?x=1", "image/gif"),
        ({"type": "image", "image": "https://e.example/a"}, "https://e.example/a", "image/png"),
        ({"type": "file", "url": "/files/1", "mediaType": "image/png"}, "/files/1", "image/png"),
    ],
)  # fmt: skip
def test_files_become_data_urls_or_urls(raw, data, media_type):
    part = only_part(raw)

    assert isinstance(part, FilePart)
    assert (part.data, part.mime_type) == (data, media_type)


def test_a_file_is_kept_in_one_place_only():
    message = only(
        {"role": "user", "content": [{"type": "file", "data": PNG, "mediaType": "image/png", "filename": "dot.png"}]}
    )

    assert message.parts == (FilePart(PNG, "image/png", "dot.png"),)
    assert message.content.experimental_attachments is None


def test_calls_of_model_messages():
    part = only_part(
        {"type": "tool-call", "toolCallId": "c1", "toolName": "w", "input": {"a": [1]}, "providerExecuted": True},
        "assistant",
    )

    assert isinstance(part, ToolPart)
    assert part.provider_executed is True
    assert (part.invocation.state, part.invocation.args) == ("call", {"a": [1]})
    assert (
        only_part({"type": "tool-call", "toolCallId": "c1", "toolName": "w", "args": 5}, "assistant").invocation.args
        == 5
    )
    assert only_part({"type": "tool-call", "toolCallId": "c1", "toolName": "w"}, "assistant").invocation.args is MISSING


# ------------------------------------------------------------------------------------------------------ tool results


def told(**fields):
    part = {"type": "tool-result", "toolCallId": "c1", "toolName": "w", **fields}
    (outcome,) = read([{"role": "tool", "content": [part]}]).tool_outcomes
    return outcome


@pytest.mark.parametrize(
    ("fields", "state", "result", "error_text"),
    [
        ({"result": {"ok": True}}, "result", {"ok": True}, None),
        ({"result": None}, "result", None, None),
        ({}, "result", None, None),
        ({"output": 7}, "result", 7, None),
        ({"output": {"type": "text", "value": "x"}}, "result", "x", None),
        ({"output": {"type": "json", "value": {"a": 1}}}, "result", {"a": 1}, None),
        ({"output": {"type": "content", "value": [{"type": "text", "text": "x"}]}}, "result", [{"type": "text", "text": "x"}], None),
        ({"output": {"type": "error-text", "value": "boom"}}, "output-error", None, "boom"),
        ({"output": {"type": "error-json", "value": {"a": 1}}}, "output-error", None, '{"a":1}'),
        ({"output": {"type": "execution-denied", "reason": "no"}}, "output-denied", None, None),
        ({"output": {"type": "text", "value": "x", "mine": 1}}, "result", {"type": "text", "value": "x", "mine": 1}, None),
        ({"output": {"type": "text", "value": 5}}, "result", {"type": "text", "value": 5}, None),
        ({"output": {"type": "json"}}, "result", {"type": "json"}, None),
        ({"result": {"type": "text", "value": "x"}}, "result", {"type": "text", "value": "x"}, None),
        ({"result": {"error": "boom"}}, "output-error", None, "boom"),
        ({"result": {"error": "boom", "code": 3}}, "result", {"error": "boom", "code": 3}, None),
        ({"result": {"error": None}}, "result", {"error": None}, None),
        ({"result": "bad", "isError": True}, "output-error", None, "bad"),
        ({"result": {"a": 1}, "isError": True}, "output-error", None, '{"a":1}'),
        ({"result": {"error": "boom"}, "isError": True}, "output-error", None, "boom"),
    ],
)  # fmt: skip
def test_the_forms_of_a_tool_result(fields, state, result, error_text):
    outcome = told(**fields)

    assert (outcome.tool_call_id, outcome.tool_name) == ("c1", "w")
    assert (outcome.state, outcome.result, outcome.error_text) == (state, result, error_text)


def test_a_denial_keeps_its_reason():
    assert told(output={"type": "execution-denied", "reason": "no"}).approval == Approval(approved=False, reason="no")


def test_what_the_model_shall_see_rides_along():
    outcome = told(
        result={"big": 1},
        providerOptions={"mastra": {"modelOutput": {"type": "text", "value": "small"}}},
        input={"q": 1},
    )

    assert outcome.result == {"big": 1}
    assert outcome.model_output == {"type": "text", "value": "small"}
    assert outcome.args == {"q": 1}


def test_an_outcome_without_its_call_is_returned_and_makes_no_message():
    result = read(
        [{"role": "tool", "content": [{"type": "tool-result", "toolCallId": "c9", "toolName": "w", "result": 1}]}]
    )

    assert result.messages == ()
    assert [o.tool_call_id for o in result.tool_outcomes] == ["c9"]
    part = result.tool_outcomes[0].as_part()
    assert (part.invocation.tool_name, part.invocation.args, part.invocation.result) == ("w", {}, 1)


def test_empty_tool_messages_are_skipped():
    result = read(["a", {"role": "tool", "content": []}, "b"])

    assert [m.text for m in result.messages] == ["a", "b"]
    assert result.tool_outcomes == ()


def test_a_tool_message_folds_into_its_call():
    call = {"type": "tool-call", "toolCallId": "c1", "toolName": "change_color", "input": {"c": "red"}}
    result = read(
        [
            {"role": "user", "content": "paint"},
            {"role": "assistant", "content": [call]},
            {"role": "tool", "content": []},
            {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "c1", "toolName": "other", "result": {"ok": True}}]},
        ]
    )  # fmt: skip

    _user, assistant = result.messages
    (part,) = assistant.parts
    assert (part.invocation.state, part.invocation.result) == ("result", {"ok": True})
    assert (part.invocation.tool_name, part.invocation.args) == ("change_color", {"c": "red"})
    assert result.tool_outcomes == ()
    assert [(o.tool_call_id, o.message_id) for o in result.folded_outcomes] == [("c1", assistant.id)]
    assert assistant.id not in result.given_ids


def test_an_outcome_goes_to_the_nearest_call_before_it():
    def pair(number):
        return [
            {
                "id": f"a{number}",
                "role": "assistant",
                "content": [{"type": "tool-call", "toolCallId": "c1", "toolName": "w"}],
            },
            {
                "role": "tool",
                "content": [{"type": "tool-result", "toolCallId": "c1", "toolName": "w", "result": number}],
            },
        ]

    result = read([*pair(1), *pair(2)])

    assert [m.parts[0].invocation.result for m in result.messages] == [1, 2]


def test_a_call_behind_its_outcome_is_found_too():
    result = read(
        [
            {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "c1", "toolName": "w", "result": 5}]},
            {"role": "assistant", "content": [{"type": "tool-call", "toolCallId": "c1", "toolName": "w"}]},
        ]
    )

    assert result.messages[0].parts[0].invocation.result == 5
    assert result.tool_outcomes == ()


def test_the_first_outcome_of_a_call_stays():
    answer = {"type": "tool-result", "toolCallId": "c1", "toolName": "w"}
    result = read(
        [
            {"role": "assistant", "content": [{"type": "tool-call", "toolCallId": "c1", "toolName": "w"}, {**answer, "result": 1}]},
            {"role": "tool", "content": [{**answer, "result": 2}]},
        ]
    )  # fmt: skip

    assert result.messages[0].parts[0].invocation.result == 1
    assert result.tool_outcomes == ()


def test_an_approval_in_model_messages_finds_its_call():
    request = {"type": "tool-approval-request", "approvalId": "p1", "toolCallId": "c1"}
    response = {"type": "tool-approval-response", "approvalId": "p1", "approved": False, "reason": "no"}
    result = read(
        [
            {"role": "assistant", "content": [{"type": "tool-call", "toolCallId": "c1", "toolName": "w"}, request]},
            {"role": "tool", "content": [response]},
        ]
    )

    (part,) = result.messages[0].parts
    assert part.invocation.state == "approval-responded"
    assert part.invocation.approval == Approval(id="p1", approved=False, reason="no")


def test_an_approval_whose_request_is_not_there_is_returned():
    response = {"type": "tool-approval-response", "approvalId": "run-9::c1", "approved": True}

    (outcome,) = read([{"role": "tool", "content": [response]}]).tool_outcomes

    assert outcome.state == "approval-responded"
    assert outcome.approval == Approval(id="run-9::c1", approved=True)


# ---------------------------------------------------------------------------------------------------- page messages


@pytest.mark.parametrize(
    ("fields", "state", "expected"),
    [
        ({"state": "input-streaming"}, "partial-call", {}),
        ({"state": "input-available", "input": {"a": 1}}, "call", {"args": {"a": 1}}),
        ({"state": "approval-requested", "input": {}, "approval": {"id": "p"}}, "approval-requested", {"approval": Approval("p")}),
        (
            {"state": "approval-responded", "input": {}, "approval": {"id": "p", "approved": False, "reason": "no"}},
            "approval-responded",
            {"approval": Approval("p", False, "no")},
        ),
        ({"state": "output-available", "input": {}, "output": [1]}, "result", {"result": [1]}),
        ({"state": "output-available", "input": {}}, "result", {"result": None}),
        ({"state": "output-error", "errorText": "e", "rawInput": "{"}, "output-error", {"error_text": "e", "raw_input": "{"}),
        (
            {"state": "output-denied", "input": {}, "approval": {"id": "p", "approved": False}},
            "output-denied",
            {"approval": Approval("p", False)},
        ),
    ],
)  # fmt: skip
def test_the_states_of_a_page_tool(fields, state, expected):
    part = only_call({"type": "tool-get_weather", "toolCallId": "c1", **fields})

    assert (part.invocation.tool_name, part.invocation.tool_call_id, part.invocation.state) == (
        "get_weather",
        "c1",
        state,
    )
    for name, value in expected.items():
        assert getattr(part.invocation, name) == value


def test_a_dynamic_tool_stays_dynamic():
    raw = {
        "type": "dynamic-tool",
        "toolName": "w",
        "toolCallId": "c1",
        "state": "output-available",
        "input": {},
        "output": 1,
    }
    message = only({"id": "a1", "role": "assistant", "parts": [raw]})

    assert message.parts[0].invocation.tool_name == "w"
    assert to_ui_messages([message])[0]["parts"] == [raw]


@pytest.mark.parametrize("name", ["call", "result", "invocation", "approval-request", "approval-response"])
def test_a_tool_may_have_any_name(name):
    part = only_call({"type": f"tool-{name}", "toolCallId": "c1", "state": "input-available", "input": {}})

    assert part.invocation.tool_name == name


def test_other_parts_of_page_messages():
    message = only(
        {
            "id": "a1",
            "role": "assistant",
            "parts": [
                {"type": "step-start"},
                {"type": "reasoning", "text": "so", "state": "done"},
                {"type": "text", "text": "x", "state": "streaming"},
                {"type": "source-url", "sourceId": "s1", "url": "https://e.example", "title": "t"},
                {"type": "data-weather", "id": "w", "data": {"t": 3}},
                {"type": "custom", "kind": "k"},
            ],
        }
    )

    step, reasoning, text, source, data, custom = message.parts
    assert isinstance(step, StepStartPart)
    assert reasoning.text == "so"
    assert text == TextPart("x")
    assert source == SourcePart(source={"sourceType": "url", "id": "s1", "url": "https://e.example", "title": "t"})
    assert data == DataPart("data-weather", data={"t": 3}, id="w")
    assert custom.type == "custom"


def test_an_assistant_message_without_parts_is_taken():
    assert only({"id": "a1", "role": "assistant", "parts": []}).parts == ()


# ------------------------------------------------------------------------------------------ page messages of AI SDK 4


def test_an_older_page_message_is_read_whole():
    message = only(
        {
            "id": "a1",
            "role": "assistant",
            "content": "It is 3 degrees.",
            "createdAt": "2020-01-01T00:00:00Z",
            "reasoning": "so",
            "toolInvocations": [
                {"state": "result", "step": 0, "toolCallId": "c1", "toolName": "w", "args": {}, "result": 3}
            ],
        }
    )

    reasoning, call, text = message.parts
    assert reasoning.text == "so"
    assert call.invocation.result == 3
    assert text.text == message.text == "It is 3 degrees."


def test_parts_of_an_older_page_message_are_not_doubled():
    call = {"state": "result", "step": 0, "toolCallId": "c1", "toolName": "w", "args": {}, "result": 3}
    message = only(
        {
            "id": "a1",
            "role": "assistant",
            "content": "cold",
            "reasoning": "so",
            "toolInvocations": [call],
            "parts": [
                {"type": "reasoning", "reasoning": "so", "details": []},
                {"type": "tool-invocation", "toolInvocation": call},
                {"type": "text", "text": "cold"},
            ],
        }
    )

    assert [part.type for part in message.parts] == ["reasoning", "tool-invocation", "text"]


def test_older_attachments_stay_attachments_in_order_case_90():
    attachments = [
        {"url": "https://e.example/b.png", "contentType": "image/png", "name": "b.png", "size": 4},
        {"url": PNG, "contentType": "image/png", "name": "a.png"},
    ]
    message = only(
        {
            "id": "u1",
            "role": "user",
            "content": "see",
            "parts": [{"type": "text", "text": "see"}, {"type": "file", "mediaType": "text/plain", "url": "data:,x"}],
            "experimental_attachments": attachments,
        }
    )

    assert [(a.url, a.content_type, a.name, a.extra) for a in message.content.experimental_attachments] == [
        ("https://e.example/b.png", "image/png", "b.png", {"size": 4}),
        (PNG, "image/png", "a.png", {}),
    ]
    assert message_to_json(message)["content"]["experimental_attachments"] == attachments


def test_a_file_that_came_twice_is_kept_once_with_all_that_is_known():
    message = only(
        {
            "id": "u1",
            "role": "user",
            "content": {
                "format": 2,
                "parts": [{"type": "file", "data": PNG}],
                "experimental_attachments": [{"url": PNG, "contentType": "image/png", "name": "dot.png"}],
            },
        }
    )

    assert message.parts == (FilePart(PNG, "image/png", "dot.png"),)
    assert message.content.experimental_attachments is None


# --------------------------------------------------------------------------------------------------- stored messages


def test_a_stored_message_is_read_as_it_is():
    raw = {
        "id": "msg-7",
        "role": "assistant",
        "createdAt": "2026-03-04T05:06:08.100Z",
        "type": "text",
        "content": {
            "format": 2,
            "parts": [
                {"type": "text", "text": "a", "createdAt": 5},
                {
                    "type": "tool-invocation",
                    "toolInvocation": {"state": "call", "toolCallId": "c", "toolName": "n", "args": {}},
                },
                {"type": "file", "data": PNG, "mimeType": "image/png", "filename": "f"},
                {"type": "source", "source": {"url": "u"}},
                {"type": "error", "error": {"name": "E", "message": "m"}},
                {"type": "reasoning", "reasoning": "r", "details": [{"type": "text", "text": "r"}]},
                {"type": "hologram", "a": 1},
            ],
            "content": "a",
            "metadata": {"modelId": "m-1"},
            "experimental_attachments": [{"url": "https://e.example/b.png", "name": "b"}],
            "providerMetadata": {"p": {"x": 1}},
            "annotations": [1],
        },
        "shownIn": 1,
    }

    assert message_to_json(read([raw], keep_dates=True).messages[0]) == raw


def test_page_parts_in_a_stored_message_are_read_too():
    part = {"type": "tool-w", "toolCallId": "c1", "state": "output-available", "input": {}, "output": 1}

    message = only({"id": "a", "role": "assistant", "content": {"format": 2, "parts": [part]}})

    assert message.parts[0].invocation.result == 1


# ------------------------------------------------------------------------------------------------------- bad bodies


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        (None, "messages"),
        (5, "messages"),
        (True, "messages"),
        ([None], "messages.0"),
        ([[]], "messages.0"),
        (["a", 1.5], "messages.1"),
        ([{}], "messages.0.role"),
        ([{"role": "boss", "content": "x"}], "messages.0.role"),
        ([{"role": [], "content": "x"}], "messages.0.role"),
        ([{"role": "user"}], "messages.0.content"),
        ([{"role": "user", "content": 5}], "messages.0.content"),
        ([{"role": "user", "content": None}], "messages.0.content"),
        ([{"role": "user", "parts": {}}], "messages.0.parts"),
        ([{"role": "user", "content": {"parts": 1}}], "messages.0.content.parts"),
        ([{"role": "user", "content": {"format": 3}}], "messages.0.content.format"),
        ([{"role": "user", "content": ["x"]}], "messages.0.content.0"),
        ([{"role": "user", "content": [{"type": 5}]}], "messages.0.content.0.type"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages.0.content.0.text"),
        ([{"role": "user", "parts": [{"type": "text", "text": 5}]}], "messages.0.parts.0.text"),
        ([{"role": "user", "parts": [{"type": "reasoning", "text": 5}]}], "messages.0.parts.0.text"),
        ([{"role": "user", "parts": [{"type": "file"}]}], "messages.0.parts.0.data"),
        ([{"role": "user", "parts": [{"type": "file", "url": 5}]}], "messages.0.parts.0.url"),
        ([{"role": "user", "parts": [{"type": "file", "url": "u:x", "mediaType": 5}]}], "messages.0.parts.0.mediaType"),
        ([{"role": "user", "content": [{"type": "file", "data": "not base64!", "mediaType": "a/b"}]}], "messages.0.content.0.data"),
        ([{"role": "user", "content": [{"type": "file", "data": {"type": "Buffer", "data": [256]}}]}], "messages.0.content.0.data.data"),
        ([{"role": "user", "content": [{"type": "file", "data": {"0": 10**30}}]}], "messages.0.content.0.data"),
        ([{"role": "user", "content": [{"type": "file", "data": {"1" * 5000: 1}}]}], "messages.0.content.0.data"),
        ([{"role": "user", "parts": [{"type": "source-url"}]}], "messages.0.parts.0.url"),
        ([{"role": "user", "content": "x", "metadata": []}], "messages.0.metadata"),
        ([{"role": "user", "content": "x", "experimental_attachments": [{}]}], "messages.0.experimental_attachments.0.url"),
        ([{"role": "user", "content": "x", "toolInvocations": {}}], "messages.0.toolInvocations"),
        ([{"role": "user", "content": "x", "toolInvocations": [{}]}], "messages.0.toolInvocations.0.toolCallId"),
        ([{"role": "assistant", "parts": [{"type": "tool-w", "toolCallId": "c", "state": "?"}]}], "messages.0.parts.0.state"),
        ([{"role": "assistant", "parts": [{"type": "tool-w", "toolCallId": "", "state": "call"}]}], "messages.0.parts.0.state"),
        (
            [{"role": "assistant", "parts": [{"type": "tool-w", "toolCallId": "", "state": "input-available"}]}],
            "messages.0.parts.0.toolCallId",
        ),
        ([{"role": "assistant", "parts": [{"type": "tool-", "toolCallId": "c", "state": "input-available"}]}], "messages.0.parts.0.type"),
        ([{"role": "assistant", "parts": [{"type": "dynamic-tool", "toolCallId": "c"}]}], "messages.0.parts.0.toolName"),
        (
            [{"role": "assistant", "parts": [{"type": "tool-w", "toolCallId": "c", "state": "approval-responded"}]}],
            "messages.0.parts.0.approval",
        ),
        (
            [{"role": "assistant", "parts": [{"type": "tool-w", "toolCallId": "c", "state": "approval-responded", "approval": {}}]}],
            "messages.0.parts.0.approval.approved",
        ),
        (
            [{"role": "assistant", "parts": [{"type": "tool-w", "toolCallId": "c", "state": "approval-requested", "approval": 5}]}],
            "messages.0.parts.0.approval",
        ),
        ([{"role": "tool", "content": "x"}], "messages.0.content"),
        ([{"role": "tool", "content": [{"type": "text", "text": "x"}]}], "messages.0.content.0.type"),
        ([{"role": "tool", "content": [{"type": "tool-result"}]}], "messages.0.content.0.toolCallId"),
        ([{"role": "tool", "content": [{"type": "tool-approval-response", "approvalId": "p"}]}], "messages.0.content.0.approved"),
        ([{"role": "user", "content": "\ud800"}], "messages.0"),
        ([{"role": "user", "content": "x", "metadata": {"\ud800": 1}}], "messages.0"),
        ([{"role": "user", "content": "x", "metadata": {"a": float("nan")}}], "messages.0"),
        ([{"role": "user", "content": "x", "metadata": {"a": float("inf")}}], "messages.0"),
        ([{"role": "user", "content": "x", "metadata": {"a": object()}}], "messages.0"),
        ([{"role": "user", "content": "x", "metadata": {5: 1}}], "messages.0"),
        ("\ud800", "messages"),
    ],
)  # fmt: skip
def test_a_bad_body_names_its_field(raw, field):
    with pytest.raises(InvalidInputError) as caught:
        read(raw)

    assert caught.value.field == field
    assert caught.value.status == 400


def test_errors_use_the_callers_name_of_the_value():
    with pytest.raises(InvalidInputError) as caught:
        read([{}], field="context")

    assert caught.value.field == "context.0.role"


def test_nesting_ends_somewhere():
    def nested(levels):
        value = "x"
        for _ in range(levels):
            value = [value]
        return [{"role": "user", "content": "x", "metadata": {"a": value}}]

    assert read(nested(MAX_DEPTH - 3)).messages
    for levels in (MAX_DEPTH, 20_000):
        with pytest.raises(InvalidInputError):
            read(nested(levels))


def test_an_error_never_repeats_message_text():
    with pytest.raises(InvalidInputError) as caught:
        read([{"role": "user", "content": [{"type": "file", "data": "my secret words", "mediaType": "a/b"}]}])

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("seed", range(8))
def test_random_json_is_read_or_refused_and_what_is_read_can_be_shown(seed):
    rnd = random.Random(seed)
    taken, fields = 0, set()
    for _ in range(400):
        raw = (
            random_json.value(rnd)
            if rnd.random() < 0.15
            else [random_json.message(rnd) for _ in range(rnd.randrange(1, 4))]
        )
        try:
            result = messages_from_input(raw, thread_id="t")
        except InvalidInputError as error:
            fields.add(error.field.split(".")[0])
            continue
        taken += 1
        assert len({m.id for m in result.messages}) == len(result.messages)
        again = messages_from_input([message_to_json(m) for m in result.messages], thread_id="t", keep_dates=True)
        assert again.messages == result.messages
        if result.messages:
            check_page_messages(to_ui_messages(result.messages) or [{"id": "", "role": "assistant", "parts": []}])
            to_ui_messages_v4(result.messages)
            to_prompt([(m, "input") for m in result.messages], resolve_file=lambda _file: None)
    assert taken > 40
    assert fields == {"messages"}


def test_a_thousand_page_messages_are_read_in_well_under_50_ms():
    raw = [
        {
            "id": f"m{number}",
            "role": "assistant" if number % 2 else "user",
            "parts": [
                {"type": "step-start"},
                {"type": "text", "text": "Will it rain tomorrow? " * 4, "state": "done"},
                {
                    "type": "tool-w",
                    "toolCallId": f"c{number}",
                    "state": "output-available",
                    "input": {"a": 1},
                    "output": {"t": 3},
                },
            ],
            "metadata": {"lang": "nb"},
        }
        for number in range(1000)
    ]

    def once():
        start = time.process_time()
        messages_from_input(raw)
        return time.process_time() - start

    assert min(once() for _ in range(5)) < 0.05


def test_attachments_are_equal_to_what_was_sent():
    assert only(
        {"role": "user", "content": "x", "experimental_attachments": [{"url": "u:1"}]}
    ).content.experimental_attachments == (Attachment("u:1"),)


def a_call(call_id):
    return {"type": "tool-call", "toolCallId": call_id, "toolName": "w"}


def a_result(call_id):
    return {"type": "tool-result", "toolCallId": call_id, "toolName": "w", "result": 1}


def an_approval(number):
    return {"type": "tool-approval-response", "approvalId": f"p{number}", "approved": True}


MANY = range(10_000)


@pytest.mark.parametrize(
    "raw",
    [
        [
            {"id": "a1", "role": "assistant", "content": [a_call(f"c{n}") for n in MANY]},
            {"role": "tool", "content": [a_result(f"c{n}") for n in MANY]},
        ],
        [
            {"role": "assistant", "content": [a_call("c") for _ in MANY]},
            {"role": "tool", "content": [a_result("c") for _ in MANY]},
        ],
        [
            {"role": "tool", "content": [an_approval(n) for n in MANY]},
            {"role": "assistant", "content": [a_call("c") for _ in MANY]},
        ],
        [{"id": "a1", "role": "assistant", "content": f"{n}"} for n in MANY],
    ],
    ids=["many calls", "one id", "approvals", "pieces"],
)
def test_odd_input_takes_time_by_its_size_and_not_by_its_square(raw):
    start = time.process_time()

    result = read(raw)
    to_prompt([(m, "input") for m in result.messages], resolve_file=lambda _file: None)

    assert time.process_time() - start < 5


@pytest.mark.parametrize("key", ["url", "data"])
@pytest.mark.parametrize("address", ["data:image/png;base64,@@@@", "attachment://../../x", "attachment://"])
def test_a_file_that_nobody_could_ever_see_is_refused(key, address):
    part = {"type": "file", "mediaType": "image/png", key: address}
    with pytest.raises(InvalidInputError) as refused:
        messages_from_input([{"role": "user", "content": [part]}])
    assert refused.value.field.endswith(key)
