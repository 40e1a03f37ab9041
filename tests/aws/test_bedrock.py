"""BedrockModel through the real boto3 client, before a local server that sends Converse's recorded frames."""

import base64

import pytest

from agent_memory.aws.bedrock import BedrockGuardrailClient, BedrockModel, GuardrailVerdict, bedrock_client
from agent_memory.errors import ConfigurationError, ModelError
from agent_memory.models import resolve_model
from agent_memory.ports import (
    ModelRequest,
    PromptFile,
    PromptMessage,
    PromptText,
    PromptToolCall,
    PromptToolResult,
    ToolSpec,
)
from tests.support import bedrock_frames as frames
from tests.support.canned_server import Canned, canned_server
from tests.support.converse_rules import check_converse

TOOL = ToolSpec("look", "Looks.", {"type": "object", "properties": {"at": {"type": "string"}}})
SAY_OK = frames.answer(frames.text_block(0, "ok"))


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
    model = BedrockModel("anthropic.claude-x", client=frames.client_of(server.url), **settings)
    return list(model.stream(request or request_of("hi")))


def body_of(server, request, **settings):
    run(server, request, **settings)
    return server.asked[-1].json


def of_type(chunks, kind):
    return [chunk.payload for chunk in chunks if chunk.type == kind]


def test_a_request_goes_to_the_models_stream_with_settings_and_tools(server):
    request = ModelRequest(
        (
            PromptMessage("system", (PromptText("be kind"),)),
            PromptMessage("user", (PromptText("hi"),)),
            PromptMessage("assistant", (PromptToolCall("t1", "look", {"at": "x"}),)),
            PromptMessage("tool", (PromptToolResult("t1", "look", "gone", is_error=True),)),
        ),
        tools=(TOOL,),
        tool_choice={"type": "tool", "toolName": "look"},
        settings={"maxOutputTokens": 50, "temperature": 0.5, "topP": 0.9, "stopSequences": ["END", ""], "seed": 1},
        provider_options={"bedrock": {"additionalModelRequestFields": {"top_k": 5}}, "openai": {"x": 1}},
    )
    body = body_of(server, request)
    assert server.asked[-1].path == "/model/anthropic.claude-x/converse-stream"
    assert body == {
        "system": [{"text": "be kind"}],
        "messages": [
            {"role": "user", "content": [{"text": "hi"}]},
            {"role": "assistant", "content": [{"toolUse": {"toolUseId": "t1", "name": "look", "input": {"at": "x"}}}]},
            {
                "role": "user",
                "content": [{"toolResult": {"toolUseId": "t1", "content": [{"text": "gone"}], "status": "error"}}],
            },
        ],
        "toolConfig": {
            "tools": [
                {"toolSpec": {"name": "look", "description": "Looks.", "inputSchema": {"json": TOOL.input_schema}}}
            ],
            "toolChoice": {"tool": {"name": "look"}},
        },
        "inferenceConfig": {"maxTokens": 50, "temperature": 0.5, "topP": 0.9, "stopSequences": ["END"]},
        "additionalModelRequestFields": {"top_k": 5},
    }


@pytest.mark.parametrize(
    ("choice", "expected"),
    [("auto", None), ("required", {"any": {}}), ({"toolName": "look"}, {"tool": {"name": "look"}})],
)
def test_tool_choices(server, choice, expected):
    config = body_of(server, request_of("hi", tools=(TOOL,), tool_choice=choice))["toolConfig"]
    assert config.get("toolChoice") == expected


def test_choice_none_offers_no_tools(server):
    assert "toolConfig" not in body_of(server, request_of("hi", tools=(TOOL,), tool_choice="none"))


def test_a_schema_asks_for_structured_output(server):
    body = body_of(server, request_of("hi", response_schema={"type": "object"}))
    structure = body["outputConfig"]["textFormat"]["structure"]["jsonSchema"]
    assert structure["schema"] == '{"type":"object"}'


