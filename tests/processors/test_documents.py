"""The examples of the pages on memory processors and on the input filter, in Python: what they promise holds."""

from __future__ import annotations

import base64

import pytest

from agent_memory import Agent, Memory, MemoryArgs
from agent_memory.errors import ConfigurationError
from agent_memory.messages import TextPart
from agent_memory.processors import (
    AttachmentUploader,
    MemoryInputFilter,
    MessageHistory,
    SemanticRecall,
    TokenLimiter,
    WorkingMemory,
)
from agent_memory.processors.pipeline import arrange
from tests.support.build import call as tool_call
from tests.support.build import stored
from tests.support.fake_store import FakeStore
from tests.support.models import FakeModel, say
from tests.support.runs import assistant, seed, user
from tests.support.vectors import ListIndex, WordEmbedder

ARGS = MemoryArgs(thread="trip-42", resource="ada")
PNG = b"\x89PNG\r\n\x1a\n" + bytes(600)


@pytest.fixture
def store() -> FakeStore:
    return FakeStore()


@pytest.fixture
def long_thread(store) -> FakeStore:
    seed(store, [stored(f"m{n:02}", "user" if n % 2 else "assistant", f"text {n:02}") for n in range(1, 41)])
    return store


def agent_of(model, memory, **fields):
    return Agent("test-agent", name="Test Agent", model=model, memory=memory, **fields)


def prompt_texts(model, number=-1):
    return [text for _, text in model.prompt(number)]


class TestMessageHistory:
    def test_last_messages_adds_the_processor_on_both_sides(self, long_thread):
        model = FakeModel(say("answer"))
        agent = agent_of(model, Memory(storage=long_thread, last_messages=10))
        agent.generate([user("now?", "u1")], memory=ARGS)
        assert prompt_texts(model) == [*(f"text {n:02}" for n in range(31, 41)), "now?"]
        assert [row.text for row in long_thread.rows("trip-42")][-2:] == ["now?", "answer"]


class TestSemanticRecall:
    def test_it_finds_older_messages_and_marks_new_ones_for_the_index(self, store):
        index, embedder = ListIndex(), WordEmbedder()
        memory = Memory(
            storage=store, semantic_recall={"enabled": True}, vector=index, embedder=embedder, last_messages=1
        )
        model = FakeModel(say("noted"))
        agent = agent_of(model, memory)
        agent.generate([user("my cat is called Pebble", "u1")], memory=ARGS)
        assert store.stamps[("ada", "trip-42", "u1")] == index.id

        from agent_memory.recall.indexing import index_messages

        index_messages(index, embedder, store.rows("trip-42"))
        for n in range(3):
            agent.generate([user(f"chatter {n}", f"c{n}")], memory=ARGS)
        agent.generate([user("what is my cat called", "u2")], memory=ARGS)
        assert "my cat is called Pebble" in prompt_texts(model)

    @pytest.mark.parametrize(
        ("given", "code"),
        [
            ({"embedder": WordEmbedder()}, "SEMANTIC_RECALL_MISSING_VECTOR_ADAPTER"),
            ({"vector": ListIndex()}, "SEMANTIC_RECALL_MISSING_EMBEDDER"),
        ],
    )
    def test_it_needs_a_vector_store_and_an_embedder(self, store, given, code):
        with pytest.raises(ConfigurationError) as caught:
            Memory(storage=store, semantic_recall={"enabled": True}, **given)
        assert caught.value.code == code


class TestWorkingMemory:
    def test_enabled_adds_the_text_in_front_and_does_nothing_after(self, store):
        store.put_working_memory("ada", None, "# User\n- Name: Mira", expected_version=0)
        model = FakeModel(say("hi Mira"))
        agent_of(model, Memory(storage=store, working_memory={"enabled": True})).generate("hello", memory=ARGS)
        assert "- Name: Mira" in model.system()
        assert "updateWorkingMemory" in [spec.name for spec in model.requests[-1].tools]
        assert store.get_working_memory("ada", None).version == 1


