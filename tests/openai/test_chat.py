"""OpenAIModel over real HTTP, before a local server that sends recorded answers."""

import base64
import json
import logging
import time

import pytest

from agent_memory.errors import ConfigurationError, ModelError
from agent_memory.models import resolve_model
from agent_memory.openai.chat import OPENAI_URL, OpenAIModel
from agent_memory.openai.keys import key_of
from agent_memory.ports import (
    ModelRequest,
    PromptFile,
    PromptMessage,
    PromptText,
    PromptToolCall,
    PromptToolResult,
    ToolSpec,
)
from agent_memory.settings import Settings
from tests.support import openai_frames as frames
from tests.support.canned_server import Canned, canned_server
from tests.support.openai_rules import check_completion

KEY = "sk-very-secret"
TOOL = ToolSpec("look", "Looks.", {"type": "object", "properties": {"at": {"type": "string"}}})
SAY_OK = frames.answer(frames.texts("ok"))


@pytest.fixture(autouse=True)
def no_long_waits(monkeypatch):
    monkeypatch.setattr("agent_memory.models.retry.FIRST_DELAY_S", 0.001)


@pytest.fixture
def server():
    with canned_server(SAY_OK) as server:
        yield server


def request_of(*parts, **fields):
    shown = tuple(PromptText(part) if isinstance(part, str) else part for part in parts)
    return ModelRequest((PromptMessage("user", shown),), **fields)


def run(server, request=None, **settings):
    model = OpenAIModel("model-1", server.url + "/v1/", KEY, **settings)
    return list(model.stream(request or request_of("hi")))


def body_of(server, request, **settings):
    run(server, request, **settings)
    check_completion(server.asked[-1].json)
    return server.asked[-1].json


def of_type(chunks, kind):
    return [chunk.payload for chunk in chunks if chunk.type == kind]


def text_of(chunks):
    return "".join(payload["text"] for payload in of_type(chunks, "text-delta"))


def test_a_request_goes_out_with_settings_tools_and_history(server):
    request = ModelRequest(
        (
            PromptMessage("user", (PromptText("hi"),)),
            PromptMessage("system", (PromptText("be kind"),)),
            PromptMessage("assistant", (PromptText("let me see"), PromptToolCall("t1", "look", {"at": "é"}))),
            PromptMessage("tool", (PromptToolResult("t1", "look", {"found": [1, 2.5]}),)),
            PromptMessage("user", (PromptText("and?"),)),
        ),
        tools=(TOOL,),
        tool_choice={"type": "tool", "toolName": "look"},
        settings={"maxOutputTokens": 50, "temperature": 0.5, "topP": 0.9, "stopSequences": ["END"], "seed": 1},
        provider_options={"openai": {"reasoningEffort": "low", "model": "other"}, "bedrock": {"x": 1}},
    )
    body = body_of(server, request)
    asked = server.asked[-1]
    assert asked.path == "/v1/chat/completions"
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert body == {
        "model": "model-1",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [
            {"role": "system", "content": "be kind"},
            {"role": "user", "content": "hi"},
            {
                "role": "assistant",
                "content": "let me see",
                "tool_calls": [
                    {"id": "t1", "type": "function", "function": {"name": "look", "arguments": '{"at":"é"}'}}
                ],
            },
            {"role": "tool", "tool_call_id": "t1", "content": '{"found":[1,2.5]}'},
            {"role": "user", "content": "and?"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {"name": "look", "description": "Looks.", "parameters": TOOL.input_schema},
            }
        ],
        "tool_choice": {"type": "function", "function": {"name": "look"}},
        "max_tokens": 50,
        "temperature": 0.5,
        "top_p": 0.9,
        "stop": ["END"],
        "seed": 1,
        "reasoning_effort": "low",
    }


@pytest.mark.parametrize(("choice", "expected"), [("auto", None), ("required", "required"), ("none", "none")])
def test_tool_choices(server, choice, expected):
    assert body_of(server, request_of("hi", tools=(TOOL,), tool_choice=choice)).get("tool_choice") == expected


def test_a_schema_asks_for_structured_output(server):
    body = body_of(server, request_of("hi", response_schema={"type": "object"}))
    assert body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": {"type": "object"}},
    }


