"""What every ChatModel keeps to, over all of ours: the built-in ones and the adapters before local servers."""

import json
import time

import pytest

from agent_memory.aws.bedrock import BedrockModel
from agent_memory.models.demo import DemoModel
from agent_memory.models.scripted import ScriptedModel
from agent_memory.openai.chat import OpenAIModel
from agent_memory.ports import ChatModel, ModelRequest, PromptMessage, PromptText, ToolSpec
from tests.support import bedrock_frames, openai_frames
from tests.support.canned_server import canned_server

BLOCKS = ("text", "reasoning")
STRING = {"type": "string"}
TOOL = ToolSpec("updateWorkingMemory", "Keep it.", {"type": "object", "properties": {"memory": STRING}})


def ask(text, **fields):
    return ModelRequest((PromptMessage("user", (PromptText(text),)),), **fields)


def bedrock(server):
    return BedrockModel("anthropic.claude-x", client=bedrock_frames.client_of(server.url))


def openai(server):
    return OpenAIModel("model-1", server.url + "/v1", "key")


BEDROCK, OPENAI = bedrock_frames, openai_frames
PIECES = ('{"memory"', ': "na', 'me"}')
MODELS = {
    "demo": (None, DemoModel, {}),
    "scripted": (None, ScriptedModel, {}),
    "bedrock": (
        bedrock,
        None,
        {
            "text": BEDROCK.answer(BEDROCK.text_block(0, "Hello ", "there ", "you")),
            "reasoning": BEDROCK.answer(BEDROCK.reasoning_block(0, "hm", "sig"), BEDROCK.text_block(1, "So.")),
            "tool": BEDROCK.answer(
                BEDROCK.text_block(0, "Let me see."),
                BEDROCK.tool_block(1, "tooluse_1", "updateWorkingMemory", *PIECES),
                reason="tool_use",
            ),
            "slow": BEDROCK.answer(BEDROCK.text_block(0, *("w " for _ in range(200))), pause_s=0.05),
        },
    ),
    "openai": (
        openai,
        None,
        {
            "text": OPENAI.answer(OPENAI.texts("Hello ", "there ", "you")),
            "reasoning": OPENAI.answer(OPENAI.reasoning("h", "m"), OPENAI.texts("So.")),
            "tool": OPENAI.answer(
                OPENAI.texts("Let me see."),
                OPENAI.tool_call(0, "call_1", "updateWorkingMemory", *PIECES),
                reason="tool_calls",
            ),
            "slow": OPENAI.answer(OPENAI.texts(*("w " for _ in range(200))), pause_s=0.05),
        },
    ),
}
PROMPTS = {
    "demo": {"text": "hello", "tool": "my name is Ada", "slow": "hello"},
    "scripted": {
        "text": "say hello there you",
        "reasoning": "think so",
        "tool": 'tool updateWorkingMemory {"memory": "name"}',
        "slow": "slow 200 50",
    },
    "bedrock": dict.fromkeys(("text", "reasoning", "tool", "slow"), "hello"),
    "openai": dict.fromkeys(("text", "reasoning", "tool", "slow"), "hello"),
}
KINDS = [(name, kind) for name, prompts in PROMPTS.items() for kind in prompts]


@pytest.fixture
def given():
    """A function that makes the named model, ready to give an answer of the kind, and a request for it."""
    with canned_server() as server:

        def make(name, kind, **fields):
            connect, build, answers = MODELS[name]
            if connect is not None:
                server.answers = [answers[kind]]
            if name == "demo" and kind == "slow":
                return DemoModel(word_delay_ms=50), ask(PROMPTS[name][kind], **fields)
            tools = (TOOL,) if kind == "tool" else ()
            return (connect(server) if connect else build()), ask(PROMPTS[name][kind], tools=tools, **fields)

        yield make


@pytest.mark.parametrize("name", MODELS)
def test_it_is_a_chat_model_with_a_provider_and_an_id(name, given):
    model, _ = given(name, "text")
    assert isinstance(model, ChatModel)
    assert model.provider
    assert model.model_id


