"""Stored messages over HTTP."""

from __future__ import annotations

import pytest

from tests.support.http_app import serve, text_of

AGENT = {"agentId": "conformance"}


def seven(app):
    app.save(*(f"text {n}" for n in range(1, 8)))


def numbers(answer):
    return [int(m["id"].removeprefix("t1-m")) for m in answer.json["messages"]]


@pytest.mark.parametrize("agent", [{}, AGENT])
def test_pages_count_from_the_newest_end_unless_ascending_is_asked(app, agent):
    seven(app)
    path = "/api/memory/threads/t1/messages"
    pages = [numbers(app.get(path, perPage="3", page=str(n), **agent)) for n in range(3)]
    assert pages == [[5, 6, 7], [2, 3, 4], [1]]
    first = app.get(path, perPage="3", page="0", orderBy={"field": "createdAt", "direction": "ASC"}, **agent)
    assert numbers(first) == [1, 2, 3]
    assert first.json["total"] == 7 and first.json["hasMore"] is True
    assert first.json["page"] == 0 and first.json["perPage"] == 3
    assert first.json["uiMessages"] is None


def test_stored_message_has_the_wire_shape(app):
    app.save("hello")
    message = app.messages()[0]
    assert message["id"] == "t1-m1" and message["role"] == "user"
    assert message["threadId"] == "t1" and message["resourceId"] == "ada"
    assert message["content"]["format"] == 2
    assert message["content"]["parts"][0]["text"] == "hello"


def test_include_adds_neighbours_and_leaves_the_totals_alone(app):
    seven(app)
    answer = app.get(
        "/api/memory/threads/t1/messages",
        perPage="0",
        include=[{"id": "t1-m3", "withPreviousMessages": 1, "withNextMessages": 2}],
        **AGENT,
    )
    assert numbers(answer) == [2, 3, 4, 5]
    assert answer.json["total"] == 7
    beside = app.get("/api/memory/threads/t1/messages", perPage="1", include=[{"id": "t1-m1"}], **AGENT)
    assert numbers(beside) == [1, 7]


def test_filters_by_metadata_and_date(app):
    given = [
        {
            "id": f"t1-m{n}",
            "role": "user",
            "threadId": "t1",
            "resourceId": "ada",
            "createdAt": f"2026-03-0{n}T00:00:00.000Z",
            "content": {"format": 2, "parts": [{"type": "text", "text": str(n)}], "metadata": {"even": n % 2 == 0}},
        }
        for n in range(1, 6)
    ]
    assert app.post("/api/memory/save-messages", {"messages": given}, **AGENT).status == 200
    path = "/api/memory/threads/t1/messages"
    even = app.get(path, filter={"metadata": {"even": True}})
    assert numbers(even) == [2, 4] and even.json["total"] == 2
    none = app.get(path, filter={"metadata": {"even": True}}, perPage="0")
    assert none.json["messages"] == [] and none.json["total"] == 2
    dates = {"start": "2026-03-02T00:00:00.000Z", "end": "2026-03-04T00:00:00.000Z", "endExclusive": True}
    assert numbers(app.get(path, filter={"dateRange": dates, "roles": ["user"]})) == [2, 3]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"perPage": "-1"}, "perPage"),
        ({"perPage": "false"}, "perPage"),
        ({"perPage": "abc"}, "perPage"),
        ({"perPage": "1000000000"}, "perPage"),
        ({"perPage": ""}, "perPage"),
        ({"page": "-1"}, "page"),
        ({"page": "1e3"}, "page"),
        ({"page": "99999999999999999999"}, "page"),
        ({"filter": "{"}, "filter"),
        ({"filter": "[]"}, "filter"),
        ({"filter": {"metadata": {"a b": 1}}}, "filter.metadata.a b"),
        ({"filter": {"metadata": {"__proto__": 1}}}, "filter.metadata.__proto__"),
        ({"filter": {"metadata": {"a": {}}}}, "filter.metadata.a"),
        ({"filter": {"metadata": {"k" * 129: 1}}}, "filter.metadata." + "k" * 128),
        ({"include": [{"withPreviousMessages": 1}]}, "include.0.id"),
        ({"orderBy": {"direction": "UP"}}, "orderBy.direction"),
        ({"resourceId": ""}, "resourceId"),
    ],
)
def test_wrong_query_is_a_400_that_names_the_field_case_93(app, query, field):
    app.create("t1")
    answer = app.get("/api/memory/threads/t1/messages", **query)
    assert answer.status == 400
    assert answer.json["error"] == "Invalid query parameters"
    assert [issue["field"] for issue in answer.json["issues"]] == [field]


