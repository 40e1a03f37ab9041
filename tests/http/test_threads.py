"""Threads over HTTP."""

from __future__ import annotations

from datetime import timedelta

import pytest

from agent_memory import clock


def test_created_thread_has_the_wire_shape(app):
    thread = app.create("trip-42", title="Summer trip", metadata={"topic": "travel"})
    assert set(thread) == {"id", "resourceId", "title", "metadata", "createdAt", "updatedAt"}
    assert thread["id"] == "trip-42" and thread["resourceId"] == "ada" and thread["title"] == "Summer trip"
    assert thread["metadata"] == {"topic": "travel"}
    assert thread["createdAt"].endswith("Z") and len(thread["createdAt"]) == 24


def test_thread_without_id_gets_one_and_creation_repeats_safely(app):
    made = app.post("/api/memory/threads", {"agentId": "conformance", "resourceId": "ada"}).json
    assert made["id"] and made["title"] == ""
    first = app.create("t1", title="one")
    again = app.create("t1", title="two")
    assert again == first
    assert app.get("/api/memory/threads", resourceId="ada").json["total"] == 2


def test_thread_of_another_resource_is_refused(app):
    app.create("t1", "ada")
    answer = app.post("/api/memory/threads", {"threadId": "t1", "resourceId": "bob"}, agentId="conformance")
    assert answer.status == 403
    assert app.get("/api/memory/threads/t1").json["resourceId"] == "ada"


@pytest.mark.parametrize(
    ("query", "body", "status", "field"),
    [
        ({}, {"resourceId": "ada"}, 400, "agentId"),
        ({"agentId": "nobody"}, {"resourceId": "ada"}, 404, None),
        ({"agentId": "conformance"}, {}, 400, "resourceId"),
        ({"agentId": "conformance"}, {"resourceId": 7}, 400, "resourceId"),
        ({"agentId": "conformance"}, {"resourceId": "a", "threadId": "x" * 513}, 400, "threadId"),
        ({"agentId": "conformance"}, {"resourceId": "a", "title": "x" * 10_000}, 400, "title"),
        ({"agentId": "conformance"}, {"resourceId": "a", "metadata": {"a": "x" * 1_000_000}}, 400, "metadata"),
        ({"agentId": "forgetful"}, {"resourceId": "a"}, 400, "agentId"),
    ],
)
def test_wrong_creation_names_the_field_and_writes_nothing_case_104(app, query, body, status, field):
    answer = app.post("/api/memory/threads", body, **query)
    assert answer.status == status
    assert answer.json["error"]
    if field:
        assert field in [issue["field"] for issue in answer.json["issues"]]
    assert app.rows("threads") == []


def test_list_pages_and_orders_threads(app):
    for name in ("a", "b", "c"):
        app.create(name, metadata={"kind": "odd" if name != "b" else "even"})
    page = app.get("/api/memory/threads", resourceId="ada", perPage="2", page="0").json
    assert [t["id"] for t in page["threads"]] == ["c", "b"]
    assert page["total"] == 3 and page["hasMore"] is True and page["page"] == 0 and page["perPage"] == 2
    query = {"resourceId": "ada", "orderBy[field]": "createdAt", "orderBy[direction]": "ASC"}
    assert [t["id"] for t in app.get("/api/memory/threads", **query).json["threads"]] == ["a", "b", "c"]
    old = app.get("/api/memory/threads", resourceId="ada", orderBy="updatedAt", sortDirection="ASC").json
    assert [t["id"] for t in old["threads"]] == ["a", "b", "c"]
    found = app.get("/api/memory/threads", resourceId="ada", metadata={"kind": "even"}).json
    assert [t["id"] for t in found["threads"]] == ["b"]
    assert app.get("/api/memory/threads", resourceId="nobody").json["threads"] == []


def test_list_without_a_resource_shows_nobodys_threads_case_84(app):
    app.create("t1", "ada")
    answer = app.get("/api/memory/threads")
    assert answer.json["threads"] == [] and answer.json["total"] == 0


def test_get_unknown_thread_is_404_and_foreign_one_403(app):
    app.create("t1", "ada")
    answer = app.get("/api/memory/threads/nope")
    assert answer.status == 404 and answer.json["error"] == "Thread not found"
    assert app.get("/api/memory/threads/t1", agentId="conformance").status == 200
    assert app.get("/api/memory/threads/t1", resourceId="bob").status == 403