class TestManualControl:
    def test_a_hand_placed_processor_takes_the_place_of_the_automatic_one(self, long_thread):
        custom = MessageHistory(storage=long_thread, last_messages=20)
        model = FakeModel(say("answer"))
        agent = agent_of(
            model,
            Memory(storage=long_thread, last_messages=10),
            input_processors=[custom, TokenLimiter(limit=4000)],
        )
        long_thread.calls.clear()
        agent.generate([user("now?", "u1")], memory=ARGS)
        assert prompt_texts(model) == [*(f"text {n:02}" for n in range(21, 41)), "now?"]
        assert long_thread.calls["latest"] == 1
        assert [row.id for row in long_thread.rows("trip-42")][40] == "u1"

    def test_a_limiter_behind_the_custom_history_limits_it(self, long_thread):
        custom = MessageHistory(storage=long_thread, last_messages=20)
        model = FakeModel(say("answer"))
        agent_of(model, Memory(storage=long_thread), input_processors=[custom, TokenLimiter(limit=80)]).generate(
            [user("now?", "u1")], memory=ARGS
        )
        shown = prompt_texts(model)
        assert 1 < len(shown) < 12
        assert shown[-2:] == ["text 40", "now?"]


class TestOrder:
    def test_memory_runs_first_on_the_way_in_and_last_on_the_way_out(self):
        class Guard:
            id = "guard"

            def process_input(self, ctx):
                return None

            process_output_result = process_input

        memory = [SemanticRecall(), MessageHistory(), WorkingMemory(), MemoryInputFilter()]
        inputs, outputs = arrange(memory, [MessageHistory()], [Guard()], [Guard()])
        assert [p.id for p in inputs] == [
            "memory-input-filter",
            "working-memory",
            "message-history",
            "semantic-recall",
            "guard",
        ]
        assert [p.id for p in outputs] == ["guard", "message-history"]


class TestGuardrails:
    def test_nothing_is_saved_when_an_output_guardrail_aborts(self, store):
        class ContentBlocker:
            id = "content-blocker"

            async def process_output_result(self, ctx):
                if any("bad" in message.text for message in ctx.messages):
                    ctx.abort("Content blocked by guardrail")
                return ctx.messages

        model = FakeModel(say("a bad answer"), say("a fine answer"))
        agent = agent_of(model, Memory(storage=store, last_messages=10), output_processors=[ContentBlocker()])
        result = agent.generate("Hello", memory=ARGS)
        assert result.tripwire.reason == "Content blocked by guardrail"
        assert store.rows("trip-42") == ()
        assert agent.generate("Hello", memory=ARGS).tripwire is None
        assert len(store.rows("trip-42")) == 2

    def test_an_input_guardrail_sees_history_and_stops_before_the_model(self, long_thread):
        seen = []

        class InputValidator:
            id = "input-validator"

            async def process_input(self, ctx):
                seen.extend(ctx.messages)
                asked = next(message for message in reversed(ctx.messages) if message.role == "user")
                if "forbidden" in asked.text:
                    ctx.abort("Invalid input detected")
                return ctx.messages

        model = FakeModel(say("x"))
        agent = agent_of(model, Memory(storage=long_thread, last_messages=10), input_processors=[InputValidator()])
        before = long_thread.rows("trip-42")
        result = agent.generate([user("forbidden words", "u1")], memory=ARGS)
        assert result.tripwire.reason == "Invalid input detected"
        assert result.tripwire.processor_id == "input-validator"
        assert len(seen) == 11
        assert model.requests == []
        assert long_thread.rows("trip-42") == before
        assert long_thread.calls["commit"] == 1, "only the one that seeded the thread"


class TestAttachments:
    def test_an_uploader_of_ones_own_replaces_data_before_it_is_stored(self, store):
        bucket = {}

        class Uploader(AttachmentUploader):
            def upload(self, data, content_type):
                url = f"https://files.example/{len(bucket)}"
                bucket[url] = (data, content_type)
                return url

        model = FakeModel(say("a dot"))
        agent = agent_of(model, Memory(storage=store, last_messages=10), input_processors=[Uploader()])
        data = "data:image/png;base64," + base64.b64encode(PNG).decode()
        message = {
            "role": "user",
            "content": "what is it?",
            "experimental_attachments": [
                {"url": data, "contentType": "image/png"},
                {"url": "https://example.org/b.png", "contentType": "image/png"},
            ],
        }
        agent.generate([message], memory=ARGS)
        kept = store.rows("trip-42")[0].content.experimental_attachments
        assert [item.url for item in kept] == ["https://files.example/0", "https://example.org/b.png"]
        assert kept[0].content_type == "image/png"
        assert bucket == {"https://files.example/0": (PNG, "image/png")}


