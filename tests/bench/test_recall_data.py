"""The planted data set for recall is whole: enough facts and questions in each language, and evidence that exists."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from tests.bench.recall_data import load


def test_there_are_enough_facts_and_questions_in_each_of_three_languages():
    data = load()
    facts = Counter(id.split("-")[0] for id, rows in data.threads.items() for row in rows if row.role == "user")
    questions = Counter(question.language for question in data.questions)
    assert len(data.threads) == 20
    assert set(facts) == set(questions) == {"en", "zh", "fr"}
    assert sum(facts.values()) >= 200
    assert min(facts.values()) >= 65
    assert min(questions.values()) >= 20


def test_ids_and_texts_of_facts_and_questions_are_unique():
    data = load()
    rows = [row for thread in data.threads.values() for row in thread]
    assert len({row.id for row in rows}) == len(rows)
    facts = [row.text for row in rows if row.role == "user"]
    assert len(set(facts)) == len(facts)
    assert len({question.text for question in data.questions}) == len(data.questions)


def test_every_question_is_answered_by_messages_of_the_user_in_its_language():
    data = load()
    users = {row.id: thread for thread, rows in data.threads.items() for row in rows if row.role == "user"}
    for question in data.questions:
        assert question.evidence
        assert all(users[id].split("-")[0] == question.language for id in question.evidence)


def test_every_fact_is_answered_in_its_thread_by_one_line():
    for rows in load().threads.values():
        for position, row in enumerate(rows):
            if row.role == "user":
                reply = rows[position + 1]
                assert (reply.id, reply.role) == (f"{row.id}-reply", "assistant")
                assert "\n" not in reply.text


def test_a_fact_that_was_asked_for_stands_after_the_asking():
    rows = [row for thread in load().threads.values() for row in thread]
    asked = [(row, after) for row, after in pairwise(rows) if row.id.endswith("-ask")]
    assert len(asked) >= 40
    assert all(f"{after.id}-ask" == row.id and after.role == "user" for row, after in asked)


def test_the_set_is_the_same_at_each_loading():
    assert load() == load()
