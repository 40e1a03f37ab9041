"""What a caller sends, as messages: strings, model messages, page messages and stored messages, in any mixture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from agent_memory import clock, ids
from agent_memory._json import EMPTY, FrozenDict, freeze
from agent_memory.errors import InvalidInputError
from agent_memory.ids import check_id
from agent_memory.messages.checks import check_json
from agent_memory.messages.folding import fold
from agent_memory.messages.incoming_part import found, options_of, read_part
from agent_memory.messages.legacy import LEGACY_FIELDS, all_parts
from agent_memory.messages.merge import merge_assistant
from agent_memory.messages.message import Content, Message, Role, content_from_json
from agent_memory.messages.parts import FilePart, Part, TextPart, invocation_from_json
from agent_memory.messages.tool_outcome import ToolOutcome

INPUT_ROLES: Final = ("user", "assistant", "system", "tool", "signal")

_KNOWN: Final = frozenset(
    {"id", "role", "content", "parts", "metadata", "createdAt", "threadId", "resourceId", "type", "format"}
    | {"providerMetadata", "providerOptions", "experimental_attachments", "toolInvocations", "reasoning", "annotations"}
)


@dataclass(frozen=True, slots=True)
class InputMessages:
    """The messages of a call.

    Attributes:
        messages: User, assistant and signal messages in order, with unique ids.
        system: Texts of system messages, which are no part of a conversation. Blank ones are left out.
        tool_outcomes: Outcomes told in tool messages whose call is not in this input.
        folded_outcomes: Outcomes told in tool messages and put into the assistant message of this input that has the
            call (`message_id`). Where that message has no id of its own, the call's stored copy is found by call id.
        given_ids: Ids that the caller chose; the others were made here.
    """

    messages: tuple[Message, ...] = ()
    system: tuple[str, ...] = ()
    tool_outcomes: tuple[ToolOutcome, ...] = ()
    folded_outcomes: tuple[ToolOutcome, ...] = ()
    given_ids: frozenset[str] = frozenset()


def messages_from_input(
    raw: Any,
    *,
    thread_id: str | None = None,
    resource_id: str | None = None,
    new_id: Callable[[], str] = ids.new_id,
    field: str = "messages",
    keep_dates: bool = False,
) -> InputMessages:
    """Read what a caller sent.

    Accepted: a string, a message, or a list of both. A message is a `Message`, a model message (``{role, content}``
    with text or parts), a page message of AI SDK 4 to 7 (``{id, role, parts}``) or a stored message.

    Args:
        raw: The value as parsed from JSON.
        thread_id: Thread of the messages. One that names another thread is refused.
        resource_id: Owner of the messages. One that names another owner is refused.
        new_id: Makes ids for messages without one; a blank id counts as none.
        field: How errors call the value.
        keep_dates: Keep `createdAt` of stored messages. Otherwise every message is dated now, because a caller's
            date must not move a message before stored ones.

    Raises:
        InvalidInputError: With the dotted path of the field, for anything that is none of the above.
    """
    items = list(raw) if isinstance(raw, list | tuple) else [raw]
    path = f"{field}." if isinstance(raw, list | tuple) else field
    reader = _Reader(thread_id, resource_id, new_id, keep_dates)
    for index, item in enumerate(items):
        reader.add(item, f"{path}{index}" if path.endswith(".") else path)
    return reader.finish()


class _Reader:
    def __init__(
        self, thread_id: str | None, resource_id: str | None, new_id: Callable[[], str], keep_dates: bool
    ) -> None:
        self._thread_id = thread_id
        self._resource_id = resource_id
        self._new_id = new_id
        self._keep_dates = keep_dates
        self._now = clock.now()
        self._messages: list[Message] = []
        self._places: dict[str, int] = {}
        self._system: list[str] = []
        self._outcomes: list[tuple[int, ToolOutcome]] = []
        self._given: set[str] = set()
        self._pieces: dict[int, list[Message]] = {}

    def add(self, raw: Any, path: str) -> None:
        if isinstance(raw, Message):
            self._put(self._own(raw, path), given=True)
            return
        check_json(raw, path)
        if isinstance(raw, str):
            content = Content(parts=(TextPart(raw),), content=raw)
            self._put(self._message(self._new_id(), "user", content), given=False)
            return
        if not isinstance(raw, dict):
            raise InvalidInputError(path, f"expected a string or a message, found {found(raw)}")
        role = raw.get("role")
        if not isinstance(role, str) or role not in INPUT_ROLES:
            raise InvalidInputError(f"{path}.role", f"expected one of {', '.join(INPUT_ROLES)}, found {_shown(role)}")
        message_id, given = self._id(raw.get("id"), f"{path}.id")
        outcomes: list[ToolOutcome] = []
        if role == "tool" and not isinstance(raw.get("content"), dict):
            self._read_tool_message(raw, path, outcomes)
        else:
            content = _normal(_content(raw, path, outcomes), path)
            message = self._message(message_id, "assistant" if role == "tool" else cast("Role", role), content)
            self._put(self._own(self._with_envelope(message, raw, path), path), given=given)
        self._outcomes.extend((len(self._messages), outcome) for outcome in outcomes)

    def finish(self) -> InputMessages:
        for place, pieces in self._pieces.items():
            self._messages[place] = merge_assistant(self._messages[place], *pieces)
        unmatched, folded = fold(self._messages, self._outcomes)
        return InputMessages(tuple(self._messages), tuple(self._system), unmatched, folded, frozenset(self._given))

    def _id(self, value: Any, path: str) -> tuple[str, bool]:
        if value is None or (isinstance(value, str) and not value.strip()):
            return self._new_id(), False
        return check_id(path, value), True

    def _message(self, message_id: str, role: Role, content: Content) -> Message:
        return Message(message_id, role, content, self._now, self._thread_id, self._resource_id)

    def _with_envelope(self, message: Message, raw: dict[str, Any], path: str) -> Message:
        extra = {key: value for key, value in raw.items() if key not in _KNOWN}
        changes: dict[str, Any] = {"extra": freeze(extra)} if extra else {}
        for key, name in (("threadId", "thread_id"), ("resourceId", "resource_id")):
            if raw.get(key) is not None:
                changes[name] = check_id(f"{path}.{key}", raw[key])
        kind = raw.get("type")
        if kind is not None:
            if not isinstance(kind, str):
                raise InvalidInputError(f"{path}.type", f"expected a string, found {found(kind)}")
            changes["type"] = kind
        if self._keep_dates and raw.get("createdAt") is not None:
            try:
                changes["created_at"] = clock.parse(raw["createdAt"])
            except (ValueError, TypeError, OverflowError):
                raise InvalidInputError(
                    f"{path}.createdAt", "expected an ISO 8601 date or milliseconds since 1970"
                ) from None
        return message.replace(**changes) if changes else message

    def _own(self, message: Message, path: str) -> Message:
        """The message in the call's thread; one that names another thread or owner is refused."""
        changes: dict[str, str] = {}
        for name, key, wanted in (
            ("thread_id", "threadId", self._thread_id),
            ("resource_id", "resourceId", self._resource_id),
        ):
            told = getattr(message, name)
            if wanted is not None and told != wanted:
                if told is not None:
                    raise InvalidInputError(f"{path}.{key}", f"expected the call's own {key} or none, found another")
                changes[name] = wanted
        return message.replace(**changes) if changes else message

    def _read_tool_message(self, raw: dict[str, Any], path: str, outcomes: list[ToolOutcome]) -> None:
        entries = raw["parts"] if isinstance(raw.get("parts"), list) else raw.get("content")
        if not isinstance(entries, list):
            raise InvalidInputError(f"{path}.content", f"expected a list of tool results, found {found(entries)}")
        for index, entry in enumerate(entries):
            part = read_part(entry, f"{path}.content.{index}")
            if not isinstance(part, ToolOutcome):
                raise InvalidInputError(
                    f"{path}.content.{index}.type", "expected tool-result or tool-approval-response in a tool message"
                )
            outcomes.append(part)

    def _put(self, message: Message, *, given: bool) -> None:
        if message.role == "system":
            if message.text.strip():
                self._system.append(message.text)
            return
        place = self._places.get(message.id)
        if place is not None:
            known = self._messages[place]
            if (known.role, known.content) == (message.role, message.content):
                return
            if known.role == message.role == "assistant":
                self._pieces.setdefault(place, []).append(message)
                return
            # Another text under an id that is taken: both are kept, and one row cannot hold them.
            message, given = message.replace(id=self._new_id()), False
        self._places[message.id] = len(self._messages)
        self._messages.append(message)
        if given:
            self._given.add(message.id)


