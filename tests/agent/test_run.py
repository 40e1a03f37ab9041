"""A run without memory: events, tools, guardrails, failures."""

from __future__ import annotations

import threading

import pytest

from agent_memory.agent.agent import Agent
from agent_memory.agent.result import RunOptions
from agent_memory.agent.tools import Tool, tool
from agent_memory.errors import ConfigurationError, ModelError, ProcessorError
from agent_memory.ports import ModelChunk
from agent_memory.processors.base import ToolResultChange
from tests.support.models import FakeModel, call, say


@tool
def weather(city: str) -> dict:
    """Current weather."""
    return {"city": city, "tempC": 21}


@tool
def broken() -> None:
    """Always fails."""
    raise RuntimeError("tool exploded")


def types(stream) -> list[str]:
    return [event.type for event in stream]


def test_guardrails_see_the_error_of_a_tool_that_failed_before_anyone_else_does():
    seen = []

    class Guard:
        id = "guard"

        def process_tool_result(self, ctx):
            seen.append((ctx.tool_name, ctx.is_error, ctx.result))
            return ToolResultChange("hidden") if ctx.is_error else None

    model = FakeModel(call(("c1", "broken", {}), ("c2", "weather", {"city": "Oslo"})), say("sorry"))
    stream = Agent("a", model=model, tools=[broken, weather], output_processors=[Guard()]).stream("go")
    events = list(stream)
    assert sorted(seen) == [("broken", True, "tool exploded"), ("weather", False, {"city": "Oslo", "tempC": 21})]
    [told] = [e.payload["error"] for e in events if e.type == "tool-error"]
    assert told == {"name": "RuntimeError", "message": "hidden"}
    assert "exploded" not in repr(model.requests) + repr(stream.result)


def test_text_answer_has_the_whole_event_sequence():
    agent = Agent("a", model=FakeModel(say("hello there")))
    stream = agent.stream("hi")
    events = list(stream)
    assert [e.type for e in events] == [
        "start",
        "step-start",
        "text-start",
        "text-delta",
        "text-delta",
        "text-end",
        "step-finish",
        "finish",
    ]
    assert events[0].payload == {"id": "a", "messageId": stream.message_id}
    assert stream.result.text == "hello there"
    assert stream.result.finish_reason == "stop"
    assert stream.result.usage.total_tokens == 12


def test_server_tool_runs_and_the_model_goes_on():
    model = FakeModel(call(("c1", "weather", {"city": "Oslo"})), say("mild"))
    result = Agent("a", model=model, tools=[weather]).generate("weather?")
    assert result.text == "mild"
    assert result.tool_results[0]["result"] == {"city": "Oslo", "tempC": 21}
    assert model.prompt() == [
        ("user", "weather?"),
        ("assistant", "[call c1 weather]"),
        ("tool", "[result c1 {'city': 'Oslo', 'tempC': 21}]"),
    ]
    assert [step.finish_reason for step in result.steps] == ["tool-calls", "stop"]


def test_a_failing_tool_is_an_outcome_the_model_is_told():
    model = FakeModel(call(("c1", "broken", {})), say("sorry"))
    stream = Agent("a", model=model, tools=[broken]).stream("go")
    events = list(stream)
    error = next(e for e in events if e.type == "tool-error")
    assert error.payload["error"] == {"name": "RuntimeError", "message": "tool exploded"}
    assert stream.result.text == "sorry"


def test_wrong_arguments_and_unknown_tools_are_told_to_the_model():
    model = FakeModel(call(("c1", "weather", {"town": 3}), ("c2", "nothing", {})), say("x"))
    stream = Agent("a", model=model, tools=[weather]).stream("go")
    errors = [e.payload["error"]["name"] for e in stream if e.type == "tool-error"]
    assert errors == ["InvalidToolInputError", "UnknownToolError"]


