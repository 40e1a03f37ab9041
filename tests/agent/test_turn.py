"""Turns in a thread: what is stored, what the model sees, repeats, failures."""

from __future__ import annotations

import threading

import pytest

from agent_memory.errors import AccessDeniedError, InvalidInputError, ModelError, TurnInProgressError
from tests.support.models import FakeModel, call, say


def user(id, text):
    return {"id": id, "role": "user", "parts": [{"type": "text", "text": text}]}


def echo(id, text):
    return {"id": id, "role": "assistant", "parts": [{"type": "text", "text": text}]}


def test_first_turn_creates_the_thread_and_stores_two_messages(chat):
    talk = chat(FakeModel(say("hello Ada")))
    result = talk.send("hi", title="Greeting", metadata={"topic": "test"})
    assert result.stored
    assert talk.said() == [("user", "hi"), ("assistant", "hello Ada")]
    assert talk.rows()[1].id == result.message_id
    thread = talk.store.get_thread("ada", "t1").thread
    assert thread.title == "Greeting"
    assert thread.metadata == {"topic": "test"}


def test_second_turn_sees_the_first(chat):
    model = FakeModel(say("one"), say("two"))
    talk = chat(model)
    talk.send("a")
    talk.send("b")
    assert model.prompt() == [("user", "a"), ("assistant", "one"), ("user", "b")]


def test_another_owner_is_refused_before_anything_is_written(chat, make_agent, store, dynamodb, names):
    talk = chat(FakeModel())
    talk.send("mine")
    talk.resource = "eve"
    with pytest.raises(AccessDeniedError):
        talk.send("yours?")
    assert talk.raw_count() == 2


@pytest.mark.parametrize("bad", ["", "*", "x" * 513])
def test_bad_ids_are_named_and_write_nothing(chat, bad):
    talk = chat(FakeModel())
    talk.thread = bad
    with pytest.raises(InvalidInputError, match=r"memory\.thread"):
        talk.send("hi")
    assert talk.raw_count() == 0


def test_read_only_loads_and_stores_nothing(chat):
    model = FakeModel(say("one"), say("two"))
    talk = chat(model)
    talk.send("a")
    talk.send("b", memory={"readOnly": True})
    assert model.prompt()[0] == ("user", "a")
    assert talk.raw_count() == 2


def test_case_01_an_edited_echo_changes_nothing(chat):
    model = FakeModel(say("Rate is 4.1%"), say("bye"))
    talk = chat(model)
    talk.send([user("u1", "hello")])
    before = [(r.id, r.content, r.created_at) for r in talk.rows()]
    answer = talk.rows()[1].id
    talk.send([user("u1", "hello!!"), echo(answer, "Rate is 0%"), user("u2", "thanks")])
    assert [(r.id, r.content, r.created_at) for r in talk.rows()[:2]] == before
    assert model.prompt() == [("user", "hello"), ("assistant", "Rate is 4.1%"), ("user", "thanks")]
    assert talk.raw_count() == 4


def test_case_01_also_with_the_full_input_retained(chat):
    model = FakeModel(say("Rate is 4.1%"), say("bye"))
    talk = chat(model)
    talk.send([user("u1", "hello")])
    answer = talk.rows()[1].id
    talk.send(
        [user("u1", "hello!!"), echo(answer, "Rate is 0%"), user("u2", "thanks")], memory={"retainFullInput": True}
    )
    assert model.prompt() == [("user", "hello"), ("assistant", "Rate is 4.1%"), ("user", "thanks")]
    assert talk.raw_count() == 4


def client_tool(chat, *answers):
    talk = chat(FakeModel(call(("c1", "pick", {"n": 1}), text="looking"), *answers))
    tools = {"pick": {"description": "d", "inputSchema": {"type": "object"}}}
    first = talk.send([user("u1", "pick one")], client_tools=tools)
    assert first.finish_reason == "tool-calls"
    return talk, first, tools


