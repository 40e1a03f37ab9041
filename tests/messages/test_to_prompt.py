import pytest

from agent_memory.messages import FilePart
from agent_memory.messages.from_input import messages_from_input
from agent_memory.messages.to_prompt import to_prompt
from agent_memory.ports import (
    PromptFile,
    PromptReasoning,
    PromptText,
    PromptToolCall,
    PromptToolResult,
)
from tests.support.build import STEP, call, stored, text


def resolve(file):
    return PromptFile("image/png", url=file.data if isinstance(file, FilePart) else file.url)


def prompt(*messages, origin="memory", resolve_file=resolve):
    return to_prompt([(message, origin) for message in messages], resolve_file=resolve_file)


def shape(messages):
    """Roles, each with the text, the call ids and the results of its message."""

    def said(part):
        if isinstance(part, PromptText):
            return part.text
        if isinstance(part, PromptToolCall):
            return f"call {part.tool_call_id}"
        if isinstance(part, PromptToolResult):
            return f"{part.tool_call_id}={part.output}"
        return type(part).__name__

    return [(message.role, *map(said, message.content)) for message in messages]


def test_each_message_keeps_its_id_and_origin():
    (message,) = prompt(stored("u1", "user", "hi"), origin="context")

    assert (message.role, message.text, message.message_id, message.origin) == ("user", "hi", "u1", "context")


def test_a_pending_call_with_its_client_result_is_one_pair_case_03():
    before = stored("a1", "assistant", "looking", call("t1", "result", args={"city": "Oslo"}, result={"temp": 3}))

    assistant, tool = prompt(before)

    assert assistant.content == (PromptText("looking"), PromptToolCall("t1", "w", {"city": "Oslo"}))
    assert tool.content == (PromptToolResult("t1", "w", {"temp": 3}),)
    assert tool.message_id == "a1"


def test_steps_split_an_answer_into_assistant_and_tool_messages():
    message = stored(
        "a1",
        "assistant",
        STEP,
        "one",
        call("t1", "result", result=1),
        call("t2", "result", result=2),
        STEP,
        call("t3", "result", result=3),
        STEP,
        "two",
    )

    assert shape(prompt(message)) == [
        ("assistant", "one", "call t1", "call t2"),
        ("tool", "t1=1", "t2=2"),
        ("assistant", "call t3"),
        ("tool", "t3=3"),
        ("assistant", "two"),
    ]


def test_text_behind_a_result_begins_a_message_without_a_step_boundary_too():
    message = stored("a1", "assistant", call("t1", "result", result=1), "then")

    assert shape(prompt(message)) == [("assistant", "call t1"), ("tool", "t1=1"), ("assistant", "then")]


@pytest.mark.parametrize("state", ["partial-call", "call", "approval-requested", "approval-responded"])
def test_a_pending_call_is_left_out_alone_case_107(state):
    message = stored("a1", "assistant", "let me see", call("t1", state), call("t2", "result", result=2), "more")

    assert shape(prompt(message)) == [("assistant", "let me see", "call t2"), ("tool", "t2=2"), ("assistant", "more")]


def test_a_message_of_pending_calls_only_is_left_out_case_109():
    shown = prompt(
        stored("u1", "user", "x"), stored("a1", "assistant", STEP, call("t1")), stored("u2", "user", "hello?")
    )

    assert shape(shown) == [("user", "x"), ("user", "hello?")]


def test_each_call_has_exactly_one_result_case_107():
    twice = stored("a1", "assistant", call("t1", "result", result=1), call("t1", "result", result=2))
    again = stored("a2", "assistant", call("t1", "result", result=3))

    assert shape(prompt(twice, again)) == [
        ("assistant", "call t1"),
        ("tool", "t1=1"),
        ("assistant", "call t1"),
        ("tool", "t1=3"),
    ]


@pytest.mark.parametrize(
    ("part", "output"),
    [
        (call("t1", "output-error", errorText="boom"), "boom"),
        (call("t1", "output-error"), "The tool failed"),
        (call("t1", "output-error", result={"a": 1}), '{"a":1}'),
        (call("t1", "output-denied", approval={"id": "p", "approved": False, "reason": "too risky"}), "too risky"),
        (call("t1", "output-denied"), "Tool call was not approved by the user"),
        (
            call("t1", "approval-responded", approval={"id": "p", "approved": False}),
            "Tool call was not approved by the user",
        ),
        (call("t1", "result", result="bad", isError=True), "bad"),
    ],
)
def test_failures_and_denials_are_error_results(part, output):
    _, tool = prompt(stored("a1", "assistant", part))

    assert tool.content == (PromptToolResult("t1", "w", output, is_error=True),)


