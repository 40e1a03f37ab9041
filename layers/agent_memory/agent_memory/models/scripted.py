"""A model that does as the last user message says, for black-box checks of a server without a provider."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from agent_memory._json import dumps
from agent_memory.errors import ModelError
from agent_memory.models._chunks import ChunkWriter, must_end
from agent_memory.models._words import estimated_usage, last_user_message, system_text, words
from agent_memory.ports import (
    ModelChunk,
    ModelRequest,
    PromptFile,
    PromptMessage,
    PromptToolCall,
    PromptToolResult,
)

THOUGHT: Final = "thinking about it"
_COMMAND: Final = re.compile(r"\s*(\S+)(?:\s(.*))?", re.DOTALL)
_ARGUMENT_PIECE: Final = 6  # characters of a call's JSON per delta
_POLL_S: Final = 0.05  # how long `slow` sleeps before it asks again whether to stop


class ScriptedModel:
    """Answers by command: the first word of the last user text says what to do.

    ======================  ==============================================================================
    ``say <text>``          the text, one delta a word
    ``think <text>``        reasoning, then the text
    ``tool <name> <json>``  a call of that tool, its arguments streamed in pieces, under a fresh id
    ``recall``              ``SEEN`` and a JSON list of the prompt's messages before that user message
    ``system``              all system text of the prompt
    ``files``               ``FILES`` and a JSON list of media type and size of the user message's files
    ``nonce``               ``nonce-`` and something never given before
    ``slow <n> <ms>``       n words, that many milliseconds apart
    ``fail <text>``         the call fails with that text
    anything else           ``Echo:`` and the text
    ======================  ==============================================================================

    After a tool message it tells each result instead. Usage is estimated and positive.
    """

    provider = "scripted"

    def __init__(self, model_id: str = "conformance") -> None:
        self.model_id = model_id
        self._commands: dict[str, Callable[[ModelRequest, str], str]] = {
            "say": lambda _request, rest: rest,
            "recall": lambda request, _rest: _seen(request.messages),
            "system": lambda request, _rest: system_text(request.messages),
            "files": lambda request, _rest: _files(request.messages),
            "nonce": lambda _request, _rest: f"nonce-{secrets.token_hex(8)}",
        }

    def stream(self, request: ModelRequest) -> Iterator[ModelChunk]:
        """Do what the prompt's last message says. Raises ModelError for ``fail``."""
        writer = ChunkWriter()
        messages = request.messages
        if messages and messages[-1].role == "tool":
            return self._say(writer, request, _told(messages[-1]))
        text = (last_user_message(messages)[1] or PromptMessage("user", ())).text
        found = _COMMAND.fullmatch(text)
        command, rest = (found[1], found[2] or "") if found else ("", "")
        match command:
            case "fail":
                raise ModelError(rest)
            case "think":
                return self._say(writer, request, rest, thought=THOUGHT)
            case "tool":
                return self._call(writer, request, rest)
            case "slow":
                return self._slow(writer, request, rest)
            case _:
                answer = self._commands.get(command)
                return self._say(writer, request, answer(request, rest) if answer else f"Echo: {text}")

    def _say(self, writer: ChunkWriter, request: ModelRequest, text: str, *, thought: str = "") -> Iterator[ModelChunk]:
        usage = estimated_usage(request, thought + text)
        yield writer.response(None, self.model_id)
        for kind, content in ((writer.reasoning, thought), (writer.text, text)):
            for word in words(content):
                if must_end(request):
                    yield from writer.finish("other", usage)
                    return
                yield from kind(word)
        yield from writer.finish("stop", usage)

    def _call(self, writer: ChunkWriter, request: ModelRequest, rest: str) -> Iterator[ModelChunk]:
        name, arguments = (*rest.split(maxsplit=1), "", "")[:2]
        arguments = arguments.strip() or "{}"
        usage = estimated_usage(request, name + arguments)
        yield writer.response(None, self.model_id)
        yield from writer.call_start(name, None, name)
        size = min(_ARGUMENT_PIECE, max(len(arguments) // 2, 1))
        for start in range(0, len(arguments), size):
            if must_end(request):
                yield from writer.finish("other", usage)
                return
            yield from writer.call_delta(name, arguments[start : start + size])
        yield from writer.call_end(name)
        yield from writer.finish("tool-calls", usage)

    def _slow(self, writer: ChunkWriter, request: ModelRequest, rest: str) -> Iterator[ModelChunk]:
        try:
            count, pause_ms = (int(number) for number in rest.split())
        except ValueError:
            raise ModelError("expected `slow <words> <milliseconds>`, two whole numbers") from None
        said = [f"w{number}" + (" " if number < count else "") for number in range(1, count + 1)]
        usage = estimated_usage(request, "".join(said))
        yield writer.response(None, self.model_id)
        for number, word in enumerate(said):
            if _stopped_while_waiting(request, pause_ms / 1000 if number else 0.0):
                yield from writer.finish("other", usage)
                return
            yield from writer.text(word)
        yield from writer.finish("stop", usage)


def _stopped_while_waiting(request: ModelRequest, wait_s: float) -> bool:
    until = time.monotonic() + wait_s
    while not must_end(request):
        left = until - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(left, _POLL_S))
    return True


def _told(message: PromptMessage) -> str:
    return "; ".join(
        f"Tool {part.tool_name} returned {dumps(part.output)}"
        for part in message.content
        if isinstance(part, PromptToolResult)
    )


def _seen(messages: tuple[PromptMessage, ...]) -> str:
    place, _ = last_user_message(messages)
    return "SEEN " + dumps([_shown(message) for message in messages[:place] if message.role != "system"])


def _shown(message: PromptMessage) -> str:
    if message.role == "tool":
        names = (part.tool_name for part in message.content if isinstance(part, PromptToolCall | PromptToolResult))
        return f"tool:{','.join(names)}"
    return f"{message.role}:{message.text}"


def _files(messages: tuple[PromptMessage, ...]) -> str:
    _, message = last_user_message(messages)
    files = [part for part in (message.content if message else ()) if isinstance(part, PromptFile)]
    return "FILES " + dumps([{"mediaType": file.media_type, "size": _size(file)} for file in files])


def _size(file: PromptFile) -> Any:
    """Bytes of a file, or None for a file elsewhere, which only its server can tell."""
    return None if file.data is None else len(file.data)
