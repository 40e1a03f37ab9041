"""What of a request is new, and what storage knows better."""

from __future__ import annotations

import time

import pytest

from agent_memory.options import MemoryOptions
from agent_memory.processors.input_filter import MemoryInputFilter
from agent_memory.processors.message_history import MessageHistory, save_turn
from tests.support.build import call, stored
from tests.support.fake_store import FakeStore
from tests.support.runs import assistant, make_run, process_input, seed, shown, user


@pytest.fixture
def store() -> FakeStore:
    return FakeStore()


def run_input(store, raw, *, retain=False, history=10, **fields):
    options = MemoryOptions.of({"last_messages": history, "retain_full_input": retain})
    run = make_run(store, raw, options=options, **fields)
    return process_input(run, MemoryInputFilter(retain_full_input=retain), MessageHistory(last_messages=history))


def state_of(store, call_id, thread="trip-42"):
    parts = [part for row in store.rows(thread) for part in row.parts if part.type == "tool-invocation"]
    found = [part.invocation for part in parts if part.invocation.tool_call_id == call_id]
    assert len(found) == 1, "a call is one part"
    return found[0]


class TestUserTail:
    def test_everything_back_to_the_last_assistant_message_is_dropped(self, store):
        seed(store, [stored("u1", "user", "one"), stored("a1", "assistant", "two")])
        run = run_input(store, [user("one", "x1"), assistant("two", id="x2"), user("three", "u2")])
        assert shown(run) == [("u1", "one"), ("a1", "two"), ("u2", "three")]

    def test_all_trailing_user_messages_are_kept(self, store):
        seed(store, [stored("a1", "assistant", "two")])
        run = run_input(store, [assistant("two", id="a1"), user("three", "u2"), user("four", "u3")])
        assert [m.id for m in run.messages.of("input")] == ["u2", "u3"]

    def test_new_user_messages_without_ids_cost_no_storage_call(self, store):
        seed(store, [stored("a1", "assistant", "two")])
        run = make_run(store, ["three", "four"])
        store.calls.clear()
        process_input(run, MemoryInputFilter())
        assert store.calls == {}
        assert [text for _, text in shown(run)] == ["three", "four"]

    def test_a_signal_at_the_end_is_left_alone(self, store):
        seed(store, [stored("a1", "assistant", "two")])
        raw = [assistant("new", id="a9"), {**user("ping", "s1"), "role": "signal"}]
        run = run_input(store, raw)
        assert [m.id for m in run.messages.of("input")] == ["a9", "s1"]

    def test_outcome_of_the_assistant_message_before_the_tail_is_taken_where_it_is_pending(self, store):
        seed(store, [stored("u1", "user", "go"), stored("a1", "assistant", "wait", call("t1"))])
        done = call("t1", "result", result={"ok": 1})
        run = run_input(store, [assistant("EDITED", done, id="a1"), user("and?", "u2")])
        assert [m.id for m in run.messages.all()] == ["u1", "a1", "u2"]
        assert run.messages.get("a1").text == "wait"
        save_turn(store, run)
        assert state_of(store, "t1").result == {"ok": 1}

    def test_outcome_outside_the_history_window_is_found(self, store):
        seed(store, [stored("a1", "assistant", call("t1")), *(stored(f"u{n}", "user", "x") for n in range(9))])
        for history in (0, 2):
            run = run_input(
                store, [assistant(call("t1", "result", result=3), id="a1"), user("go", "n")], history=history
            )
            assert run.messages.updated()[0].parts[0].invocation.result == 3

    def test_case_01_an_edited_echo_changes_nothing(self, store):
        rows = [stored("u1", "user", "hello"), stored("a1", "assistant", "Rate is 4.1%", providerMetadata={"p": "x"})]
        seed(store, rows)
        before = store.rows("trip-42")
        echo = [user("hello!!", "u1"), assistant("Rate is 0%", id="a1"), user("thanks", "u2")]
        for retain in (False, True):
            run = run_input(store, echo, retain=retain)
            assert shown(run) == [("u1", "hello"), ("a1", "Rate is 4.1%"), ("u2", "thanks")]
            assert [m.id for m in run.messages.new()] == ["u2"]
            assert run.messages.updated() == ()
        save_turn(store, run)
        assert store.rows("trip-42")[:2] == before
        assert [m.id for m in store.rows("trip-42")] == ["u1", "a1", "u2"]

    def test_case_06_history_sent_again_under_new_ids_does_not_grow_the_thread(self, store):
        history = []
        for turn in range(20):
            echo = [{**message, "id": f"r{turn}-{n}"} for n, message in enumerate(history)]
            question = user(f"question {turn}", f"q{turn}")
            run = run_input(store, [*echo, question], history=100)
            assert len({text for _, text in shown(run)}) == len(shown(run)) == 2 * turn + 1
            answer = stored(f"answer {turn}", "assistant", f"answer {turn}")
            run.messages.begin_answer(answer.replace(id=f"a{turn}").with_parts(()))
            run.messages.set_answer_parts(answer.parts)
            save_turn(store, run)
            history += [question, assistant(f"answer {turn}")]
        assert len(store.rows("trip-42")) == 40

    def test_case_10_missing_and_blank_ids_become_ids_of_the_server(self, store):
        seed(store, [stored("a1", "assistant", "hi")])
        raw = [user("a"), {**user("b"), "id": ""}, {**user("c"), "id": "   "}, user("d", "ok-1")]
        run = run_input(store, raw)
        save_turn(store, run)
        rows = store.rows("trip-42")[1:]
        assert [row.text for row in rows] == ["a", "b", "c", "d"]
        assert len({row.id for row in rows}) == 4
        assert rows[3].id == "ok-1"

    def test_a_repeated_user_message_is_not_stored_twice(self, store):
        seed(store, [stored("u1", "user", "one"), stored("a1", "assistant", "two"), stored("u2", "user", "three")])
        for history in (10, 0):
            run = run_input(store, [user("OTHER", "u2"), user("new", "u3")], history=history)
            assert [m.id for m in run.messages.new()] == ["u3"]
            assert run.messages.get("u2").text == "three"
            assert run.messages.source("u2") == "memory"

    def test_rows_of_a_deleted_thread_of_the_same_id_are_not_stored_copies(self, store):
        seed(store, [stored("u1", "user", "old")])
        store.delete_thread("ada", "trip-42")
        seed(store, [stored("a1", "assistant", "fresh")])
        run = run_input(store, [user("new", "u1")])
        assert shown(run) == [("a1", "fresh"), ("u1", "new")]
        assert [m.id for m in run.messages.new()] == ["u1"]


