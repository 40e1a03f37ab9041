import copy
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime

import pytest

from agent_memory import clock
from agent_memory._json import dumps, loads, thaw
from agent_memory.errors import InvalidInputError
from agent_memory.messages.message import Message, message_from_json, message_to_json
from agent_memory.messages.parts import TextPart

RAW = {
    "id": "msg-7",
    "role": "assistant",
    "threadId": "trip-42",
    "resourceId": "ada",
    "createdAt": "2026-03-04T05:06:08.100Z",
    "type": "text",
    "content": {
        "format": 2,
        "parts": [
            {"type": "text", "text": "Bring a raincoat.", "createdAt": 1772600768100},
            {"type": "hologram", "x": 1},
        ],
        "content": "Bring a raincoat.",
        "metadata": {"modelId": "m-1", "deep": {"a": [1, None, 2.5]}},
        "experimental_attachments": [
            {"url": "https://e.example/a.png", "contentType": "image/png", "name": "a.png", "size": 12},
            {"url": "data:,x", "name": None},
        ],
        "providerMetadata": {"p": "x"},
        "annotations": [{"a": 1}],
        "toolInvocations": [],
    },
    "resourceHint": {"kept": True},
}


def test_a_message_comes_back_exactly():
    before = copy.deepcopy(RAW)

    out = message_to_json(message_from_json(RAW))

    assert loads(dumps(out)) == before
    assert before == RAW


def test_a_plain_string_becomes_one_text_part():
    message = message_from_json({"id": "m", "role": "user", "content": " two spaces  "})

    assert message.parts == (TextPart(" two spaces  "),)
    assert message.text == " two spaces  "


def test_role_tool_becomes_assistant():
    assert message_from_json({"id": "m", "role": "tool", "content": {"parts": []}}).role == "assistant"


def test_a_message_without_a_date_is_dated_now():
    before = clock.now()

    assert before <= message_from_json({"id": "m", "role": "user", "content": "x"}).created_at <= clock.now()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"id": None}, "message.id"),
        ({"id": ""}, "message.id"),
        ({"id": 5}, "message.id"),
        ({"id": "x" * 513}, "message.id"),
        ({"role": "boss"}, "message.role"),
        ({"role": []}, "message.role"),
        ({"content": None}, "message.content"),
        ({"content": {"format": 1}}, "message.content.format"),
        ({"content": {"parts": {}}}, "message.content.parts"),
        ({"content": {"parts": [{"type": "text"}]}}, "message.content.parts.0.text"),
        ({"content": {"content": 5}}, "message.content.content"),
        ({"content": {"metadata": []}}, "message.content.metadata"),
        ({"content": {"experimental_attachments": {}}}, "message.content.experimental_attachments"),
        ({"content": {"experimental_attachments": [{}]}}, "message.content.experimental_attachments.0.url"),
        ({"createdAt": "yesterday"}, "message.createdAt"),
        ({"createdAt": 10**40}, "message.createdAt"),
        ({"createdAt": True}, "message.createdAt"),
        ({"threadId": 4}, "message.threadId"),
        ({"type": 4}, "message.type"),
    ],
)
def test_a_bad_message_names_its_field(change, field):
    with pytest.raises(InvalidInputError) as caught:
        message_from_json(RAW | change)

    assert caught.value.field == field


def test_messages_refuse_change():
    message = message_from_json(RAW)

    with pytest.raises(FrozenInstanceError):
        message.id = "other"
    with pytest.raises(TypeError):
        message.metadata["modelId"] = "m-2"
    with pytest.raises(TypeError):
        message.metadata["deep"]["a"].append(1)
    thawed = thaw(message.metadata)
    thawed["deep"]["a"].append(1)
    assert message.metadata["deep"]["a"] == [1, None, 2.5]


def test_with_metadata_sets_and_removes_keys():
    message = Message.text_message("user", "x", id="u", created_at=datetime(2026, 1, 1, tzinfo=UTC))

    marked = message.with_metadata(a=1, b=None)

    assert marked.metadata == {"a": 1}
    assert message.metadata == {}
    assert marked.with_metadata(a=None).content.metadata is None


def test_with_parts_lets_the_plain_text_follow():
    message = Message.text_message("user", "old", id="u")

    assert message.with_parts([TextPart("a"), TextPart("b")]).content.content == "ab"
    assert message.with_content(content=None).with_parts([TextPart("a")]).content.content is None