def test_counts_are_not_asked_of_services_that_refuse_it(server):
    assert "stream_options" not in body_of(server, request_of("hi"), include_usage=False)


def test_openai_itself_is_told_the_limit_under_its_new_name():
    assert OpenAIModel("m")._limit_name == "max_completion_tokens"
    assert OpenAIModel("m", OPENAI_URL)._limit_name == "max_completion_tokens"


def test_files_become_urls_files_audio_text_or_a_note(server):
    encoded = base64.b64encode(b"data").decode()
    files = (
        PromptFile("image/png", b"data"),
        PromptFile("image/png", url="https://example.com/cat.png"),
        PromptFile("application/pdf", b"data", filename="a.pdf"),
        PromptFile("audio/mpeg", b"data"),
        PromptFile("text/plain", "größer".encode(), filename="a.txt"),
        PromptFile("application/zip", b"data", filename="a.zip"),
        PromptFile("application/pdf", url="https://example.com/b.pdf", filename="b.pdf"),
    )
    content = body_of(server, request_of("see", *files))["messages"][0]["content"]
    assert content[:5] == [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{encoded}"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{encoded}"}},
        {"type": "input_audio", "input_audio": {"data": encoded, "format": "mp3"}},
    ]
    assert content[5]["text"].endswith("\ngrößer")
    assert "a.zip" in content[6]["text"]
    assert "b.pdf" in content[7]["text"]


def test_text_comes_as_chunks_with_usage(server):
    usage = {
        "prompt_tokens": 30,
        "completion_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 20},
        "completion_tokens_details": {"reasoning_tokens": 4},
    }
    server.answers = [frames.answer(frames.texts("Hel", "lo"), usage=usage)]
    chunks = run(server)
    assert text_of(chunks) == "Hello"
    assert of_type(chunks, "response-metadata") == [{"id": "chatcmpl-1", "modelId": "model-1"}]
    found = chunks[-1].usage
    assert (found.input_tokens, found.output_tokens) == (30, 9)
    assert (found.cached_input_tokens, found.reasoning_tokens) == (20, 4)


def test_usage_is_estimated_where_none_is_told(server):
    server.answers = [Canned([*frames.texts("Hello"), frames.delta("stop"), b"data: [DONE]\n\n"])]
    usage = run(server)[-1].usage
    assert usage.input_tokens > 0
    assert usage.output_tokens > 0


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_is_shown_where_it_is_sent(server, name):
    server.answers = [frames.answer([frames.delta(**{name: "hm"})], frames.texts("ok"))]
    chunks = run(server)
    assert of_type(chunks, "reasoning-delta")[0]["text"] == "hm"
    assert text_of(chunks) == "ok"


def test_calls_side_by_side_keep_their_arguments_apart(server):
    pieces = [
        frames.delta(tool_calls=[{"index": 0, "id": "c1", "function": {"name": "look", "arguments": ""}}]),
        frames.delta(tool_calls=[{"index": 1, "id": "c2", "function": {"name": "look", "arguments": '{"at"'}}]),
        frames.delta(tool_calls=[{"index": 0, "function": {"arguments": '{"at": "x"}'}}]),
        frames.delta(tool_calls=[{"index": 1, "function": {"arguments": ': "y"}'}}]),
    ]
    server.answers = [frames.answer(pieces, reason="tool_calls")]
    chunks = run(server)
    assert of_type(chunks, "tool-call") == [
        {"toolCallId": "c1", "toolName": "look", "args": {"at": "x"}},
        {"toolCallId": "c2", "toolName": "look", "args": {"at": "y"}},
    ]
    assert chunks[-1].payload == {"reason": "tool-calls"}


