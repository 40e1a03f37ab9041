"""Items of the threads and messages tables: from the library's types and back."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Literal, cast

from agent_memory import clock
from agent_memory._json import EMPTY, FrozenDict, dumps, freeze, loads
from agent_memory.aws.dynamodb import keys
from agent_memory.aws.dynamodb.values import Item, from_item, to_item
from agent_memory.errors import InvalidInputError, StorageError
from agent_memory.messages.message import Content, Message, Role, content_from_json, content_to_json
from agent_memory.messages.parts import TextPart
from agent_memory.ports import Thread, ThreadHeader, ThreadUsage, TitleSource, TurnRecord

HeaderState = Literal["live", "building", "deleted"]

TURN_FIELDS: Final = {"running": "r", "finished": "f", "failed": "x"}
_TURN_STATES: Final[dict[str, Any]] = {short: state for state, short in TURN_FIELDS.items()}


# ------------------------------------------------------------------------------------------------------------ headers


@dataclass(frozen=True, slots=True)
class StoredHeader:
    """A header item as it is, tombstones and threads being built included.

    `hold` names an import that writes rows at `next_seq` and above, until `hold_until` (milliseconds since 1970).
    `until` is when a building header may be taken over, or when it was deleted. `revision` counts changes of rows,
    `edits` those of them that did more than add rows at the end.
    """

    header: ThreadHeader
    state: HeaderState
    revision: int
    edits: int
    hold: str | None
    hold_until: int
    until: int
    item: Item

    def is_live(self, now: datetime) -> bool:
        """Whether callers may see the thread at `now`."""
        expires_at = self.header.thread.expires_at
        return self.state == "live" and (expires_at is None or expires_at > now)

    def is_building(self, now: datetime) -> bool:
        """Whether a clone is filling the thread. One that has not ended in time counts as dead."""
        return self.state == "building" and self.until > clock.to_ms(now)

    def is_held(self, now: datetime) -> bool:
        """Whether an import is writing rows at `next_seq` and above."""
        return self.hold is not None and self.hold_until > clock.to_ms(now)


def new_incarnation() -> str:
    """A name for one life of a thread."""
    return os.urandom(4).hex()


def read_header(item: Item) -> StoredHeader:
    """A header from its item. Raises StorageError for an item of a later schema."""
    _check_version(item)
    fields = from_item(item)
    expires_at = fields.get("expires_at")
    last_created = fields.get("last_created")
    # Those of a thread that is being built are kept out of the list indexes.
    created_at = _date(fields.get("created_key", fields.get("hidden_created"))) or clock.EPOCH
    thread = Thread(
        id=keys.thread_of(fields["sk"]),
        resource_id=keys.resource_of(fields["pk"]),
        created_at=created_at,
        updated_at=_date(fields.get("updated_key", fields.get("hidden_updated"))) or created_at,
        title=fields.get("title", ""),
        metadata=read_json(fields.get("metadata")),
        expires_at=None if expires_at is None else clock.from_ms(expires_at),
        usage=_usage(fields),
    )
    header = ThreadHeader(
        thread=thread,
        next_seq=fields["next_seq"],
        first_seq=fields["first_seq"],
        message_count=fields.get("message_count", 0),
        incarnation=fields["incarnation"],
        title_source=cast("TitleSource", fields.get("title_source", "none")),
        last_created_at=None if last_created is None else clock.from_ms(last_created),
        metadata_version=fields.get("metadata_version", 0),
        turns=tuple(sorted(map(read_turn, fields.get("turns", {}).values()), key=lambda turn: turn.started_at)),
        rows_expire=fields.get("rows_expire", False),
        in_date_order=not fields.get("out_of_order", False),
        idle_s=fields.get("idle_s"),
    )
    return StoredHeader(
        header=header,
        state=fields["state"],
        revision=fields.get("revision", 0),
        edits=fields.get("edits", 0),
        hold=fields.get("hold"),
        hold_until=fields.get("hold_until", 0),
        until=fields.get("until", 0),
        item=item,
    )


USAGE_FIELDS: Final = {"tin": "input_tokens", "tout": "output_tokens", "temb": "embedding_tokens"}


def _usage(fields: Mapping[str, Any]) -> ThreadUsage | None:
    found = {name: fields[short] for short, name in USAGE_FIELDS.items() if short in fields}
    return ThreadUsage(**found) if found else None


def write_usage(usage: ThreadUsage | None) -> dict[str, Any]:
    """Attributes of a header for a sum of tokens; those that are 0 are left out."""
    if usage is None:
        return {}
    counts = {short: getattr(usage, name) for short, name in USAGE_FIELDS.items()}
    return {short: count for short, count in counts.items() if count}


def read_thread(item: Item) -> Thread:
    """A thread from a row of one of the list indexes."""
    fields = from_item(item)
    expires_at = fields.get("expires_at")
    return Thread(
        id=keys.thread_of(fields["sk"]),
        resource_id=keys.resource_of(fields["pk"]),
        created_at=keys.date_of(fields["created_key"]),
        updated_at=keys.date_of(fields["updated_key"]),
        title=fields.get("title", ""),
        metadata=read_json(fields.get("metadata")),
        expires_at=None if expires_at is None else clock.from_ms(expires_at),
    )


def read_turn(entry: Mapping[str, Any]) -> TurnRecord:
    """A turn record from its entry in the header."""
    return TurnRecord(
        key=entry["k"],
        state=_TURN_STATES[entry["s"]],
        run_id=entry["r"],
        started_at=entry["b"],
        deadline=entry.get("d", 0),
        answer_id=entry.get("a"),
        user_ids=tuple(entry.get("u", ())),
    )


def write_turn(turn: TurnRecord) -> dict[str, Any]:
    """The entry of a turn record: one-letter names, because every byte of a header is written on every turn."""
    entry: dict[str, Any] = {
        "k": turn.key,
        "s": TURN_FIELDS[turn.state],
        "r": turn.run_id,
        "b": turn.started_at,
    }
    if turn.state == "running":
        entry["d"] = turn.deadline
    if turn.answer_id is not None:
        entry["a"] = turn.answer_id
    if turn.user_ids:
        entry["u"] = list(turn.user_ids)
    return entry


# ----------------------------------------------------------------------------------------------------------- messages


@dataclass(frozen=True, slots=True)
class Body:
    """What a message says, as it is stored: JSON texts."""

    content: str
    metadata: str | None
    extra: str | None

    @property
    def size(self) -> int:
        """UTF-8 bytes."""
        return sum(len(text.encode()) for text in (self.content, self.metadata, self.extra) if text)

    def as_bytes(self) -> bytes:
        """The object that an overflow body is kept in."""
        return dumps({"content": self.content, "metadata": self.metadata, "extra": self.extra}).encode()

    @staticmethod
    def from_bytes(data: bytes) -> Body:
        """The reverse of `as_bytes`."""
        raw = loads(data)
        return Body(raw["content"], raw["metadata"], raw["extra"])


def write_body(message: Message) -> Body:
    """The texts of a message. The plain-text copy of its parts is left out where it can be derived from them.

    Raises InvalidInputError for values that JSON has no name for.
    """
    raw = content_to_json(message.content)
    raw.pop("metadata", None)
    raw.pop("format", None)
    text = message.content.content
    if text is None:
        raw["content"] = None
    elif text == _joined(message.content):
        raw.pop("content", None)
    return Body(
        content=write_json(f"message {message.id}", raw),
        metadata=None if message.content.metadata is None else write_json("metadata", message.content.metadata),
        extra=write_json("message", message.extra) if message.extra else None,
    )


def message_item(message: Message, body: Body | None, files: Sequence[str] = ()) -> dict[str, Any]:
    """Fields of a message's item without its key; those of `body` too, where it is kept in the item.

    `files` are the names of the files that the message refers to.
    """
    fields: dict[str, Any] = {
        "v": keys.SCHEMA,
        "mid": message.id,
        "ver": message.version or 1,
        "role": message.role,
        "created": clock.to_ms(message.created_at),
        "kind": message.type,
        "files": list(files) or None,
    }
    if body is not None:
        fields |= {"content": body.content, "metadata": body.metadata, "extra": body.extra}
    return fields


CHANGEABLE: Final = ("role", "created", "kind", "content", "metadata", "extra", "body", "body_bytes", "files")
"""Fields of a message's item that a change of the message may set or remove."""