def _content(raw: dict[str, Any], path: str, outcomes: list[ToolOutcome]) -> Content:
    body, parts = raw.get("content"), raw.get("parts")
    if isinstance(body, dict):
        return _stored_content(body, f"{path}.content", outcomes)
    if parts is not None and not isinstance(parts, list):
        raise InvalidInputError(f"{path}.parts", f"expected a list, found {found(parts)}")
    attached = raw.get("experimental_attachments")
    if body is None and parts is None and attached is None and raw.get("toolInvocations") is None:
        raise InvalidInputError(f"{path}.content", "expected text, a list of parts or an object, found nothing")
    if body is not None and not isinstance(body, str | list):
        raise InvalidInputError(f"{path}.content", f"expected text, a list of parts or an object, found {found(body)}")
    text = body if isinstance(body, str) else None
    if parts is not None:
        read = _parts(parts, f"{path}.parts", outcomes)
    elif isinstance(body, list):
        read = _parts(body, f"{path}.content", outcomes)
    else:
        read = ()
    extra = {key: raw[key] for key in ("toolInvocations", "reasoning", "annotations") if raw.get(key) is not None}
    metadata = raw.get("metadata")
    beside = {"metadata": metadata, "experimental_attachments": attached}
    head = Content() if metadata is None and attached is None else content_from_json(beside, path)
    return Content(
        parts=read,
        content=text or None if parts is not None else text,
        metadata=head.metadata,
        experimental_attachments=head.experimental_attachments,
        provider_metadata=options_of(raw),
        extra=freeze(extra) if extra else EMPTY,
    )


