"""A model for trying things out: no network, no AI. It tells what memory put into its prompt."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from agent_memory._json import dumps
from agent_memory.models._chunks import ChunkWriter, must_end
from agent_memory.models._example import example_of
from agent_memory.models._words import estimated_usage, last_user_message, system_text, words
from agent_memory.ports import (
    ModelChunk,
    ModelRequest,
    PromptFile,
    PromptMessage,
    PromptToolResult,
    ToolSpec,
)

LABEL: Final = "[demo model, no AI]"
WORKING_MEMORY_TOOL: Final = "updateWorkingMemory"
_QUOTE_CHARS: Final = 120
_TITLE_WORDS: Final = 7
_TITLE_CHARS: Final = 60
# How memory shows itself in system text; a test builds these texts with the real code.
_WORKING_MEMORY: Final = re.compile(r"<working_memory>\n(.*?)\n</working_memory>", re.DOTALL)
_NOTHING_KNOWN: Final = "(nothing is known yet)"
_TEMPLATE: Final = "Keep to this form:\n"
_RECALLED: Final = re.compile(
    r"<recalled_from_other_conversations>\n(.*?)\n</recalled_from_other_conversations>", re.DOTALL
)
_TRANSCRIPT_LINE: Final = re.compile(r"^\W*user\W*:\s*(.+)$", re.IGNORECASE | re.MULTILINE)
_FACTS: Final = (
    (re.compile(r"\bmy name is ([\w'’-]+)", re.IGNORECASE), "First Name"),
    (re.compile(r"\bi live in ([\w'’ -]+)", re.IGNORECASE), "Location"),
    (re.compile(r"\bi work as (?:an? )?([\w'’ -]+)", re.IGNORECASE), "Occupation"),
    (re.compile(r"\b(?:remember|note) that (.+)", re.IGNORECASE), "Facts"),
)


class DemoModel:
    """Answers from its prompt, the same prompt always with the same text, and says that it is a demo.

    It quotes the last user text and tells how many messages memory brought, what was recalled from other
    conversations and what working memory holds. "My name is …", "I live in …", "I work as …" and "remember that …"
    make it call the working memory tool where there is one. Asked for a title, it gives the first words of the
    conversation; asked for a structured answer, the simplest value that fits.

    Args:
        model_id: The name it goes by.
        word_delay_ms: Pause between words, so that a person sees the answer stream.
    """

    provider = "demo"

    def __init__(self, model_id: str = "demo", *, word_delay_ms: float = 0) -> None:
        self.model_id = model_id
        self._delay_s = word_delay_ms / 1000

    def stream(self, request: ModelRequest) -> Iterator[ModelChunk]:
        """Answer, word by word."""
        writer = ChunkWriter()
        yield writer.response(None, self.model_id)
        call = _working_memory_call(request)
        if call is not None:
            yield from self._call(writer, request, call)
            return
        text = _answer(request)
        usage = estimated_usage(request, text)
        for word in words(text):
            if must_end(request):
                yield from writer.finish("other", usage)
                return
            yield from writer.text(word)
            if self._delay_s:
                time.sleep(self._delay_s)
        yield from writer.finish("stop", usage)

    def _call(self, writer: ChunkWriter, request: ModelRequest, args: Mapping[str, Any]) -> Iterator[ModelChunk]:
        text = dumps(args)
        yield from writer.call_start(0, None, WORKING_MEMORY_TOOL)
        for piece in words(text):
            yield from writer.call_delta(0, piece)
        yield from writer.call_end(0)
        yield from writer.finish("tool-calls", estimated_usage(request, text))


def _answer(request: ModelRequest) -> str:
    place, user = last_user_message(request.messages)
    said = user.text.strip() if user else ""
    system = system_text(request.messages)
    if request.response_schema is not None:
        return dumps(example_of(request.response_schema, said))
    if not request.tools and "title" in system.lower() and said:
        return title_of(said)
    lines = [LABEL, *_results(request.messages)]
    lines.append(f'You said: "{_quote(said)}"' if said else "You sent no text.")
    lines.extend(_files(user))
    lines.append(_history(request.messages[:place]))
    for found in _RECALLED.findall(system):
        recalled = [line for line in found.splitlines() if line.strip() and not line.startswith("# ")]
        count = "1 message" if len(recalled) == 1 else f"{len(recalled)} messages"
        lines.append(f'Recalled from other conversations: {count}, "{_quote(html.unescape(" ".join(recalled)))}"')
    if (held := _held(system)) is not None:
        lines.append(f'Working memory holds: "{_quote(held)}"' if held else "Working memory is on and empty.")
    return "\n".join(lines)


def title_of(transcript: str) -> str:
    """A title of at most 7 words: the beginning of the first thing the user said in a transcript."""
    found = _TRANSCRIPT_LINE.search(transcript)
    first = " ".join((found[1] if found else transcript).split())
    title = " ".join(re.sub(r"[\"“”:]", "", first).split()[:_TITLE_WORDS])[:_TITLE_CHARS].rstrip(" .,;!?-")
    return title[:1].upper() + title[1:] if title else "Conversation"


def _history(before: tuple[PromptMessage, ...]) -> str:
    shown = [message for message in before if message.role in ("user", "assistant") and message.text.strip()]
    if not shown:
        return "I was shown no earlier messages."
    count = "1 earlier message" if len(shown) == 1 else f"{len(shown)} earlier messages"
    return f'I was shown {count}, the oldest ({shown[0].role}): "{_quote(shown[0].text)}"'


def _results(messages: tuple[PromptMessage, ...]) -> Iterator[str]:
    if messages and messages[-1].role == "tool":
        for part in messages[-1].content:
            if isinstance(part, PromptToolResult):
                word = "failed with" if part.is_error else "returned"
                yield f"The tool {part.tool_name} {word} {_quote(dumps(part.output))}"


def _files(user: PromptMessage | None) -> Iterator[str]:
    for part in user.content if user else ():
        if isinstance(part, PromptFile):
            size = "a link" if part.data is None else f"{len(part.data)} bytes"
            yield f"You attached a file: {part.filename or part.media_type}, {size}"


def _held(system: str) -> str | None:
    """What working memory holds, empty where it holds nothing, None where it is off."""
    found = _WORKING_MEMORY.search(system)
    if found is None:
        return None
    text = html.unescape(found[1]).strip()
    return "" if text == _NOTHING_KNOWN else text


def _working_memory_call(request: ModelRequest) -> dict[str, Any] | None:
    """Arguments for the working memory tool, where the user just told something to keep."""
    tool = next((tool for tool in request.tools if tool.name == WORKING_MEMORY_TOOL), None)
    if tool is None or request.tool_choice == "none" or not request.messages or request.messages[-1].role != "user":
        return None
    said = request.messages[-1].text
    facts = {field: match[1].strip() for pattern, field in _FACTS if (match := pattern.search(said))}
    return _arguments(tool, facts, request.messages) if facts else None


def _arguments(tool: ToolSpec, facts: dict[str, str], messages: tuple[PromptMessage, ...]) -> dict[str, Any] | None:
    fields: Mapping[str, Any] = tool.input_schema.get("properties") or {}
    if "newMemory" in fields:
        return {"newMemory": "\n".join(f"- {field}: {value}" for field, value in facts.items())}
    memory = fields.get("memory")
    if isinstance(memory, Mapping) and memory.get("properties"):
        found = {key: value for key in memory["properties"] for field, value in facts.items() if _fits(key, field)}
        return {"memory": found} if found else None
    templates = (m.text.partition(_TEMPLATE)[2].strip() for m in messages if m.role == "system")
    return {"memory": _filled(_held(system_text(messages)) or next(filter(None, templates), ""), facts)}


def _fits(key: str, field: str) -> bool:
    return re.sub(r"[^a-z]", "", key.lower()) in (field.replace(" ", "").lower(), field.split()[-1].lower())


def _filled(text: str, facts: dict[str, str]) -> str:
    for field, value in facts.items():
        line = re.compile(rf"^([ \t]*[-*][ \t]*\**{field}\**:\**).*$", re.MULTILINE)
        if line.search(text):
            text = line.sub(lambda match, value=value: f"{match[1]} {value}", text, count=1)  # type: ignore[misc]
        else:
            text = f"{text}\n- **{field}**: {value}".strip()
    return text


def _quote(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _QUOTE_CHARS else text[: _QUOTE_CHARS - 1] + "…"


__all__ = ["LABEL", "DemoModel", "title_of"]