def read_message(item: Item, overflow: bytes | None = None) -> Message:
    """A message from its item, and its overflow body where it has one. Raises StorageError for a later schema."""
    _check_version(item)
    fields = from_item({key: attribute for key, attribute in item.items() if key not in ("content", "metadata")})
    if overflow is not None:
        body = Body.from_bytes(overflow)
    else:
        body = Body(item["content"]["S"], item.get("metadata", {}).get("S"), fields.get("extra"))
    raw = loads(body.content)
    derived = "content" not in raw
    content: Content = content_from_json(raw)
    if derived:
        content = replace(content, content=_joined(content))
    if body.metadata is not None:
        content = replace(content, metadata=freeze(loads(body.metadata)))
    place = keys.owner_and_thread(fields["pk"], rid=fields.get("rid"), tid=fields.get("tid"))
    if place is None:
        raise StorageError(f"message {fields['mid']}: expected the ids that its key holds a hash of, found none")
    resource_id, thread_id = place
    return Message(
        id=fields["mid"],
        role=cast("Role", fields["role"]),
        content=content,
        created_at=clock.from_ms(fields["created"]),
        thread_id=thread_id,
        resource_id=resource_id,
        type=fields.get("kind"),
        extra=read_json(body.extra) or EMPTY,
        expires_at=clock.from_ms(fields["ttl"] * 1000) if "ttl" in fields else None,
        seq=fields["sk"],
        version=fields.get("ver", 1),
    )


def is_due(item: Item, now: datetime) -> bool:
    """Whether a row has expired at `now`, whether or not DynamoDB has removed it."""
    ttl = item.get("ttl")
    return ttl is not None and int(ttl["N"]) * 1000 <= clock.to_ms(now)


def message_key(resource_id: str, thread_id: str, seq: int) -> Item:
    """Key of a message's item."""
    return to_item({"pk": keys.messages_pk(resource_id, thread_id), "sk": seq})


def write_json(what: str, content: Any) -> str:
    """Compact JSON text that UTF-8 can carry. Raises InvalidInputError for what is not JSON."""
    try:
        return dumps(content)
    except (ValueError, TypeError) as error:
        raise InvalidInputError(what, "expected JSON values, found one that JSON has no form for") from error


def read_json(text: str | None) -> FrozenDict | None:
    """A JSON object from its text."""
    return None if text is None else freeze(loads(text))


def _joined(content: Content) -> str:
    return "".join(part.text for part in content.parts if isinstance(part, TextPart))


def _date(key: str | None) -> datetime | None:
    return None if key is None else keys.date_of(key)


def _check_version(item: Item) -> None:
    found = int(item.get("v", {"N": "0"})["N"])
    if found > keys.SCHEMA:
        raise StorageError(
            f"expected an item of schema {keys.SCHEMA} or before, found {found}; "
            "deploy the version of this library that wrote it"
        )
