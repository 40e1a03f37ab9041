"""What the end-to-end tests do again and again, over HTTP."""

from __future__ import annotations

import os
import time

import urllib3

ASSISTANT = "/api/agents/assistant"


def turn(api, thread, owner, text):
    """One turn of a text or of messages, not streamed; the answer."""
    body = {"messages": text, "memory": {"thread": thread, "resource": owner}}
    answer = api("POST", f"{ASSISTANT}/generate", body)
    assert answer.status == 200, answer.body
    return answer.json()


def read(api, path, owner, **query):
    """GET a memory route as the owner of what it shows; the answer."""
    return api("GET", path, query={"agentId": "assistant", "resourceId": owner, **query})


def messages(api, thread, owner):
    """All messages of a short thread."""
    answer = read(api, f"/api/memory/threads/{thread}/messages", owner)
    assert answer.status == 200, answer.body
    return answer.json()["messages"]


def text_of(message):
    """The text of a stored message."""
    return "".join(part["text"] for part in message["content"]["parts"] if part["type"] == "text")


def download(link):
    """What a signed link leads to."""
    with urllib3.PoolManager(ca_certs=os.environ["AWS_CA_BUNDLE"]) as pool:
        answer = pool.request("GET", link, redirect=False)
    assert answer.status == 200, answer.data
    return answer


def eventually(look, *, within_s=30.0):
    """The first true answer of `look`, which is asked again until `within_s` seconds have passed."""
    deadline = time.monotonic() + within_s
    while not (found := look()):
        assert time.monotonic() < deadline, f"expected a true answer within {within_s:.0f} s, found {found!r}"
        time.sleep(0.2)
    return found
