"""Search, status and settings over HTTP."""

from __future__ import annotations

import json

import pytest

AGENT = {"agentId": "conformance"}


def test_search_finds_messages_with_neighbours_and_scores(app):
    app.create("food", title="Food")
    app.save("hello there", "grandmother bakes rhubarb crumble", "with custard", "and cream", thread="food")
    app.save("the car needs oil", thread="other")
    app.indexed("ada", "food", "other")
    answer = app.get("/api/memory/search", searchQuery="rhubarb crumble", resourceId="ada", limit="1", **AGENT)
    assert answer.status == 200
    found = answer.json
    assert found["count"] == 1 and found["query"] == "rhubarb crumble"
    assert found["searchScope"] == "resource" and found["searchType"] == "semantic"
    hit = found["results"][0]
    assert hit["id"] == "food-m2" and hit["content"] == "grandmother bakes rhubarb crumble"
    assert hit["threadId"] == "food" and hit["threadTitle"] == "Food" and hit["score"] > 0
    assert [m["id"] for m in hit["context"]["before"]] == ["food-m1"]
    assert [m["id"] for m in hit["context"]["after"]] == ["food-m3", "food-m4"]


@pytest.mark.parametrize(
    ("recall", "found"),
    [
        ({}, ["t1-m2", "t1-m1"]),
        ({"threshold": 0}, ["t1-m2", "t1-m1"]),
        ({"threshold": -1}, ["t1-m2", "t1-m1"]),
        ({"threshold": 0.99}, ["t1-m1"]),
        ({"threshold": 1.5}, []),
        ({"filter": {"kind": "other"}}, []),
    ],
)
def test_case_79_options_of_the_call_hold_for_a_search(app, recall, found):
    app.save("rhubarb crumble", "rhubarb crumble with custard")
    app.indexed("ada", "t1")
    config = json.dumps({"semanticRecall": {"topK": 2, **recall}})
    answer = app.get(
        "/api/memory/search", searchQuery="rhubarb crumble", resourceId="ada", memoryConfig=config, **AGENT
    )
    assert [result["id"] for result in answer.json["results"]] == found


def test_deleted_messages_are_not_found(app):
    app.save("rhubarb crumble")
    app.indexed("ada", "t1")
    query = {"searchQuery": "rhubarb", "resourceId": "ada", **AGENT}
    assert app.get("/api/memory/search", **query).json["count"] == 1
    app.post("/api/memory/messages/delete", {"messageIds": ["t1-m1"]}, **AGENT)
    assert app.get("/api/memory/search", **query).json["count"] == 0


@pytest.mark.parametrize("query", [{}, {"searchQuery": ""}, {"searchQuery": "  "}])
def test_blank_query_is_400(app, query):
    answer = app.get("/api/memory/search", resourceId="ada", **query, **AGENT)
    assert answer.status == 400 and answer.json["issues"][0]["field"] == "searchQuery"


def test_unknown_resource_finds_nothing_and_foreign_thread_is_403(app):
    app.save("rhubarb")
    found = app.get("/api/memory/search", searchQuery="rhubarb", resourceId="nobody", **AGENT).json
    assert found["results"] == [] and found["count"] == 0
    foreign = app.get("/api/memory/search", searchQuery="x", resourceId="bob", threadId="t1", **AGENT)
    assert foreign.status == 403


def test_status_and_config_tell_of_the_agents_memory(app):
    assert app.get("/api/memory/status", **AGENT).json == {"result": True, "memoryType": "local"}
    assert app.get("/api/memory/status", agentId="forgetful").json["result"] is False
    config = app.get("/api/memory/config", **AGENT).json["config"]
    assert config["lastMessages"] == 20
    assert config["semanticRecall"]["topK"] == 3 and config["semanticRecall"]["messageRange"] == 1
    assert config["workingMemory"]["enabled"] is True and config["workingMemory"]["scope"] == "resource"
    assert config["observationalMemory"] == {"enabled": False}
    assert app.get("/api/memory/config", agentId="forgetful").json == {"config": None}
    assert app.get("/api/memory/config", agentId="nobody").status == 404


def test_observational_memory_is_400_with_an_error_text(app):
    assert app.get("/api/memory/observational-memory", **AGENT).json["error"]
    assert app.get("/api/memory/observational-memory", **AGENT).status == 400
    assert app.post("/api/memory/observational-memory/buffer-status", {}, **AGENT).status == 400
