import random

import pytest

from agent_memory.aws._converse import converse_request
from agent_memory.models import repair
from agent_memory.openai._body import completion_request
from agent_memory.ports import (
    ModelRequest,
    PromptFile,
    PromptMessage,
    PromptReasoning,
    PromptText,
    PromptToolCall,
    PromptToolResult,
    ToolSpec,
)
from tests.support.converse_rules import check_converse
from tests.support.openai_rules import check_completion

TOOL = ToolSpec("look", "Looks.", {"type": "object", "properties": {}})


def message(role, *parts):
    return PromptMessage(role, tuple(PromptText(part) if isinstance(part, str) else part for part in parts))


def call(call_id, name="look", args=None):
    return PromptToolCall(call_id, name, {} if args is None else args)


def result(call_id, output="ok", **fields):
    return PromptToolResult(call_id, "look", output, **fields)


def signed(model_id, text="hm", provider="bedrock"):
    return PromptReasoning(text, {provider: {"signature": "s", "modelId": model_id}, "other": {"itemId": "i"}})


def check_all(messages, **fields):
    """Both bodies keep their provider's rules, with tools offered, refused and absent; the prompt itself is unchanged."""
    messages = tuple(messages)
    before = repr(messages)
    for tools, choice in (((TOOL,), "auto"), ((TOOL,), "none"), ((), "auto")):
        request = ModelRequest(messages, tools=tools, tool_choice=choice, **fields)
        check_converse(converse_request(request, "model-1"))
        check_completion(completion_request(request, "model-1"))
    assert repr(messages) == before


def converse(*messages, tools=(TOOL,)):
    body = converse_request(ModelRequest(messages, tools=tools), "model-1")
    check_converse(body)
    return body


@pytest.mark.parametrize(
    "messages",
    [
        (message("user", "a"), message("user", "b"), message("user", "c")),
        (message("assistant", "a"), message("user", "b")),
        (message("user", "a"), message("assistant", "b"), message("assistant", "c"), message("user", "d")),
        (message("user", "a"), message("system", "be kind"), message("user", "b")),
        (message("user", "a"), message("assistant", "b")),
        (message("system", "x"),),
        (),
    ],
)
def test_roles_alternate_and_begin_with_the_user_case_105(messages):
    check_all(messages)


def test_neighbours_of_one_role_are_merged_and_system_is_lifted_out_case_105():
    body = converse(message("user", "a"), message("system", "be kind"), message("user", "b"), message("user", "c"))
    assert body["messages"] == [{"role": "user", "content": [{"text": "a"}, {"text": "b"}, {"text": "c"}]}]
    assert body["system"] == [{"text": "be kind"}]


def test_a_leading_assistant_message_is_kept_behind_a_fixed_text_case_105():
    body = converse(message("assistant", "hello"), message("user", "hi"))
    assert body["messages"][0]["content"] == [{"text": repair.EARLIER_NOT_SHOWN}]
    assert body["messages"][1]["content"] == [{"text": "hello"}]


@pytest.mark.parametrize(
    "messages",
    [
        (message("user", ""),),
        (message("user", "a"), message("assistant", "  \n"), message("user", "b")),
        (message("user", "a"), message("assistant", "", call("t1")), message("tool", result("t1"))),
        (message("user", "a"), message("assistant", call("t1")), message("tool", result("t1", ""))),
        (message("user", "a"), message("assistant", call("t1")), message("tool", result("t1", []))),
        (message("user", "a"), message("assistant", call("t1")), message("tool", result("t1", None))),
        (message("user", "a"), message("assistant", call("t1")), message("tool", result("t1", {}))),
        (message("user", "a"), message("assistant", call("t1")), message("tool")),
        (message("user", PromptFile("image/png", b"1")),),
        (message("user", PromptFile("application/pdf", b"1", filename="a.pdf")),),
        (message("user", PromptFile("application/pdf", b"")),),
        (message("user"), message("assistant"), message("user", " ")),
        (message("system", " "), message("user", "a")),
        (message("user", "a"), message("assistant", PromptReasoning("hm")), message("user", "b")),
    ],
)
def test_nothing_blank_is_sent_and_the_thread_goes_on_case_106(messages):
    for turn in range(4):
        check_all(messages)
        messages = (*messages, message("assistant", f"answer {turn}"), message("user", f"turn {turn}"))


def test_an_empty_tool_result_says_so_case_106():
    body = converse(message("user", "a"), message("assistant", call("t1")), message("tool", result("t1", " ")))
    (block,) = body["messages"][-1]["content"]
    assert block["toolResult"]["content"] == [{"text": repair.EMPTY_RESULT}]


HISTORY = (
    message("user", "one"),
    message("assistant", "let me see", call("t1"), call("t2")),
    message("tool", result("t1", {"a": 1}), result("t2", "two")),
    message("assistant", "done"),
    message("user", "again"),
    message("assistant", call("t1"), call("t3")),
    message("tool", result("t3"), result("t1")),
    message("assistant", "done again"),
    message("user", "last"),
)


@pytest.mark.parametrize("last", range(1, len(HISTORY) + 1))
def test_every_window_of_a_history_with_tools_is_valid_case_107(last):
    check_all(HISTORY[-last:])
    check_all(HISTORY[:last])
    for first in range(len(HISTORY)):
        check_all(HISTORY[first : first + last])
        check_all(HISTORY[:first] + HISTORY[first + last :])


