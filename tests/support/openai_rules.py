"""Checks a chat completion's body against the rules by which OpenAI and strict compatible servers accept one."""

from __future__ import annotations

import json


def check_completion(body: dict) -> None:
    """Fail with the rule that `body` breaks."""
    json.dumps(body, allow_nan=False)
    messages = body["messages"]
    rest = messages[1:] if messages[0]["role"] == "system" else messages
    assert rest, "a request has messages"
    assert all(message["role"] != "system" for message in rest), "system text stands first"
    assert rest[0]["role"] == "user", "the first message is the user's"
    waiting: list[str] = []
    seen: set[str] = set()
    previous = None
    for message in messages:
        role, content = message["role"], message["content"]
        if role == "tool":
            assert waiting, "a result follows its call"
            assert message["tool_call_id"] == waiting.pop(0), "results are in order, each with its call"
            assert isinstance(content, str)
            assert content.strip(), "a result says something"
        else:
            assert not waiting, "each call is answered before anyone speaks"
            assert previous != role, "roles alternate"
        if role in ("system", "user"):
            assert content, "content is not empty"
            if isinstance(content, str):
                assert content.strip(), "text is not blank"
            else:
                assert all(part["text"].strip() for part in content if part["type"] == "text"), "text is not blank"
        if role == "assistant":
            calls = message.get("tool_calls", [])
            assert content is None or content.strip(), "text is not blank"
            assert content or calls, "an answer says or calls something"
            for call in calls:
                assert 1 <= len(call["id"]) <= 40, "a call's id has at most 40 characters"
                assert call["id"] not in seen, "call ids differ"
                seen.add(call["id"])
                waiting.append(call["id"])
                assert isinstance(json.loads(call["function"]["arguments"]), dict), "arguments are an object"
        previous = role
    assert not waiting, "each call is answered"
    assert messages[-1]["role"] in ("user", "tool"), "the model's turn is next"
