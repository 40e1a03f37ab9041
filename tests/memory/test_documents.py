"""The examples of the message history page, in Python: what they promise holds."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from agent_memory.agent.agent import Agent
from agent_memory.agent.result import MemoryArgs
from agent_memory.agent.services import Services
from agent_memory.memory import Memory
from agent_memory.messages import Message
from tests.support.memories import Bench, conversation, ids, message
from tests.support.models import FakeModel, say

ARGS = MemoryArgs(
    thread="thread-123", resource="user-456", title="Support conversation", metadata={"category": "billing"}
)


class Queue:
    """A dispatcher that keeps what it is given."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []

    def dispatch(self, target: str, event: Any) -> None:
        self.events.append((target, event))


def agent_of(bench: Bench, model: FakeModel, memory: Memory, queue: Queue | None = None) -> Agent:
    agent = Agent("test-agent", model=model, memory=memory)
    services = Services(store=bench.store, index=bench.index, embedder=bench.embedder)
    services.dispatcher = queue
    return agent.bind(services)


@pytest.fixture
def filled(bench: Bench) -> Memory:
    """thread-123 of user-123 with three messages; two of them with metadata."""
    memory = bench.memory()
    memory.create_thread("user-123", thread_id="thread-123", metadata={"status": "active"})
    full = {"category": "billing", "escalated": True, "priority": 2, "archivedAt": None}
    rows: list[Message] = [
        message("msg-123", "the project deadline discussion", thread="thread-123", owner="user-123", minute=1),
        message("msg-124", "yes", role="assistant", thread="thread-123", owner="user-123", minute=2, metadata=full),
        message(
            "msg-125",
            "thanks",
            thread="thread-123",
            owner="user-123",
            minute=3,
            metadata={"category": "billing", "escalated": True, "priority": 2},
        ),
    ]
    memory.save_messages(rows)
    return memory


# ------------------------------------------------------------------------------------------------------------- set up


def test_a_memory_with_its_options_needs_no_storage_of_its_own(bench: Bench) -> None:
    memory = Memory(options={"lastMessages": 10})
    agent_of(bench, FakeModel(), memory)

    assert memory.storage is bench.store
    assert memory.options.last_messages == 10
    assert Memory(storage=bench.store, last_messages=20).options.last_messages == 20


@pytest.mark.parametrize("call", ["generate", "stream"])
def test_a_call_stores_thread_and_messages_by_itself(bench: Bench, call: str) -> None:
    memory = Memory(options={"lastMessages": 10})
    agent = agent_of(bench, FakeModel(say("Hi there")), memory)

    if call == "generate":
        agent.generate("Hello", memory=ARGS)
    else:
        for _event in agent.stream("Hello", memory=ARGS):
            pass

    thread = memory.get_thread("thread-123")
    assert thread is not None
    assert (thread.title, thread.metadata, thread.resource_id) == (
        "Support conversation",
        {"category": "billing"},
        "user-456",
    )
    assert [(m.role, m.text) for m in memory.recall("thread-123").messages] == [
        ("user", "Hello"),
        ("assistant", "Hi there"),
    ]


def test_the_last_messages_are_in_the_next_prompt_case_19(bench: Bench) -> None:
    model = FakeModel(say("ok"))
    memory = Memory()
    agent = agent_of(bench, model, memory)
    memory.save_messages(conversation(25, thread="thread-123", owner="user-456"))

    agent.generate("Next", memory=MemoryArgs("thread-123", "user-456"))
    agent.generate("Again", memory=MemoryArgs("thread-123", "user-456", options={"lastMessages": 3}))

    assert [text for _role, text in model.prompt(0)] == [f"text {n}" for n in range(16, 26)] + ["Next"]
    assert [text for _role, text in model.prompt(1)] == ["text 25", "Next", "ok", "Again"]


@pytest.mark.parametrize("off", [False, 0])
def test_without_history_the_turn_is_still_stored_case_64(bench: Bench, off: Any) -> None:
    model = FakeModel(say("ok"))
    memory = Memory(last_messages=off)
    agent = agent_of(bench, model, memory)
    memory.save_messages(conversation(3, thread="thread-123", owner="user-456"))

    agent.generate("Next", memory=MemoryArgs("thread-123", "user-456"))

    assert model.prompt() == [("user", "Next")]
    assert [m.text for m in memory.recall("thread-123").messages][-2:] == ["Next", "ok"]


def test_reading_and_writing_are_separate_switches_wish_11(bench: Bench) -> None:
    model = FakeModel(say("ok"))
    memory = Memory()
    agent = agent_of(bench, model, memory)
    memory.save_messages(conversation(2, thread="thread-123", owner="user-456"))

    for options in ({"readOnly": True}, {"readOnly": True, "lastMessages": False}):
        agent.generate("Next", memory=MemoryArgs("thread-123", "user-456", options=options))

    assert [text for _role, text in model.prompt(0)] == ["text 1", "text 2", "Next"]
    assert [text for _role, text in model.prompt(1)] == ["Next"]
    assert memory.recall("thread-123").total == 2


