"""What the built-in models share: cutting text into words, and reading a prompt."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from agent_memory.ports import PromptMessage, Usage
from agent_memory.tokens import count_prompt, estimate_tokens

if TYPE_CHECKING:
    from agent_memory.ports import ModelRequest

_WORD: Final = re.compile(r"\s*\S+\s*")


def words(text: str) -> list[str]:
    """`text` in pieces of one word each; the space after a word stays with it. The pieces join to `text` again."""
    return _WORD.findall(text) or ([text] if text else [])


def last_user_message(messages: tuple[PromptMessage, ...]) -> tuple[int, PromptMessage | None]:
    """The last message of role user and its place; the prompt's length and None where there is none."""
    for place in range(len(messages) - 1, -1, -1):
        if messages[place].role == "user":
            return place, messages[place]
    return len(messages), None


def system_text(messages: tuple[PromptMessage, ...]) -> str:
    """All system text of a prompt, a blank line between messages."""
    return "\n\n".join(message.text for message in messages if message.role == "system")


def estimated_usage(request: ModelRequest, answer: str) -> Usage:
    """Tokens by estimate; never 0, so that what adds them up has something to show."""
    return Usage(max(count_prompt(request.messages, request.tools), 1), max(estimate_tokens(answer), 1))
