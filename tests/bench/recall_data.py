"""A planted data set for recall: invented facts about invented people, in three languages, with questions.

``recall.json`` holds, for each language, short answers and facts: a person, what the user says, and for half of them a
question. Some facts were asked for: the assistant's message has the name, and the user's, which has the fact, has not.
Every person has a fact of each kind, so that each fact stands among others about the same person and among others of
the same kind; a question shares the name with the first and, paraphrased, the meaning with the second.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from agent_memory.messages import Message
from tests.support.build import WHEN, stored

RESOURCE: Final = "ada"
NAMED_EVERY: Final = 4  # every fourth answer repeats the name: a distractor for words
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
    """The data set. Each fact is the user's message and an answer of one line, some with the assistant's asking."""
    languages = json.loads(Path(__file__).with_name("recall.json").read_text(encoding="utf-8"))
    data = Data({}, [])
    for language, content in languages.items():
        facts = content["facts"]
        for step in range(len(facts)):
            position = step * STRIDE % len(facts)
            thread = f"{language}-{step * THREADS[language] // len(facts)}"
            rows = data.threads.setdefault(thread, [])
            own = f"{language}-{position:03}"
            for id, role, text in _said(own, facts[position], content, step):
                when = WHEN + timedelta(days=len(data.threads), minutes=len(rows))
                rows.append(stored(id, role, text).replace(created_at=when, thread_id=thread, resource_id=RESOURCE))
            question = facts[position].get("question")
            if question is not None:
                data.questions.append(Question(language, question, (own,)))
    return data


def _said(own: str, fact: dict[str, Any], content: dict[str, Any], step: int) -> list[tuple[str, str, str]]:
    """Id, role and text of the messages of one fact."""
    replies = content["named_replies" if step % NAMED_EVERY == 0 else "plain_replies"]
    reply = (f"{own}-reply", "assistant", replies[step % len(replies)].format(name=fact["person"]))
    said = [(own, "user", fact["fact"]), reply]
    if fact.get("asked", False):
        ask = content["asks"][step % len(content["asks"])].format(name=fact["person"])
        said.insert(0, (f"{own}-ask", "assistant", ask))
    return said