class TestProcessorsOfOnesOwn:
    def test_messages_cannot_be_changed_in_place(self, store):
        class Mutates:
            id = "mutates"

            def process_input(self, ctx):
                ctx.messages[0].content.parts[0].text = "changed"

        agent = agent_of(FakeModel(), Memory(storage=store), input_processors=[Mutates()])
        with pytest.raises(Exception, match="FrozenInstanceError"):
            agent.generate("Hello", memory=ARGS)
        assert store.rows("trip-42") == ()

    def test_a_new_message_takes_the_place_of_the_old_one(self, store):
        class Upper:
            id = "upper"

            def process_input(self, ctx):
                return [m.with_parts(TextPart(p.text.upper()) for p in m.parts) for m in ctx.messages]

        model = FakeModel(say("ok"))
        agent_of(model, Memory(storage=store), input_processors=[Upper()]).generate("Hello", memory=ARGS)
        assert prompt_texts(model) == ["HELLO"]
        assert store.rows("trip-42")[0].text == "HELLO"


class TestInputFilter:
    """The page on MemoryInputFilter, sentence by sentence, through an agent."""

    @pytest.fixture
    def pending(self, store):
        seed(store, [stored("u1", "user", "weather?"), stored("a1", "assistant", "looking", tool_call("t1"))])
        return store

    def ask(self, store, messages, **options):
        model = FakeModel(say("done"))
        agent = agent_of(model, Memory(storage=store, **options))
        agent.generate(messages, memory=ARGS)
        return model

    def test_its_id_and_name(self):
        assert (MemoryInputFilter.id, MemoryInputFilter.name) == ("memory-input-filter", "MemoryInputFilter")

    def test_it_is_there_once_when_placed_by_hand_and_runs_before_the_loaders(self, pending):
        filter = MemoryInputFilter(storage=pending)
        inputs, _ = arrange([MemoryInputFilter(), MessageHistory()], [], [TokenLimiter(10), filter], [])
        assert [p.id for p in inputs] == ["memory-input-filter", "message-history", "token-limiter"]
        assert inputs[0] is filter

    def test_user_messages_at_the_end_are_kept_with_outcomes_of_the_message_before(self, pending):
        told = tool_call("t1", "result", result={"temp": 3})
        model = self.ask(
            pending, [user("old", "x"), assistant("OTHER", told, id="a1"), user("and?", "u2"), user("!", "u3")]
        )
        assert prompt_texts(model) == ["weather?", "looking[call t1 w]", "[result t1 {'temp': 3}]", "and?", "!"]
        assert [row.text for row in pending.rows("trip-42")] == ["weather?", "looking", "and?", "!", "done"]

    def test_only_outcomes_are_kept_of_an_assistant_message_at_the_end(self, pending):
        model = self.ask(pending, [assistant("OTHER", tool_call("t1", "result", result=3), id="a1")])
        assert prompt_texts(model) == ["weather?", "looking[call t1 w]", "[result t1 3]"]
        assert len(pending.rows("trip-42")) == 2
        assert pending.rows("trip-42")[1].text == "lookingdone"

    def test_an_echo_is_cleared_and_a_message_never_stored_stays(self, store):
        seed(store, [stored("u1", "user", "hi"), stored("a1", "assistant", "hello")])
        assert prompt_texts(self.ask(store, [user("hi", "u1"), assistant("hello", id="a1")])) == ["hi", "hello"]
        note = self.ask(store, [assistant("an instruction of the application", id="i1")])
        assert prompt_texts(note)[-1] == "an instruction of the application"

    def test_a_new_thread_is_seeded_without_provider_metadata(self, store):
        part = {"type": "text", "text": "hello", "providerMetadata": {"openai": {"itemId": "i"}}}
        model = self.ask(store, [user("hi", "u1"), assistant(part, id="a1"), user("go", "u2")])
        assert prompt_texts(model) == ["hi", "hello", "go"]
        rows = store.rows("trip-42")
        assert [row.id for row in rows[:3]] == ["u1", "a1", "u2"]
        assert rows[1].parts[0].provider_metadata is None

    def test_retain_full_input_keeps_examples_and_stored_copies_win(self, store):
        seed(store, [stored("u1", "user", "hi")])
        messages = [user("EDITED", "u1"), user("example", "e1"), assistant("sample", id="e2"), user("go", "u2")]
        model = self.ask(store, messages, retain_full_input=True)
        assert prompt_texts(model) == ["hi", "example", "sample", "go"]
        assert [row.id for row in store.rows("trip-42")][:4] == ["u1", "e1", "e2", "u2"]
