"""A planted data set for recall: invented facts about invented people, in three languages, with questions.

``recall.json`` holds, for each language, short answers and facts: a person, what the user says, and a question or null.
Every person has a fact of each kind, so that each fact stands among others about the same person and among others of
the same kind; a question shares the name with the first and, paraphrased, the meaning with the second.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from agent_memory.messages import Message
from tests.support.build import WHEN, stored

RESOURCE: Final = "ada"
THREADS: Final = {"en": 7, "zh": 7, "fr": 6}
STRIDE: Final = 29  # has no divisor in common with the number of facts: spreads neighbours of the file over the threads


@dataclass(frozen=True, slots=True)
class Question:
    """A question with the ids of the messages that answer it."""

    language: str
    text: str
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Data:
    """Messages by thread, oldest first, and the questions about them."""

    threads: dict[str, list[Message]]
    questions: list[Question]


def load() -> Data:
    """The data set. Each fact is two messages: the user's, and an answer of one line."""
    languages = json.loads(Path(__file__).with_name("recall.json").read_text(encoding="utf-8"))
    data = Data({}, [])
    for language, content in languages.items():
        facts, replies = content["facts"], content["replies"]
        for step in range(len(facts)):
            position = step * STRIDE % len(facts)
            person, fact, question = facts[position]
            thread = f"{language}-{step * THREADS[language] // len(facts)}"
            rows = data.threads.setdefault(thread, [])
            own = f"{language}-{position:03}"
            reply = replies[step % len(replies)].format(name=person)
            when = WHEN + timedelta(days=len(data.threads), minutes=len(rows))
            for id, role, text in ((own, "user", fact), (f"{own}-reply", "assistant", reply)):
                rows.append(stored(id, role, text).replace(created_at=when, thread_id=thread, resource_id=RESOURCE))
            if question is not None:
                data.questions.append(Question(language, question, (own,)))
    return data
