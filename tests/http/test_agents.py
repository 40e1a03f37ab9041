"""Agents and tools over HTTP."""

from __future__ import annotations

import json


def test_agents_are_described(app):
    found = app.get("/api/agents").json
    assert set(found) == {"conformance", "conformance-thread", "resumable", "forgetful"}
    agent = app.get("/api/agents/conformance").json
    assert agent == found["conformance"]
    assert agent["id"] == agent["name"] == "conformance" and agent["supportsMemory"] is True
    assert agent["provider"] == "scripted" and agent["modelId"] == "conformance"
    tool = agent["tools"]["get_weather"]
    assert tool["id"] == "get_weather" and tool["requireApproval"] is False
    assert json.loads(tool["inputSchema"])["json"]["required"] == ["city"]
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
