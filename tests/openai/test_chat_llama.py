"""OpenAIModel before a real server: llama.cpp and SmolLM2, no network."""

import json
import time

import pytest

from agent_memory.errors import ModelError
from agent_memory.openai.chat import OpenAIModel
from agent_memory.ports import ModelRequest, PromptMessage, PromptText, PromptToolCall, PromptToolResult, ToolSpec
from tests.support.llama import LlamaMissing, llama_url

pytestmark = [pytest.mark.slow, pytest.mark.timeout(330)]
SHORT = {"temperature": 0, "maxOutputTokens": 24}
CITY = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}}, "required": ["city"]}


@pytest.fixture(scope="module")
def model():
    try:
        return OpenAIModel("smollm2", llama_url())
    except LlamaMissing as reason:
        pytest.skip(str(reason))


def message(role, *parts):
    return PromptMessage(role, tuple(PromptText(part) if isinstance(part, str) else part for part in parts))


def run(model, *messages, **fields):
    return list(model.stream(ModelRequest(messages, **({"settings": SHORT} | fields))))


def text_of(chunks):
    return "".join(chunk.payload["text"] for chunk in chunks if chunk.type == "text-delta")


def test_it_answers_in_pieces_and_counts(model):
    chunks = run(model, message("system", "Answer in one word."), message("user", "What is the capital of France?"))
    assert "Paris" in text_of(chunks)
    assert sum(chunk.type == "text-delta" for chunk in chunks) > 1
    assert chunks[0].type == "response-metadata"
    assert chunks[-1].payload["reason"] in ("stop", "length")
    assert chunks[-1].usage.input_tokens > 10
    assert 0 < chunks[-1].usage.output_tokens <= 24


def test_it_is_cut_at_its_limit(model):
    settings = {"temperature": 0, "maxOutputTokens": 3}
    chunks = run(model, message("user", "Tell me a long story."), settings=settings)
    assert chunks[-1].payload == {"reason": "length"}
    assert chunks[-1].usage.output_tokens == 3


def test_a_schema_gives_json_of_that_schema(model):
    chunks = run(model, message("user", "Which city is the capital of Italy? Reply as JSON."), response_schema=CITY)
    assert isinstance(json.loads(text_of(chunks))["city"], str)


def test_a_history_with_tools_and_neighbours_of_one_role_is_taken(model):
    chunks = run(
        model,
        message("assistant", "Hello."),
        message("user", "What is the weather in Rome?"),
        message("assistant", "", PromptToolCall("t1", "get_weather", {"city": "Rome"})),
        message("tool", PromptToolResult("t1", "get_weather", {"tempC": 21})),
        message("assistant", PromptToolCall("t2", "get_weather", {"city": "Oslo"})),
        message("user", "Never mind."),
        message("user", "Say hello."),
        tools=(ToolSpec("get_weather", "The weather of a city.", CITY),),
        tool_choice="none",
    )
    assert text_of(chunks)


def test_it_stops_when_told(model):
    stop = []
    request = ModelRequest(
        (message("user", "Count from 1 to 1000."),),
        settings={"temperature": 0, "maxOutputTokens": 900},
        should_stop=lambda: bool(stop),
    )
    chunks = []
    for chunk in model.stream(request):
        chunks.append(chunk)
        if chunk.type == "text-delta" and not stop:
            stop.append(time.monotonic())
    assert time.monotonic() - stop[0] < 2
    assert chunks[-1].payload == {"reason": "other"}


def test_what_the_server_refuses_is_told(model):
    with pytest.raises(ModelError) as caught:
        run(model, message("user", "hi " * 4000))
    assert caught.value.provider_status == 400
    assert caught.value.code == "MODEL_REQUEST_REFUSED"
    assert "context" in caught.value.message
