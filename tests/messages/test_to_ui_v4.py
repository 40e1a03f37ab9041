from agent_memory.messages.from_input import messages_from_input
from agent_memory.messages.to_ui import to_ui_messages_v4
from tests.support.build import STEP, call, stored, text

PNG = "data:image/png;base64,iVBORw0KGgo="


def page(message):
    (shown,) = to_ui_messages_v4([message])
    return shown


def test_an_older_page_message():
    shown = page(stored("u1", "user", "hi", metadata={"lang": "nb"}))

    assert shown == {
        "id": "u1",
        "role": "user",
        "createdAt": "2026-03-04T05:06:07.089Z",
        "content": "hi",
        "parts": [text("hi")],
        "metadata": {"lang": "nb", "createdAt": "2026-03-04T05:06:07.089Z", "threadId": "trip-42", "resourceId": "ada"},
    }


def test_content_is_the_last_text_and_reasoning_one_string():
    reasoning = {"type": "reasoning", "reasoning": "so", "details": [{"type": "text", "text": "so"}]}

    shown = page(stored("a1", "assistant", reasoning, "one", {"type": "reasoning", "reasoning": " it is"}, "two"))

    assert (shown["content"], shown["reasoning"]) == ("two", "so it is")
    assert shown["parts"][0] == reasoning


def test_calls_have_step_numbers_and_pending_ones_are_left_out():
    message = stored(
        "a1",
        "assistant",
        STEP,
        call("c1", "result", result=1),
        call("c2"),
        STEP,
        call("c3", "output-error", errorText="boom"),
        STEP,
        call("c4", "output-denied", approval={"id": "p", "approved": False, "reason": "no"}),
        call("c5", "output-denied"),
    )

    shown = page(message)

    assert [(c["toolCallId"], c["step"], c["result"], c.get("isError")) for c in shown["toolInvocations"]] == [
        ("c1", 0, 1, None),
        ("c3", 1, "boom", True),
        ("c4", 2, "no", None),
        ("c5", 2, "Tool call was not approved by the user", None),
    ]
    assert {c["state"] for c in shown["toolInvocations"]} == {"result"}
    assert [p["type"] for p in shown["parts"]].count("tool-invocation") == 4


def test_files_of_users_are_attachments_case_90():
    file = {"type": "file", "data": PNG, "mimeType": "image/png", "filename": "dot.png"}
    message = stored(
        "u1", "user", "see", file, experimental_attachments=[{"url": "https://e.example/b.pdf", "name": "b.pdf"}]
    )

    shown = page(message)

    assert shown["experimental_attachments"] == [
        {"url": "https://e.example/b.pdf", "contentType": "application/pdf", "name": "b.pdf"},
        {"url": PNG, "contentType": "image/png", "name": "dot.png"},
    ]
    assert shown["parts"] == [text("see")]


def test_files_of_assistants_are_not_lost():
    link = {"type": "file", "data": "https://e.example/c.png", "mimeType": "image/png"}
    message = stored("a1", "assistant", {"type": "file", "data": PNG, "mimeType": "image/png"}, link)

    shown = page(message)

    assert shown["parts"] == [{"type": "file", "mimeType": "image/png", "data": "iVBORw0KGgo="}]
    assert shown["experimental_attachments"] == [{"url": "https://e.example/c.png", "contentType": "image/png"}]


def test_system_messages_are_left_out_and_signals_are_the_users():
    shown = to_ui_messages_v4([stored("s1", "system", "obey"), stored("x1", "signal", "news")])

    assert [(m["id"], m["role"]) for m in shown] == [("x1", "user")]


def test_an_older_page_message_comes_back_as_it_was_sent():
    invocation = {"state": "result", "step": 0, "toolCallId": "c1", "toolName": "w", "args": {"a": 1}, "result": 3}
    sent = {
        "id": "a1",
        "role": "assistant",
        "content": "cold",
        "parts": [{"type": "step-start"}, {"type": "tool-invocation", "toolInvocation": invocation}, text("cold")],
        "toolInvocations": [invocation],
        "annotations": [{"a": 1}],
    }

    shown = page(messages_from_input([sent]).messages[0])

    assert {key: shown[key] for key in sent} == sent
