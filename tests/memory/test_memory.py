"""How a memory is put together: adapters, options, what is missing."""

from __future__ import annotations

from typing import Any

import pytest

from agent_memory import runtime
from agent_memory.agent.services import Services
from agent_memory.errors import ConfigurationError, InvalidInputError
from agent_memory.memory import Memory
from agent_memory.options import MemoryOptions, SemanticRecallOptions
from tests.support.memories import Bench, conversation, ids
from tests.support.vectors import ListIndex, WordEmbedder


def test_options_are_taken_directly_and_under_options() -> None:
    direct = Memory(lastMessages=5, semantic_recall={"topK": 2})
    nested = Memory(options={"last_messages": 5, "semanticRecall": {"top_k": 2}})
    mixed = Memory(options={"last_messages": 5}, semantic_recall={"top_k": 2})
    ready = Memory(options=MemoryOptions(last_messages=5, semantic_recall=SemanticRecallOptions(top_k=2)))

    assert direct.options == nested.options == mixed.options == ready.options


def test_an_option_given_both_ways_must_have_one_value() -> None:
    assert Memory(options={"last_messages": 5}, last_messages=5).options.last_messages == 5
    with pytest.raises(InvalidInputError, match="different values"):
        Memory(options={"last_messages": 5}, last_messages=6)
    with pytest.raises(InvalidInputError, match="different values"):
        Memory(options={"last_messages": 5}, lastMessages=6)
    with pytest.raises(InvalidInputError):
        Memory(options=MemoryOptions(last_messages=5), last_messages=6)


@pytest.mark.parametrize(
    "wrong", [{"lastMesages": 3}, {"processors": []}, {"options": {"threads": {}}}, {"last_messages": -1}]
)
def test_a_wrong_option_is_refused_when_the_memory_is_made(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        Memory(**wrong)


def test_recall_without_its_adapters_is_refused_when_the_memory_is_made(bench: Bench) -> None:
    with pytest.raises(ConfigurationError) as no_vector:
        Memory(storage=bench.store, semantic_recall=True)
    with pytest.raises(ConfigurationError) as no_embedder:
        Memory(storage=bench.store, vector=ListIndex(), semantic_recall=True)
    with pytest.raises(ConfigurationError) as switched_off:
        Memory(vector=False, semantic_recall=True)
    with pytest.raises(ConfigurationError) as other_index:
        bench.memory(semantic_recall={"index_name": "another"})

    assert [caught.value.code for caught in (no_vector, no_embedder, switched_off, other_index)] == [
        "SEMANTIC_RECALL_MISSING_VECTOR_ADAPTER",
        "SEMANTIC_RECALL_MISSING_EMBEDDER",
        "SEMANTIC_RECALL_MISSING_VECTOR_ADAPTER",
        "SEMANTIC_RECALL_INDEX_MISMATCH",
    ]
    assert "words-64" in other_index.value.message


def test_binding_fills_what_a_memory_was_not_built_with(bench: Bench) -> None:
    own = WordEmbedder()
    memory = Memory(embedder=own, semantic_recall=True)

    memory.bind(Services(store=bench.store, index=bench.index, embedder=bench.embedder))

    assert memory.storage is bench.store
    assert memory.vector is bench.index
    assert memory.embedder is own
    assert memory.blobs is None
    assert memory.index_id() == bench.index.id
    with pytest.raises(ConfigurationError):
        Memory(semantic_recall=True).bind(Services(store=bench.store))


def test_a_memory_that_nobody_bound_uses_the_deployment(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "services", lambda: Services(store=bench.store))
    memory = Memory()

    memory.save_messages(conversation(2))

    assert ids(memory.recall("t1").messages) == ["m01", "m02"]
    monkeypatch.setattr(runtime, "services", Services)
    with pytest.raises(ConfigurationError) as caught:
        Memory().list_threads("ada")
    assert caught.value.code == "MESSAGE_HISTORY_MISSING_STORAGE_ADAPTER"