def test_pending_calls_get_a_fixed_result_case_107():
    body = converse(message("user", "a"), message("assistant", call("t1"), call("t2")), message("user", "b"))
    results = [block["toolResult"] for block in body["messages"][2]["content"] if "toolResult" in block]
    assert [(r["toolUseId"], r["content"], r["status"]) for r in results] == [
        ("t1", [{"text": repair.NO_RESULT}], "error"),
        ("t2", [{"text": repair.NO_RESULT}], "error"),
    ]
    assert body["messages"][2]["content"][2] == {"text": "b"}


def test_results_follow_the_order_of_their_calls_case_107():
    paired = repair.pair_tools(
        (
            message("user", "a"),
            message("assistant", call("t1"), call("t2")),
            message("tool", result("t2", 2), result("t1", 1)),
        )
    )
    assert [(part.tool_call_id, part.output) for part in paired[2].content] == [("t1", 1), ("t2", 2)]


def test_a_result_without_its_call_is_left_out_case_107():
    body = converse(message("tool", result("t1")), message("user", "a"))
    assert body["messages"] == [{"role": "user", "content": [{"text": "a"}]}]


def test_a_late_result_joins_its_call_case_107():
    paired = repair.pair_tools(
        (message("assistant", call("t1")), message("user", "meanwhile"), message("tool", result("t1", "late")))
    )
    assert [m.role for m in paired] == ["assistant", "tool", "user"]
    assert paired[1].content[0].output == "late"


def test_an_id_used_in_two_turns_gets_another_the_same_each_time_case_107():
    messages = (
        message("user", "a"),
        message("assistant", call("t1")),
        message("tool", result("t1", "first")),
        message("assistant", call("t1")),
        message("tool", result("t1", "second")),
    )
    one, two = repair.pair_tools(messages), repair.pair_tools(messages)
    assert one == two
    ids = [part.tool_call_id for m in one for part in m.content if isinstance(part, PromptToolCall)]
    assert ids[0] == "t1"
    assert len(set(ids)) == 2
    assert [m.content[0].output for m in one if m.role == "tool"] == ["first", "second"]


@pytest.mark.parametrize("call_id", ["a b", "ü", "x" * 65, "tooluse:1", "\ud800"])
def test_ids_that_a_provider_refuses_are_replaced(call_id):
    check_all((message("user", "a"), message("assistant", call(call_id)), message("tool", result(call_id))))


def test_a_tool_name_a_provider_refuses_is_made_plain():
    check_all((message("user", "a"), message("assistant", call("t1", "my tool!" * 20)), message("tool", result("t1"))))


def test_a_crashed_call_does_not_brick_the_conversation_case_109():
    messages = (message("user", "u1"), message("assistant", call("t1")), message("user", "hello?"))
    check_all(messages)
    body = converse(*messages)
    assert body["messages"][-1]["content"][-1] == {"text": "hello?"}


def test_only_the_models_own_signed_reasoning_is_sent_case_110():
    messages = (
        message("user", "a"),
        message("assistant", signed("model-1"), "from model-1"),
        message("user", "b"),
        message("assistant", signed("model-2"), "from model-2"),
        message("user", "c"),
        message("assistant", signed("model-1", provider="openai"), "from elsewhere"),
        message("user", "d"),
    )
    check_all(messages)
    body = converse(*messages)
    sent = [block for m in body["messages"] for block in m["content"] if "reasoningContent" in block]
    assert sent == [{"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}}]
    assert "itemId" not in repr(body)
    assert "hm" not in repr(completion_request(ModelRequest(messages), "model-1"))


def test_reasoning_that_would_stand_alone_is_left_out_case_110():
    body = converse(message("user", "a"), message("assistant", signed("model-1")), message("user", "b"))
    assert [m["role"] for m in body["messages"]] == ["user"]


def test_without_tools_calls_are_told_as_text():
    body = converse(
        message("user", "a"),
        message("assistant", call("t1", args={"city": "Rome"})),
        message("tool", result("t1", {"tempC": 21})),
        tools=(),
    )
    assert "toolConfig" not in body
    assert body["messages"][1]["content"] == [{"text": '[Called the tool look with {"city":"Rome"}]'}]
    assert body["messages"][2]["content"] == [{"text": '[The tool look returned: {"tempC":21}]'}]


def random_part(rng, role):
    ids = ["t1", "t2", "t3", "bad id"]
    text = rng.choice(["hello", "", "  \n", "größer", "日本"])
    file = PromptFile(
        rng.choice(["image/png", "application/pdf", "text/plain", "audio/mpeg", "application/zip"]),
        rng.choice([b"data", b"", None]),
        rng.choice([None, "https://example.com/x", "data:image/png;base64,QUJD"]),
        rng.choice([None, "a  b.pdf", "report.pdf", "…"]),
    )
    args = rng.choice([{}, {"a": 1.5}, None, "text"])
    parts = {
        "system": [PromptText(text)],
        "user": [PromptText(text), file],
        "assistant": [
            PromptText(text),
            call(rng.choice(ids), rng.choice(["look", "lo ok", ""]), args),
            signed(rng.choice(["model-1", "model-2"]), text),
            PromptReasoning(text),
            file,
        ],
        "tool": [result(rng.choice(ids), rng.choice(["", "x", None, [], [1], {}, {"a": 1}, 0, False]))],
    }
    return rng.choice(parts[role])


@pytest.mark.parametrize("seed", range(8))
def test_any_prompt_becomes_valid_case_107(seed):
    rng = random.Random(seed)
    for _ in range(60):
        messages = []
        for _ in range(rng.randrange(9)):
            role = rng.choice(["user", "assistant", "assistant", "tool", "system"])
            messages.append(PromptMessage(role, tuple(random_part(rng, role) for _ in range(rng.randrange(4)))))
        check_all(messages)
