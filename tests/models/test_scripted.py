import json
import time

import pytest

from agent_memory.errors import ModelError
from agent_memory.models.scripted import ScriptedModel
from agent_memory.ports import (
    ModelRequest,
    PromptFile,
    PromptMessage,
    PromptText,
    PromptToolCall,
    PromptToolResult,
)


def message(role, *parts):
    return PromptMessage(role, tuple(PromptText(part) if isinstance(part, str) else part for part in parts))


def run(*messages, **fields):
    return list(ScriptedModel().stream(ModelRequest(messages, **fields)))


def deltas(chunks, kind="text-delta"):
    return [chunk.payload["text"] for chunk in chunks if chunk.type == kind]


def text_of(chunks):
    return "".join(deltas(chunks))


def ask(text):
    return text_of(run(message("user", text)))


def test_say_gives_one_delta_per_word_with_the_space_behind_it():
    chunks = run(message("user", "say Bring  an umbrella"))
    assert deltas(chunks) == ["Bring  ", "an ", "umbrella"]
    assert [chunk.type for chunk in chunks] == [
        "response-metadata",
        "text-start",
        "text-delta",
        "text-delta",
        "text-delta",
        "text-end",
        "finish",
    ]
    assert chunks[-1].payload == {"reason": "stop"}
    assert chunks[-1].usage.input_tokens > 0
    assert chunks[-1].usage.output_tokens > 0


def test_say_keeps_line_breaks():
    assert ask("say one\n\ntwo ") == "one\n\ntwo "


def test_say_with_nothing_ends_at_once():
    assert [chunk.type for chunk in run(message("user", "say"))] == ["response-metadata", "finish"]


def test_the_command_is_the_first_word_of_the_last_user_text_only():
    assert text_of(run(message("user", "say no"), message("assistant", "no"), message("user", "say yes"))) == "yes"
    assert ask("saying hello") == "Echo: saying hello"
    assert ask("  Echo what? ") == "Echo:   Echo what? "


def test_think_gives_reasoning_then_text():
    chunks = run(message("user", "think so be it"))
    assert "".join(deltas(chunks, "reasoning-delta")) == "thinking about it"
    assert text_of(chunks) == "so be it"
    kinds = [chunk.type for chunk in chunks]
    assert kinds.index("reasoning-end") < kinds.index("text-start")


def test_tool_streams_its_arguments_in_pieces_under_a_fresh_id():
    calls = []
    for _ in range(2):
        chunks = run(message("user", 'tool get_weather {"city": "São Paulo"}'))
        pieces = [chunk.payload["argsTextDelta"] for chunk in chunks if chunk.type == "tool-call-delta"]
        (call,) = [chunk.payload for chunk in chunks if chunk.type == "tool-call"]
        assert len(pieces) > 1
        assert json.loads("".join(pieces)) == call["args"] == {"city": "São Paulo"}
        assert call["toolName"] == "get_weather"
        assert chunks[-1].payload == {"reason": "tool-calls"}
        calls.append(call["toolCallId"])
    assert len(set(calls)) == 2


def test_tool_without_arguments_calls_with_an_empty_object():
    chunks = run(message("user", "tool broken_tool"))
    (call,) = [chunk.payload for chunk in chunks if chunk.type == "tool-call"]
    assert call["args"] == {}
    assert sum(chunk.type == "tool-call-delta" for chunk in chunks) == 2


def test_tool_with_broken_json_hands_the_raw_text_on():
    chunks = run(message("user", 'tool get_weather {"city":'))
    (call,) = [chunk.payload for chunk in chunks if chunk.type == "tool-call"]
    assert call["rawInput"] == '{"city":'


def test_a_tool_message_is_told_result_by_result():
    told = run(
        message("user", "tool get_weather {}"),
        message("assistant", PromptToolCall("c1", "get_weather", {}), PromptToolCall("c2", "broken_tool", {})),
        message(
            "tool",
            PromptToolResult("c1", "get_weather", {"city": "Rome", "tempC": 21}),
            PromptToolResult("c2", "broken_tool", "tool exploded", is_error=True),
        ),
    )
    assert text_of(told) == (
        'Tool get_weather returned {"city":"Rome","tempC":21}; Tool broken_tool returned "tool exploded"'
    )


def test_recall_lists_what_came_before_that_user_message_without_system():
    seen = run(
        message("system", "be kind"),
        message("user", "héllo"),
        message("assistant", "", PromptToolCall("c1", "get_weather", {})),
        message("tool", PromptToolResult("c1", "get_weather", 1), PromptToolResult("c2", "pick_color", 2)),
        message("assistant", "done ", "here"),
        message("user", "recall"),
        message("assistant", "after"),
    )
    assert text_of(seen) == 'SEEN ["user:héllo","assistant:","tool:get_weather,pick_color","assistant:done here"]'


def test_system_gives_all_system_text():
    said = text_of(run(message("system", "one"), message("user", "system"), message("system", "two")))
    assert said == "one\n\ntwo"


def test_files_lists_media_types_and_sizes():
    files = [PromptFile("image/png", b"12345"), PromptFile("text/plain", b"")]
    assert text_of(run(message("user", "files", *files))) == (
        'FILES [{"mediaType":"image/png","size":5},{"mediaType":"text/plain","size":0}]'
    )
    assert ask("files") == "FILES []"


def test_nonce_is_new_each_time():
    given = {ask("nonce") for _ in range(50)}
    assert len(given) == 50
    assert all(text.startswith("nonce-") for text in given)


def test_slow_gives_its_words_apart():
    began = time.monotonic()
    chunks = run(message("user", "slow 3 20"))
    assert deltas(chunks) == ["w1 ", "w2 ", "w3"]
    assert time.monotonic() - began >= 0.04


def test_slow_stops_within_a_pause_when_asked():
    stop = []
    request = ModelRequest((message("user", "slow 100 10000"),), should_stop=lambda: bool(stop))
    got = []
    for chunk in ScriptedModel().stream(request):
        got.append(chunk)
        if chunk.type == "text-delta":
            stop.append(True)
    assert deltas(got) == ["w1 "]
    assert got[-1].payload == {"reason": "other"}


def test_fail_fails_with_its_text():
    with pytest.raises(ModelError, match=r"^the lights went out$"):
        run(message("user", "fail the lights went out"))


def test_a_prompt_without_a_user_message_is_echoed_as_nothing():
    assert text_of(run(message("assistant", "hello"))) == "Echo: "