def test_update_replaces_metadata_and_keeps_the_owner(app):
    made = app.create("t1", metadata={"a": 1, "b": 2})
    answer = app.call(
        "PATCH", "/api/memory/threads/t1", query={"agentId": "conformance"}, body={"title": "T", "metadata": {"c": 3}}
    )
    assert answer.status == 200
    assert answer.json["title"] == "T" and answer.json["metadata"] == {"c": 3}
    assert answer.json["createdAt"] == made["createdAt"] and answer.json["updatedAt"] >= made["updatedAt"]
    moved = app.call(
        "PATCH", "/api/memory/threads/t1", query={"agentId": "conformance"}, body={"title": "X", "resourceId": "bob"}
    )
    assert moved.status == 403
    assert app.get("/api/memory/threads/t1").json["resourceId"] == "ada"
    unknown = app.call("PATCH", "/api/memory/threads/no", query={"agentId": "conformance"}, body={"title": "X"})
    assert unknown.status == 404


def test_deleted_thread_is_gone_and_a_new_one_starts_empty(app):
    app.save("one", "two")
    answer = app.call("DELETE", "/api/memory/threads/t1", query={"agentId": "conformance"})
    assert answer.status == 200 and answer.json == {"result": "Thread deleted"}
    assert app.call("DELETE", "/api/memory/threads/t1", query={"agentId": "conformance"}).status == 404
    app.create("t1")
    assert app.messages("t1") == []


def test_clone_copies_messages_under_new_ids(app):
    app.create("t1", title="Trip")
    app.save("one", "two", "three")
    path, query = "/api/memory/threads/t1/clone", {"agentId": "conformance"}
    answer = app.call("POST", path, query=query, body={"newThreadId": "t2", "options": {"messageLimit": 2}})
    assert answer.status == 200
    clone = answer.json
    assert clone["thread"]["id"] == "t2" and clone["thread"]["title"] == "Clone of Trip"
    assert clone["thread"]["metadata"]["clone"]["sourceThreadId"] == "t1"
    assert set(clone["messageIdMap"]) == {"t1-m2", "t1-m3"}
    assert [m["id"] for m in clone["clonedMessages"]] == list(clone["messageIdMap"].values())
    assert [text for _, text in app.said("t2")] == ["two", "three"]
    assert app.call("POST", path, query=query, body={"newThreadId": "t2"}).status == 409
    assert app.call("POST", "/api/memory/threads/no/clone", query=query, body={}).status == 404
    foreign = app.call("POST", path, query={**query, "resourceId": "bob"}, body={})
    assert foreign.status == 403


def test_clone_without_a_body_is_taken(app):
    app.save("one")
    answer = app.call("POST", "/api/memory/threads/t1/clone", query={"agentId": "conformance"})
    assert answer.status == 200 and len(answer.json["clonedMessages"]) == 1


def test_transfer_moves_thread_and_messages(app):
    made = app.create("t1")
    app.save("one")
    answer = app.post("/api/memory/threads/t1/transfer", {"resourceId": "bob"}, agentId="conformance")
    assert answer.status == 200
    assert answer.json["resourceId"] == "bob" and answer.json["createdAt"] == made["createdAt"]
    assert app.messages("t1", resourceId="bob")[0]["resourceId"] == "bob"
    assert app.get("/api/memory/threads/t1/messages", resourceId="ada").status == 403


def test_ids_with_awkward_characters_travel(app):
    for thread in ("a:b@c+d e", "é/ü", "100%", "日本"):
        from urllib.parse import quote

        app.save("hello", thread=thread)
        path = f"/api/memory/threads/{quote(thread, safe=':@+')}"
        assert app.get(path).json["id"] == thread
        assert len(app.get(path + "/messages").json["messages"]) == 1


def test_network_twins_read_the_network_as_the_agent(app):
    made = app.post("/api/memory/network/threads", {"resourceId": "ada", "threadId": "n1"}, networkId="conformance")
    assert made.status == 200
    assert app.get("/api/memory/network/threads/n1", networkId="conformance").json["id"] == "n1"
    assert app.get("/api/memory/network/threads", resourceId="ada").json["total"] == 1
    saved = app.post(
        "/api/memory/network/save-messages",
        {"messages": [{"role": "user", "content": "hi", "threadId": "n1", "resourceId": "ada"}]},
        networkId="conformance",
    )
    assert saved.status == 200
    assert len(app.get("/api/memory/network/threads/n1/messages").json["messages"]) == 1
    assert app.get("/api/memory/network/status", networkId="conformance").json["result"] is True
    gone = app.call("DELETE", "/api/memory/network/threads/n1", query={"networkId": "conformance"})
    assert gone.status == 200


def patch(app, body, thread="t1"):
    return app.call("PATCH", f"/api/memory/threads/{thread}", query={"agentId": "conformance"}, body=body)


