import time

import pytest

from agent_memory._json import dumps
from agent_memory.messages import Message
from agent_memory.messages.message import message_from_json
from agent_memory.ports import PromptFile, PromptMessage, PromptText, PromptToolCall, ToolSpec
from agent_memory.tokens import (
    TOKENS_PER_CONVERSATION,
    TOKENS_PER_IMAGE,
    TOKENS_PER_MEDIA,
    TokenCounter,
    count_message,
    count_prompt,
    count_prompt_message,
    estimate_tokens,
)

# Counted with OpenAI's o200k_base.
COUNTED = {
    "Hi! Could you tell me what the weather will be like tomorrow? I'm planning a hike with my sister and we'd rather "
    "not get wet. ": 29,
    "Guten Tag, ich möchte gerne wissen, wie das Wetter morgen wird. Meine Schwester und ich planen eine Wanderung "
    "durch den Schwarzwald. ": 30,
    "你好，请告诉我明天的天气怎么样。我打算和妹妹一起去爬山，不想被雨淋湿。": 27,
    "こんにちは。明日の天気を教えてください。妹と山登りに行く予定で、雨に濡れたくありません。": 31,
    "Здравствуйте! Подскажите, пожалуйста, какая завтра будет погода? Мы с сестрой собираемся в поход и не хотим "
    "промокнуть. ": 31,
    dumps({"id": 7, "city": "Rome", "tempC": 21.5, "tags": ["a", "b"], "at": "2026-03-04T05:06:07.089Z"}): 41,
}


@pytest.mark.parametrize("text", COUNTED)
def test_an_estimate_is_within_half_of_a_real_count(text):
    assert 0.75 <= estimate_tokens(text) / COUNTED[text] <= 1.5


def test_an_empty_text_costs_nothing_and_any_other_something():
    assert estimate_tokens("") == 0
    assert estimate_tokens(" ") == 1
    assert estimate_tokens("\ud800") >= 1


def test_an_estimate_grows_with_the_text():
    text = "Größe: 3,5 m — 日本 ok! " * 20
    counts = [estimate_tokens(text[:end]) for end in range(len(text))]
    assert counts == sorted(counts)


def test_it_is_fast():
    began = time.process_time()
    estimate_tokens("The quick brown fox, 42 times. " * 33_000)
    assert time.process_time() - began < 2.5  # takes about 0.02


def text(content):
    return Message.text_message("user", content, id="m1")


def from_parts(*parts, **content):
    return message_from_json({"id": "m1", "role": "assistant", "content": {"parts": list(parts), **content}})


def test_a_message_costs_its_text_and_an_overhead():
    assert count_message(text("")) == 4
    assert count_message(text("word"), lambda text: len(text)) == 8


@pytest.mark.parametrize(
    ("media", "cost"),
    [("image/png", TOKENS_PER_IMAGE), ("application/pdf", TOKENS_PER_MEDIA), (None, TOKENS_PER_MEDIA)],
)
def test_files_cost_the_same_whatever_their_size(media, cost):
    file = {"type": "file", "data": "x" * 10_000} | ({"mimeType": media} if media else {})
    assert count_message(from_parts(file)) == cost + 4
    attachment = {"url": "x" * 10_000} | ({"contentType": media} if media else {})
    assert count_message(from_parts(experimental_attachments=[attachment])) == cost + 4


def test_a_file_that_sits_in_both_places_is_counted_once():
    file = {"type": "file", "data": "https://x", "mimeType": "image/png"}
    both = from_parts(file, experimental_attachments=[{"url": "https://x", "contentType": "image/png"}])
    assert count_message(both) == TOKENS_PER_IMAGE + 4


def test_a_tool_call_costs_its_arguments_and_its_outcome():
    def called(**fields):
        call = {"toolCallId": "t1", "toolName": "look", "args": {"q": "lake " * 40}}
        return count_message(from_parts({"type": "tool-invocation", "toolInvocation": call | fields}))

    pending = called(state="call")
    assert pending > 30
    assert called(state="result", result="lake " * 100) > pending + 80
    assert called(state="output-error", errorText="lake " * 100) > pending + 80


def test_parts_no_model_sees_cost_nothing():
    hidden = from_parts(
        {"type": "step-start"}, {"type": "data-x", "data": "x" * 900}, {"type": "source", "source": {"url": "x" * 900}}
    )
    assert count_message(hidden) == 4


def test_a_prompt_costs_its_messages_its_tools_and_an_overhead():
    prompt = (
        PromptMessage("user", (PromptText("look"), PromptFile("image/png", b"x"))),
        PromptMessage("assistant", (PromptToolCall("t1", "look", {}),)),
    )
    tool = ToolSpec("look", "Looks at a place.", {"type": "object", "properties": {"at": {"type": "string"}}})
    messages = sum(count_prompt_message(message) for message in prompt)
    assert messages > TOKENS_PER_IMAGE
    assert count_prompt(prompt) == TOKENS_PER_CONVERSATION + messages
    assert count_prompt(prompt, (tool,)) > count_prompt(prompt) + 5


def test_the_estimator_is_a_counter_and_so_is_any_function():
    assert isinstance(estimate_tokens, TokenCounter)
    assert count_prompt_message(PromptMessage("user", (PromptText("abc"),)), len) == 7