class TestAssistantTail:
    def test_case_03_the_result_reaches_the_stored_call(self, store):
        pending = call("t1", args={"city": "Oslo"})
        seed(store, [stored("u1", "user", "weather?"), stored("a1", "assistant", "looking", pending)])
        told = call("t1", "result", args={"city": "Rome"}, result={"temp": 3})
        run = run_input(store, [assistant("LOOKING", told, id="a1")])
        assert shown(run) == [("u1", "weather?"), ("a1", "looking")]
        save_turn(store, run)
        assert state_of(store, "t1").args == {"city": "Oslo"}
        assert state_of(store, "t1").result == {"temp": 3}

    def test_case_13_an_outcome_alone_is_stored_and_its_repeat_brings_nothing(self, store):
        seed(store, [stored("u1", "user", "x"), stored("a1", "assistant", call("t1"))])
        for _ in range(2):
            run = run_input(store, [assistant(call("t1", "result", result=7), id="a1")])
            save_turn(store, run)
        assert state_of(store, "t1").result == 7
        assert len(store.rows("trip-42")) == 2
        assert store.rows("trip-42")[1].version == 2

    def test_a_stored_outcome_is_never_replaced(self, store):
        seed(store, [stored("a1", "assistant", call("t1", "result", result=1))])
        run = run_input(store, [assistant(call("t1", "output-error", errorText="no"), id="a1")])
        assert run.messages.updated() == ()

    def test_case_02_an_outcome_under_an_unknown_id_is_dropped(self, store):
        seed(store, [stored("u1", "user", "x"), stored("a1", "assistant", call("t1"))])
        for _ in range(3):
            run = run_input(store, [assistant(call("t1", "result", result={"ok": 1}), id="a-client-9")])
            assert [m.id for m in run.messages.all()] == ["u1", "a1"]
            save_turn(store, run)
        assert state_of(store, "t1").state == "call"
        assert len(store.rows("trip-42")) == 2

    def test_an_echo_is_cleared_and_stored_history_goes_on(self, store):
        seed(store, [stored("u1", "user", "x"), stored("a1", "assistant", "y")])
        run = run_input(store, [user("x", "u1"), assistant("y", id="a1")])
        assert run.messages.of("input") == ()
        assert shown(run) == [("u1", "x"), ("a1", "y")]

    def test_an_echo_outside_the_window_is_cleared_too(self, store):
        seed(store, [stored("a1", "assistant", "y"), stored("u1", "user", "x")])
        run = run_input(store, [assistant("y", id="a1")], history=1)
        assert shown(run) == [("u1", "x")]

    def test_a_message_that_was_never_stored_stays_without_what_came_before_it(self, store):
        seed(store, [stored("u1", "user", "x")])
        run = run_input(store, [user("older", "q1"), assistant("internal note", id="n1")])
        assert shown(run) == [("u1", "x"), ("n1", "internal note")]

    def test_custom_data_behind_outcomes_does_not_hide_them(self, store):
        seed(store, [stored("a1", "assistant", call("t1"))])
        told = assistant(call("t1", "result", result=1), {"type": "data-note", "data": 1}, id="zz")
        assert run_input(store, [told]).messages.of("input") == ()