def in_days(days):
    return clock.to_iso(clock.now() + timedelta(days=days))


def test_thread_expires_when_it_was_asked_to(app, monkeypatch):
    due = in_days(2)
    made = app.create("t1", expiresAt=due)
    assert made["expiresAt"] == due
    app.save("one")
    app.create("t2")
    assert patch(app, {"title": "x"}).json["expiresAt"] == due
    later = in_days(3)
    assert patch(app, {"expiresAt": later}).json["expiresAt"] == later
    assert app.get("/api/memory/threads/t1").json["expiresAt"] == later
    assert "expiresAt" not in patch(app, {"expiresAt": None}).json
    assert patch(app, {"expiresAt": due}).json["expiresAt"] == due
    now = clock.now
    monkeypatch.setattr(clock, "now", lambda: now() + timedelta(days=2))
    monkeypatch.setattr(app.deployment.store, "_clock", clock.now)
    assert app.get("/api/memory/threads/t1").status == 404
    assert app.get("/api/memory/threads/t1/messages").status == 404
    listed = app.get("/api/memory/threads", resourceId="ada").json
    assert [thread["id"] for thread in listed["threads"]] == ["t2"] and listed["total"] == 1
    assert patch(app, {"expiresAt": None}).status == 404
    assert app.call("DELETE", "/api/memory/threads/t1", query={"agentId": "conformance"}).status == 404


def test_message_expires_when_it_was_asked_to(app, monkeypatch):
    due = clock.to_iso((clock.now() + timedelta(days=2)).replace(microsecond=0))
    given = {"role": "user", "threadId": "t1", "resourceId": "ada"}
    body = {"messages": [{**given, "content": "soon", "expiresAt": due}, {**given, "content": "kept"}]}
    saved = app.post("/api/memory/save-messages", body, agentId="conformance").json["messages"]
    assert [message.get("expiresAt") for message in saved] == [due, None]
    assert [message.get("expiresAt") for message in app.messages()] == [due, None]
    now = clock.now
    monkeypatch.setattr(app.deployment.store, "_clock", lambda: now() + timedelta(days=2))
    assert [text for _, text in app.said()] == ["kept"]
    assert app.get("/api/memory/threads/t1/messages").json["total"] == 1


@pytest.mark.parametrize("wrong", ["soon", 7, "2020-01-01T00:00:00.000Z", {}])
def test_wrong_expiry_names_the_field_and_writes_nothing(app, wrong):
    query = {"agentId": "conformance"}
    answer = app.post("/api/memory/threads", {"resourceId": "ada", "threadId": "t2", "expiresAt": wrong}, **query)
    assert answer.status == 400 and answer.json["issues"][0]["field"] == "expiresAt"
    message = {"role": "user", "content": "x", "threadId": "t2", "resourceId": "ada", "expiresAt": wrong}
    answer = app.post("/api/memory/save-messages", {"messages": [message]}, **query)
    if wrong == 7:  # milliseconds since 1970 are taken on messages
        assert "time to come" in answer.json["issues"][0]["message"]
    assert answer.status == 400 and answer.json["issues"][0]["field"] == "messages.0.expiresAt"
    assert app.rows("threads") == [] and app.rows("messages") == []
    app.create("t1")
    answer = patch(app, {"title": "x", "expiresAt": wrong})
    assert answer.status == 400 and answer.json["issues"][0]["field"] == "expiresAt"
    assert app.get("/api/memory/threads/t1").json["title"] == ""


def test_end_user_may_shorten_the_life_of_a_thread_and_not_put_it_off(signed_in):
    app = signed_in
    app.create("t1")
    first, second, third = in_days(3), in_days(2), in_days(4)
    assert patch(app, {"expiresAt": first}).json["expiresAt"] == first
    assert patch(app, {"expiresAt": second}).json["expiresAt"] == second
    for later in (third, None):
        answer = patch(app, {"title": "mine", "expiresAt": later})
        assert answer.status == 403 and answer.json["code"] == "NOT_ALLOWED"
    thread = app.get("/api/memory/threads/t1").json
    assert thread["expiresAt"] == second and thread["title"] == ""


def test_end_user_does_not_decide_how_long_a_message_is_kept(signed_in):
    message = {"id": "m1", "role": "user", "content": "x", "threadId": "t1", "expiresAt": in_days(300)}
    saved = signed_in.post("/api/memory/save-messages", {"messages": [message]}, agentId="conformance").json
    assert "expiresAt" not in saved["messages"][0]
    assert "ttl" not in signed_in.rows("messages")[0]