def outcome(message_id, call_id, result, text="LOOKING"):
    return {
        "id": message_id,
        "role": "assistant",
        "parts": [
            {"type": "text", "text": text},
            {
                "type": "tool-pick",
                "toolCallId": call_id,
                "state": "output-available",
                "input": {"n": 99},
                "output": result,
            },
        ],
    }


def test_case_02_an_outcome_on_an_unknown_message_is_dropped(chat):
    talk, _first, tools = client_tool(chat, say("hm"))
    for _ in range(3):
        talk.send([outcome("a-client-9", "c1", {"ok": 1})], client_tools=tools)
    rows = talk.rows()
    assert "a-client-9" not in [row.id for row in rows]
    pending = [p.invocation.state for row in rows for p in row.parts if p.type == "tool-invocation"]
    assert pending == ["call"]
    assert len(rows) <= 5


def test_case_03_and_13_the_fresh_outcome_wins_and_is_stored_once(chat):
    talk, first, tools = client_tool(chat, say("done"))
    result = talk.send([outcome(first.message_id, "c1", {"temp": 3})], client_tools=tools)
    assert result.message_id == first.message_id
    rows = talk.rows()
    assert len(rows) == 2
    calls = [p.invocation for p in rows[1].parts if p.type == "tool-invocation"]
    assert [(c.state, c.result, c.args) for c in calls] == [("result", {"temp": 3}, {"n": 1})]
    assert rows[1].text == "lookingdone"
    model = talk.agent.model
    assert model.prompt()[1:] == [("assistant", "looking[call c1 pick]"), ("tool", "[result c1 {'temp': 3}]")]
    again = talk.send([outcome(first.message_id, "c1", {"temp": 3})], client_tools=tools)
    assert again.repeated
    assert len(talk.rows()) == 2


def test_a_tool_message_without_a_message_id_finds_its_call(chat):
    talk, first, tools = client_tool(chat, say("done"))
    told = {
        "role": "tool",
        "content": [{"type": "tool-result", "toolCallId": "c1", "toolName": "pick", "result": {"ok": True}}],
    }
    result = talk.send([told], client_tools=tools)
    assert result.message_id == first.message_id
    calls = [p.invocation for row in talk.rows() for p in row.parts if p.type == "tool-invocation"]
    assert [(c.state, c.result) for c in calls] == [("result", {"ok": True})]


def test_a_client_that_sends_its_response_messages_back_leaves_one_row(chat):
    talk, _first, tools = client_tool(chat, say("done"))
    sent = [
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "looking"},
                {"type": "tool-call", "toolCallId": "c1", "toolName": "pick", "input": {"n": 1}},
            ],
        },
        {"role": "tool", "content": []},
        {
            "role": "tool",
            "content": [{"type": "tool-result", "toolCallId": "c1", "toolName": "pick", "result": {"ok": True}}],
        },
    ]
    talk.send(sent, client_tools=tools)
    rows = talk.rows()
    assert len(rows) == 2
    calls = [p.invocation for row in rows for p in row.parts if p.type == "tool-invocation"]
    assert [(c.state, c.result) for c in calls] == [("result", {"ok": True})]


def test_an_outcome_that_travels_with_the_next_question(chat):
    talk, first, tools = client_tool(chat, say("sure"))
    talk.send([outcome(first.message_id, "c1", 7), user("u2", "and now?")], client_tools=tools)
    rows = talk.rows()
    assert [row.role for row in rows] == ["user", "assistant", "user", "assistant"]
    calls = [p.invocation for p in rows[1].parts if p.type == "tool-invocation"]
    assert [(c.state, c.result) for c in calls] == [("result", 7)]


def test_case_06_history_with_new_ids_does_not_multiply(chat):
    model = FakeModel(*(say(f"answer {n}") for n in range(20)))
    talk = chat(model)
    history = []
    for n in range(20):
        history.append((("user"), f"question {n}"))
        sent = [
            user(f"x{n}-{i}", text) if role == "user" else echo(f"x{n}-{i}", text)
            for i, (role, text) in enumerate(history)
        ]
        result = talk.send(sent)
        history.append(("assistant", result.text))
    assert talk.raw_count() == 40
    texts = [text for _role, text in model.prompt()]
    assert len(texts) == len(set(texts)) == 11