def test_tools_of_one_step_run_together():
    together = threading.Barrier(3, timeout=30)

    def slow(args, context):
        together.wait()  # breaks, and fails the tool, where one waits for the other
        return args

    model = FakeModel(call(("c1", "slow", {}), ("c2", "slow", {}), ("c3", "slow", {})), say("done"))
    result = Agent("a", model=model, tools=[Tool("slow", execute=slow)]).generate("go")
    assert len(result.tool_results) == 3
    assert not together.broken


def test_steps_end_at_the_limit():
    model = FakeModel(call(("c", "weather", {"city": "Oslo"})))
    result = Agent("a", model=model, tools=[weather], max_steps=3).generate("go")
    assert len(model.requests) == 3
    assert result.finish_reason == "tool-calls"


def test_client_tool_ends_the_run_with_its_call():
    model = FakeModel(call(("c1", "change_color", {"to": "red"})))
    options = RunOptions(client_tools={"change_color": {"description": "d", "inputSchema": {"type": "object"}}})
    stream = Agent("a", model=model).stream("red please", options=options)
    events = list(stream)
    assert [e.type for e in events][-3:] == ["tool-call", "step-finish", "finish"]
    assert events[-2].payload["stepResult"]["isContinued"] is False
    assert stream.result.finish_reason == "tool-calls"


def test_input_guardrail_stops_before_the_model_and_before_start():
    class Guard:
        id = "guard"

        def process_input(self, ctx):
            ctx.abort("no", metadata={"rule": 1})

    model = FakeModel()
    stream = Agent("a", model=model, input_processors=[Guard()]).stream("bad")
    assert types(stream) == ["tripwire"]
    assert model.requests == []
    assert stream.result.tripwire.reason == "no"
    assert stream.result.tripwire.metadata == {"rule": 1}
    assert stream.result.finish_reason == "other"


@pytest.mark.parametrize("hook", ["process_output_stream", "process_output_step", "process_output_result"])
def test_output_guardrail_in_any_hook_leaves_nothing_of_the_text(hook):
    class Guard:
        id = "guard"

    def abort(self, ctx):
        ctx.abort("blocked")

    setattr(Guard, hook, abort)
    stream = Agent("a", model=FakeModel(say("secret words")), output_processors=[Guard()]).stream("go")
    events = list(stream)
    assert events[-1].type == "tripwire"
    assert "finish" not in [e.type for e in events]
    result = stream.result
    assert result.tripwire.reason == "blocked"
    assert result.text == ""
    assert "secret" not in repr((result.steps, result.messages, result.response_messages))


def test_held_stream_shows_nothing_of_a_blocked_answer():
    class Guard:
        id = "guard"

        def process_output_result(self, ctx):
            ctx.abort("blocked")

    stream = Agent("a", model=FakeModel(say("secret")), output_processors=[Guard()], hold_stream=True).stream("go")
    assert types(stream) == ["start", "tripwire"]


def test_guardrail_that_raises_fails_closed():
    class Guard:
        id = "guard"

        def process_output_stream(self, ctx):
            raise ValueError("bug")

    with pytest.raises(ProcessorError, match="guard raised ValueError"):
        Agent("a", model=FakeModel(say("x")), output_processors=[Guard()]).generate("go")


def test_retry_of_a_step_removes_the_rejected_answer_and_tells_the_model_why():
    class Guard:
        id = "guard"

        def process_output_step(self, ctx):
            if "bad" in ctx.text:
                ctx.abort("say it nicely", retry=True)

    model = FakeModel(say("bad words"), say("good words"))
    result = Agent("a", model=model, output_processors=[Guard()], max_processor_retries=2).generate("go")
    assert result.text == "good words"
    assert result.tripwire is None
    assert "say it nicely" in model.system()
    assert "bad" not in repr(result.response_messages)


def test_retry_without_a_cap_is_a_plain_abort():
    class Guard:
        id = "guard"

        def process_output_step(self, ctx):
            ctx.abort("no", retry=True)

    result = Agent("a", model=FakeModel(say("x")), output_processors=[Guard()]).generate("go")
    assert result.tripwire.retry is True