def test_a_guardrail_goes_along(server):
    body = body_of(server, request_of("hi"), guardrail_id="gr1", guardrail_version="3")
    assert body["guardrailConfig"] == {"guardrailIdentifier": "gr1", "guardrailVersion": "3"}


def test_files_become_images_documents_or_a_note(server):
    files = (
        PromptFile("image/jpeg", b"jpeg"),
        PromptFile("application/pdf", b"pdf", filename="Report: 2025/Q1.pdf"),
        PromptFile("application/pdf", b"pdf2", filename="Report: 2025/Q1.pdf"),
        PromptFile("application/json; charset=utf-8", b"{}", filename="a.json"),
        PromptFile("text/plain", url="data:text/plain;base64," + base64.b64encode(b"hello").decode()),
        PromptFile("image/png", url="s3://bucket/key"),
        PromptFile("application/zip", b"zip", filename="a.zip"),
        PromptFile("image/png", url="https://example.com/cat.png"),
        PromptFile("image/png", b"x" * 3_750_001, filename="big.png"),
    )
    body = body_of(server, request_of(*files))
    check_converse({"modelId": "x", **body})
    blocks = body["messages"][0]["content"]
    assert blocks[0]["image"] == {"format": "jpeg", "source": {"bytes": base64.b64encode(b"jpeg").decode()}}
    documents = [block["document"] for block in blocks if "document" in block]
    assert [(d["format"], d["name"]) for d in documents] == [
        ("pdf", "Report 2025 Q1"),
        ("pdf", "Report 2025 Q1 2"),
        ("txt", "a"),
        ("txt", "file"),
    ]
    assert blocks[5]["image"]["source"] == {"s3Location": {"uri": "s3://bucket/key"}}
    notes = [block["text"] for block in blocks if "text" in block]
    assert len(notes) == 3
    assert "a.zip" in notes[0]
    assert "big.png" in notes[2]


def test_only_the_newest_documents_are_shown(server):
    messages = tuple(
        PromptMessage("user", (PromptText("see"), PromptFile("text/plain", b"x", filename=f"f{n}.txt")))
        for n in range(8)
    )
    body = body_of(server, ModelRequest(messages))
    blocks = body["messages"][0]["content"]
    assert sum("document" in block for block in blocks) == 5
    assert ["document" in block for block in blocks[1::2]] == [False] * 3 + [True] * 5
    assert "f0.txt" in blocks[1]["text"]
    assert "document" in blocks[-1]


def test_text_comes_as_chunks_with_usage(server):
    usage = {
        "inputTokens": 10,
        "outputTokens": 4,
        "totalTokens": 34,
        "cacheReadInputTokens": 15,
        "cacheWriteInputTokens": 5,
    }
    server.answers = [frames.answer(frames.text_block(0, "Hel", "lo"), usage=usage)]
    chunks = run(server)
    assert "".join(payload["text"] for payload in of_type(chunks, "text-delta")) == "Hello"
    assert of_type(chunks, "response-metadata") == [{"id": "req-1", "modelId": "anthropic.claude-x"}]
    assert (chunks[-1].usage.input_tokens, chunks[-1].usage.output_tokens) == (30, 4)
    assert chunks[-1].usage.cached_input_tokens == 15
    assert chunks[-1].usage.total_tokens == 34


def test_signed_reasoning_comes_back_in_the_next_request(server):
    server.answers = [frames.answer(frames.reasoning_block(0, "hm", "sig=="), frames.text_block(1, "ok"))]
    (end,) = of_type(run(server), "reasoning-end")
    assert end["providerMetadata"] == {"bedrock": {"modelId": "anthropic.claude-x", "signature": "sig=="}}


def test_hidden_reasoning_is_kept_as_it_came(server):
    hidden = frames.frame(
        "contentBlockDelta",
        {"contentBlockIndex": 0, "delta": {"reasoningContent": {"redactedContent": base64.b64encode(b"x").decode()}}},
    )
    server.answers = [frames.answer([hidden], frames.text_block(1, "ok"))]
    (end,) = of_type(run(server), "reasoning-end")
    assert end["providerMetadata"]["bedrock"]["redactedData"] == base64.b64encode(b"x").decode()


