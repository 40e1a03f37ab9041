"""Working memory over HTTP."""

from __future__ import annotations

from infra.conformance.agents import TEMPLATE

AGENT = {"agentId": "conformance"}
PATH = "/api/memory/threads/t1/working-memory"


def test_resource_memory_answers_before_anything_was_written(app):
    answer = app.get(PATH, resourceId="ada", **AGENT)
    assert answer.status == 200
    assert answer.json["workingMemory"] is None and answer.json["source"] == "resource"
    assert answer.json["threadExists"] is False
    assert answer.json["workingMemoryTemplate"] == {"format": "markdown", "content": TEMPLATE}


def test_written_text_comes_back_and_is_shared_by_threads_of_the_resource(app):
    app.create("t1")
    assert (
        app.post(PATH, {"workingMemory": "# User\n- Name: Ada\n", "resourceId": "ada"}, **AGENT).json["success"] is True
    )
    found = app.get(PATH, resourceId="ada", **AGENT).json
    assert found["workingMemory"] == "# User\n- Name: Ada\n" and found["version"] == 1
    assert found["threadExists"] is True
    other = app.get("/api/memory/threads/new/working-memory", resourceId="ada", **AGENT).json
    assert other["workingMemory"] == "# User\n- Name: Ada\n" and other["threadExists"] is False


def test_thread_memory_belongs_to_its_thread(app):
    app.create("t1")
    app.create("t2")
    agent = {"agentId": "conformance-thread"}
    app.post(PATH, {"workingMemory": "one", "resourceId": "ada"}, **agent)
    assert app.get(PATH, resourceId="ada", **agent).json["source"] == "thread"
    assert app.get(PATH, **agent).json["workingMemory"] == "one"
    assert app.get("/api/memory/threads/t2/working-memory", **agent).json["workingMemory"] is None
    # title and metadata of the thread do not hold it
    app.call("PATCH", "/api/memory/threads/t1", query=agent, body={"metadata": {"a": 1}})
    assert app.get(PATH, **agent).json["workingMemory"] == "one"


def test_thread_of_another_resource_is_403(app):
    app.create("t1")
    assert app.get(PATH, resourceId="bob", **AGENT).status == 403
    assert app.post(PATH, {"workingMemory": "x", "resourceId": "bob"}, **AGENT).status == 403
    assert app.get(PATH, resourceId="bob", agentId="conformance-thread").status == 403


def test_agent_without_memory_answers_nulls(app):
    app.create("t1")
    found = app.get(PATH, agentId="forgetful").json
    assert found["workingMemory"] is None and found["source"] == "thread"
    assert app.post(PATH, {"workingMemory": "x"}, agentId="forgetful").status == 400
    assert app.post(PATH, {"workingMemory": "x"}, agentId="resumable").status == 400


def test_patch_needs_the_current_version(app):
    app.create("t1")
    app.post(PATH, {"workingMemory": "- Name: Ada", "resourceId": "ada"}, **AGENT)
    patch = {"search": "Ada", "replace": "Ida"}
    changed = app.call("PATCH", PATH, query=AGENT, body={"version": 1, "patch": patch})
    assert changed.status == 200 and changed.json["version"] == 2
    assert changed.json["workingMemory"] == "- Name: Ida"
    late = app.call("PATCH", PATH, query=AGENT, body={"version": 1, "patch": {"search": "Ida", "replace": "Eda"}})
    assert late.status == 409
    assert late.json["current"]["version"] == 2 and late.json["current"]["workingMemory"] == "- Name: Ida"


def test_history_lists_versions_and_delete_clears(app):
    app.create("t1")
    for text in ("one", "two", "three"):
        app.post(PATH, {"workingMemory": text, "resourceId": "ada"}, **AGENT)
    history = app.get(f"{PATH}/history", resourceId="ada", **AGENT).json["versions"]
    assert [entry["workingMemory"] for entry in history][:2] == ["three", "two"]
    assert app.call("DELETE", PATH, query={**AGENT, "version": "1"}).status == 409
    assert app.call("DELETE", PATH, query=AGENT).json == {"success": True}
    assert app.get(PATH, **AGENT).json["workingMemory"] is None
