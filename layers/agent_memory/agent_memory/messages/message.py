"""A message as it is stored and as it travels (format 2)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar, Final, Literal, cast, get_args

from agent_memory import clock
from agent_memory._json import EMPTY, FrozenDict, freeze
from agent_memory.errors import InvalidInputError
from agent_memory.ids import check_id
from agent_memory.messages.parts import Part, TextPart, part_from_json, part_to_json

Role = Literal["user", "assistant", "system", "signal"]
ROLES: Final[tuple[str, ...]] = get_args(Role)
FORMAT: Final = 2


@dataclass(frozen=True, slots=True)
class Attachment:
    """One entry of `experimental_attachments` (the place where AI SDK 4 puts files)."""

    url: str
    content_type: str | None = None
    name: str | None = None
    extra: FrozenDict = EMPTY

    _names: ClassVar[dict[str, str]] = {"url": "url", "contentType": "content_type", "name": "name"}


@dataclass(frozen=True, slots=True)
class Content:
    """What a message says.

    `parts` is the truth. `content` is the plain text some clients send beside it. `extra` holds the fields this
    version has no name for (``toolInvocations``, ``reasoning``, ``annotations``…), unchanged.
    """

    parts: tuple[Part, ...] = ()
    content: str | None = None
    metadata: FrozenDict | None = None
    experimental_attachments: tuple[Attachment, ...] | None = None
    provider_metadata: Any = None
    extra: FrozenDict = EMPTY


@dataclass(frozen=True, slots=True)
class Message:
    """One message. Unchangeable: `replace`, `with_parts` and `with_metadata` return a new one.

    `expires_at` is when it goes away by itself, in whole seconds once it is stored; None: with its thread. `seq` is the place
    in its thread (dense, from the thread's first number) and `version` counts changes of the stored row; both are None
    until storage has given them.
    """

    id: str
    role: Role
    content: Content
    created_at: datetime
    thread_id: str | None = None
    resource_id: str | None = None
    type: str | None = None
    extra: FrozenDict = EMPTY
    expires_at: datetime | None = None
    seq: int | None = None
    version: int | None = None

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts, in order."""
        return self.content.parts

    @property
    def metadata(self) -> FrozenDict:
        """The application's metadata on this message (`content.metadata`), empty where there is none."""
        return self.content.metadata or EMPTY

    @property
    def text(self) -> str:
        """The text parts joined without a separator; `content.content` where there is no text part."""
        texts = [part.text for part in self.content.parts if isinstance(part, TextPart)]
        return "".join(texts) if texts else (self.content.content or "")

    def replace(self, **changes: Any) -> Message:
        """A copy with other top-level fields."""
        return replace(self, **changes)

    def with_parts(self, parts: Any) -> Message:
        """A copy with other parts; the plain-text copy follows them."""
        parts = tuple(parts)
        text = self.content.content
        if text is not None:
            text = "".join(part.text for part in parts if isinstance(part, TextPart))
        return replace(self, content=replace(self.content, parts=parts, content=text))

    def with_content(self, **changes: Any) -> Message:
        """A copy with other fields of `content`."""
        return replace(self, content=replace(self.content, **changes))

    def with_metadata(self, **changes: Any) -> Message:
        """A copy whose metadata has these keys set; None removes a key."""
        merged = {**self.metadata, **changes}
        kept = {key: value for key, value in merged.items() if value is not None or key not in changes}
        return self.with_content(metadata=freeze(kept) if kept else None)

    @staticmethod
    def text_message(role: Role, text: str, *, id: str, created_at: datetime | None = None, **fields: Any) -> Message:
        """A message with one text part."""
        content = Content(parts=(TextPart(text),), content=text)
        return Message(id=id, role=role, content=content, created_at=created_at or clock.now(), **fields)


_CONTENT_KEYS = frozenset({"format", "parts", "content", "metadata", "experimental_attachments", "providerMetadata"})
_MESSAGE_KEYS = frozenset({"id", "role", "content", "createdAt", "expiresAt", "threadId", "resourceId", "type"})


def content_from_json(raw: Any, path: str = "content") -> Content:
    """Read content from its wire form (an object of format 2). Raises InvalidInputError that names the field."""
    if not isinstance(raw, dict):
        raise InvalidInputError(path, f"expected an object, found {type(raw).__name__}")
    if raw.get("format", FORMAT) != FORMAT:
        raise InvalidInputError(f"{path}.format", f"expected {FORMAT}, found {raw['format']!r:.20}")
    parts = raw.get("parts", [])
    if not isinstance(parts, list):
        raise InvalidInputError(f"{path}.parts", f"expected a list, found {type(parts).__name__}")
    text = raw.get("content")
    if text is not None and not isinstance(text, str):
        raise InvalidInputError(f"{path}.content", f"expected a string, found {type(text).__name__}")
    metadata = raw.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise InvalidInputError(f"{path}.metadata", f"expected an object, found {type(metadata).__name__}")
    attachments = raw.get("experimental_attachments")
    if attachments is not None and not isinstance(attachments, list):
        raise InvalidInputError(
            f"{path}.experimental_attachments", f"expected a list, found {type(attachments).__name__}"
        )
    extra = {key: value for key, value in raw.items() if key not in _CONTENT_KEYS}
    return Content(
        parts=tuple(part_from_json(part, f"{path}.parts.{index}") for index, part in enumerate(parts)),
        content=text,
        metadata=None if metadata is None else freeze(metadata),
        experimental_attachments=None
        if attachments is None
        else tuple(
            _attachment_from_json(item, f"{path}.experimental_attachments.{index}")
            for index, item in enumerate(attachments)
        ),
        provider_metadata=freeze(raw.get("providerMetadata")),
        extra=freeze(extra) if extra else EMPTY,
    )


def content_to_json(content: Content) -> dict[str, Any]:
    """The wire form of content."""
    out: dict[str, Any] = {"format": FORMAT, "parts": [part_to_json(part) for part in content.parts]}
    if content.content is not None:
        out["content"] = content.content
    if content.metadata is not None:
        out["metadata"] = content.metadata
    if content.experimental_attachments is not None:
        out["experimental_attachments"] = [_attachment_to_json(item) for item in content.experimental_attachments]
    if content.provider_metadata is not None:
        out["providerMetadata"] = content.provider_metadata
    out.update(content.extra)
    return out


def message_from_json(raw: Any, path: str = "message") -> Message:
    """Read a stored-shape message from its wire form.

    `content` may be the object of format 2 or a plain string, which becomes one text part. A missing `createdAt`
    is the current time. The caller fills in a missing `id` before. Raises InvalidInputError that names the field.
    """
    if not isinstance(raw, dict):
        raise InvalidInputError(path, f"expected an object, found {type(raw).__name__}")
    role = "assistant" if raw.get("role") == "tool" else raw.get("role")
    if role not in ROLES:
        raise InvalidInputError(f"{path}.role", f"expected one of {', '.join(ROLES)}, found {raw.get('role')!r:.40}")
    body = raw.get("content")
    if isinstance(body, str):
        content = Content(parts=(TextPart(body),), content=body)
    else:
        content = content_from_json(body, f"{path}.content")
    for key in ("threadId", "resourceId"):
        if raw.get(key) is not None:
            check_id(f"{path}.{key}", raw[key])
    kind = raw.get("type")
    if kind is not None and not isinstance(kind, str):
        raise InvalidInputError(f"{path}.type", f"expected a string, found {type(kind).__name__}")
    dates = {key: _date(raw.get(key), f"{path}.{key}") for key in ("createdAt", "expiresAt")}
    extra = {key: value for key, value in raw.items() if key not in _MESSAGE_KEYS}
    return Message(
        id=check_id(f"{path}.id", raw.get("id")),
        role=cast("Role", role),
        content=content,
        created_at=dates["createdAt"] or clock.now(),
        expires_at=dates["expiresAt"],
        thread_id=raw.get("threadId"),
        resource_id=raw.get("resourceId"),
        type=kind,
        extra=freeze(extra) if extra else EMPTY,
    )


def message_to_json(message: Message) -> dict[str, Any]:
    """The wire form of a message (`seq` and `version` are storage's own and stay out)."""
    out: dict[str, Any] = {
        "id": message.id,
        "role": message.role,
        "createdAt": clock.to_iso(message.created_at),
        "content": content_to_json(message.content),
    }
    if message.thread_id is not None:
        out["threadId"] = message.thread_id
    if message.resource_id is not None:
        out["resourceId"] = message.resource_id
    if message.type is not None:
        out["type"] = message.type
    if message.expires_at is not None:
        out["expiresAt"] = clock.to_iso(message.expires_at)
    out.update(message.extra)
    return out


def _date(value: Any, path: str) -> datetime | None:
    try:
        return None if value is None else clock.parse(value)
    except (ValueError, TypeError, OverflowError):
        raise InvalidInputError(path, "expected an ISO 8601 date or milliseconds since 1970") from None


def _attachment_from_json(raw: Any, path: str) -> Attachment:
    if not isinstance(raw, dict) or not isinstance(raw.get("url"), str):
        raise InvalidInputError(f"{path}.url", "expected a string")
    known = {name: raw[key] for key, name in Attachment._names.items() if isinstance(raw.get(key), str)}
    extra = {key: value for key, value in raw.items() if Attachment._names.get(key) not in known}
    return Attachment(**known, extra=freeze(extra) if extra else EMPTY)


def _attachment_to_json(attachment: Attachment) -> dict[str, Any]:
    out = {key: value for key, name in Attachment._names.items() if (value := getattr(attachment, name)) is not None}
    out.update(attachment.extra)
    return out


__all__ = [
    "FORMAT",
    "ROLES",
    "Attachment",
    "Content",
    "Message",
    "Role",
    "content_from_json",
    "content_to_json",
    "message_from_json",
    "message_to_json",
]