def test_unknown_thread_is_404_and_another_resource_403(app):
    app.save("one")
    assert app.get("/api/memory/threads/no/messages").status == 404
    assert app.get("/api/memory/threads/no/messages", resourceId="ada").status == 404
    assert app.get("/api/memory/threads/t1/messages", resourceId="bob").status == 403
    assert app.get("/api/memory/threads/t1/messages", resourceId="undefined").status == 200


def test_saving_fills_in_what_is_missing_and_replaces_known_ids(app):
    answer = app.post(
        "/api/memory/save-messages",
        {"messages": [{"role": "user", "content": " spaced ", "threadId": "t1", "resourceId": "ada"}]},
        **AGENT,
    )
    saved = answer.json["messages"][0]
    assert saved["id"] and saved["createdAt"] and text_of(saved) == " spaced "
    again = {**saved, "content": "other"}
    assert app.post("/api/memory/save-messages", {"messages": [again]}, **AGENT).status == 200
    assert [text_of(m) for m in app.messages()] == ["other"]
    assert app.get("/api/memory/threads/t1").json["resourceId"] == "ada"


@pytest.mark.parametrize("key", ["threadId", "resourceId"])
def test_saving_needs_thread_and_resource_of_every_message(app, key):
    message = {"role": "user", "content": "x", "threadId": "t1", "resourceId": "ada"}
    del message[key]
    answer = app.post("/api/memory/save-messages", {"messages": [message]}, **AGENT)
    assert answer.status == 400
    assert answer.json["issues"][0]["field"] == f"messages.0.{key}"
    assert app.rows("messages") == []


def test_saving_into_a_foreign_thread_is_403(app):
    app.save("one")
    message = {"role": "user", "content": "x", "threadId": "t1", "resourceId": "bob"}
    assert app.post("/api/memory/save-messages", {"messages": [message]}, **AGENT).status == 403
    assert len(app.messages()) == 1


@pytest.mark.parametrize(
    ("given", "count", "left"),
    [
        ("t1-m1", 1, ["t1-m2", "t1-m3"]),
        (["t1-m1", "t1-m2"], 2, ["t1-m3"]),
        ({"id": "t1-m3"}, 1, ["t1-m1", "t1-m2"]),
        ([{"id": "t1-m1"}, {"id": "unknown"}], 2, ["t1-m2", "t1-m3"]),
    ],
)
def test_deletes_messages_by_every_form_of_ids(app, given, count, left):
    app.save("one", "two", "three")
    answer = app.post("/api/memory/messages/delete", {"messageIds": given}, **AGENT)
    word = "message" if count == 1 else "messages"
    assert answer.json == {"success": True, "message": f"{count} {word} deleted successfully"}
    assert [m["id"] for m in app.messages()] == left


def test_bare_id_in_two_threads_deletes_neither_until_the_thread_is_named(app):
    for thread in ("t1", "t2"):
        message = {"id": "same", "role": "user", "content": "x", "threadId": thread, "resourceId": "ada"}
        app.post("/api/memory/save-messages", {"messages": [message]}, **AGENT)
    assert app.post("/api/memory/messages/delete", {"messageIds": "same"}, **AGENT).status == 409
    assert app.post("/api/memory/messages/delete", {"messageIds": "same", "threadId": "t2"}, **AGENT).status == 200
    assert len(app.messages("t1")) == 1 and app.messages("t2") == []