def test_async_hooks_are_awaited_and_state_is_shared():
    class Counter:
        id = "counter"

        async def process_input(self, ctx):
            ctx.state["seen"] = len(ctx.messages)

        def process_output_result(self, ctx):
            answer = ctx.messages[-1]
            return [answer.with_metadata(seen=ctx.state["seen"])]

    counter = Counter()
    result = Agent("a", model=FakeModel(), input_processors=[counter], output_processors=[counter]).generate("go")
    assert result.response_messages[0].metadata["seen"] == 1


def test_a_processor_needs_an_id_and_a_hook():
    class NoHook:
        id = "x"

    with pytest.raises(ConfigurationError, match="none of the hooks"):
        Agent("a", input_processors=[NoHook()])


def test_model_failure_is_an_error_event_and_generate_raises():
    model = FakeModel(ModelError("provider said no"))
    agent = Agent("a", model=model)
    assert types(agent.stream("go")) == ["start", "step-start", "error", "step-finish", "finish"]
    with pytest.raises(ModelError, match="provider said no"):
        agent.generate("go")


def test_process_api_error_may_ask_for_another_try():
    class Fixer:
        id = "fixer"

        def process_api_error(self, ctx):
            return "too long" in str(ctx.error)

    model = FakeModel(ModelError("too long", provider_status=400), say("fine"))
    result = Agent("a", model=model, input_processors=[Fixer()]).generate("go")
    assert result.text == "fine"


def test_llm_request_hook_may_answer_in_place_of_the_model():
    class Cache:
        id = "cache"

        def process_llm_request(self, ctx):
            return say("from cache")

    model = FakeModel()
    result = Agent("a", model=model, input_processors=[Cache()]).generate("go")
    assert result.text == "from cache"
    assert model.requests == []


def test_stop_keeps_what_was_said():
    seen = []

    def stop():
        return len(seen) >= 5

    stream = Agent("a", model=FakeModel(say("one two three four"))).stream("go", options=RunOptions(should_stop=stop))
    for event in stream:
        seen += [event.type]
    assert "abort" in seen
    assert stream.result.text.startswith("one")
    assert stream.result.response_messages[0].metadata["incomplete"] == "stopped"


def test_structured_answer_is_an_object_that_fits_the_schema():
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    wanted = RunOptions(structured_output={"schema": schema})
    stream = Agent("a", model=FakeModel(say('{"n": 3}'))).stream("go", options=wanted)
    events = list(stream)
    assert [e.payload for e in events if e.type == "object-result"] == [{"n": 3}]
    assert stream.result.object == {"n": 3}
    with pytest.raises(ModelError, match="schema"):
        Agent("a", model=FakeModel(say('{"n": "x"}'))).generate("go", options=wanted)


def test_output_stream_hook_changes_what_is_stored():
    class Mask:
        id = "mask"

        def process_output_stream(self, ctx):
            if ctx.part.type != "text-delta":
                return ctx.part
            from dataclasses import replace

            return replace(ctx.part, payload={**ctx.part.payload, "text": ctx.part.payload["text"].replace("42", "**")})

    result = Agent("a", model=FakeModel(say("the answer is 42")), output_processors=[Mask()]).generate("go")
    assert result.text == "the answer is **"
    assert [p.text for p in result.response_messages[0].parts if p.type == "text"] == ["the answer is **"]


def test_files_and_sources_of_the_model_become_parts():
    chunks = [
        ModelChunk("file", {"mimeType": "image/png", "data": "aGk="}),
        ModelChunk("source", {"source": {"id": "s", "url": "https://example.org"}}),
        *say("see"),
    ]
    result = Agent("a", model=FakeModel(chunks)).generate("go")
    kinds = [part.type for part in result.response_messages[0].parts]
    assert kinds == ["step-start", "file", "source", "text"]
