"""Memory options: reading, spelling, merging, refusing."""

from __future__ import annotations

from typing import Any

import pytest

from agent_memory.errors import ConfigurationError, InvalidInputError
from agent_memory.options import (
    MemoryOptions,
    MessageRange,
    SemanticRecallOptions,
    TitleOptions,
    TokenWindow,
    WorkingMemoryOptions,
    to_config_json,
)


def test_defaults_are_ten_messages_and_nothing_else() -> None:
    options = MemoryOptions()

    assert options.last_messages == 10
    assert options.semantic_recall is None
    assert options.working_memory is None
    assert options.generate_title is None
    assert options.read_only is False
    assert MemoryOptions.of({}) == options


@pytest.mark.parametrize(
    ("given", "count"),
    [
        ({"last_messages": False}, 0),
        ({"lastMessages": 0}, 0),
        ({"lastMessages": None}, 10),
        ({}, 10),
        ({"lastMessages": 1}, 1),
    ],
)
def test_last_messages_false_and_zero_load_nothing_case_64(given: dict[str, Any], count: int) -> None:
    assert MemoryOptions.of(given).last_messages == count
    assert MemoryOptions.of(given).read_only is False


@pytest.mark.parametrize("wrong", [-1, "5", True, 1.5, [3]])
@pytest.mark.parametrize("strict", [True, False])
def test_last_messages_of_another_kind_names_field_and_found_case_64(wrong: object, strict: bool) -> None:
    with pytest.raises(InvalidInputError, match="expected a whole number from 0 up") as caught:
        MemoryOptions.of({"lastMessages": wrong}, strict=strict)

    assert caught.value.field == "lastMessages"
    assert isinstance(caught.value, ValueError)
    with pytest.raises(InvalidInputError):
        MemoryOptions(last_messages=wrong)  # type: ignore[arg-type]


def test_both_spellings_say_the_same() -> None:
    snake = MemoryOptions.of(
        {
            "last_messages": 3,
            "semantic_recall": {"top_k": 2, "message_range": {"before": 0, "after": 2}, "index_name": "other"},
            "working_memory": {"agent_managed": False, "read_only": True},
            "generate_title": {"min_messages": 2, "emit_event": True},
            "message_history": {"max_tokens": 80, "at_max_remove_tokens": 10},
            "retain_full_input": True,
            "expire_days": 30,
        }
    )
    camel = MemoryOptions.of(
        {
            "lastMessages": 3,
            "semanticRecall": {"topK": 2, "messageRange": {"before": 0, "after": 2}, "indexName": "other"},
            "workingMemory": {"agentManaged": False, "readOnly": True},
            "generateTitle": {"minMessages": 2, "emitEvent": True},
            "messageHistory": {"maxTokens": 80, "atMaxRemoveTokens": 10},
            "retainFullInput": True,
            "expireDays": 30,
        }
    )

    assert snake == camel
    assert snake.semantic_recall == SemanticRecallOptions(top_k=2, message_range=MessageRange(0, 2), index_name="other")


def test_two_spellings_with_different_values_are_an_error() -> None:
    assert MemoryOptions.of({"last_messages": 3, "lastMessages": 3}).last_messages == 3
    with pytest.raises(InvalidInputError, match="given twice"):
        MemoryOptions.of({"last_messages": 3, "lastMessages": 4})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, SemanticRecallOptions()),
        (False, None),
        ({}, SemanticRecallOptions()),
        ({"enabled": True, "topK": 9}, SemanticRecallOptions(top_k=9)),
        ({"enabled": False}, None),
        ({"enabled": False, "topK": 9}, None),
        ({"messageRange": 3}, SemanticRecallOptions(message_range=MessageRange(3, 3))),
        (SemanticRecallOptions(scope="thread"), SemanticRecallOptions(scope="thread")),
    ],
)
def test_a_section_takes_a_switch_or_an_object(value: object, expected: object) -> None:
    assert MemoryOptions.of({"semanticRecall": value}).semantic_recall == expected


def test_merging_goes_into_sections_and_keeps_the_rest() -> None:
    options = MemoryOptions.of({"semanticRecall": {"topK": 7, "threshold": 0.5}, "workingMemory": True})

    merged = options.merged({"semantic_recall": {"scope": "thread"}, "lastMessages": 2})

    assert merged.semantic_recall == SemanticRecallOptions(top_k=7, threshold=0.5, scope="thread")
    assert merged.working_memory == WorkingMemoryOptions()
    assert merged.last_messages == 2
    assert options.semantic_recall == SemanticRecallOptions(top_k=7, threshold=0.5)
    assert options.merged({"semanticRecall": True}).semantic_recall == options.semantic_recall
    assert options.merged({"semanticRecall": False}).semantic_recall is None
    assert options.merged(None) is options


