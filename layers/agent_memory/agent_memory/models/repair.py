"""Makes a prompt acceptable to a provider, for one request. Nothing here touches what is stored.

Pure functions over tuples of PromptMessage. `repaired` applies them in the one order in which they hold together:
tool calls are paired before empty messages go, roles are merged last.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from agent_memory._json import dumps
from agent_memory.ports import (
    PromptFile,
    PromptMessage,
    PromptPart,
    PromptReasoning,
    PromptText,
    PromptToolCall,
    PromptToolResult,
)

Messages = tuple[PromptMessage, ...]

NO_RESULT: Final = "No result: this call was not finished."
EMPTY_RESULT: Final = "(no output)"
EARLIER_NOT_SHOWN: Final = "(Earlier messages are not shown.)"
CONTINUE: Final = "(Continue.)"

_TOOL_CALL_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,40}")  # Anthropic's alphabet, OpenAI's length
_NOT_IN_TOOL_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")
_MAX_TOOL_NAME: Final = 64


@dataclass(frozen=True, slots=True)
class RepairedPrompt:
    """A prompt that keeps a provider's rules.

    `messages` are of role user, assistant and tool; they begin and end with one that is not the assistant's, no two
    neighbours share a role, a tool message answers exactly the calls of the assistant message before it, in their order,
    and a user message follows a tool message only where one was there.
    """

    system: tuple[str, ...]
    messages: Messages


def repaired(
    messages: Messages, *, provider: str, model_id: str, keep_reasoning: bool = False, tools: bool = True
) -> RepairedPrompt:
    """Apply all repairs.

    Args:
        messages: The prompt as memory and processors left it.
        provider: Whose provider metadata may be sent.
        model_id: Whose signatures of reasoning may be sent.
        keep_reasoning: Whether the provider takes its own signed reasoning back; otherwise none is sent.
        tools: Whether the request offers tools; without any, calls and results are told as text.
    """
    system, rest = lift_system(messages)
    rest = own_reasoning(rest, provider, model_id) if keep_reasoning else without_reasoning(rest)
    rest = pair_tools(rest)
    if not tools:
        rest = tools_as_text(rest)
    rest = drop_blanks(rest)
    return RepairedPrompt(system, framed_by_user(merge_roles(rest)))


def lift_system(messages: Messages) -> tuple[tuple[str, ...], Messages]:
    """System texts that are not blank, and the messages without them."""
    system = tuple(m.text for m in messages if m.role == "system" and m.text.strip())
    return system, tuple(m for m in messages if m.role != "system")


def own_reasoning(messages: Messages, provider: str, model_id: str) -> Messages:
    """Keep only reasoning that this model signed, with this provider's metadata alone."""
    return _rebuilt(messages, lambda part: _own(part, provider, model_id))


def without_reasoning(messages: Messages) -> Messages:
    """Leave out all reasoning."""
    return _rebuilt(messages, lambda part: None if isinstance(part, PromptReasoning) else part)


def pair_tools(messages: Messages) -> Messages:
    """Put each call's result into one tool message right behind the call's message.

    A result belongs to the nearest unanswered call of its id before it. Calls without one get a fixed stand-in,
    results without a call are dropped, a second call of an id in one message too. Ids that occur in two turns, or that
    a provider would refuse, are replaced by ones made from them, so equal prompts stay equal.
    """
    answers = _answers(messages)
    taken: set[str] = set()
    out: list[PromptMessage] = []
    for place, message in enumerate(messages):
        if message.role == "tool":
            continue
        if message.role != "assistant":
            out.append(replace(message, content=tuple(p for p in message.content if not _is_tool(p))))
            continue
        said: list[PromptPart] = []
        results: list[PromptPart] = []
        seen: set[str] = set()
        for part in message.content:
            if isinstance(part, PromptToolResult) or (isinstance(part, PromptToolCall) and part.tool_call_id in seen):
                continue
            if not isinstance(part, PromptToolCall):
                said.append(part)
                continue
            seen.add(part.tool_call_id)
            call_id, name = _fresh_id(part.tool_call_id, taken), tool_name(part.tool_name)
            args = part.args if isinstance(part.args, Mapping) else {}
            said.append(PromptToolCall(call_id, name, args))
            found = answers.get((place, part.tool_call_id))
            results.append(
                PromptToolResult(call_id, name, NO_RESULT, is_error=True)
                if found is None
                else PromptToolResult(call_id, name, _shown(found.output), found.is_error)
            )
        out.append(replace(message, content=tuple(said)))
        if results:
            out.append(PromptMessage("tool", tuple(results), message.message_id, message.origin))
    return tuple(out)