@pytest.mark.parametrize(("name", "kind"), [pair for pair in KINDS if pair[1] != "slow"])
def test_blocks_start_before_their_pieces_and_end_after_them_and_finish_comes_once_and_last(name, kind, given):
    model, request = given(name, kind)
    chunks = list(model.stream(request))
    open_block, ended, calls = None, set(), {}
    for chunk in chunks[:-1]:
        payload = chunk.payload
        block, _, moment = chunk.type.partition("-")
        assert chunk.usage is None
        if block in BLOCKS:
            if moment == "start":
                assert open_block is None
                assert payload["id"] not in ended
                open_block = (block, payload["id"])
            else:
                assert open_block == (block, payload["id"])
            if moment == "delta":
                assert payload["text"]
            if moment == "end":
                ended.add(payload["id"])
                open_block = None
        elif chunk.type == "tool-call-input-streaming-start":
            assert payload["toolCallId"] not in calls
            assert open_block is None
            calls[payload["toolCallId"]] = {"name": payload["toolName"], "pieces": []}
        elif chunk.type == "tool-call-delta":
            calls[payload["toolCallId"]]["pieces"].append(payload["argsTextDelta"])
        elif chunk.type == "tool-call-input-streaming-end":
            calls[payload["toolCallId"]]["ended"] = True
        elif chunk.type == "tool-call":
            call = calls[payload["toolCallId"]]
            assert call["ended"]
            assert call["name"] == payload["toolName"]
            assert json.loads("".join(call["pieces"])) == payload["args"]
            assert len(call["pieces"]) > 1
            call["told"] = True
        else:
            assert chunk.type == "response-metadata"
            assert payload["id"]
            assert payload["modelId"]
    assert open_block is None
    assert all(call["told"] for call in calls.values())
    assert (len(calls) == 1) is (kind == "tool")
    assert chunks[-1].type == "finish"
    assert chunks[-1].payload["reason"] == ("tool-calls" if kind == "tool" else "stop")
    assert chunks[-1].usage.input_tokens > 0
    assert chunks[-1].usage.output_tokens > 0


@pytest.mark.parametrize("name", MODELS)
def test_ids_differ_between_answers(name, given):
    seen = []
    for _ in range(2):
        model, request = given(name, "text")
        seen.append({chunk.payload["id"] for chunk in model.stream(request) if chunk.type == "text-start"})
    assert seen[0]
    assert not seen[0] & seen[1]


@pytest.mark.parametrize("name", MODELS)
def test_it_ends_soon_after_it_was_told_to_stop(name, given):
    stop = []
    model, request = given(name, "slow", should_stop=lambda: bool(stop))
    chunks, stopped_at = [], None
    for chunk in model.stream(request):
        chunks.append(chunk)
        if chunk.type == "text-delta" and stopped_at is None:
            stop.append(True)
            stopped_at = time.monotonic()
    assert time.monotonic() - stopped_at < 5  # of 10 s
    assert sum(chunk.type == "text-delta" for chunk in chunks) < 5
    assert [chunk.type for chunk in chunks[-2:]] == ["text-end", "finish"]
    assert chunks[-1].payload == {"reason": "other"}


@pytest.mark.parametrize("name", MODELS)
def test_it_ends_at_its_deadline(name, given):
    began = time.monotonic()
    model, request = given(name, "slow", deadline=began + 0.3)
    chunks = list(model.stream(request))
    assert 0.2 < time.monotonic() - began < 5  # of 10 s
    assert chunks[-1].type == "finish"
    assert chunks[-1].payload == {"reason": "other"}


@pytest.mark.parametrize("name", MODELS)
def test_a_reader_may_leave_at_any_chunk(name, given):
    model, request = given(name, "slow", should_stop=lambda: False)
    stream = model.stream(request)
    assert next(stream).type == "response-metadata"
    stream.close()