def test_case_10_missing_and_blank_ids_get_ids_of_their_own(chat):
    talk = chat(FakeModel())
    talk.send("first")
    parts = lambda text: [{"type": "text", "text": text}]  # noqa: E731
    talk.send(
        [
            {"role": "user", "parts": parts("a")},
            {"id": "", "role": "user", "parts": parts("b")},
            {"id": "   ", "role": "user", "parts": parts("c")},
            {"id": "ok-1", "role": "user", "parts": parts("d")},
        ]
    )
    rows = talk.rows()[2:6]
    assert [row.text for row in rows] == ["a", "b", "c", "d"]
    assert rows[3].id == "ok-1"
    assert len({row.id for row in rows}) == 4


def test_case_11_copies_from_processors_are_not_new_messages(chat):
    import copy

    class Copies:
        id = "copies"

        def process_input(self, ctx):
            return [copy.deepcopy(m) for m in ctx.message_list.all()]

        def process_output_result(self, ctx):
            return [copy.deepcopy(m) for m in ctx.messages]

    copies = Copies()
    talk = chat(FakeModel(), input_processors=[copies], output_processors=[copies])
    for n in range(3):
        talk.send(f"m{n}")
    before = [(r.id, r.created_at) for r in talk.rows()]
    talk.send("m3")
    assert [(r.id, r.created_at) for r in talk.rows()[:6]] == before
    assert talk.raw_count() == 8


def test_case_60_what_a_processor_does_to_history_is_never_stored(chat):
    class Short:
        id = "short"

        def process_input(self, ctx):
            return [m.with_parts([p for p in m.parts if p.type == "text"][:1]) for m in ctx.message_list.all()]

        def process_input_step(self, ctx):
            from dataclasses import replace

            return [
                m.with_parts([replace(p, text=p.text[:3]) if p.type == "text" else p for p in m.parts])
                for m in ctx.messages
            ]

    talk = chat(FakeModel(say("a long answer"), say("another")), input_processors=[Short()])
    talk.send("a long question")
    assert talk.rows()[1].text == "a long answer"
    before = talk.rows()
    talk.send("again and again")
    assert talk.rows()[:2] == before
    assert talk.agent.model.prompt()[0] == ("user", "a l")


def test_repeat_of_a_finished_turn_answers_what_is_stored(chat):
    talk = chat(FakeModel(say("one"), say("two")))
    first = talk.send([user("u1", "hi")])
    again = talk.send([user("u1", "hi")])
    assert (again.text, again.message_id, again.repeated) == ("one", first.message_id, True)
    assert len(talk.agent.model.requests) == 1
    assert talk.raw_count() == 2
    replayed = talk.stream([user("u1", "hi")])
    assert [e.type for e in replayed][:2] == ["start", "step-start"]
    assert replayed.result.text == "one"


def test_repeat_by_idempotency_key_without_ids(chat):
    talk = chat(FakeModel(say("one"), say("two")))
    for _ in range(3):
        talk.send("hi", idempotency_key="k1")
    assert talk.raw_count() == 2
    talk.send("hi", idempotency_key="k2")
    assert talk.raw_count() == 4


def test_repeat_by_idempotency_key_after_another_turn_has_ended(chat):
    """Two pages on one thread, and the first one lost its answer; a message without a key asks for another answer."""
    talk = chat(FakeModel(say("one"), say("two"), say("three")))
    talk.send("hi", idempotency_key="k1")
    talk.send([user("u2", "ho")])
    assert talk.send("hi", idempotency_key="k1").text == "one"
    assert talk.raw_count() == 4
    talk.send([user("u3", "ha")])
    assert talk.raw_count() == 6


def test_the_same_words_again_are_a_new_turn(chat):
    talk = chat(FakeModel(say("one"), say("two")))
    talk.send("yes")
    talk.send("yes")
    assert talk.raw_count() == 4


