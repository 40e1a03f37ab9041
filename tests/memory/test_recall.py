"""Reading messages through the Memory facade: pages, filters, included messages, searches."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from agent_memory.errors import AccessDeniedError, ConfigurationError, InvalidInputError, NotFoundError
from agent_memory.memory import Memory
from tests.support.memories import START, Bench, bench, conversation, ids, message


@pytest.fixture
def seven(memory: Memory) -> Memory:
    memory.save_messages(conversation(7))
    return memory


def test_pages_count_from_the_newest_end_and_read_oldest_first_case_19(seven: Memory) -> None:
    pages = [ids(seven.recall("t1", page=page, per_page=3).messages) for page in range(4)]
    descending = seven.recall("t1", per_page=3, order_by={"field": "createdAt", "direction": "DESC"})
    ascending = seven.recall("t1", per_page=3, order_by={"field": "createdAt", "direction": "ASC"})

    assert pages == [["m05", "m06", "m07"], ["m02", "m03", "m04"], ["m01"], []]
    assert ids(descending.messages) == pages[0]
    assert ids(ascending.messages) == ["m01", "m02", "m03"]
    assert (ascending.total, ascending.page, ascending.per_page, ascending.has_more) == (7, 0, 3, True)
    assert seven.recall("t1", page=2, per_page=3).has_more is False


def test_twenty_five_messages_in_pages_of_five_come_once_each_case_19(memory: Memory) -> None:
    memory.save_messages(conversation(25))

    pages = [ids(memory.recall("t1", page=page, per_page=5).messages) for page in range(5)]

    assert pages[0] == ["m21", "m22", "m23", "m24", "m25"]
    assert sorted(id for page in pages for id in page) == ids(conversation(25))


def test_the_default_page_is_forty_also_with_history_off(bench: Bench) -> None:
    memory = bench.memory(last_messages=0)
    memory.save_messages(conversation(41))

    result = memory.recall("t1")

    assert (len(result.messages), result.per_page, result.has_more, result.total) == (40, 40, True, 41)
    assert result.messages[-1].id == "m41"


def test_all_messages_of_a_thread_over_a_megabyte_case_22(memory: Memory) -> None:
    memory.save_messages([message(f"m{n:02d}", "x" * 60_000, minute=n) for n in range(40)])

    every = memory.recall("t1", per_page=False)
    second = memory.recall("t1", page=1, per_page=30)
    clone = memory.clone_thread("t1")

    assert (len(every.messages), every.per_page, every.has_more) == (40, False, False)
    assert (len(second.messages), second.has_more) == (10, False)
    assert len(memory.recall("t1", per_page=35).messages) == 35
    assert len(memory.recall(clone.thread.id, per_page=False).messages) == 40
    assert memory.delete_messages(thread_id="t1") == 40
    assert memory.recall("t1", per_page=False).messages == ()


def test_a_filter_that_matches_two_of_three_hundred_case_24(memory: Memory) -> None:
    rows = conversation(300)
    for place in (5, 290):
        rows[place] = rows[place].with_metadata(category="billing")
    memory.save_messages(rows)
    wanted = {"metadata": {"category": "billing"}}

    pages = [memory.recall("t1", filter=wanted, per_page=1, page=page) for page in range(3)]

    assert [ids(page.messages) for page in pages] == [["m291"], ["m06"], []]
    assert [page.has_more for page in pages] == [True, False, False]
    assert pages[0].total == 2


def test_date_ranges_hold_their_ends_unless_told_otherwise(seven: Memory) -> None:
    start, end = "2025-03-01T10:02:00Z", datetime(2025, 3, 1, 10, 5, tzinfo=UTC)

    def between(**bounds: Any) -> list[str]:
        return ids(seven.recall("t1", filter={"dateRange": bounds}).messages)

    assert between(start=start, end=end) == ["m02", "m03", "m04", "m05"]
    assert between(start=start, end=end, startExclusive=True, endExclusive=True) == ["m03", "m04"]
    assert between(start=START.replace(year=2030)) == []
    assert ids(seven.recall("t1", filter={"date_range": {"end": end, "end_exclusive": True}}).messages) == [
        "m01",
        "m02",
        "m03",
        "m04",
    ]


@pytest.mark.parametrize(
    "key", ["__proto__", "prototype", "constructor", "a-b", "1a", "", "é", "a" * 129, "a.b", "a\n", "ａ"]
)
def test_a_metadata_key_that_is_none_is_refused(memory: Memory, key: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        memory.recall("t1", filter={"metadata": {key: 1}})
    assert caught.value.field.startswith("filter.metadata.")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [1], {"a": 1}])
def test_a_metadata_value_that_is_no_scalar_is_refused(memory: Memory, value: Any) -> None:
    with pytest.raises(InvalidInputError):
        memory.recall("t1", filter={"metadata": {"a": value}})


@pytest.mark.parametrize(
    "wrong",
    [
        {"page": -1},
        {"per_page": -2},
        {"per_page": "5"},
        {"per_page": False, "page": 1},
        {"order_by": {"field": "updatedAt"}},
        {"order_by": "createdAt"},
        {"filter": {"dateRange": {"start": "yesterday"}}},
        {"filter": []},
        {"include": "m1"},
        {"include": [{"id": ""}]},
        {"include": [{"id": "m1", "withPreviousMessages": -1}]},
        {"vector_search_string": " "},
        {"thread_config": {"lastMesages": 3}},
    ],
)
def test_a_wrong_question_about_messages_is_refused(seven: Memory, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        seven.recall("t1", **wrong)


def test_included_messages_change_neither_total_nor_has_more_case_23(memory: Memory) -> None:
    memory.save_messages(conversation(12))

    far = memory.recall(
        "t1", page=0, per_page=5, include=[{"id": "m02", "withPreviousMessages": 2, "withNextMessages": 3}]
    )
    near = memory.recall(
        "t1",
        page=0,
        per_page=5,
        include=[{"id": "m11", "withPreviousMessages": 2, "withNextMessages": 5}, {"id": "nobody"}],
    )
    all_before = memory.recall("t1", per_page=5, include=[{"id": "m12", "withPreviousMessages": 100}])

    assert ids(far.messages) == ["m01", "m02", "m03", "m04", "m05", "m08", "m09", "m10", "m11", "m12"]
    assert (far.total, far.has_more) == (12, True)
    assert ids(near.messages) == ["m08", "m09", "m10", "m11", "m12"]
    assert (near.total, near.has_more) == (12, True)
    assert ids(all_before.messages) == ids(conversation(12))
    assert (all_before.total, all_before.has_more) == (12, True)


def test_neighbours_step_over_deleted_messages(memory: Memory) -> None:
    memory.save_messages(conversation(12))
    memory.delete_messages(["m05", "m06", "m08", "m09"], thread_id="t1")

    found = memory.recall("t1", include=[{"id": "m07", "with_previous_messages": 2, "with_next_messages": 2}])

    assert ids(found.messages) == ["m03", "m04", "m07", "m10", "m11"]
    assert memory.recall("t1", include=["m05"]).messages == ()


def test_an_included_message_may_be_in_another_thread_of_the_owner_only(memory: Memory) -> None:
    memory.save_messages(conversation(3))
    memory.save_messages(conversation(3, thread="t2", prefix="n"))
    memory.save_messages(conversation(3, thread="t3", prefix="x", owner="bob"))

    found = memory.recall("t1", include=[{"id": "n02", "withNextMessages": 1}, {"id": "n01", "threadId": "t2"}, "x02"])

    assert sorted(ids(found.messages)) == ["n01", "n02", "n03"]
    assert {m.thread_id for m in found.messages} == {"t2"}


def test_a_missing_thread_is_empty_without_an_owner_and_an_error_with_one(seven: Memory) -> None:
    empty = seven.recall("nowhere")

    assert (empty.messages, empty.total, empty.has_more) == ((), 0, False)
    with pytest.raises(NotFoundError, match="No thread found with id nowhere"):
        seven.recall("nowhere", resource_id="ada")
    with pytest.raises(AccessDeniedError):
        seven.recall("t1", resource_id="bob")
    with pytest.raises(InvalidInputError):
        seven.recall(resource_id="ada")
    with pytest.raises(InvalidInputError):
        seven.recall()
    with pytest.raises(InvalidInputError):
        seven.recall("", resource_id="ada")


def test_cursors_stay_right_while_messages_arrive_wish_2(memory: Memory) -> None:
    memory.save_messages(conversation(10))
    seen: list[str] = []
    page = memory.recall("t1", per_page=3)
    while True:
        seen = ids(page.messages) + seen
        if page.next_cursor is None:
            break
        memory.save_messages([message(f"late{len(seen)}", minute=500 + len(seen))])
        page = memory.recall("t1", per_page=3, cursor=page.next_cursor, include_total=False)

    assert seen == ids(conversation(10))


def test_total_is_left_out_on_wish(seven: Memory) -> None:
    assert seven.recall("t1", per_page=2, include_total=False).total is None
    nothing = seven.recall("t1", per_page=0)
    assert (nothing.messages, nothing.total, nothing.has_more) == ((), 7, False)


def test_threads_keep_saved_order_at_equal_dates_case_15(memory: Memory) -> None:
    memory.save_messages([message(name, minute=5) for name in ("z", "m", "b")])

    assert ids(memory.recall("t1").messages) == ["z", "m", "b"]
    assert ids(memory.recall("t1", order_by={"direction": "ASC"}).messages) == ["z", "m", "b"]
    assert ids(memory.recall("t1", per_page=2).messages) == ["m", "b"]


# ------------------------------------------------------------------------------------------------------------- search


@pytest.fixture
def kitchen(bench: Bench) -> Memory:
    """Two threads of ada, one of bob, all in the index."""
    memory = bench.memory(semantic_recall={"topK": 2, "messageRange": 1})
    memory.create_thread("ada", thread_id="food", title="Food")
    memory.save_messages(
        [
            message("f1", "what shall we cook", thread="food", minute=1),
            message("f2", "grandmother bakes rhubarb crumble", thread="food", minute=2),
            message("f3", "with custard", thread="food", minute=3),
            message("f4", "see you on friday", thread="food", minute=4, metadata={"kind": "bye"}),
        ]
    )
    memory.save_messages(
        [
            message("g1", "rhubarb grows in the garden", thread="garden", minute=10),
            message("g2", "water it on monday", thread="garden", minute=11),
        ]
    )
    memory.save_messages([message("b1", "rhubarb crumble for bob", thread="bobs", owner="bob")])
    for owner, thread in (("ada", "food"), ("ada", "garden"), ("bob", "bobs")):
        bench.index_thread(owner, thread)
    return memory


def test_a_search_by_meaning_finds_messages_and_neighbours_in_all_threads(kitchen: Memory) -> None:
    found = kitchen.recall("garden", vector_search_string="rhubarb crumble")

    assert ids(found.messages) == ["f1", "f2", "f3", "g1", "g2"]
    assert found.scores is not None
    assert set(found.scores) == {("food", "f2"), ("garden", "g1")}
    assert found.scores["food", "f2"] > found.scores["garden", "g1"]
    assert (found.total, found.per_page) == (2, 0)


def test_a_search_of_one_thread_stays_in_it_case_77(kitchen: Memory) -> None:
    found = kitchen.recall(
        "garden",
        vector_search_string="rhubarb crumble",
        thread_config={"semanticRecall": {"scope": "thread", "topK": 1, "messageRange": {"before": 0, "after": 0}}},
    )

    assert ids(found.messages) == ["g1"]


def test_a_search_comes_beside_a_page_where_one_is_asked_for(kitchen: Memory) -> None:
    found = kitchen.recall("garden", vector_search_string="crumble grandmother bakes", per_page=1)

    assert "g2" in ids(found.messages)
    assert "f2" in ids(found.messages)
    assert (found.total, found.has_more) == (2, True)


def test_a_search_needs_no_thread_under_resource_scope(kitchen: Memory) -> None:
    found = kitchen.recall(resource_id="ada", vector_search_string="rhubarb")

    assert "f2" in ids(found.messages)
    with pytest.raises(InvalidInputError):
        kitchen.recall(vector_search_string="rhubarb")
    with pytest.raises(InvalidInputError):
        kitchen.recall(
            resource_id="ada", vector_search_string="rhubarb", thread_config={"semanticRecall": {"scope": "thread"}}
        )


def test_the_bound_of_a_threshold_is_inside_case_79(bench: Bench, kitchen: Memory) -> None:
    scores = kitchen.recall("food", vector_search_string="rhubarb crumble").scores
    assert scores is not None
    best, second = sorted(scores.values(), reverse=True)

    def found(threshold: float) -> int:
        result = kitchen.recall(
            "food", vector_search_string="rhubarb crumble", thread_config={"semanticRecall": {"threshold": threshold}}
        )
        return len(result.scores or {})

    assert [found(0), found(second), found(best), found(best + 0.01)] == [2, 2, 1, 0]


def test_a_range_of_dates_finds_what_better_matches_outside_of_it_would_hide(bench: Bench) -> None:
    memory = bench.memory(semantic_recall={"topK": 2, "messageRange": 0})
    memory.save_messages([message(f"m{n}", "pin" if n > 2 else "pin of the safe", minute=n) for n in range(60)])
    bench.index_thread("ada", "t1")

    dates = {"end": "2025-03-01T10:02:00Z", "endExclusive": True}
    found = memory.recall("t1", vector_search_string="pin", filter={"dateRange": dates})

    assert ids(found.messages) == ["m0", "m1"]
    assert {hit.message.id for hit in memory.search("pin", "ada", filter={"dateRange": dates})} == {"m0", "m1"}


def test_deleted_messages_are_never_found_and_cost_no_hits_case_71(bench: Bench) -> None:
    memory = bench.memory(semantic_recall={"topK": 2, "messageRange": 0})
    memory.save_messages([message(f"m{n}", "the pin is four two " + "so " * n, minute=n) for n in range(5)])
    bench.index_thread("ada", "t1")

    memory.delete_messages(["m0", "m1", "m2"], thread_id="t1")

    found = memory.recall("t1", vector_search_string="the pin is four two")
    assert ids(found.messages) == ["m3", "m4"]
    memory.delete_thread("t1")
    assert memory.search("pin", "ada") == ()
    assert memory.recall("t1", resource_id="ada", vector_search_string="pin").messages == ()


def test_each_resource_finds_its_own_case_80(bench: Bench) -> None:
    memory = bench.memory(semantic_recall={"topK": 9, "messageRange": 3})
    owners = ["team-1", "team-2", "TEAM-1", "team-1 x"]
    for number, owner in enumerate(owners):
        memory.save_messages([message(f"m{number}", f"my pin is {number}", thread=f"t{number}", owner=owner)])
        bench.index_thread(owner, f"t{number}")

    for number, owner in enumerate(owners):
        by_meaning = memory.recall(f"t{number}", resource_id=owner, vector_search_string="my pin is")
        other = memory.recall(f"t{number}", include=[f"m{n}" for n in range(4)])
        by_word = memory.search("pin", owner, mode="word")
        assert ids(by_meaning.messages) == [f"m{number}"]
        assert ids(other.messages) == [f"m{number}"]
        assert [r.message.id for r in by_word] == [f"m{number}"]


def test_hits_of_another_owner_in_a_broken_index_are_dropped(bench: Bench, kitchen: Memory) -> None:
    row = bench.index.rows.pop(("bob", "bobs", "b1"))
    from dataclasses import replace

    bench.index.rows["ada", "bobs", "b1"] = replace(row, resource_id="ada")

    assert "b1" not in [r.message.id for r in kitchen.search("rhubarb crumble bob", "ada")]


def test_a_search_through_all_threads_answers_titles_scores_and_neighbours_wish_9(
    bench: Bench, kitchen: Memory
) -> None:
    both = kitchen.search("rhubarb crumble", "ada", neighbours=1)
    words = kitchen.search("friday", "ada", mode="word")
    meaning = kitchen.search("rhubarb", "ada", mode="meaning", limit=1, thread_id="garden")

    assert [r.message.id for r in both][:2] == ["f2", "g1"]
    assert (both[0].thread_title, both[1].thread_title) == ("Food", "")
    assert (ids(both[0].before), ids(both[0].after)) == (["f1"], ["f3"])
    assert both[0].score > both[1].score
    assert [r.message.id for r in words] == ["f4"]
    assert [r.message.id for r in meaning] == ["g1"]
    assert [query.mode for query in bench.index.queries[-3:]] == ["hybrid", "text", "vector"]
    assert bench.index.queries[-2].vector is None
    assert [r.message.id for r in kitchen.search("friday", "ada", filter={"metadata": {"kind": "bye"}})] == ["f4"]
    assert kitchen.search("rhubarb", "nobody") == ()


def test_one_search_is_one_request_to_the_index(bench: Bench, kitchen: Memory) -> None:
    bench.index.queries.clear()

    kitchen.search("rhubarb", "ada", limit=5)

    assert len(bench.index.queries) == 1


@pytest.mark.parametrize("wrong", [{"limit": 0}, {"limit": 101}, {"neighbours": -1}, {"mode": "all"}, {"query": " "}])
def test_a_wrong_search_is_refused(kitchen: Memory, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        kitchen.search(**{"query": "rhubarb", "resource_id": "ada", **wrong})


def test_a_search_with_recall_off_says_how_to_switch_it_on(seven: Memory) -> None:
    with pytest.raises(InvalidInputError, match="semantic recall is off"):
        seven.recall("t1", vector_search_string="text")
    assert seven.recall("t1", vector_search_string="text", thread_config={"semanticRecall": True}).messages == ()


def test_a_search_without_an_index_is_a_configuration_error(bench: Bench) -> None:
    memory = Memory(storage=bench.store)

    with pytest.raises(ConfigurationError) as caught:
        memory.search("x", "ada")
    assert caught.value.code == "SEMANTIC_RECALL_MISSING_VECTOR_ADAPTER"


def test_a_long_question_is_cut_to_what_the_embedder_takes_case_74(bench: Bench, kitchen: Memory) -> None:
    kitchen.recall("food", vector_search_string="漢" * 60_000)

    assert 1_000 < len(bench.embedder.embedded[-1]) <= bench.embedder.max_chars


def test_search_without_claims_names_the_owner() -> None:
    with bench(claims=False) as made:
        memory = made.memory()
        memory.save_messages(conversation(2))

        assert memory.recall("t1").messages == ()
        assert len(memory.recall("t1", resource_id="ada").messages) == 2
        with pytest.raises(NotFoundError):
            memory.recall("t1", resource_id="bob")
