"""Checks a request against the rules by which Bedrock's Converse accepts or refuses one.

Types, required fields, lengths and patterns come from botocore's own model of the API; the rest are the documented
rules and the reported ValidationExceptions: roles alternate and begin and end with the user, no blank text, no empty
content, each tool use answered at once and in full, results first, tools defined where tool blocks are, documents
named apart and with text beside them.
"""

from __future__ import annotations

import functools
import re

import boto3
from botocore.validate import ParamValidator

DOCUMENT_NAME = re.compile(r"(?!.*  )[A-Za-z0-9\-()\[\] ]{1,200}")
CLAUDE_CALL_ID = re.compile(r"[A-Za-z0-9_-]+")


@functools.cache
def _input_shape():
    client = boto3.client("bedrock-runtime", region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x")
    return client.meta.service_model.operation_model("ConverseStream").input_shape


def check_converse(body: dict) -> None:
    """Fail with the rule that `body` breaks."""
    report = ParamValidator().validate(body, _input_shape())
    assert not report.has_errors(), report.generate_report()
    _check_patterns(body, _input_shape(), "body")
    messages = body["messages"]
    assert messages, "a request has messages"
    assert messages[0]["role"] == "user", "the first message is the user's"
    assert messages[-1]["role"] == "user", "the last message is the user's"
    names: list[str] = []
    has_tools = False
    for number, message in enumerate(messages):
        assert number == 0 or messages[number - 1]["role"] != message["role"], "roles alternate"
        content = message["content"]
        assert content, "content is not empty"
        for block in content:
            assert len(block) == 1, "a block is of one kind"
            if "text" in block:
                assert block["text"].strip(), "text is not blank"
            if "document" in block:
                names.append(block["document"]["name"])
                assert DOCUMENT_NAME.fullmatch(names[-1]), "a document's name has plain letters"
                assert any("text" in other for other in content), "a document has text beside it"
            if "image" in block or "document" in block:
                assert message["role"] == "user", "files are the user's"
        has_tools |= _check_tools(messages, number)
    assert len(names) == len(set(names)), "documents are named apart"
    assert not has_tools or body.get("toolConfig", {}).get("tools"), "tool blocks need tools"
    for block in body.get("system", ()):
        assert block["text"].strip(), "system text is not blank"


def _check_tools(messages: list, number: int) -> bool:
    message = messages[number]
    uses = [block["toolUse"]["toolUseId"] for block in message["content"] if "toolUse" in block]
    results = [block["toolResult"]["toolUseId"] for block in message["content"] if "toolResult" in block]
    assert not uses or message["role"] == "assistant", "the assistant calls tools"
    assert not results or message["role"] == "user", "results are the user's"
    assert len(uses) == len(set(uses)), "call ids differ within a message"
    before = [
        block["toolUse"]["toolUseId"] for other in messages[:number] for block in other["content"] if "toolUse" in block
    ]
    assert not set(uses) & set(before), "call ids differ within a conversation"
    assert all(CLAUDE_CALL_ID.fullmatch(use) for use in uses), "call ids have plain letters"
    if uses:
        following = messages[number + 1]["content"] if number + 1 < len(messages) else []
        answered = [block["toolResult"]["toolUseId"] for block in following if "toolResult" in block]
        assert answered == uses, "each call is answered in the next message, in order"
    asked = (
        [block["toolUse"]["toolUseId"] for block in messages[number - 1]["content"] if "toolUse" in block]
        if number
        else []
    )
    assert set(results) <= set(asked), "a result has its call in the message before"
    kinds = ["toolResult" in block for block in message["content"]]
    assert kinds == sorted(kinds, reverse=True), "results come first"
    for block in message["content"]:
        for item in block.get("toolResult", {}).get("content", ()):
            assert item.get("text", "x").strip(), "a result's text is not blank"
            assert isinstance(item.get("json", {}), dict), "a result's JSON is an object"
        if "toolResult" in block:
            assert block["toolResult"]["content"], "a result has content"
        if "toolUse" in block:
            assert isinstance(block["toolUse"]["input"], dict), "a call's input is an object"
    return bool(uses or results)


def _check_patterns(value, shape, path: str) -> None:
    """botocore checks types and lengths only; patterns are left to the service."""
    if shape.type_name == "structure" and isinstance(value, dict) and not getattr(shape, "is_document_type", False):
        for key, item in value.items():
            _check_patterns(item, shape.members[key], f"{path}.{key}")
    elif shape.type_name == "list":
        for item in value:
            _check_patterns(item, shape.member, path)
    elif shape.type_name == "string" and isinstance(value, str) and path != "body.modelId":
        pattern = shape.metadata.get("pattern")
        assert not pattern or re.fullmatch(pattern, value), f"{path} does not match {pattern}"
        assert len(value) <= shape.metadata.get("max", len(value)), f"{path} is too long"
        assert not shape.enum or value in shape.enum, f"{path} is none of {shape.enum}"
