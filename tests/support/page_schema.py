"""What a page of AI SDK 5 to 7 checks before it shows a conversation (read off the schemas of ai 5.0.277 to 7.0.173)."""

from __future__ import annotations

from typing import Any

TOOL_STATES = {
    # state: fields it needs, fields it refuses, whether an approval is there (None: may be)
    "input-streaming": ((), ("output", "errorText"), False),
    "input-available": (("input",), ("output", "errorText"), False),
    "approval-requested": (("input",), ("output", "errorText"), True),
    "approval-responded": (("input",), ("output", "errorText"), True),
    "output-available": (("input", "output"), ("errorText",), None),
    "output-error": (("errorText",), ("output",), None),
    "output-denied": (("input",), ("output", "errorText"), True),
}


def check_page_messages(messages: list[dict[str, Any]]) -> None:
    """Fail on the first thing that a page would refuse."""
    assert messages
    for message in messages:
        assert isinstance(message["id"], str)
        assert message["role"] in ("system", "user", "assistant")
        assert message["role"] == "assistant" or message["parts"]
        for part in message["parts"]:
            _check_part(part)


def _check_part(part: dict[str, Any]) -> None:
    kind = part["type"]
    if kind.startswith("data-"):
        assert "data" in part
        assert isinstance(part.get("id", ""), str)
    elif kind == "dynamic-tool" or kind.startswith("tool-"):
        assert kind != "dynamic-tool" or isinstance(part["toolName"], str)
        _check_tool(part)
    else:
        needed = {
            "text": ("text",),
            "reasoning": ("text",),
            "source-url": ("sourceId", "url"),
            "source-document": ("sourceId", "mediaType", "title"),
            "file": ("mediaType", "url"),
            "step-start": (),
            "custom": ("kind",),
            "reasoning-file": ("mediaType", "url"),
        }[kind]
        assert all(isinstance(part[key], str) for key in needed), part
        assert all(isinstance(part.get(key, ""), str) for key in ("title", "filename", "id")), part
        assert part.get("state", "done") in ("streaming", "done")
        _check_metadata(part, "providerMetadata")


def _check_tool(part: dict[str, Any]) -> None:
    assert isinstance(part["toolCallId"], str)
    needed, refused, with_approval = TOOL_STATES[part["state"]]
    assert all(key in part for key in needed), part
    assert not any(key in part for key in refused), part
    assert isinstance(part.get("errorText", ""), str)
    assert with_approval is None or ("approval" in part) is with_approval, part
    _check_metadata(part, "callProviderMetadata")
    _check_metadata(part, "resultProviderMetadata")
    approval = part.get("approval")
    if approval is None:
        return
    assert isinstance(approval["id"], str)
    if part["state"] == "approval-requested":
        assert "approved" not in approval
        assert "reason" not in approval
        return
    assert isinstance(approval["approved"], bool)
    assert isinstance(approval.get("reason", ""), str)
    if part["state"] == "output-denied":
        assert approval["approved"] is False
    elif part["state"] != "approval-responded":
        assert approval["approved"] is True


def _check_metadata(part: dict[str, Any], key: str) -> None:
    assert all(isinstance(value, dict) for value in part.get(key, {}).values()), part