def test_a_running_turn_is_not_run_twice(chat):
    entered, leave = threading.Event(), threading.Event()

    def slow(request):
        entered.set()
        leave.wait(10)
        return say("done")

    talk = chat(FakeModel(say("zero"), slow))
    talk.send("warm up")
    results = []
    runner = threading.Thread(target=lambda: results.append(talk.send([user("u1", "hi")])))
    runner.start()
    entered.wait(10)
    with pytest.raises(TurnInProgressError):
        talk.send([user("u1", "hi")])
    leave.set()
    runner.join()
    assert results[0].text == "done"
    assert talk.send([user("u1", "hi")]).repeated
    assert talk.raw_count() == 4


@pytest.mark.parametrize("given", [[user("u1", "hi")], "hi"])
def test_case_111_a_failed_model_keeps_the_question_and_a_retry_reuses_it(chat, given):
    talk = chat(FakeModel(ModelError("down"), say("back")))
    with pytest.raises(ModelError):
        talk.send(given)
    rows = talk.rows()
    assert [row.role for row in rows] == ["user"]
    assert talk.send(given).text == "back"
    assert talk.said() == [("user", "hi"), ("assistant", "back")]


def test_case_111_a_failure_after_a_tool_keeps_the_finished_step(chat):
    from agent_memory.agent.tools import Tool

    ran = []
    look = Tool("look", execute=lambda args, context: ran.append(1) or {"ok": 1})
    talk = chat(FakeModel(call(("c1", "look", {})), ModelError("down"), say("fine")), tools=[look])
    with pytest.raises(ModelError):
        talk.send([user("u1", "go")])
    rows = talk.rows()
    assert [row.role for row in rows] == ["user", "assistant"]
    assert rows[1].metadata["incomplete"] == "failed"
    assert [p.invocation.state for p in rows[1].parts if p.type == "tool-invocation"] == ["result"]
    assert talk.send([user("u2", "still there?")]).text == "fine"


def test_case_111_stop_keeps_question_and_half_answer(chat):
    talk = chat(FakeModel(say("one two three four five six")))
    seen = []
    stream = talk.stream([user("u1", "go")], should_stop=lambda: len(seen) > 5)
    for event in stream:
        seen += [event.type]
    rows = talk.rows()
    assert rows[1].metadata["incomplete"] == "stopped"
    assert rows[1].text.startswith("one")


def test_case_111_a_caller_that_leaves_loses_nothing(chat):
    talk = chat(FakeModel(say("one two three four"), say("next")))
    stream = talk.stream([user("u1", "go")])
    events = iter(stream)
    for _ in range(5):
        next(events)
    stream.close()
    rows = talk.rows()
    assert [row.role for row in rows] == ["user", "assistant"]
    assert rows[1].metadata["incomplete"] == "stopped"
    assert talk.send([user("u2", "more")]).text == "next"


def test_case_65_a_blocked_turn_leaves_nothing(chat):
    class Guard:
        id = "guard"
        on = "input"

        def process_input(self, ctx):
            if self.on == "input":
                ctx.abort("no")

        def process_output_result(self, ctx):
            if self.on == "output":
                ctx.abort("no")

    guard = Guard()
    talk = chat(FakeModel(say("fine"), say("secret")), input_processors=[guard], output_processors=[guard])
    for on in ("input", "output"):
        guard.on = on
        assert talk.send([user(f"u-{on}", "x")]).tripwire is not None
        assert talk.raw_count() == 0
        assert talk.store.get_thread("ada", "t1") is None
    guard.on = "never"
    talk.send([user("u1", "hello")])
    before = talk.store.get_thread("ada", "t1")
    for on in ("input", "output"):
        guard.on = on
        talk.send([user(f"v-{on}", "x")])
        assert talk.raw_count() == 2
        assert talk.store.get_thread("ada", "t1") == before