def test_services_that_number_all_calls_alike_are_understood(server):
    def one(call_id, place):
        function = {"name": "look", "arguments": f'{{"at": "{place}"}}'}
        return frames.delta(tool_calls=[{"index": 0, "id": call_id, "function": function}])

    server.answers = [frames.answer([one("c1", "x"), one("c2", "y")], reason="stop")]
    chunks = run(server)
    assert [call["args"]["at"] for call in of_type(chunks, "tool-call")] == ["x", "y"]
    assert chunks[-1].payload == {"reason": "tool-calls"}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("", {"args": {}}),
        ("null", {"args": {}}),
        ('{"at":', {"args": {}, "rawInput": '{"at":'}),
        ("[1]", {"args": {}, "rawInput": "[1]"}),
        ('{"n": NaN}', {"args": {}, "rawInput": '{"n": NaN}'}),
        ({"at": "x"}, {"args": {"at": "x"}}),
    ],
)
def test_arguments_that_are_no_json_object_are_handed_on_as_they_came(server, arguments, expected):
    call = {"index": 0, "function": {"name": "look", "arguments": arguments}}
    server.answers = [frames.answer([frames.delta(tool_calls=[call])], reason="tool_calls")]
    (payload,) = of_type(run(server), "tool-call")
    assert payload.pop("toolCallId")
    assert payload == {"toolName": "look", **expected}


@pytest.mark.parametrize(
    ("told", "reason"),
    [("stop", "stop"), ("length", "length"), ("content_filter", "content-filter"), ("new", "other")],
)
def test_finish_reasons(server, told, reason):
    server.answers = [frames.answer(frames.texts("x"), reason=told)]
    assert run(server)[-1].payload == {"reason": reason}


def test_a_service_that_does_not_stream_is_understood(server):
    function = {"name": "look", "arguments": '{"at": "x"}'}
    whole = {
        "id": "c",
        "model": "m",
        "choices": [
            {
                "message": {"role": "assistant", "content": "Hi", "tool_calls": [{"id": "t", "function": function}]},
                "finish_reason": "tool_calls",
            }
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    }
    server.answers = [Canned([json.dumps(whole).encode()], headers={"content-type": "application/json"}, chunked=False)]
    chunks = run(server)
    assert text_of(chunks) == "Hi"
    assert of_type(chunks, "tool-call")[0]["args"] == {"at": "x"}
    assert chunks[-1].usage.total_tokens == 5


def test_pieces_are_given_as_they_arrive(server):
    server.answers = [frames.answer(frames.texts("a", "b"), pause_s=0.5)]
    model = OpenAIModel("model-1", server.url + "/v1", KEY)
    began = time.monotonic()
    chunks = ((chunk.type, time.monotonic() - began) for chunk in model.stream(request_of("hi")))
    seen = [moment for kind, moment in chunks if kind == "text-delta"]
    assert seen[0] < 0.97
    assert seen[1] > 0.97


@pytest.mark.parametrize("fields", [{}, {"should_stop": lambda: False}])
def test_a_connection_is_used_again(server, fields):
    for _ in range(3):
        run(server, request_of("hi", **fields))
        time.sleep(0.2)
    assert len({asked.connection for asked in server.asked}) == 1


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 529])
def test_what_may_pass_is_tried_again(server, status):
    server.answers = [frames.refusal(status, "wait"), SAY_OK]
    assert text_of(run(server)) == "ok"
    assert len(server.asked) == 2


def test_the_services_own_wait_is_kept(server):
    server.answers = [frames.refusal(429, "wait", **{"retry-after": "0.2"}), SAY_OK]
    began = time.monotonic()
    run(server)
    assert time.monotonic() - began >= 0.2


def test_a_wait_that_is_too_long_is_told_at_once(server):
    server.answers = [frames.refusal(429, "wait", **{"retry-after": "60"})]
    with pytest.raises(ModelError) as caught:
        run(server)
    assert (caught.value.code, len(server.asked)) == ("MODEL_THROTTLED", 1)


@pytest.mark.parametrize(
    ("status", "code"),
    [(400, "MODEL_REQUEST_REFUSED"), (401, "MODEL_ACCESS_DENIED"), (404, "MODEL_NOT_FOUND"), (302, "MODEL_FAILED")],
)
def test_what_will_not_pass_is_not_tried_again(server, status, code):
    server.answers = [frames.refusal(status, "no such thing")]
    with pytest.raises(ModelError, match="no such thing") as caught:
        run(server)
    assert (caught.value.code, caught.value.provider_status, caught.value.retryable) == (code, status, False)
    assert len(server.asked) == 1


def test_errors_and_logs_never_hold_the_key(server, caplog):
    caplog.set_level(logging.DEBUG)
    server.answers = [frames.refusal(401, f"Incorrect API key provided: {KEY}")]
    with pytest.raises(ModelError) as caught:
        run(server)
    assert KEY not in str(caught.value)
    assert "[key]" in str(caught.value)
    assert KEY not in caplog.text
    assert KEY not in repr(OpenAIModel("m", None, KEY))
    assert KEY not in repr(Settings(openai_api_key=KEY))


