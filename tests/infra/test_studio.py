"""The studio: it shows prompts as they were sent, asks only for routes that exist, and serves nothing beside its folder."""

from __future__ import annotations

import json
import re

import pytest

from agent_memory import Agent, Memory, MemoryArgs
from agent_memory.agent.services import Services
from agent_memory.http.routes import ROUTES
from infra.local.studio import FOLDER, KEPT_RUNS, Studio
from tests.support.fake_store import FakeStore
from tests.support.models import FakeModel, say

SCRIPT = (FOLDER / "app.js").read_text(encoding="utf-8")


@pytest.fixture
def studio() -> Studio:
    return Studio()


def prompts(studio: Studio, run_id: str):
    kind, body = studio.page(f"/studio/prompts/{run_id}") or ("", b"null")
    assert kind == "application/json"
    return json.loads(body)


def test_a_prompt_is_shown_with_what_came_from_memory(studio):
    agent = Agent(
        "a", instructions="Be brief.", model=FakeModel(say("Hi Ada."), say("Tea.")), memory=Memory(storage=FakeStore())
    )
    agent.bind(Services())
    studio.watch([agent])
    place = MemoryArgs(thread="t", resource="ada")
    agent.generate("I am Ada", memory=place)
    run = agent.generate("What do I drink?", memory=place)

    (prompt,) = prompts(studio, run.run_id)
    assert [(m["role"], m["origin"], m["text"]) for m in prompt] == [
        ("system", "system", "Be brief."),
        ("user", "memory", "I am Ada"),
        ("assistant", "memory", "Hi Ada."),
        ("user", "input", "What do I drink?"),
    ]


def test_only_the_newest_runs_are_kept(studio):
    agent = Agent("a", model=FakeModel(say("x")))
    studio.watch([agent])
    runs = [agent.generate("hello").run_id for _ in range(KEPT_RUNS + 1)]
    assert prompts(studio, runs[0]) == []
    assert len(prompts(studio, runs[1])) == 1
    assert len(prompts(studio, runs[-1])) == 1


@pytest.mark.parametrize("path", ["/", "/studio", "/studio/", "/studio/app.js", "/studio/style.css"])
def test_the_page_is_served(studio, path):
    assert studio.page(path) is not None


@pytest.mark.parametrize(
    "path", ["/studio/../local/stack.py", "/studio/../../README.md", "/studio/x.js", "/etc/passwd"]
)
def test_nothing_beside_the_page_is_served(studio, path):
    assert studio.page(path) is None


def test_the_page_asks_only_for_routes_that_exist():
    asked = {
        re.sub(r"\$\{encodeURIComponent\([^}]*\)\}|\$\{verb\}", "x", path).partition("?")[0]
        for path in re.findall(r"[`'](/api/[^`']+)", SCRIPT)
    }
    known = [re.compile(re.sub(r"\{\w+\}", "[^/]+", route.pattern) + "$") for route in ROUTES]
    known += [re.compile("/api/agents/[^/]+/x-tool-call$")]
    assert len(asked) >= 8
    assert [path for path in asked if not any(pattern.match(path) for pattern in known)] == []
    patterns = {route.pattern for route in ROUTES}
    assert {f"/api/agents/{{agentId}}/{verb}-tool-call" for verb in ("approve", "decline")} <= patterns


def test_the_page_never_makes_markup_of_stored_text():
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write", SCRIPT)


def test_the_page_asks_nobody_else():
    for file in FOLDER.iterdir():
        assert not re.search(r"https?://(?!localhost)", file.read_text(encoding="utf-8")), file