def _stored_content(body: dict[str, Any], path: str, outcomes: list[ToolOutcome]) -> Content:
    parts = body.get("parts", [])
    if not isinstance(parts, list):
        raise InvalidInputError(f"{path}.parts", f"expected a list, found {found(parts)}")
    content = content_from_json({key: value for key, value in body.items() if key != "parts"}, path)
    return replace(content, parts=_parts(parts, f"{path}.parts", outcomes))


def _parts(raw: list[Any], path: str, outcomes: list[ToolOutcome]) -> tuple[Part, ...]:
    parts: list[Part] = []
    for index, item in enumerate(raw):
        part = read_part(item, f"{path}.{index}")
        if isinstance(part, ToolOutcome):
            outcomes.append(part)
        else:
            parts.append(part)
    return tuple(parts)


def _normal(content: Content, path: str) -> Content:
    """The content with everything in its parts, and each file in one place only."""
    calls = content.extra.get("toolInvocations")
    if calls is not None:
        if not isinstance(calls, list):
            raise InvalidInputError(f"{path}.toolInvocations", f"expected a list, found {found(calls)}")
        for index, call in enumerate(calls):
            if not isinstance(call, dict):
                raise InvalidInputError(f"{path}.toolInvocations.{index}", f"expected an object, found {found(call)}")
            invocation_from_json(call, f"{path}.toolInvocations.{index}")
    parts = all_parts(content)
    if parts is not content.parts:
        content = replace(content, parts=parts)
    if not LEGACY_FIELDS.isdisjoint(content.extra):
        extra = {key: value for key, value in content.extra.items() if key not in LEGACY_FIELDS}
        content = replace(content, extra=FrozenDict(extra) if extra else EMPTY)
    return _files_once(content) if content.experimental_attachments else content


def _files_once(content: Content) -> Content:
    attachments = content.experimental_attachments or ()
    twins = {item.url: item for item in attachments}
    parts = tuple(
        replace(part, mime_type=part.mime_type or twin.content_type, filename=part.filename or twin.name)
        if isinstance(part, FilePart) and (twin := twins.get(part.data)) is not None
        else part
        for part in content.parts
    )
    told = {part.data for part in parts if isinstance(part, FilePart)}
    kept = tuple(item for item in attachments if item.url not in told)
    return replace(content, parts=parts, experimental_attachments=kept or None)


def _shown(role: Any) -> str:
    return repr(role[:40]) if isinstance(role, str) else found(role)


__all__ = ["InputMessages", "ToolOutcome", "messages_from_input"]
