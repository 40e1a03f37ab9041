"""Files of messages: how bytes in storage are named in a message, and how they come back.

A stored message holds a reference, ``attachment://<name>``: no bucket, no owner and no signature. The object lies under
the prefix of the message's owner, so a reference can never name another owner's file, and a link to it is signed
when the message is read.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

from agent_memory._json import freeze
from agent_memory.errors import NotFoundError, TooLargeError
from agent_memory.file_data import decode
from agent_memory.file_rules import MAX_PROMPT_FILE_BYTES
from agent_memory.messages import Attachment, FilePart, Message, Part, ToolPart
from agent_memory.messages.file_types import is_media_type
from agent_memory.messages.media import UNKNOWN_TYPE, media_type_of
from agent_memory.messages.parts import MISSING
from agent_memory.ports import BlobStore, PromptFile
from agent_memory.ports.files import REFERENCE_SCHEME

SCHEME: Final = REFERENCE_SCHEME
STABLE_PATH: Final = "/api/attachments/"
LINK_LIFETIME_S: Final = 3600
_MAX_QUOTED_CHARS: Final = 200
_ADDRESS: Final = re.compile(r"data:[\w.+\-]+/[\w.+\-]+[;,]|attachment://|https?://")
_NAME: Final = re.compile(r"[0-9a-f]{64}(?:-[0-9a-f]{16})?|u-[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class NewFile:
    """What a message holds of a file: its address, type and name."""

    address: str
    media_type: str | None
    filename: str | None


Change = Callable[[str, str | None, str | None], "str | NewFile | None"]
"""Given the address of a file, its media type and its name: another address, all three anew, or None to leave it."""


# ---------------------------------------------------------------------------------------------------- names and keys


def owner_prefix(resource_id: str) -> str:
    """What every object key of a resource begins with, and those of no other resource."""
    # "." is quoted so that no segment reads as "." or "..", and "~" so that no quoted id looks like a hashed one.
    quoted = quote(resource_id, safe="").replace(".", "%2E").replace("~", "%7E")
    if len(quoted) > _MAX_QUOTED_CHARS:
        quoted = f"~{hashlib.sha256(resource_id.encode()).hexdigest()}"
    return f"o/{quoted}/"


def reference_to(data: bytes, *, use: str = "") -> str:
    """The reference under which `data` is kept.

    Args:
        data: The bytes; the name begins with their SHA-256.
        use: Whose upload it is, e.g. a run's id. Uploads of different uses never share an object, so what a stopped run
            uploaded can be removed without asking whether another message shows the same picture.
    """
    digest = hashlib.sha256(data).hexdigest()
    return f"{SCHEME}{digest}-{hashlib.sha256(use.encode()).hexdigest()[:16]}" if use else f"{SCHEME}{digest}"


def key_of(reference: str, resource_id: str) -> str | None:
    """The object key of a reference in a message of `resource_id`; None for anything that is no reference."""
    name = name_of(reference)
    return None if name is None else key_of_name(name, resource_id)


def key_of_name(name: str, resource_id: str) -> str:
    """The object key of a file of `resource_id`, by the name that references call it."""
    return f"{owner_prefix(resource_id)}files/{name}"


def echo_to_reference(url: str, resource_id: str) -> str | None:
    """The reference behind a link that was signed for this owner, fresh or stale, or behind a file's stable address.

    None for any other address. Whose file it is tells the owner alone, so an address can only lead to files of their own.
    """
    if not url.startswith(("https://", "http://", STABLE_PATH)):
        return None
    try:
        path = unquote(urlsplit(url).path)
    except ValueError:
        return None
    for folder in (f"{owner_prefix(resource_id)}files/", STABLE_PATH[1:]):
        before, found, name = path.rpartition(folder)
        if found and before.endswith("/") and _NAME.fullmatch(name):
            return SCHEME + name
    return None


def name_of(reference: str) -> str | None:
    """The file that a reference names; None for anything that is no reference."""
    name = reference.removeprefix(SCHEME)
    return name if name != reference and _NAME.fullmatch(name) else None


def names_in(message: Message) -> tuple[str, ...]:
    """The names of all files that a message refers to."""
    names = (name_of(address) for address in addresses_in(message))
    return tuple(dict.fromkeys(name for name in names if name is not None))


def keys_in(message: Message, resource_id: str) -> tuple[str, ...]:
    """Object keys of all files of a message."""
    return tuple(key_of_name(name, resource_id) for name in names_in(message))


# ------------------------------------------------------------------------------------------------- reading and asking


def resolve_links(
    message: Message, blobs: BlobStore | None, *, resource_id: str | None = None, expires_in_s: int = LINK_LIFETIME_S
) -> Message:
    """The message with a link signed now in place of each reference: in file parts, attachments and tool results.

    Args:
        message: A stored message. Its own resource is the owner unless `resource_id` is given.
        blobs: Where the files lie; None leaves the references.
        resource_id: The owner.
        expires_in_s: How long the links work.
    """
    owner = resource_id or message.resource_id
    if blobs is None or owner is None:
        return message

    def sign(address: str, media_type: str | None, filename: str | None) -> str | None:
        key = key_of(address, owner)
        if key is None:
            return None
        # Always under a type that is named here: what a browser does must not hang on what the file was put with.
        kind = media_type if media_type is not None and is_media_type(media_type) else UNKNOWN_TYPE
        return blobs.link(key, expires_in_s=expires_in_s, filename=filename, content_type=kind)

    return change_files(message, sign)


def to_prompt_file(
    file: FilePart | Attachment, *, blobs: BlobStore | None, resource_id: str | None
) -> PromptFile | None:
    """A file as a model takes it: the bytes of references and data URLs, the address of others.

    A stored file of more than 20 MB comes as a link signed now, with its size. Nothing is fetched from addresses. None
    for a file that is gone, and for schemes that only this machine could read. Raises UnavailableError, StorageError.
    """
    is_part = isinstance(file, FilePart)
    address = file.data if isinstance(file, FilePart) else file.url
    given = file.mime_type if isinstance(file, FilePart) else file.content_type
    name = file.filename if is_part else file.name  # type: ignore[union-attr]
    media_type = media_type_of(address, given=given, filename=name) or given or UNKNOWN_TYPE
    key = key_of(address, resource_id) if resource_id is not None else None
    if key is not None:
        if blobs is None:
            return None
        try:
            return PromptFile(media_type, data=blobs.get(key, max_bytes=MAX_PROMPT_FILE_BYTES), filename=name)
        except TooLargeError:
            link = blobs.link(key, filename=name, content_type=media_type)
            return PromptFile(media_type, url=link, filename=name, size=blobs.head(key).size)
        except NotFoundError:
            return None
    found = decode(address, media_type=given)
    if found is not None:
        return PromptFile(found.media_type or media_type, data=found.data, filename=name)
    if address.startswith(("https://", "http://")):
        return PromptFile(media_type, url=address, filename=name)
    return None


# ----------------------------------------------------------------------------------------------------------- walking


def change_files(message: Message, change: Change) -> Message:
    """The message with `change` applied to the address of each file; the same message where nothing changes.

    Files are file parts, `experimental_attachments`, and texts inside tool results.
    """
    content = message.content
    parts = tuple(_changed_part(part, change) for part in content.parts)
    attachments = content.experimental_attachments
    if attachments is not None:
        attachments = tuple(_changed_attachment(item, change) for item in attachments)
    if _same(parts, content.parts) and _same(attachments, content.experimental_attachments):
        return message
    return message.replace(content=replace(content, parts=parts, experimental_attachments=attachments))


def change_result(part: ToolPart, change: Change) -> ToolPart:
    """The part with `change` applied to each text of its result."""
    result = part.invocation.result
    if result is MISSING or result is None:
        return part
    changed = _changed_value(result, change)
    if changed is result:
        return part
    return replace(part, invocation=replace(part.invocation, result=freeze(changed)))


@dataclass(slots=True)
class _Seen:
    """Collects addresses."""

    addresses: list[str]

    def __call__(self, address: str, _media_type: str | None, _filename: str | None) -> None:
        self.addresses.append(address)


def addresses_in(message: Message) -> Iterator[str]:
    """The addresses of all files of a message, as they stand there: references, links, data."""
    seen = _Seen([])
    change_files(message, seen)
    return iter(seen.addresses)


def _changed_part(part: Part, change: Change) -> Part:
    if isinstance(part, FilePart):
        new = _changed(change, part.data, part.mime_type, part.filename)
        if new is None:
            return part
        return replace(part, data=new.address, mime_type=new.media_type, filename=new.filename)
    return change_result(part, change) if isinstance(part, ToolPart) else part


def _changed_attachment(item: Attachment, change: Change) -> Attachment:
    new = _changed(change, item.url, item.content_type, item.name)
    if new is None:
        return item
    return replace(item, url=new.address, content_type=new.media_type, name=new.filename)


def _changed(change: Change, address: str, media_type: str | None, filename: str | None) -> NewFile | None:
    new = change(address, media_type, filename)
    if isinstance(new, str):
        new = None if new == address else NewFile(new, media_type, filename)
    if new is None or new.media_type is not None:
        return new
    return replace(new, media_type=media_type or media_type_of(address, filename=filename))


def _changed_value(value: Any, change: Change) -> Any:
    if isinstance(value, str):
        # Only whole texts that are addresses: words of a tool are not files.
        new = change(value, None, None) if _ADDRESS.match(value) else None
        return value if new is None else new if isinstance(new, str) else new.address
    if isinstance(value, dict):
        changed = {key: _changed_value(item, change) for key, item in value.items()}
        return value if all(changed[key] is value[key] for key in value) else changed
    if isinstance(value, list):
        items = [_changed_value(item, change) for item in value]
        return value if _same(items, value) else items
    return value


def _same(new: Any, old: Any) -> bool:
    return new is old or (len(new) == len(old) and all(a is b for a, b in zip(new, old, strict=True)))