@pytest.mark.parametrize(
    ("shown", "output"),
    [
        ({"type": "text", "value": "small"}, "small"),
        ({"type": "json", "value": {"a": 1}}, {"a": 1}),
        ({"type": "content", "value": [{"type": "text", "text": "x"}]}, [{"type": "text", "text": "x"}]),
        ("bare", "bare"),
    ],
)
def test_what_a_tool_shows_to_the_model_stands_in_for_its_result(shown, output):
    part = call("t1", "result", result={"big": 1}, part={"providerMetadata": {"mastra": {"modelOutput": shown}}})

    _, tool = prompt(stored("a1", "assistant", part))

    assert tool.content[0].output == output


def test_a_result_that_is_null_or_missing_is_null():
    for part in (call("t1", "result", result=None), call("t1", "result")):
        _, tool = prompt(stored("a1", "assistant", part))
        assert tool.content[0].output is None


def test_what_is_not_for_the_model_is_not_shown():
    message = stored(
        "a1",
        "assistant",
        {"type": "data-x", "data": "hidden"},
        {"type": "source", "source": {"url": "u"}},
        {"type": "source-document", "title": "t"},
        {"type": "error", "error": "e"},
        {"type": "hologram"},
        "seen",
    )

    assert shape(prompt(message)) == [("assistant", "seen")]


def test_blank_text_and_empty_messages_are_not_shown_case_106():
    shown = prompt(
        stored("u1", "user", "", "  \n"),
        stored("a1", "assistant", "", call("t1", "result", result="")),
        stored("a2", "assistant"),
        stored("u2", "user", {"type": "file", "data": "https://e.example/a.png"}, " "),
    )

    assert shape(shown) == [("assistant", "call t1"), ("tool", "t1="), ("user", "PromptFile")]


def test_text_is_shown_with_its_spaces():
    assert prompt(stored("u1", "user", "  x  "))[0].text == "  x  "


def test_reasoning_is_shown_with_what_its_provider_signed():
    signed = {"type": "reasoning", "reasoning": "so", "providerMetadata": {"p": {"signature": "s"}}}

    (message,) = prompt(stored("a1", "assistant", signed, {"type": "reasoning", "reasoning": ""}, "x"))

    assert message.content == (PromptReasoning("so", {"p": {"signature": "s"}}), PromptText("x"))


def test_reasoning_alone_is_not_a_message():
    assert prompt(stored("a1", "assistant", {"type": "reasoning", "reasoning": "so"}, call("t1"))) == ()


def test_files_and_attachments_are_files_each_once():
    attachments = [{"url": "https://e.example/1"}, {"url": "https://e.example/2"}]
    message = stored(
        "u1", "user", "see", {"type": "file", "data": "https://e.example/2"}, experimental_attachments=attachments
    )

    (shown,) = prompt(message)

    assert [part.url for part in shown.content if isinstance(part, PromptFile)] == [
        "https://e.example/1",
        "https://e.example/2",
    ]


def test_a_file_that_cannot_be_resolved_is_left_out():
    message = stored("u1", "user", "see", {"type": "file", "data": "https://e.example/1"})

    assert shape(prompt(message, resolve_file=lambda _file: None)) == [("user", "see")]


def test_files_of_assistants_are_shown():
    message = stored("a1", "assistant", "here", {"type": "file", "data": "https://e.example/1"})

    assert shape(prompt(message)) == [("assistant", "here", "PromptFile")]


def test_a_stored_system_message_has_no_say():
    message = stored("s1", "system", "obey")

    assert prompt(message, origin="memory") == ()
    assert shape(prompt(message, origin="context")) == [("system", "obey")]


def test_signals_are_said_by_the_user():
    assert shape(prompt(stored("x1", "signal", "news"))) == [("user", "news")]


def test_messages_of_older_clients_are_shown_whole():
    legacy = [{"state": "result", "toolCallId": "t1", "toolName": "w", "args": {}, "result": 1}, {"broken": True}, 5]
    message = stored("a1", "assistant", content="cold", toolInvocations=legacy, reasoning="so")

    assert shape(prompt(message)) == [
        ("assistant", "PromptReasoning", "call t1"),
        ("tool", "t1=1"),
        ("assistant", "cold"),
    ]


def test_model_messages_come_out_as_they_went_in():
    sent = [
        {"role": "user", "content": "paint"},
        {
            "role": "assistant",
            "content": [text("ok"), {"type": "tool-call", "toolCallId": "c1", "toolName": "w", "input": {"c": 1}}],
        },
        {
            "role": "tool",
            "content": [
                {"type": "tool-result", "toolCallId": "c1", "toolName": "w", "output": {"type": "json", "value": 7}}
            ],
        },
        {"role": "assistant", "content": "done"},
    ]

    shown = prompt(*messages_from_input(sent).messages, origin="input")

    assert shape(shown) == [("user", "paint"), ("assistant", "ok", "call c1"), ("tool", "c1=7"), ("assistant", "done")]