def test_tool_calls_run_side_by_side(server):
    server.answers = [
        frames.answer(
            frames.tool_block(0, "tooluse_1", "look", '{"at":', ' "x"}'),
            frames.tool_block(1, "tooluse_2", "look"),
            frames.tool_block(2, "tooluse_3", "look", '{"at":'),
            reason="tool_use",
        )
    ]
    chunks = run(server)
    assert of_type(chunks, "tool-call") == [
        {"toolCallId": "tooluse_1", "toolName": "look", "args": {"at": "x"}},
        {"toolCallId": "tooluse_2", "toolName": "look", "args": {}},
        {"toolCallId": "tooluse_3", "toolName": "look", "args": {}, "rawInput": '{"at":'},
    ]
    assert chunks[-1].payload == {"reason": "tool-calls"}


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("guardrail_intervened", "content-filter"),
        ("content_filtered", "content-filter"),
        ("malformed_tool_use", "error"),
        ("something_new", "other"),
    ],
)
def test_stop_reasons(server, told, reason):
    server.answers = [frames.answer(frames.text_block(0, "x"), reason=told)]
    assert run(server)[-1].payload == {"reason": reason}


@pytest.mark.parametrize(
    ("status", "code"),
    [(429, "ThrottlingException"), (503, "ServiceUnavailableException"), (500, "InternalServerException")],
)
def test_what_may_pass_is_tried_again(server, status, code):
    refusal = frames.refusal(status, code, "wait")
    server.answers = [refusal, refusal, SAY_OK]
    assert run(server)[-1].payload == {"reason": "stop"}
    assert len(server.asked) == 3


def test_four_tries_are_all(server):
    server.answers = [frames.refusal(429, "ThrottlingException", "too many tokens")]
    with pytest.raises(ModelError) as caught:
        run(server)
    assert len(server.asked) == 4
    assert caught.value.code == "MODEL_THROTTLED"
    assert caught.value.provider_status == 429
    assert caught.value.retryable


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (400, "ValidationException", "MODEL_REQUEST_REFUSED"),
        (403, "AccessDeniedException", "MODEL_ACCESS_DENIED"),
        (404, "ResourceNotFoundException", "MODEL_NOT_FOUND"),
    ],
)
def test_what_will_not_pass_is_not_tried_again(server, status, code, expected):
    server.answers = [frames.refusal(status, code, "no such thing")]
    with pytest.raises(ModelError, match="no such thing") as caught:
        run(server)
    assert (caught.value.code, caught.value.provider_status, caught.value.retryable) == (expected, status, False)
    assert len(server.asked) == 1


def test_an_error_inside_the_stream_is_told_and_not_tried_again(server):
    headers = {"content-type": frames.STREAM_TYPE}
    throttled = frames.frame("throttlingException", {"message": "slow down"}, kind="exception")
    server.answers = [Canned([*frames.text_block(0, "x")[:1], throttled], headers=headers)]
    with pytest.raises(ModelError, match="slow down") as caught:
        run(server)
    assert caught.value.code == "MODEL_THROTTLED"
    assert len(server.asked) == 1


def test_a_stream_that_breaks_off_is_an_error(server):
    headers = {"content-type": frames.STREAM_TYPE}
    server.answers = [Canned(frames.text_block(0, "x"), headers=headers)]
    with pytest.raises(ModelError) as caught:
        run(server)
    assert caught.value.code == "MODEL_STREAM_CUT"


def test_a_silent_service_is_a_timeout(server):
    model = BedrockModel("x", client=frames.client_of(server.url, read_timeout_s=0.1))
    server.answers = [frames.answer(frames.text_block(0, "a", "b"), pause_s=0.5)]
    with pytest.raises(ModelError) as caught:
        list(model.stream(request_of("hi")))
    assert caught.value.code == "MODEL_TIMEOUT"