def test_threshold_zero_is_not_none_case_79() -> None:
    options = MemoryOptions.of({"semanticRecall": {"threshold": 0}})

    assert options.semantic_recall is not None
    assert options.semantic_recall.threshold == 0


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        ({"semanticRecall": {"topK": 0}}, "semanticRecall.topK"),
        ({"semanticRecall": {"topK": 101}}, "semanticRecall.topK"),
        ({"semanticRecall": {"messageRange": 101}}, "semanticRecall.messageRange"),
        ({"semanticRecall": {"messageRange": {"after": 1_000_000_000}}}, "semanticRecall.messageRange.after"),
        ({"semantic_recall": {"scope": "all"}}, "semantic_recall.scope"),
        ({"semanticRecall": {"threshold": float("nan")}}, "semanticRecall.threshold"),
        ({"semanticRecall": {"messageRange": {"before": -1}}}, "semanticRecall.messageRange.before"),
        ({"semanticRecall": 1}, "semanticRecall"),
        ({"semanticRecall": {"enabled": "yes"}}, "semanticRecall.enabled"),
        ({"workingMemory": {"version": "next"}}, "workingMemory.version"),
        ({"workingMemory": {"template": " "}}, "workingMemory.template"),
        ({"workingMemory": {"template": "# A", "schema": {}}}, "workingMemory"),
        ({"generateTitle": {"minMessages": 0}}, "generateTitle.minMessages"),
        ({"messageHistory": {"maxTokens": 0}}, "messageHistory.maxTokens"),
        ({"messageHistory": {}}, "messageHistory.maxTokens"),
        ({"messageHistory": {"maxTokens": 10, "atMaxRemoveTokens": 11}}, "messageHistory.atMaxRemoveTokens"),
        ({"messageHistory": True}, "messageHistory"),
        ({"readOnly": "true"}, "readOnly"),
        ({"expireDays": 0}, "expireDays"),
        ({"expireDays": 10**30}, "expireDays"),
    ],
)
def test_a_wrong_value_names_its_dotted_path(raw: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        MemoryOptions.of(raw)

    assert caught.value.field == field
    assert "expected" in caught.value.detail


def test_an_unknown_key_names_the_nearest_one_in_python_and_is_ignored_in_requests() -> None:
    with pytest.raises(InvalidInputError, match="did you mean last_messages"):
        MemoryOptions.of({"lastMesages": 3})
    with pytest.raises(InvalidInputError, match="did you mean top_k") as caught:
        MemoryOptions.of({"semanticRecall": {"topk": 3}})

    assert caught.value.field == "semanticRecall.topk"
    assert MemoryOptions.of({"lastMesages": 3, "semanticRecall": {"topk": 3}}, strict=False) == MemoryOptions.of(
        {"semanticRecall": True}
    )


@pytest.mark.parametrize(
    "raw", [{"workingMemory": {"use": "tool-call"}}, {"processors": []}, {"threads": {"generateTitle": True}}]
)
def test_removed_keys_are_refused_with_advice(raw: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match="was removed"):
        MemoryOptions.of(raw)


def test_observational_memory_is_reserved() -> None:
    assert MemoryOptions.of({"observationalMemory": False}) == MemoryOptions()
    assert MemoryOptions.of({"observational_memory": {"enabled": False}}) == MemoryOptions()
    with pytest.raises(ConfigurationError):
        MemoryOptions.of({"observationalMemory": {"scope": "thread"}})
    with pytest.raises(InvalidInputError):
        MemoryOptions.of({"observationalMemory": True}, strict=False)


def test_a_token_window_replaces_the_default_count_but_not_a_given_one() -> None:
    by_tokens = MemoryOptions.of({"messageHistory": {"maxTokens": 1000}})

    assert by_tokens.message_history == TokenWindow(1000, 250)
    assert by_tokens.history_limit is None
    assert by_tokens.loads_history
    assert by_tokens.merged({"lastMessages": 10}).history_limit == 10
    assert by_tokens.merged({"messageHistory": {"maxTokens": 40}}).message_history == TokenWindow(40, 10)
    assert by_tokens.merged({"messageHistory": {"atMaxRemoveTokens": 5}}).message_history == TokenWindow(1000, 5)
    assert by_tokens.merged({"messageHistory": False}).history_limit == 10
    assert MemoryOptions.of({"lastMessages": 0}).loads_history is False


def test_a_pydantic_model_is_taken_as_a_schema() -> None:
    from pydantic import BaseModel

    class Profile(BaseModel):
        name: str | None = None

    options = WorkingMemoryOptions(schema=Profile)  # type: ignore[arg-type]

    assert options.schema is not None
    assert options.schema["properties"]["name"]["title"] == "Name"


def test_a_model_object_comes_from_python_only() -> None:
    def choose(_context: object) -> str:
        return "demo/demo"

    assert MemoryOptions.of({"generateTitle": {"model": choose}}).generate_title == TitleOptions(model=choose)
    with pytest.raises(InvalidInputError):
        MemoryOptions.of({"generateTitle": {"model": {"id": 1}}}, strict=False)


def test_an_end_user_can_only_narrow() -> None:
    options = MemoryOptions.of(
        {"lastMessages": 5, "semanticRecall": {"topK": 3, "messageRange": 1}, "workingMemory": True, "expireDays": 3}
    )

    wider = options.narrowed(
        {
            "lastMessages": 500,
            "semanticRecall": {"topK": 99, "messageRange": 9},
            "generateTitle": True,
            "expireDays": 900,
        }
    )
    fewer = options.narrowed(
        {"lastMessages": 0, "semanticRecall": {"topK": 1, "scope": "thread"}, "workingMemory": False, "readOnly": True}
    )

    assert wider == options
    assert fewer.last_messages == 0
    assert fewer.semantic_recall == SemanticRecallOptions(top_k=1, scope="thread")
    assert fewer.working_memory is None
    assert fewer.read_only


def test_settings_are_answered_in_the_wire_shape() -> None:
    options = MemoryOptions.of(
        {
            "lastMessages": 20,
            "semanticRecall": {"topK": 3},
            "workingMemory": {"template": "# User\n- Name:\n"},
        }
    )

    assert to_config_json(options) == {
        "lastMessages": 20,
        "semanticRecall": {"topK": 3, "messageRange": 1, "scope": "resource", "mode": "vector"},
        "generateTitle": False,
        "workingMemory": {
            "enabled": True,
            "scope": "resource",
            "version": "stable",
            "template": "# User\n- Name:\n",
        },
        "observationalMemory": {"enabled": False},
        "readOnly": False,
    }
    assert to_config_json(MemoryOptions.of({"lastMessages": 0}))["lastMessages"] is False