class TestToolMessages:
    def outcome(self, call_id="t1", result=5):
        part = {"type": "tool-result", "toolCallId": call_id, "toolName": "w", "result": result}
        return {"role": "tool", "content": [part]}

    def test_the_pending_call_is_found_by_its_id(self, store):
        seed(store, [stored("u1", "user", "x"), stored("a1", "assistant", call("t1"))])
        run = run_input(store, [self.outcome()])
        assert [m.id for m in run.messages.all()] == ["u1", "a1"]
        save_turn(store, run)
        assert state_of(store, "t1").result == 5

    def test_also_where_history_does_not_reach_it(self, store):
        seed(store, [stored("a1", "assistant", call("t1")), *(stored(f"u{n}", "user", "x") for n in range(9))])
        assert run_input(store, [self.outcome()], history=0).messages.updated()[0].id == "a1"

    def test_two_outcomes_for_one_message_are_both_taken(self, store):
        seed(store, [stored("a1", "assistant", call("t1"), call("t2"))])
        run = run_input(store, [self.outcome("t1", 1), self.outcome("t2", 2)])
        assert [part.invocation.result for part in run.messages.updated()[0].parts] == [1, 2]

    def test_an_outcome_of_an_unknown_call_is_dropped(self, store):
        seed(store, [stored("a1", "assistant", call("t1"))])
        run = run_input(store, [self.outcome("other"), user("hi", "u2")])
        assert run.messages.updated() == ()


class TestSeeding:
    def test_case_110_an_empty_thread_takes_everything_and_strips_provider_metadata(self, store):
        secret = {"type": "text", "text": "b", "providerMetadata": {"p": {"itemId": "i1"}}}
        raw = [user("a", "u1"), assistant(secret, id="a1", providerMetadata={"p": 1}), user("c", "u2")]
        run = run_input(store, raw)
        save_turn(store, run)
        rows = store.rows("trip-42")
        assert [row.id for row in rows] == ["u1", "a1", "u2"]
        assert rows[1].content.provider_metadata is None
        assert rows[1].parts[0].provider_metadata is None

    def test_consecutive_assistant_messages_stay_apart(self, store):
        run = run_input(store, [assistant("a", id="a1"), assistant("b", id="a2"), user("c", "u2")])
        assert [m.id for m in run.messages.all()] == ["a1", "a2", "u2"]

    def test_an_emptied_thread_is_seeded_again(self, store):
        seed(store, [stored("u1", "user", "x")])
        store.delete_thread("ada", "trip-42")
        assert [m.id for m in run_input(store, [assistant("a", id="a1"), user("b", "u1")]).messages.new()] == [
            "a1",
            "u1",
        ]


class TestRetainFullInput:
    def test_examples_are_kept_and_stored_once(self, store):
        seed(store, [stored("u1", "user", "x")])
        raw = [user("ex", "e1"), assistant("ample", id="e2"), user("now", "u2")]
        run = run_input(store, raw, retain=True)
        assert [m.id for m in run.messages.all()] == ["u1", "e1", "e2", "u2"]
        save_turn(store, run)
        again = run_input(store, raw, retain=True, history=0)
        assert again.messages.new() == ()

    def test_outcomes_are_taken_and_edits_are_not(self, store):
        seed(store, [stored("a1", "assistant", "y", call("t1"))])
        run = run_input(
            store, [assistant("EDIT", call("t1", "result", result=1), id="a1"), user("n", "u2")], retain=True
        )
        assert run.messages.updated()[0].text == "y"
        assert run.messages.updated()[0].parts[1].invocation.result == 1


def test_works_alone_with_its_own_storage():
    own = FakeStore()
    seed(own, [stored("u1", "user", "one"), stored("a1", "assistant", "two")])
    run = make_run(None, [user("one"), assistant("two"), user("three")])
    process_input(run, MemoryInputFilter(storage=own))
    assert [text for _, text in shown(run)] == ["three"]
    assert MemoryInputFilter.id == "memory-input-filter"
    assert MemoryInputFilter().name == "MemoryInputFilter"


def test_without_a_thread_nothing_is_filtered():
    run = make_run(None, [assistant("two"), user("three")], thread=None, resource=None)
    process_input(run, MemoryInputFilter())
    assert [text for _, text in shown(run)] == ["two", "three"]


def test_the_time_grows_with_the_echo_and_stays_small(store):
    seed(store, [stored("a1", "assistant", "hi")])
    times = {}
    for size in (1000, 4000):
        echo = [assistant(f"m{n}", id=f"x{n}") if n % 2 else user(f"m{n}", f"x{n}") for n in range(size)]
        runs = [make_run(store, [*echo, user("new")]) for _ in range(5)]
        spent = []
        for run in runs:
            started = time.thread_time()
            process_input(run, MemoryInputFilter())
            spent.append(time.thread_time() - started)
            assert [text for _, text in shown(run)] == ["new"]
        times[size] = min(spent)
    assert times[1000] < 0.02, "the budget is 5 ms; a shared test machine is slower than that"
    assert times[4000] < 12 * times[1000]
