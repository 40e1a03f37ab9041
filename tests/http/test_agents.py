"""Agents and tools over HTTP."""

from __future__ import annotations

import json

from agent_memory import Agent, Memory, MemoryArgs, tool
from tests.support.models import FakeModel, call, say


def test_agents_are_described(app):
    found = app.get("/api/agents").json
    assert set(found) == {"conformance", "conformance-thread", "resumable", "forgetful"}
    agent = app.get("/api/agents/conformance").json
    assert agent == found["conformance"]
    assert agent["id"] == agent["name"] == "conformance" and agent["supportsMemory"] is True
    assert agent["provider"] == "scripted" and agent["modelId"] == "conformance"
    weather = agent["tools"]["get_weather"]
    assert weather["id"] == "get_weather" and weather["requireApproval"] is False
    assert json.loads(weather["inputSchema"])["json"]["required"] == ["city"]
    assert agent["tools"]["delete_record"]["requireApproval"] is True
    assert app.get("/api/agents/nobody").status == 404


def test_tools_are_described_and_listed(app):
    assert app.get("/api/agents/conformance/tools/get_weather").json["description"] == "The weather in a city."
    assert app.get("/api/agents/conformance/tools/nothing").status == 404
    assert set(app.get("/api/tools").json) == {"get_weather", "delete_record", "broken_tool", "pick_color"}


def test_tool_runs_by_itself(app):
    path = "/api/agents/conformance/tools"
    answer = app.post(f"{path}/get_weather/execute", {"data": {"city": "Oslo"}, "requestContext": {}})
    assert answer.json == {"city": "Oslo", "tempC": 21, "summary": "sunny"}
    wrong = app.post(f"{path}/get_weather/execute", {"data": {"town": "Oslo"}})
    assert wrong.status == 400 and wrong.json["issues"][0]["field"].startswith("data.")
    failed = app.post(f"{path}/broken_tool/execute", {"data": {}})
    assert failed.status == 400 and failed.json["error"] == "tool exploded"
    assert app.post(f"{path}/pick_color/execute", {"data": {}}).status == 400
    assert app.post(f"{path}/nothing/execute", {"data": {}}).status == 404


def test_an_agent_of_a_program_uses_the_environment_s_adapters_without_being_served(app):
    @tool(requires_approval=True)
    def remove(id: str) -> str:
        """Remove something."""
        return id

    model = FakeModel(call(("c1", "remove", {"id": "r1"})), say("done"))
    agent = Agent("mine", model=model, tools=[remove], memory=Memory())
    run = agent.generate("Remove r1", memory=MemoryArgs(thread="t1", resource="ada"))
    assert run.finish_reason == "suspended"
    assert "cost" in run.notes

    assert agent.resume(run.run_id, approved=True).drain().text == "done"
    assert [m["role"] for m in app.messages("t1")] == ["user", "assistant"]


def test_one_key_makes_one_thread(app):
    made = [app.post("/api/memory/threads", {"resourceId": "ada"}, key="k", agentId="conformance") for _ in range(2)]
    assert made[0].json == made[1].json
    assert app.get("/api/memory/threads", resourceId="ada").json["total"] == 1