def test_regenerate_replaces_the_answer(chat):
    talk = chat(FakeModel(say("first"), say("second")))
    talk.send([user("u1", "hi")])
    result = talk.send([user("u1", "hi")], regenerate=True)
    assert talk.said() == [("user", "hi"), ("assistant", "second")]
    assert talk.rows()[1].id == result.message_id
    assert talk.agent.model.prompt() == [("user", "hi")]


@pytest.mark.parametrize("save_per_step", [False, True])
@pytest.mark.parametrize("stored", [True, False])
def test_regenerates_at_the_same_moment_leave_one_answer(chat, stored, save_per_step):
    barrier = threading.Barrier(4)

    def meet(_request):
        barrier.wait(20)
        return say("new")

    talk = chat(FakeModel(*([say("old")] if stored else []), meet))
    if stored:
        talk.send([user("u1", "hi")])
    results = []

    def again():
        results.append(talk.send([user("u1", "hi")], regenerate=True, save_per_step=save_per_step))

    runners = [threading.Thread(target=again) for _ in range(4)]
    for runner in runners:
        runner.start()
    for runner in runners:
        runner.join(60)
    assert len(results) == 4
    assert talk.said() == [("user", "hi"), ("assistant", "new")]
    assert talk.rows()[1].id in {result.message_id for result in results}
    assert talk.store.get_thread("ada", "t1").message_count == 2
    assert talk.raw_count() == 2


def test_case_30_two_turns_at_once_both_stand(chat):
    barrier = threading.Barrier(2)

    def meet(request):
        barrier.wait(10)
        return say("answer")

    talk = chat(FakeModel(say("zero"), meet, meet, say("last")))
    talk.send("warm up")
    runners = [threading.Thread(target=talk.send, args=([user(f"u{n}", f"q{n}")],)) for n in range(2)]
    for runner in runners:
        runner.start()
    for runner in runners:
        runner.join()
    rows = talk.rows()
    assert [row.role for row in rows] == ["user", "assistant"] * 3
    assert {rows[2].text, rows[4].text} == {"q0", "q1"}
    talk.send("next")
    assert len(talk.agent.model.prompt()) == 7


def test_seeding_an_empty_thread_keeps_the_whole_input(chat):
    talk = chat(FakeModel(say("ok")))
    talk.send([user("u1", "a"), echo("a1", "b"), user("u2", "c")])
    assert [(r.id, r.text) for r in talk.rows()[:3]] == [("u1", "a"), ("a1", "b"), ("u2", "c")]


def test_case_67_system_text_is_never_stored(chat):
    talk = chat(FakeModel(say("ok")), instructions="Be kind.")
    talk.send([{"role": "system", "content": "extra"}, {"role": "user", "content": "hi"}])
    assert talk.said() == [("user", "hi"), ("assistant", "ok")]
    assert talk.agent.model.system() == "Be kind.\nextra"


@pytest.mark.parametrize("value", [False, 0])
def test_case_64_no_history_still_saves(chat, value):
    model = FakeModel(say("one"), say("two"))
    talk = chat(model, memory={"last_messages": value})
    talk.send("a")
    talk.send("b")
    assert model.prompt() == [("user", "b")]
    assert talk.raw_count() == 4


def test_save_per_step_survives_a_crash_and_a_guardrail_takes_it_back(chat):
    from agent_memory.agent.tools import Tool

    class Guard:
        id = "guard"

        def process_output_step(self, ctx):
            if "secret" in ctx.text:
                ctx.abort("no")

    look = Tool("look", execute=lambda args, context: {"ok": 1})
    model = FakeModel(call(("c1", "look", {})), say("fine"), call(("c2", "look", {})), say("secret"))
    talk = chat(model, tools=[look], output_processors=[Guard()])
    talk.send([user("u1", "go")], save_per_step=True)
    assert talk.raw_count() == 2
    assert "incomplete" not in talk.rows()[1].metadata
    stream = talk.stream([user("u2", "go on")], save_per_step=True)
    seen = [(event.type, talk.raw_count()) for event in stream]
    assert ("step-finish", 4) in seen
    assert stream.result.tripwire is not None
    assert talk.raw_count() == 2
    assert [turn.state for turn in talk.store.get_thread("ada", "t1").turns] == ["finished"]


