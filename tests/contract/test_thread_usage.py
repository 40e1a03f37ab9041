"""Tokens of a thread: each stored turn counts once, whatever happened on the way."""

from __future__ import annotations

from typing import Any

import pytest

from agent_memory.agent.agent import Agent
from agent_memory.agent.result import MemoryArgs, RunOptions
from agent_memory.agent.services import Services
from agent_memory.agent.tools import Tool
from agent_memory.errors import AgentMemoryError, ModelError
from agent_memory.memory import Memory
from agent_memory.ports import MessageQuery, ModelChunk, ThreadUsage, Usage
from agent_memory.titles import generate_title
from tests.contract.conftest import World
from tests.support.models import FakeModel, call, say


class Counting(FakeModel):
    """Adds up what it told of itself."""

    used = Usage()

    def stream(self, request: Any) -> Any:
        for chunk in super().stream(request):
            if isinstance(chunk, ModelChunk) and chunk.usage is not None:
                self.used = self.used + chunk.usage
            yield chunk


def chat(world: World, model: FakeModel, **options: Any) -> Agent:
    look = Tool("look", execute=lambda args, context: {"ok": 1})
    tools = options.pop("tools", [look])
    memory = Memory(storage=world.store, last_messages=5, **options)
    return Agent("helper", model=model, memory=memory, tools=tools).bind(
        Services(store=world.store, runs=world.make_runs(), meter=world.meter)
    )


def usage(world: World) -> ThreadUsage | None:
    header = world.store.get_thread("r", "t")
    assert header is not None
    return header.thread.usage


PLACE = MemoryArgs("t", "r")


def test_sums_equal_the_models_own_after_retries_of_every_kind(world: World) -> None:
    model = Counting(
        say("one two"),
        call(("c1", "look", {})),
        say("three"),
        call(("c2", "look", {})),
        ModelError("down"),
        say("after the failure"),
        say("busy"),
        say("lost"),
        say("A title"),
    )
    agent = chat(world, model, generate_title=True)

    def send(text: str, **options: Any) -> None:
        agent.generate([{"id": text, "role": "user", "content": text}], memory=PLACE, options=RunOptions(**options))

    send("first")
    send("tools")
    with pytest.raises(ModelError):
        send("fails", save_per_step=True)
    send("fails", save_per_step=True)  # the same turn again: its question is stored, its answer is a new one
    world.faults.conflict(2)
    send("busy")
    world.faults.lose_answer("TransactWriteItems")
    if world.kind == "emulator":  # moto applies a repeated transaction twice
        send("lost")
    send("first")  # an older turn's id: answered by the model or from storage, and counted as it was
    assert generate_title(world.store, agent, {"resourceId": "r", "threadId": "t"})
    world.faults.clear()

    assert usage(world) == ThreadUsage(model.used.input_tokens, model.used.output_tokens)


def test_the_sum_costs_no_request_and_no_unit(world: World) -> None:
    told = say("hello " * 20)
    silent = [*told[:-1], ModelChunk("finish", {"reason": "stop"})]
    costs = []
    for thread, chunks in (("t", told), ("s", silent)):
        agent = chat(world, FakeModel(chunks))
        for number in range(4):
            message = {"id": f"u{number}", "role": "user", "content": "hi"}
            cost = agent.generate([message], memory=MemoryArgs(thread, "r")).notes["cost"]
        costs.append({key: cost[key] for key in ("requests", "readUnits", "writeUnits")})
    counted, uncounted = (
        next(item for item in world.scan(world.names.threads) if item["sk"]["S"] == sk) for sk in ("T#t", "T#s")
    )
    assert {"tin", "tout"} <= counted.keys() - uncounted.keys()
    assert costs[0] == costs[1]


def test_an_answer_that_goes_on_adds_to_what_it_had(world: World) -> None:
    gate = Tool("look", execute=lambda args, context: {"ok": 1}, requires_approval=True)
    model = Counting(call(("c1", "look", {}), text="let me see"), say("done"))
    agent = chat(world, model, tools=[gate])
    first = agent.generate("go", memory=PLACE)
    agent.resume(first.run_id, approved=True).drain()

    header = world.store.get_thread("r", "t")
    assert header is not None
    answer = world.store.list_messages(header, MessageQuery()).messages[-1]
    assert answer.metadata["usage"]["inputTokens"] == model.used.input_tokens == 20
    assert answer.metadata["usage"]["outputTokens"] == model.used.output_tokens
    assert header.thread.usage == ThreadUsage(20, model.used.output_tokens)


def test_a_blocked_turn_adds_nothing_and_a_new_life_of_a_thread_starts_at_nothing(world: World) -> None:
    class Guard:
        id = "guard"

        def process_output_result(self, ctx: Any) -> None:
            if "bad" in ctx.result.text:
                ctx.abort("no")

    agent = chat(world, FakeModel(say("good"), say("bad"), say("good")))
    agent.output_processors = (Guard(),)
    agent.generate("one", memory=PLACE)
    assert agent.generate("two", memory=PLACE).tripwire is not None
    assert usage(world) == ThreadUsage(10, 1)
    world.store.delete_thread("r", "t")
    agent.generate("three", memory=PLACE)
    assert usage(world) == ThreadUsage(10, 1)


def test_a_copy_starts_at_nothing_and_a_moved_thread_keeps_its_sum(world: World) -> None:
    agent = chat(world, FakeModel(say("hello")))
    agent.generate("one", memory=PLACE)
    assert agent.memory is not None
    copy = agent.memory.clone_thread("t", resource_id="r").thread
    assert copy.usage is None
    agent.memory.transfer_thread("t", "s", resource_id="r")
    moved = world.store.get_thread("s", "t")
    assert moved is not None
    assert moved.thread.usage == ThreadUsage(10, 1)


def test_tokens_of_the_questions_vector_are_part_of_it_where_they_are_told(world: World) -> None:
    from agent_memory import embedding_usage
    from tests.support.vectors import ListIndex, WordEmbedder

    class Told(WordEmbedder):
        def embed_query(self, text: str) -> list[float]:
            embedding_usage.note(7)
            return super().embed_query(text)

    memory = Memory(storage=world.store, vector=ListIndex(), embedder=Told(), semantic_recall=True)
    agent = Agent("helper", model=FakeModel(say("hello")), memory=memory).bind(
        Services(store=world.store, meter=world.meter)
    )
    result = agent.generate("one", memory=PLACE)
    assert result.notes["cost"]["embeddingTokens"] == 7
    assert usage(world) == ThreadUsage(10, 1, 7)
    assert not isinstance(result.error, AgentMemoryError)
