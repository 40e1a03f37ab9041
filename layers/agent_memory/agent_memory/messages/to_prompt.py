"""Stored messages as a model reads them: assistant and tool messages in turn, every call with its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from agent_memory.messages.legacy import all_parts, lone_attachments
from agent_memory.messages.message import Attachment, Message
from agent_memory.messages.parts import (
    MISSING,
    FilePart,
    Part,
    ReasoningPart,
    StepStartPart,
    TextPart,
    ToolInvocation,
    ToolPart,
)
from agent_memory.messages.tool_outcome import DENIAL_TEXT, as_text, model_output_of, untagged
from agent_memory.ports import (
    PromptFile,
    PromptMessage,
    PromptPart,
    PromptReasoning,
    PromptText,
    PromptToolCall,
    PromptToolResult,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

Origin = Literal["memory", "input", "response", "context", "system"]
ResolveFile = Callable[[FilePart | Attachment], PromptFile | None]
FAILURE_TEXT = "The tool failed"


def to_prompt(messages: Sequence[tuple[Message, Origin]], *, resolve_file: ResolveFile) -> tuple[PromptMessage, ...]:
    """The prompt that shows `messages`, each with where it came from.

    An assistant message becomes assistant and tool messages in turn, split at step boundaries and behind tool results.
    Calls without an outcome are left out and the rest of their message stays; failures and denials become error
    results. Sources, custom data and blank text are not shown. A message with nothing to show is left out.

    Args:
        messages: Messages in order, each with its origin.
        resolve_file: Gives the bytes or the URL of a file for the model, or None to leave it out.
    """
    prompt: list[PromptMessage] = []
    for message, origin in messages:
        if message.role == "assistant":
            prompt.extend(_assistant(message, origin, resolve_file))
        elif message.role == "system":
            # A stored system row could only have come from a caller: it never gets the say of an instruction.
            if origin != "memory" and message.text.strip():
                prompt.append(PromptMessage("system", (PromptText(message.text),), message.id, origin))
        else:
            content = tuple(_user_content(message, resolve_file))
            if content:
                prompt.append(PromptMessage("user", content, message.id, origin))
    return tuple(prompt)


def _user_content(message: Message, resolve_file: ResolveFile) -> Iterator[PromptPart]:
    for attachment in lone_attachments(message.content):
        if (file := resolve_file(attachment)) is not None:
            yield file
    for part in all_parts(message.content):
        if isinstance(part, TextPart):
            if part.text.strip():
                yield PromptText(part.text)
        elif isinstance(part, FilePart) and (file := resolve_file(part)) is not None:
            yield file


def _assistant(message: Message, origin: Origin, resolve_file: ResolveFile) -> Iterator[PromptMessage]:
    files = (resolve_file(attachment) for attachment in lone_attachments(message.content))
    said: list[PromptPart] = [file for file in files if file is not None]
    results: dict[str, PromptToolResult] = {}
    for part in all_parts(message.content):
        if isinstance(part, StepStartPart):
            yield from _step(message.id, origin, said, results)
            said, results = [], {}
        elif isinstance(part, ToolPart):
            result = _result(part)
            if result is None or result.tool_call_id in results:
                continue
            said.append(_call(part.invocation))
            results[result.tool_call_id] = result
        elif (shown := _shown(part, resolve_file)) is not None:
            if results:
                yield from _step(message.id, origin, said, results)
                said, results = [], {}
            said.append(shown)
    yield from _step(message.id, origin, said, results)


def _step(
    message_id: str, origin: Origin, said: list[PromptPart], results: dict[str, PromptToolResult]
) -> Iterator[PromptMessage]:
    # Reasoning alone says nothing, and providers refuse an answer that ends in it.
    if all(isinstance(part, PromptReasoning) for part in said):
        return
    yield PromptMessage("assistant", tuple(said), message_id, origin)
    if results:
        yield PromptMessage("tool", tuple(results.values()), message_id, origin)


def _shown(part: Part, resolve_file: ResolveFile) -> PromptPart | None:
    if isinstance(part, TextPart):
        return PromptText(part.text) if part.text.strip() else None
    if isinstance(part, ReasoningPart):
        if part.text.strip() or part.provider_metadata:
            return PromptReasoning(part.text, part.provider_metadata)
        return None
    if isinstance(part, FilePart):
        return resolve_file(part)
    return None


def _call(invocation: ToolInvocation) -> PromptToolCall:
    args = {} if invocation.args is MISSING or invocation.args is None else invocation.args
    return PromptToolCall(invocation.tool_call_id, invocation.tool_name, args)


def _result(part: ToolPart) -> PromptToolResult | None:
    invocation = part.invocation
    approval = invocation.approval
    denied = invocation.state == "approval-responded" and approval is not None and approval.approved is False
    if invocation.is_pending and not denied:
        return None
    output: object
    if denied or invocation.state == "output-denied":
        output, is_error = (approval.reason if approval else None) or DENIAL_TEXT, True
    elif invocation.state == "output-error":
        known = None if invocation.result is MISSING else invocation.result
        text = invocation.error_text or ("" if known is None else as_text(known))
        output, is_error = text or FAILURE_TEXT, True
    else:
        shown = model_output_of(part.provider_metadata)
        result = None if invocation.result is MISSING else invocation.result
        output, is_error = result if shown is None else untagged(shown), bool(invocation.is_error)
    return PromptToolResult(invocation.tool_call_id, invocation.tool_name, output, is_error)