def test_clearing_a_thread_keeps_it(app):
    app.save("one", "two")
    answer = app.post("/api/memory/messages/delete", {"threadId": "t1"}, **AGENT)
    assert answer.json["message"] == "2 messages deleted successfully"
    assert app.messages() == []
    assert app.get("/api/memory/threads/t1").status == 200


@pytest.mark.parametrize("body", [{}, {"messageIds": []}, {"messageIds": 7}, {"messageIds": [""]}])
def test_deleting_nothing_is_a_400(app, body):
    assert app.post("/api/memory/messages/delete", body, **AGENT).status == 400


@pytest.mark.parametrize("place", [{}, {"threadId": "t1"}, {"resourceId": "ada"}])
def test_updating_a_message_keeps_its_place_and_date(app, place):
    before = app.save("one", "two")[0]
    body = {"content": {"metadata": {"rating": 5}}}
    answer = app.call("PATCH", "/api/memory/messages/t1-m1", query={**AGENT, **place}, body=body)
    assert answer.status == 200
    assert answer.json["content"]["metadata"]["rating"] == 5 and text_of(answer.json) == "one"
    app.call("PATCH", "/api/memory/messages/t1-m1", query={**AGENT, **place}, body={"content": "changed"})
    assert [text_of(m) for m in app.messages()] == ["changed", "two"]
    assert app.messages()[0]["createdAt"] == before["createdAt"]


def test_updating_an_unknown_message_is_404(app):
    app.save("one")
    body = {"content": "x"}
    assert app.call("PATCH", "/api/memory/messages/no", query=AGENT, body=body).status == 404
    foreign = app.call("PATCH", "/api/memory/messages/t1-m1", query={**AGENT, "resourceId": "bob"}, body=body)
    assert foreign.status in (403, 404)
    assert [text_of(m) for m in app.messages()] == ["one"]


def test_long_thread_stays_below_the_answer_limit_case_96(shared_tables):
    limit = 1024 * 1024
    with serve(shared_tables, max_answer_bytes=limit) as app:
        for start in range(0, 30, 10):
            given = [
                {"id": f"m{n}", "role": "user", "content": "x" * 50_000, "threadId": "t1", "resourceId": "ada"}
                for n in range(start, start + 10)
            ]
            assert app.post("/api/memory/save-messages", {"messages": given}, **AGENT).status == 200
        path = "/api/memory/threads/t1/messages"
        assert app.get(path, perPage="false").status == 400
        numbered = app.get(path, perPage="200", page="0")
        assert numbered.status == 413 and "perPage" in numbered.json["error"]
        seen, query = [], {"perPage": "200"}
        while True:
            page = app.get(path, **query)
            assert page.status == 200 and len(page.body) <= limit
            seen[:0] = [m["id"] for m in page.json["messages"]]
            if not page.json["hasMore"]:
                break
            query["cursor"] = page.json["nextCursor"]
        assert seen == [f"m{n}" for n in range(30)]


def test_list_of_threads_with_large_metadata_stays_below_the_answer_limit_case_96(shared_tables):
    with serve(shared_tables, max_answer_bytes=100_000) as app:
        for n in range(10):
            app.create(f"t{n}", metadata={"a": "x" * 15_000})
        assert app.get("/api/memory/threads", resourceId="ada").status == 413
        assert len(app.get("/api/memory/threads", resourceId="ada", perPage="5").json["threads"]) == 5


def test_the_longest_message_that_is_accepted_can_be_read_again(app):
    text = "x" * (app.deployment.settings.max_body_bytes - 1_000)
    message = {"id": "m1", "role": "user", "content": text, "threadId": "t1", "resourceId": "ada"}
    assert app.post("/api/memory/save-messages", {"messages": [message]}, agentId="conformance").status == 200
    answer = app.get("/api/memory/threads/t1/messages", agentId="conformance", resourceId="ada")
    assert answer.status == 200
    assert answer.json["messages"][0]["content"]["parts"][0]["text"] == text
