"""Counts tokens without a tokenizer: exact ones cost megabytes and differ from model to model."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from agent_memory._json import dumps
from agent_memory.messages.parts import (
    MISSING,
    ErrorPart,
    FilePart,
    ReasoningPart,
    TextPart,
    ToolInvocation,
    ToolPart,
)
from agent_memory.ports import (
    PromptFile,
    PromptMessage,
    PromptPart,
    PromptReasoning,
    PromptText,
    PromptToolCall,
    ToolSpec,
)

if TYPE_CHECKING:
    from agent_memory.messages import Message
    from agent_memory.messages.parts import Part

TOKENS_PER_MESSAGE: Final = 3.8  # role and separators of one message in a chat template
TOKENS_PER_CONVERSATION: Final = 24  # what frames the whole prompt
TOKENS_PER_IMAGE: Final = 765  # OpenAI's published cost of a 1024 x 1024 image in high detail
TOKENS_PER_MEDIA: Final = 258  # Google's published cost of one page or tile of other media
JSON_DISCOUNT: Final = 12  # quotes and braces of a call's JSON, which merge into their neighbours

_LETTERS_PER_TOKEN: Final = 5.2
_SYMBOLS_PER_TOKEN: Final = 1.7
_OTHER_LETTERS_PER_TOKEN: Final = 2.5
_IDEOGRAPHS_PER_TOKEN: Final = 1.0
_IDEOGRAPHS: Final = re.compile(
    "[\u2e80-\u2fff\u3040-\u30ff\u3100-\u312f\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef"
    "\U0001f000-\U0001faff\U00020000-\U0003ffff]"
)
_LATIN: Final = re.compile("[\\x00-\u024f\u2000-\u206f]+")
_LATIN_LETTERS: Final = re.compile(r"[A-Za-z\s\u00c0-\u024f]+")


@runtime_checkable
class TokenCounter(Protocol):
    """Counts the tokens of a text. A counter of one's own may be exact for one's own model."""

    def __call__(self, text: str) -> int:
        """Tokens of `text`, 0 for an empty one."""


def estimate_tokens(text: str) -> int:
    """About how many tokens `text` takes.

    Letters and spaces of Latin script count 1 token per 5.2 characters, digits and signs 1 per 1.7, letters of other
    scripts 1 per 2.5, ideographs, kana, hangul and emoji 1 each. The two Latin figures are a least-squares fit to
    OpenAI's o200k_base over a licence, chat, Python, compact JSON and documentation; measured there: -7 % to +5 %. For other scripts the
    figures lie between that encoding and the older cl100k_base, which differ by a factor of 1.5 to 3: Chinese +25 % and
    -28 %, Japanese +34 % and -3 %, Russian +45 % and -22 %, Arabic -7 % and -53 %. Bases of unbroken letters and
    digits (base64) are undercounted by more than half. 9 µs a kilobyte of ASCII, 56 µs of mixed scripts.
    """
    if not text:
        return 0
    latin, total = text, 0.0
    if not text.isascii():
        rest = _IDEOGRAPHS.sub("", text)
        latin = "".join(_LATIN.findall(rest))
        total = (len(text) - len(rest)) / _IDEOGRAPHS_PER_TOKEN + (len(rest) - len(latin)) / _OTHER_LETTERS_PER_TOKEN
    symbols = len(_LATIN_LETTERS.sub("", latin))
    return math.ceil(total + (len(latin) - symbols) / _LETTERS_PER_TOKEN + symbols / _SYMBOLS_PER_TOKEN)


def count_message(message: Message, counter: TokenCounter = estimate_tokens) -> int:
    """Tokens of a stored message, the message's own overhead included."""
    total = TOKENS_PER_MESSAGE + sum(_part(part, counter) for part in message.parts)
    if not message.parts and message.content.content:
        total += counter(message.content.content)
    if not any(isinstance(part, FilePart) for part in message.parts):
        total += sum(_media(a.content_type) for a in message.content.experimental_attachments or ())
    return math.ceil(total)


def count_prompt_message(message: PromptMessage, counter: TokenCounter = estimate_tokens) -> int:
    """Tokens of one message of a prompt, the message's own overhead included."""
    return math.ceil(TOKENS_PER_MESSAGE + sum(_prompt_part(part, counter) for part in message.content))


def count_prompt(
    messages: Iterable[PromptMessage], tools: Iterable[ToolSpec] = (), counter: TokenCounter = estimate_tokens
) -> int:
    """Tokens of a whole prompt: its messages, its tools and the conversation's overhead."""
    return (
        TOKENS_PER_CONVERSATION
        + sum(count_prompt_message(message, counter) for message in messages)
        + sum(count_tool(tool, counter) for tool in tools)
    )


def count_tool(tool: ToolSpec, counter: TokenCounter = estimate_tokens) -> int:
    """Tokens of a tool's name, description and schema."""
    return counter(tool.name) + counter(tool.description) + _json(tool.input_schema, counter)


def _part(part: Part, counter: TokenCounter) -> int:
    if isinstance(part, TextPart):
        return counter(part.text)
    if isinstance(part, ReasoningPart):
        return counter(part.text)
    if isinstance(part, FilePart):
        return _media(part.mime_type)
    if isinstance(part, ToolPart):
        return _invocation(part.invocation, counter)
    if isinstance(part, ErrorPart):
        return _json(part.error, counter)
    return 0  # sources, step boundaries and custom data are not shown to a model


def _invocation(call: ToolInvocation, counter: TokenCounter) -> int:
    total = counter(call.tool_name) + _json(call.args, counter)
    if call.state == "output-error" and call.error_text:
        return total + counter(call.error_text)
    if call.state == "output-denied" and call.approval and call.approval.reason:
        return total + counter(call.approval.reason)
    return total + _json(call.result, counter)


def _prompt_part(part: PromptPart, counter: TokenCounter) -> int:
    if isinstance(part, PromptText | PromptReasoning):
        return counter(part.text)
    if isinstance(part, PromptFile):
        return _media(part.media_type)
    if isinstance(part, PromptToolCall):
        return counter(part.tool_name) + _json(part.args, counter)
    return _json(part.output, counter)


def _media(media_type: str | None) -> int:
    return TOKENS_PER_IMAGE if (media_type or "").startswith("image/") else TOKENS_PER_MEDIA


def _json(value: Any, counter: TokenCounter) -> int:
    if value is MISSING or value is None:
        return 0
    if isinstance(value, str):
        return counter(value)
    return max(counter(dumps(value)) - JSON_DISCOUNT, 1)
