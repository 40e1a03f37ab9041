"""What history a prompt gets, and what a turn stores."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from agent_memory.errors import ConfigurationError, ConflictError, UnavailableError
from agent_memory.messages import TextPart
from agent_memory.messages.message import Message
from agent_memory.options import MemoryOptions, TokenWindow
from agent_memory.ports import TurnRecord
from agent_memory.processors.message_history import MessageHistory, save_turn
from agent_memory.processors.pipeline import Pipeline
from agent_memory.tokens import count_message
from tests.support.build import call, stored
from tests.support.fake_store import FakeStore
from tests.support.runs import make_run, process_input, seed, shown, user


@pytest.fixture
def store() -> FakeStore:
    return FakeStore()


def rows(count, role="user"):
    return [stored(f"m{n:02}", role, f"text {n:02}") for n in range(1, count + 1)]


def answer(run, *parts, id="answer-1"):
    first = stored(id, "assistant", *parts)
    run.messages.begin_answer(first.with_parts(()))
    run.messages.set_answer_parts(first.parts)
    run.answer_id = id


def ids(run):
    return [message.id for message in run.messages.all()]


class TestLoading:
    @pytest.mark.parametrize(("given", "expected"), [(None, 10), (3, 3), (1, 1), (0, 0), (False, 0), (40, 25)])
    def test_case_19_and_64_the_newest_messages_come_oldest_first(self, store, given, expected):
        seed(store, rows(25))
        run = process_input(make_run(store, [user("now", "u")]), MessageHistory(last_messages=given))
        assert ids(run) == [f"m{n:02}" for n in range(26 - expected, 26)] + ["u"]

    @pytest.mark.parametrize("wrong", [-1, "5", True, 2.5])
    def test_case_64_a_wrong_count_is_refused(self, wrong):
        with pytest.raises(ValueError, match="last_messages"):
            MessageHistory(last_messages=wrong)

    def test_limit_is_another_name(self):
        assert MessageHistory(limit=7).last_messages == 7
        with pytest.raises(ValueError, match="both"):
            MessageHistory(limit=7, last_messages=8)

    def test_no_history_is_no_request_and_saving_goes_on(self, store):
        seed(store, rows(3))
        run = make_run(store, [user("now", "u")])
        store.calls.clear()
        process_input(run, MessageHistory(last_messages=0))
        assert store.calls == {}
        save_turn(store, run)
        assert [row.id for row in store.rows("trip-42")] == ["m01", "m02", "m03", "u"]

    def test_history_is_one_request(self, store):
        seed(store, rows(3))
        run = make_run(store, [user("now", "u")])
        store.calls.clear()
        process_input(run, MessageHistory())
        assert store.calls == {"latest": 1}

    def test_system_rows_and_rows_of_a_deleted_thread_are_left_out(self, store):
        seed(store, rows(2))
        store.delete_thread("ada", "trip-42")
        seed(store, [stored("s", "system", "obey"), stored("n", "user", "hi")])
        assert ids(process_input(make_run(store), MessageHistory())) == ["n"]

    def test_a_row_stored_between_the_two_reads_is_not_missed(self, store):
        seed(store, rows(2))

        class Late(FakeStore):
            """Answers its first read as it was before the last row."""

            def latest(self, *args, **kwargs):
                found = FakeStore.latest(self, *args, **kwargs)
                return found[:-1] if self.calls["latest"] == 1 else found

        store.__class__ = Late
        assert ids(process_input(make_run(store), MessageHistory())) == ["m01", "m02"]
        assert store.calls["latest"] == 2

    def test_a_storage_error_fails_the_run(self, store):
        seed(store, rows(2))
        store.fail["latest"] = UnavailableError("busy")
        with pytest.raises(UnavailableError):
            process_input(make_run(store), MessageHistory())

    def test_works_alone_with_its_own_storage(self):
        own = FakeStore()
        seed(own, rows(2))
        run = process_input(make_run(None, [user("now", "u")]), MessageHistory(storage=own))
        assert ids(run) == ["m01", "m02", "u"]
        Pipeline((), (MessageHistory(storage=own),), run).process_output_result(None)
        assert [row.id for row in own.rows("trip-42")] == ["m01", "m02", "u"]
        assert own.calls["get_thread"] == 1

    def test_without_any_storage_the_error_says_so(self):
        with pytest.raises(ConfigurationError) as caught:
            process_input(make_run(None), MessageHistory())
        assert caught.value.code == "MESSAGE_HISTORY_MISSING_STORAGE_ADAPTER"

    def test_without_a_thread_nothing_happens(self):
        assert ids(process_input(make_run(None, ["x"], thread=None, resource=None), MessageHistory())) == ["made-0"]


class TestTokens:
    window = TokenWindow(200, 80)

    def turn(self, store, n, **fields):
        run = make_run(store, [user(f"question {n} " + "x" * 40, f"u{n}")], **fields)
        process_input(run, MessageHistory(token_limit=self.window))
        answer(run, f"answer {n} " + "y" * 40, id=f"a{n}")
        save_turn(store, run)
        return [m.id for m in run.messages.of("memory")], run

    def test_history_stays_within_the_limit_and_cuts_a_share_at_once(self, store):
        starts = []
        for n in range(30):
            loaded, run = self.turn(store, n)
            assert sum(count_message(m) for m in run.messages.of("memory")) <= 200
            assert (
                loaded
                == [row.id for row in store.rows("trip-42")][: 2 * n][len(store.rows("trip-42")) - 2 - len(loaded) :]
            )
            starts.append(loaded[0] if loaded else None)
        changes = sum(a != b for a, b in pairwise(starts))
        assert 3 <= changes <= 16, "most turns begin with the same message as the turn before"

    def test_the_cut_never_goes_back(self, store):
        seen = []
        for n in range(20):
            loaded, _ = self.turn(store, n)
            order = [row.id for row in store.rows("trip-42")]
            seen.append(order.index(loaded[0]) if loaded else 0)
        assert seen == sorted(seen)

    def test_a_cut_of_another_limit_or_thread_is_not_used(self, store):
        for n in range(12):
            self.turn(store, n)
        metadata = store.get_thread("ada", "trip-42").thread.metadata["memoryTokenLimiter"]
        assert metadata["maxTokens"] == 200
        run = process_input(make_run(store), MessageHistory(token_limit=10_000))
        assert len(run.messages) == 24

    def test_long_threads_are_read_only_as_far_as_needed(self, store):
        seed(store, rows(500))
        run = make_run(store)
        store.calls.clear()
        process_input(run, MessageHistory(token_limit=TokenWindow(300)))
        assert store.calls["latest"] <= 2
        assert run.messages.all()[-1].id == "m500"

    def test_a_count_given_too_holds_as_well(self, store):
        seed(store, rows(50))
        run = process_input(make_run(store), MessageHistory(last_messages=5, token_limit=100_000))
        assert len(run.messages) == 5

    def test_a_message_larger_than_the_limit_leaves_no_history(self, store):
        seed(store, [stored("big", "user", "z" * 4000)])
        assert ids(process_input(make_run(store), MessageHistory(token_limit=100))) == []

    def test_a_call_and_its_result_are_cut_together(self, store):
        pair = call("t1", "result", args={"q": "w" * 300}, result="r" * 300)
        seed(store, [stored("u1", "user", "x"), stored("a1", "assistant", pair), stored("u2", "user", "y" * 40)])
        for limit in range(20, 260, 10):
            run = process_input(make_run(store), MessageHistory(token_limit=TokenWindow(limit, 0)))
            for message in run.messages.all():
                for part in message.parts:
                    assert part.type != "tool-invocation" or part.invocation.result


class TestSaving:
    def test_a_new_thread_gets_its_title_metadata_and_rows_in_one_commit(self, store):
        run = make_run(store, [user("hi", "u1")])
        run.thread_title, run.thread_metadata = "Trip", {"k": 1}
        answer(run, "hello")
        committed = save_turn(store, run)
        assert store.calls["commit"] == 1
        assert [row.id for row in store.rows("trip-42")] == ["u1", "answer-1"]
        assert committed.header.thread.title == "Trip"
        assert committed.header.thread.metadata == {"k": 1}
        assert run.shared["committed"] is committed

    def test_read_only_stores_nothing(self, store):
        run = make_run(store, [user("hi", "u1")], options=MemoryOptions.of({"read_only": True}))
        assert save_turn(store, run) is None
        assert store.calls["commit"] == 0

    def test_nothing_new_makes_no_thread(self, store):
        assert save_turn(store, make_run(store)) is None
        assert store.get_thread("ada", "trip-42") is None

    def test_context_system_and_working_memory_calls_are_not_stored(self, store):
        run = make_run(store, [{"role": "system", "content": "s"}, user("hi", "u1")])
        run.messages.add([stored("c1", "user", "context")], "context")
        answer(run, call("w1", "result", name="updateWorkingMemory", result={}), call("p1", "partial-call"), "done")
        save_turn(store, run)
        kept = store.rows("trip-42")
        assert [row.id for row in kept] == ["u1", "answer-1"]
        assert [part.type for part in kept[1].parts] == ["text"]

    def test_the_turn_record_and_the_index_stamp_go_along(self, store):
        class Index:
            id = "index-1"

        recall = MemoryOptions.of({"semantic_recall": True, "expire_days": 2})
        run = make_run(store, [user("hi", "u1")], options=recall, index=Index())
        run.turn = TurnRecord("k", "finished", "run-1", 1, 2, "answer-1", ("u1",))
        answer(run, "x")
        save_turn(store, run)
        assert store.get_thread("ada", "trip-42").turns == (run.turn,)
        assert store.stamps[("ada", "trip-42", "u1")] == "index-1"
        assert store.expiries[("ada", "trip-42", "u1")] > run.messages.all()[0].created_at
        off = make_run(store, [user("hi", "u2")])
        save_turn(store, off)
        assert store.stamps[("ada", "trip-42", "u2")] is None

    def test_saved_after_each_step_every_row_is_stored_once(self, store):
        run = make_run(store, [user("hi", "u1")])
        run.turn = TurnRecord("k", "running", "run-1", 1, 2**60)
        answer(run, "one ")
        save_turn(store, run, incomplete=True)
        halfway = store.rows("trip-42")
        assert halfway[1].metadata["incomplete"] == "running"
        record = store.get_thread("ada", "trip-42").turns[-1]
        assert (record.state, record.answer_id, record.user_ids) == ("running", "answer-1", ("u1",))
        run.messages.set_answer_parts([TextPart("one "), TextPart("two")])
        run.turn = replace(run.turn, state="finished")
        save_turn(store, run)
        assert [(row.id, row.text) for row in store.rows("trip-42")] == [("u1", "hi"), ("answer-1", "one two")]
        assert "incomplete" not in store.rows("trip-42")[1].metadata
        assert store.get_thread("ada", "trip-42").message_count == 2

    def test_an_outcome_is_written_once_across_step_saves(self, store):
        seed(store, [stored("a1", "assistant", call("t1"))])
        run = make_run(store)
        process_input(run, MessageHistory())
        run.messages.add([stored("a1", "assistant", call("t1", "result", result=1))], "input")
        save_turn(store, run)
        save_turn(store, run)
        assert store.rows("trip-42")[0].version == 2

    def test_a_thread_deleted_meanwhile_drops_the_turn(self, store):
        seed(store, rows(1))
        run = make_run(store, [user("hi", "u1")])
        store.delete_thread("ada", "trip-42")
        with pytest.raises(ConflictError):
            save_turn(store, run)
        assert store.get_thread("ada", "trip-42") is None

    def test_case_60_what_a_processor_does_to_history_is_not_stored(self, store):
        long = [stored(f"a{n}", "assistant", "long text here", call(f"t{n}", "result", result=n)) for n in range(3)]
        seed(store, long)
        before = store.rows("trip-42")

        class Shorten:
            id = "shorten"

            def process_input(self, ctx):
                return [m.with_parts([TextPart(p.text[:4]) for p in m.parts if p.type == "text"]) for m in ctx.messages]

        run = process_input(make_run(store, [user("new words", "u1")]), MessageHistory(), Shorten())
        assert [text for _, text in shown(run)] == ["long", "long", "long", "new "]
        save_turn(store, run)
        assert store.rows("trip-42")[:3] == before
        assert store.rows("trip-42")[3].text == "new "

    def test_case_11_copies_of_history_are_not_stored_again(self, store):
        seed(store, rows(6))
        before = store.rows("trip-42")

        def copied(message: Message) -> Message:
            return replace(message, content=replace(message.content))

        class Copy:
            id = "copy"

            def process_input(self, ctx):
                return [copied(m) for m in ctx.messages]

            process_output_result = process_input

        run = make_run(store, [user("new", "u4")])
        hooks = [MessageHistory(), Copy()]
        pipeline = Pipeline(hooks, [Copy(), MessageHistory()], run)
        pipeline.process_input(pipeline.start_loads())
        answer(run, "fine")
        pipeline.process_output_result(None)
        assert store.rows("trip-42")[:6] == before
        assert len(store.rows("trip-42")) == 8
