"""What the model is told of working memory, and what its tool does."""

from __future__ import annotations

import pytest

from agent_memory._json import loads
from agent_memory.agent.tools import ToolContext
from agent_memory.errors import ConfigurationError
from agent_memory.options import MemoryOptions
from agent_memory.processors.working_memory import WorkingMemory
from tests.support.build import stored
from tests.support.fake_store import FakeStore
from tests.support.runs import make_run, process_input, seed

BARE = "# User\n- Name:\n- City:"
CITY = {"type": "object", "properties": {"name": {"type": "string"}, "city": {"type": "string"}}, "required": ["name"]}


@pytest.fixture
def store() -> FakeStore:
    return FakeStore()


def context(store, run="run-1", thread="trip-42", resource="ada"):
    return ToolContext(run_id=run, thread_id=thread, resource_id=resource, store=store)


def system(run):
    return run.messages.system.tagged.get("memory", [])


class TestPrompt:
    def test_one_tagged_system_text_for_one_request(self, store):
        store.put_working_memory("ada", None, "likes tea", expected_version=0)
        run = make_run(store, ["hi"])
        store.calls.clear()
        process_input(run, WorkingMemory())
        assert store.calls == {"get_working_memory": 1}
        [text] = system(run)
        assert "likes tea" in text
        assert "updateWorkingMemory" in text

    def test_scopes_are_kept_apart(self, store):
        seed(store, [stored("u1", "user", "x")])
        store.put_working_memory("ada", None, "of ada", expected_version=0)
        store.put_working_memory("ada", "trip-42", "of the trip", expected_version=0)
        of_thread = process_input(make_run(store), WorkingMemory(scope="thread"))
        assert "of the trip" in system(of_thread)[0]
        assert "of ada" not in system(of_thread)[0]
        other = process_input(make_run(store, resource="bob", thread="t9"), WorkingMemory())
        assert "nothing is known yet" in system(other)[0]

    def test_a_deleted_thread_leaves_nothing_to_a_new_one(self, store):
        store.put_working_memory("ada", "trip-42", "likes tea", expected_version=0)
        assert "likes tea" not in system(process_input(make_run(store), WorkingMemory(scope="thread")))[0]

    @pytest.mark.parametrize("fields", [{"read_only": True}, {"agent_managed": False}])
    def test_without_a_tool_none_is_mentioned(self, store, fields):
        keeper = WorkingMemory(**fields)
        assert keeper.tools() == {}
        assert "updateWorkingMemory" not in system(process_input(make_run(store), keeper))[0]

    def test_a_read_only_run_mentions_none_either(self, store):
        options = MemoryOptions.of({"read_only": True, "working_memory": True})
        keeper = WorkingMemory.of(options.working_memory, read_only=True)
        assert keeper.tools() == {}
        hand_built = process_input(make_run(store, options=options), WorkingMemory())
        assert "updateWorkingMemory" not in system(hand_built)[0]

    def test_works_alone_and_says_when_storage_is_missing(self, store):
        store.put_working_memory("ada", None, "likes tea", expected_version=0)
        assert "likes tea" in system(process_input(make_run(None), WorkingMemory(storage=store)))[0]
        with pytest.raises(ConfigurationError) as caught:
            process_input(make_run(None), WorkingMemory())
        assert caught.value.code == "WORKING_MEMORY_MISSING_STORAGE_ADAPTER"

    def test_case_67_the_block_is_there_once_in_every_step(self, store):
        run = make_run(store)
        process_input(run, WorkingMemory(), WorkingMemory())
        assert len(system(run)) == 1

    def test_template_or_schema_not_both(self):
        with pytest.raises(ValueError, match="template or a schema"):
            WorkingMemory(template=BARE, schema=CITY)