def test_an_error_inside_the_stream_is_told(server):
    error = frames.event(error={"message": "out of memory", "code": 503})
    server.answers = [Canned([*frames.texts("x"), error])]
    with pytest.raises(ModelError, match="out of memory") as caught:
        run(server)
    assert caught.value.provider_status == 503
    assert len(server.asked) == 1


@pytest.mark.parametrize("broken", [True, False])
def test_a_stream_that_breaks_off_is_an_error(server, broken):
    server.answers = [Canned(frames.texts("x"), broken=broken)]
    with pytest.raises(ModelError) as caught:
        run(server)
    assert caught.value.code in ("MODEL_STREAM_CUT", "MODEL_UNAVAILABLE")
    assert len(server.asked) == 1


def test_a_stream_of_something_else_is_an_error(server):
    server.answers = [Canned([b"data: <html>\n\n"])]
    with pytest.raises(ModelError) as caught:
        run(server)
    assert caught.value.code == "MODEL_STREAM_INVALID"


def test_a_silent_service_is_a_timeout(server):
    server.answers = [frames.answer(frames.texts("a", "b"), pause_s=0.5)]
    with pytest.raises(ModelError) as caught:
        run(server, read_timeout_s=0.1)
    assert caught.value.code == "MODEL_TIMEOUT"


def test_nobody_listening_is_an_unavailable_model():
    with pytest.raises(ModelError) as caught:
        list(OpenAIModel("m", "http://127.0.0.1:9/v1").stream(request_of("hi")))
    assert caught.value.code == "MODEL_UNAVAILABLE"
    assert caught.value.retryable


def test_a_caller_who_stops_hangs_up_on_a_silent_service(server):
    server.answers = [frames.answer(frames.texts("a", *"b" * 50), pause_s=0.3)]
    stop = []
    request = request_of("hi", should_stop=lambda: bool(stop))
    began = time.monotonic()
    for chunk in OpenAIModel("m", server.url + "/v1").stream(request):
        stop += ["stop"] if chunk.type == "text-delta" else []
    assert time.monotonic() - began < 8  # of 15 s
    assert server.hung_up.wait(30)


def test_the_key_is_asked_for_at_each_call(server):
    keys = iter(["one", "two"])
    model = OpenAIModel("m", server.url + "/v1", lambda: next(keys))
    for _ in range(2):
        list(model.stream(request_of("hi")))
    assert [asked.headers["authorization"] for asked in server.asked] == ["Bearer one", "Bearer two"]


def test_no_key_sends_no_header(server):
    list(OpenAIModel("m", server.url + "/v1").stream(request_of("hi")))
    assert "authorization" not in server.asked[-1].headers


@pytest.mark.parametrize("key", ["a\nb", "schlüssel"])
def test_a_key_that_no_header_carries_is_refused_without_showing_it(key):
    with pytest.raises(ConfigurationError) as caught:
        list(OpenAIModel("m", "http://127.0.0.1:9", key).stream(request_of("hi")))
    assert key not in str(caught.value)


def test_settings_name_the_service_and_its_key(monkeypatch, server):
    monkeypatch.setenv("OPENAI_BASE_URL", server.url + "/v1")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.delenv("OPENAI_API_KEY_SECRET_ARN", raising=False)
    model = resolve_model("openai/org/model-1")
    assert text_of(list(model.stream(request_of("hi")))) == "ok"
    assert server.asked[-1].json["model"] == "org/model-1"
    assert server.asked[-1].headers["authorization"] == f"Bearer {KEY}"


def test_a_deployed_function_takes_its_key_from_a_secret_only(monkeypatch):
    monkeypatch.setenv("AWS_EXECUTION_ENV", "AWS_Lambda_python3.13")
    with pytest.raises(ConfigurationError) as caught:
        key_of(Settings(openai_api_key=KEY))
    assert caught.value.code == "KEY_IN_ENVIRONMENT"
    assert KEY not in str(caught.value)
    arn = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:key-AbCdEf"
    assert repr(key_of(Settings(openai_api_key_secret_arn=arn))) == f"Secret('{arn}')"
