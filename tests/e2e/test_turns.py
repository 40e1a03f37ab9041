"""Turns through the gateway, and what the other functions make of them."""

from __future__ import annotations

from tests.e2e.calls import ASSISTANT, eventually, messages, read, text_of, turn


def test_second_turn_remembers_the_first(api, thread, owner):
    first = turn(api, thread, owner, "My name is Ada and I like tea.")
    assert "I was shown no earlier messages" in first["text"]

    second = turn(api, thread, owner, "What do I like?")

    assert 'I was shown 2 earlier messages, the oldest (user): "My name is Ada and I like tea."' in second["text"]
    stored = messages(api, thread, owner)
    assert [message["role"] for message in stored] == ["user", "assistant"] * 2
    assert text_of(stored[2]) == "What do I like?"
    assert text_of(stored[3]) == second["text"]


def test_stream_ends_after_the_turn_was_stored(api, thread, owner):
    body = {"messages": "Hello", "memory": {"thread": thread, "resource": owner}}
    answer = api("POST", f"{ASSISTANT}/stream", body)

    assert answer.status == 200, answer.body
    assert answer.headers["content-type"] == "text/event-stream"
    *events, last = answer.events()
    assert last == "[DONE]"
    assert [events[0]["type"], events[-1]["type"]] == ["start", "finish"]
    told = "".join(event["payload"]["text"] for event in events if event["type"] == "text-delta")
    assert 'You said: "Hello"' in told
    assert text_of(messages(api, thread, owner)[-1]) == told


def test_chat_endpoint_streams_and_gives_the_history(api, thread, owner):
    message = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Hello"}]}
    answer = api(
        "POST", "/api/chat", {"id": thread, "agentId": "assistant", "resourceId": owner, "messages": [message]}
    )

    assert answer.status == 200, answer.body
    *events, last = answer.events()
    assert last == "[DONE]"
    told = "".join(event["delta"] for event in events if event["type"] == "text-delta")
    history = read(api, f"/api/chat/{thread}", owner)
    assert history.status == 200, history.body
    assert [entry["role"] for entry in history.json()["messages"]] == ["user", "assistant"]
    assert 'You said: "Hello"' in told
    assert {"type": "text", "text": told} in history.json()["messages"][1]["parts"]


def test_another_function_writes_the_title(api, thread, owner):
    turn(api, thread, owner, "Plan a trip to the Baltic sea")

    title = eventually(lambda: read(api, f"/api/memory/threads/{thread}", owner).json()["title"])

    assert title.startswith("Plan a trip")
    listed = read(api, "/api/memory/threads", owner).json()["threads"]
    assert [(entry["id"], entry["title"]) for entry in listed] == [(thread, title)]


def test_stream_of_the_table_fills_the_index(api, search, thread, owner):
    turn(api, thread, owner, "The spare key lies under the blue pot")

    def found():
        search.settle()
        answer = read(api, "/api/memory/search", owner, searchQuery="Where is the spare key?")
        assert answer.status == 200, answer.body
        return [hit for hit in answer.json()["results"] if hit["role"] == "user"]

    (hit,) = eventually(found)
    assert (hit["content"], hit["threadId"]) == ("The spare key lies under the blue pot", thread)


def test_recall_reaches_another_thread_of_the_owner(api, search, thread, owner):
    turn(api, thread, owner, "The spare key lies under the blue pot")

    def recalled():
        search.settle()
        return any(document["resource"] == owner for document in search.documents())

    eventually(recalled)
    search.settle()
    told = turn(api, f"{thread}-2", owner, "Where does the spare key lie?")["text"]
    assert "Recalled from other conversations" in told
    assert "blue pot" in told
    other = turn(api, f"{thread}-3", f"{owner}-2", "Where does the spare key lie?")["text"]
    assert "blue pot" not in other


def test_message_that_fills_no_row_lies_in_the_bucket(api, thread, owner):
    text = "long " * 80_000
    body = {"messages": [{"threadId": thread, "resourceId": owner, "role": "user", "content": text}]}
    saved = api("POST", "/api/memory/save-messages", body, query={"agentId": "assistant"})

    assert saved.status == 200, saved.body
    (message,) = messages(api, thread, owner)
    assert text_of(message) == text


def test_deleted_thread_is_gone_at_once(api, search, thread, owner):
    turn(api, thread, owner, "The code of the door is 4711")
    eventually(lambda: any(document["resource"] == owner for document in search.documents()))

    gone = api("DELETE", f"/api/memory/threads/{thread}", query={"agentId": "assistant", "resourceId": owner})

    assert gone.status == 200, gone.body
    assert read(api, f"/api/memory/threads/{thread}", owner).status == 404
    assert read(api, f"/api/memory/threads/{thread}/messages", owner).status == 404
    assert read(api, "/api/memory/threads", owner).json()["threads"] == []
    found = read(api, "/api/memory/search", owner, searchQuery="code of the door")
    assert (found.status, found.json()["results"]) == (200, [])
    eventually(lambda: not any(document["resource"] == owner for document in search.documents()))