class TestMarkdownTool:
    def tool(self, store):
        keeper = WorkingMemory(template=BARE)
        process_input(make_run(store), keeper)
        return keeper.tools()["updateWorkingMemory"]

    def test_it_replaces_the_text(self, store):
        tool = self.tool(store)
        assert tool.run({"memory": "- Name: Mira"}, context(store)) == {"success": True}
        assert tool.run({"memory": "- Name: Mira\n- City: Oslo"}, context(store)) == {"success": True}
        assert store.get_working_memory("ada", None).version == 2

    def test_case_52_the_bare_template_does_not_erase(self, store):
        store.put_working_memory("ada", None, "- Name: Mira", expected_version=0)
        tool = self.tool(store)
        for erasing in (BARE, ""):
            assert tool.run({"memory": erasing}, context(store))["success"] is False
        assert store.get_working_memory("ada", None).text == "- Name: Mira"

    def test_case_52_two_runs_at_once_keep_both_facts_or_see_a_conflict(self, store):
        store.put_working_memory("ada", None, "- Name:\n- City:\n- Pet: cat", expected_version=0)
        keeper = WorkingMemory(template=BARE)
        runs = [make_run(store), make_run(store)]
        runs[1].run_id = "run-2"
        for run in runs:
            process_input(run, keeper)
        tool = keeper.tools()["updateWorkingMemory"]
        assert tool.run({"memory": "- Name: Mira\n- Pet: cat"}, context(store))["success"]
        late = tool.run({"memory": "- City: Oslo\n- Pet: cat"}, context(store, "run-2"))
        assert late["success"] is False
        assert late["current"] == "- Name: Mira\n- Pet: cat"
        both = "- Name: Mira\n- City: Oslo\n- Pet: cat"
        assert tool.run({"memory": both}, context(store, "run-2")) == {"success": True}
        assert store.get_working_memory("ada", None).text == both

    def test_two_first_writes_at_once_are_a_conflict_too(self, store):
        first, second = self.tool(store), self.tool(store)
        assert first.run({"memory": "a"}, context(store))["success"]
        assert second.run({"memory": "b"}, context(store))["success"] is False

    def test_case_114_a_repeat_is_a_success_without_a_version(self, store):
        tool = self.tool(store)
        for _ in range(2):
            assert tool.run({"memory": "likes tea"}, context(store)) == {"success": True}
        assert store.get_working_memory("ada", None).version == 1

    def test_an_object_is_taken_as_json_and_nothing_is_refused_politely(self, store):
        tool = self.tool(store)
        assert tool.run({"memory": {"a": 1}}, context(store))["success"]
        assert store.get_working_memory("ada", None).text == '{"a":1}'
        assert tool.run({}, context(store))["success"] is False

    def test_the_owner_comes_from_the_run(self, store):
        self.tool(store).run({"memory": "x", "resourceId": "bob"}, context(store))
        assert store.get_working_memory("bob", None) is None


class TestSchemaTool:
    def tool(self):
        return WorkingMemory(schema=CITY).tools()["updateWorkingMemory"]

    def value(self, store):
        return loads(store.get_working_memory("ada", None).text)

    def test_case_52_a_patch_keeps_what_it_does_not_name(self, store):
        tool = self.tool()
        tool.run({"memory": {"name": "Mira", "city": "Oslo"}}, context(store))
        tool.run({"memory": {"city": "Bergen"}}, context(store))
        assert self.value(store) == {"name": "Mira", "city": "Bergen"}
        tool.run({"memory": {"city": None}}, context(store))
        assert self.value(store) == {"name": "Mira"}

    def test_wrapped_unwrapped_and_text_are_all_taken(self, store):
        tool = self.tool()
        tool.run({"name": "Mira"}, context(store))
        tool.run({"memory": '{"city":"Oslo"}'}, context(store))
        assert self.value(store) == {"name": "Mira", "city": "Oslo"}

    def test_what_does_not_fit_the_schema_is_told_and_not_written(self, store):
        tool = self.tool()
        assert tool.run({"memory": {"city": 3}}, context(store))["success"] is False
        assert tool.run({"memory": "not json"}, context(store))["success"] is False
        assert store.get_working_memory("ada", None) is None

    def test_nothing_to_change_is_a_success(self, store):
        assert self.tool().run({"memory": {}}, context(store)) == {"success": True}

    def test_the_model_sees_the_fields(self):
        schema = self.tool().input_schema
        assert schema["properties"]["memory"]["properties"]["city"] == {"type": "string"}
        assert "required" not in schema["properties"]["memory"]


class TestVnextTool:
    def test_pieces_are_added_and_changed(self, store):
        tool = WorkingMemory(version="vnext", scope="thread").tools()["updateWorkingMemory"]
        tool.run({"newMemory": "- Name: Mira"}, context(store))
        tool.run({"newMemory": "- City: Oslo"}, context(store))
        changed = {"newMemory": "Bergen", "searchString": "Oslo", "updateReason": "clarify-existing-memory"}
        assert tool.run(changed, context(store)) == {"success": True}
        assert store.get_working_memory("ada", "trip-42").text == "- Name: Mira\n- City: Bergen"

    @pytest.mark.parametrize("args", [{}, {"newMemory": 3}, {"newMemory": "x", "updateReason": "because"}])
    def test_wrong_arguments_are_told(self, store, args):
        tool = WorkingMemory(version="vnext").tools()["updateWorkingMemory"]
        assert tool.run(args, context(store))["success"] is False