def test_an_unknown_error_is_logged_without_its_words(chat, caplog):
    talk = chat(FakeModel(RuntimeError("what Ada said in secret")))
    from agent_memory.errors import AgentMemoryError

    with pytest.raises(AgentMemoryError):
        talk.send("hi")
    assert [record.message for record in caplog.records if record.name.startswith("agent_memory.agent")] == [
        "run failed",
        "a turn ended",
    ]
    assert "Ada" not in caplog.text
    assert talk.said() == [("user", "hi")]


def test_case_05_no_step_ends_with_an_older_answer(chat):
    from agent_memory.agent.tools import Tool

    weather = Tool("weather", execute=lambda args, context: {"temp": 3})
    model = FakeModel(*(say(f"answer {n}") for n in range(6)), call(("t1", "weather", {})), say("3 degrees"))
    talk = chat(model, tools=[weather])
    for n in range(6):
        talk.send([user(f"u{n}", f"question {n}")])
    result = talk.send([user("u7", "weather?")])
    assert model.prompt(-2)[-1] == ("user", "weather?")
    assert model.prompt(-1)[-1] == ("tool", "[result t1 {'temp': 3}]")
    assert len(result.steps) == 2


def test_case_17_dates_of_parts_do_not_move_messages(chat):
    from agent_memory.memory import Memory

    talk = chat(FakeModel())
    memory = Memory(storage=talk.store)

    def stored(id, role, date, *parts):
        content = {"format": 2, "parts": list(parts)}
        where = {"threadId": "t1", "resourceId": "ada"}
        return {"id": id, "role": role, "createdAt": f"2025-05-05T{date}:00.000Z", "content": content, **where}

    early = {"type": "text", "text": "b", "createdAt": 1746435600000}
    memory.save_messages(
        [
            stored("u1", "user", "10:00", {"type": "text", "text": "a"}),
            stored("a1", "assistant", "10:01", {"type": "step-start"}, early, {"type": "text", "text": "c"}),
            stored("u2", "user", "10:02", {"type": "text", "text": "d"}),
        ]
    )
    rows = memory.recall("t1", resource_id="ada", per_page=False).messages
    assert [row.id for row in rows] == ["u1", "a1", "u2"]
    assert [part.type for part in rows[1].parts] == ["step-start", "text", "text"]
    assert rows[1].text == "bc"


def test_case_51_nothing_goes_on_after_the_answer(make_agent, store, dynamodb, names):
    import time

    from agent_memory.agent.services import Services
    from tests.agent.conftest import Chat

    asked = []
    dynamodb.meta.events.register("before-call.*.*", lambda **_: asked.append(time.monotonic()), unique_id="case-51")
    events = []

    class Recorder:
        def dispatch(self, target, event):
            events.append(target)

    services = Services(store=store, dispatcher=Recorder())
    agent = make_agent(FakeModel(say("x")), services=services, memory={"generate_title": True, "working_memory": True})
    Chat(agent, store, dynamodb, names).send("hello")
    before = len(asked), len(agent.model.requests), len(events)
    assert before[2] == 1
    time.sleep(1)
    dynamodb.meta.events.unregister("before-call.*.*", unique_id="case-51")
    assert (len(asked), len(agent.model.requests), len(events)) == before


def test_a_row_dated_in_the_future_does_not_bend_new_dates(chat):
    from agent_memory import clock
    from agent_memory.memory import Memory

    talk = chat(FakeModel(say("now")))
    future = {"id": "f1", "role": "user", "content": "later", "createdAt": "2099-01-01T00:00:00.000Z"}
    Memory(storage=talk.store).save_messages([{**future, "threadId": "t1", "resourceId": "ada"}])
    talk.send("hello")
    rows = talk.rows()
    assert [row.text for row in rows] == ["later", "hello", "now"]
    assert all(row.created_at <= clock.now() for row in rows[1:])