def test_nobody_listening_is_an_unavailable_model():
    model = BedrockModel("x", client=frames.client_of("http://127.0.0.1:9"))
    with pytest.raises(ModelError) as caught:
        list(model.stream(request_of("hi")))
    assert caught.value.code == "MODEL_UNAVAILABLE"


def test_a_name_gives_a_bedrock_model():
    model = resolve_model("bedrock/us.amazon.nova-lite-v1:0", region="eu-west-1")
    assert (model.provider, model.model_id) == ("bedrock", "us.amazon.nova-lite-v1:0")
    assert resolve_model("amazon-bedrock:x").provider == "bedrock"


def test_the_process_has_one_client_a_region(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    assert bedrock_client("eu-west-1") is bedrock_client("eu-west-1")
    assert bedrock_client("eu-west-1").meta.config.retries["total_max_attempts"] == 1


def guardrail_answer(**fields):
    import json

    usage = dict.fromkeys(
        (
            "topicPolicyUnits",
            "contentPolicyUnits",
            "wordPolicyUnits",
            "sensitiveInformationPolicyUnits",
            "sensitiveInformationPolicyFreeUnits",
            "contextualGroundingPolicyUnits",
        ),
        0,
    )
    body = {"usage": usage, "action": "NONE", "outputs": [], "assessments": []} | fields
    return Canned([json.dumps(body).encode()], headers={"content-type": "application/json"}, chunked=False)


def guardrail(server):
    return BedrockGuardrailClient("gr1", "2", client=frames.client_of(server.url))


def test_a_guardrail_judges_texts(server):
    server.answers = [guardrail_answer()]
    assert guardrail(server).apply(["one", " ", "two"], "INPUT") == GuardrailVerdict("NONE")
    asked = server.asked[-1]
    assert asked.path == "/guardrail/gr1/version/2/apply"
    assert asked.json == {"source": "INPUT", "content": [{"text": {"text": "one"}}, {"text": {"text": "two"}}]}


def test_a_guardrail_blocks_or_masks(server):
    filters = [{"type": "HATE", "confidence": "HIGH", "action": "BLOCKED"}]
    intervened = {"action": "GUARDRAIL_INTERVENED"}
    server.answers = [
        guardrail_answer(
            **intervened,
            outputs=[{"text": "Sorry."}],
            assessments=[{"contentPolicy": {"filters": filters}}],
        ),
        guardrail_answer(
            **intervened,
            outputs=[{"text": "Call {PHONE}"}],
            assessments=[
                {
                    "sensitiveInformationPolicy": {
                        "piiEntities": [{"match": "1", "type": "PHONE", "action": "ANONYMIZED"}],
                        "regexes": [],
                    }
                }
            ],
        ),
    ]
    blocked = guardrail(server).apply("bad", "INPUT")
    assert (blocked.action, blocked.blocked, blocked.outputs) == ("GUARDRAIL_INTERVENED", True, ("Sorry.",))
    assert blocked.assessments[0]["contentPolicy"]["filters"] == filters
    masked = guardrail(server).apply("Call 1", "OUTPUT")
    assert (masked.action, masked.blocked, masked.outputs) == ("GUARDRAIL_INTERVENED", False, ("Call {PHONE}",))


def test_blank_texts_cost_no_call(server):
    assert guardrail(server).apply(["", "  "], "OUTPUT") == GuardrailVerdict("NONE")
    assert server.asked == []


def test_a_guardrail_that_cannot_be_asked_raises(server):
    server.answers = [frames.refusal(404, "ResourceNotFoundException", "no such guardrail")]
    with pytest.raises(ModelError, match="no such guardrail"):
        guardrail(server).apply("x", "INPUT")


def test_a_guardrail_needs_an_id():
    with pytest.raises(ConfigurationError):
        BedrockGuardrailClient("")