def tools_as_text(messages: Messages) -> Messages:
    """Tell calls and results as text, for a request that offers no tools."""
    out: list[PromptMessage] = []
    for message in messages:
        parts = tuple(PromptText(_told(part)) if _is_tool(part) else part for part in message.content)
        out.append(replace(message, role="user" if message.role == "tool" else message.role, content=parts))
    return tuple(out)


def drop_blanks(messages: Messages) -> Messages:
    """Leave out blank texts, files without bytes or address, and messages with nothing left to say."""
    kept = _rebuilt(messages, lambda part: None if _is_blank(part) else part)
    return tuple(m for m in kept if m.content and not all(isinstance(part, PromptReasoning) for part in m.content))


def merge_roles(messages: Messages) -> Messages:
    """Put neighbours of one role together."""
    out: list[PromptMessage] = []
    for message in messages:
        if out and out[-1].role == message.role:
            out[-1] = replace(out[-1], content=out[-1].content + message.content)
        else:
            out.append(message)
    return tuple(out)


def framed_by_user(messages: Messages) -> Messages:
    """Begin and end with a message that is not the assistant's: fixed texts of ours stand in where there is none."""
    if not messages or messages[0].role == "assistant":
        messages = (PromptMessage("user", (PromptText(EARLIER_NOT_SHOWN if messages else CONTINUE),)), *messages)
    if messages[-1].role == "assistant":
        messages = (*messages, PromptMessage("user", (PromptText(CONTINUE),)))
    return messages


def tool_name(name: str) -> str:
    """A tool's name in letters that every provider takes."""
    return _NOT_IN_TOOL_NAME.sub("_", name)[:_MAX_TOOL_NAME] or "tool"


def output_text(output: Any) -> str:
    """A tool's output as text; an empty one is a fixed text of ours."""
    text = output if isinstance(output, str) else "" if output is None else dumps(output)
    return text if text.strip() else EMPTY_RESULT


def _answers(messages: Messages) -> dict[tuple[int, str], PromptToolResult]:
    """Results by the place of their call's message and the call's id."""
    open_calls: dict[str, list[int]] = {}
    found: dict[tuple[int, str], PromptToolResult] = {}
    for place, message in enumerate(messages):
        for part in message.content:
            if isinstance(part, PromptToolCall) and message.role == "assistant":
                places = open_calls.setdefault(part.tool_call_id, [])
                if not places or places[-1] != place:
                    places.append(place)
            elif isinstance(part, PromptToolResult) and open_calls.get(part.tool_call_id):
                found[(open_calls[part.tool_call_id].pop(), part.tool_call_id)] = part
    return found


def _fresh_id(call_id: str, taken: set[str]) -> str:
    made, turn = call_id, 0
    while made in taken or not _TOOL_CALL_ID.fullmatch(made):
        made = "call_" + hashlib.sha256(f"{call_id}#{turn}".encode(errors="replace")).hexdigest()[:24]
        turn += 1
    taken.add(made)
    return made


def _own(part: PromptPart, provider: str, model_id: str) -> PromptPart | None:
    if not isinstance(part, PromptReasoning):
        return part
    metadata = part.provider_metadata
    own = metadata.get(provider) if isinstance(metadata, Mapping) else None
    if not isinstance(own, Mapping) or own.get("modelId") != model_id:
        return None
    return PromptReasoning(part.text, {provider: own})


def _rebuilt(messages: Messages, keep: Any) -> Messages:
    return tuple(
        replace(message, content=tuple(part for old in message.content if (part := keep(old)) is not None))
        for message in messages
    )


def _is_tool(part: PromptPart) -> bool:
    return isinstance(part, PromptToolCall | PromptToolResult)


def _is_blank(part: PromptPart) -> bool:
    if isinstance(part, PromptText):
        return not part.text.strip()
    if isinstance(part, PromptFile):
        return not part.data and not part.url
    return isinstance(part, PromptReasoning) and not part.text.strip() and not part.provider_metadata


def _shown(output: Any) -> Any:
    blank = output is None or output == [] or (isinstance(output, str) and not output.strip())
    return EMPTY_RESULT if blank else output


def _told(part: PromptPart) -> str:
    if isinstance(part, PromptToolCall):
        return f"[Called the tool {part.tool_name} with {dumps(part.args)}]"
    if isinstance(part, PromptToolResult):
        return (
            f"[The tool {part.tool_name} {'failed with' if part.is_error else 'returned'}: {output_text(part.output)}]"
        )
    return ""