# ------------------------------------------------------------------------------------------------------------- titles


def test_a_title_is_asked_for_after_the_answer_and_does_not_hold_it_up_case_44(bench: Bench) -> None:
    from agent_memory.titles import generate_title

    queue, model = Queue(), FakeModel(say("Answer"), say("Billing question"))
    memory = Memory(options={"generateTitle": True})
    agent = agent_of(bench, model, memory, queue)

    result = agent.generate("Why this bill?", memory=MemoryArgs("thread-123", "user-456"))

    assert result.text == "Answer"
    assert len(model.requests) == 1
    assert memory.get_thread("thread-123").title == ""  # type: ignore[union-attr]
    ((target, event),) = queue.events
    assert target == "titles"
    assert event == {
        "agentId": "test-agent",
        "resourceId": "user-456",
        "threadId": "thread-123",
        "correlationId": result.run_id,
    }
    assert generate_title(bench.store, agent, event) == "Billing question"
    assert memory.get_thread("thread-123").title == "Billing question"  # type: ignore[union-attr]


def test_a_thread_with_a_title_asks_for_none_case_44(bench: Bench) -> None:
    queue = Queue()
    agent = agent_of(bench, FakeModel(say("Answer")), Memory(generate_title=True), queue)

    agent.generate("Hello", memory=ARGS)

    assert queue.events == []


# -------------------------------------------------------------------------------------------------------------- query


def test_threads_of_a_resource(filled: Memory) -> None:
    every = filled.list_threads(filter={"resourceId": "user-123"}, per_page=False)
    page = filled.list_threads(filter={"resourceId": "user-123"}, page=0, per_page=10)
    active = filled.list_threads(
        filter={"resourceId": "user-123", "metadata": {"status": "active"}},
        order_by={"field": "createdAt", "direction": "DESC"},
    )

    assert ids(every.threads) == ids(page.threads) == ids(active.threads) == ["thread-123"]
    assert page.has_more is False
    assert filled.get_thread_by_id("thread-123") == every.threads[0]


def test_messages_of_a_thread(filled: Memory) -> None:
    assert ids(filled.recall("thread-123", per_page=False).messages) == ["msg-123", "msg-124", "msg-125"]
    assert ids(filled.recall("thread-123", page=0, per_page=50).messages) == ["msg-123", "msg-124", "msg-125"]


def test_messages_of_a_date_range(filled: Memory) -> None:
    half = {"dateRange": {"start": datetime(2025, 1, 1, tzinfo=UTC), "end": datetime(2025, 6, 1, tzinfo=UTC)}}
    before = {"dateRange": {"start": datetime(2024, 1, 1), "end": datetime(2024, 6, 1)}}

    assert len(filled.recall("thread-123", filter=half).messages) == 3
    assert filled.recall("thread-123", filter=before).messages == ()


def test_messages_by_metadata_match_null_only_where_it_is_set(filled: Memory) -> None:
    wanted = {"category": "billing", "escalated": True, "priority": 2, "archivedAt": None}

    assert ids(filled.recall("thread-123", filter={"metadata": wanted}).messages) == ["msg-124"]
    del wanted["archivedAt"]
    assert ids(filled.recall("thread-123", filter={"metadata": wanted}).messages) == ["msg-124", "msg-125"]
    assert filled.recall("thread-123", filter={"metadata": {**wanted, "priority": 3}}).messages == ()


def test_messages_by_id_with_their_surroundings(filled: Memory) -> None:
    one = filled.recall("thread-123", include=[{"id": "msg-123"}])
    several = filled.recall(
        "thread-123",
        include=[{"id": "msg-123"}, {"id": "msg-125", "withPreviousMessages": 3, "withNextMessages": 1}],
    )

    assert ids(one.messages) == ["msg-123"]
    assert ids(several.messages) == ["msg-123", "msg-124", "msg-125"]


def test_messages_by_meaning(bench: Bench, filled: Memory) -> None:
    bench.index_thread("user-123", "thread-123")

    found = filled.recall(
        "thread-123",
        vector_search_string="project deadline discussion",
        thread_config={"semanticRecall": {"messageRange": 0, "topK": 1}},
    )

    assert ids(found.messages) == ["msg-123"]


# ----------------------------------------------------------------------------------------------------- clone and delete


def test_a_clone_branches_off(filled: Memory) -> None:
    clone = filled.clone_thread("thread-123", title="Branched conversation")

    assert clone.thread.title == "Branched conversation"
    assert [m.text for m in clone.cloned_messages] == [m.text for m in filled.recall("thread-123").messages]


def test_messages_are_deleted_by_id_or_all_of_a_thread(filled: Memory) -> None:
    filled.delete_messages(["msg-123"], resource_id="user-123")
    assert ids(filled.recall("thread-123").messages) == ["msg-124", "msg-125"]
    filled.delete_messages(thread_id="thread-123")
    assert filled.recall("thread-123").messages == ()
    assert filled.get_thread("thread-123") is not None
