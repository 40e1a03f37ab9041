"""Files that callers upload past this service: promised, uploaded to storage, checked, and then used in a message."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from agent_memory import clock
from agent_memory.attachments import key_of_name
from agent_memory.errors import ConflictError, InvalidInputError, NotFoundError
from agent_memory.file_rules import FileRules, clean_filename
from agent_memory.messages.file_types import SNIFFED_BYTES, checked_type
from agent_memory.messages.media import UNKNOWN_TYPE, media_type_of
from agent_memory.ports import BlobStore, FileRecord, FileStore, UploadLink
from agent_memory.ports.files import UPLOAD_LIFETIME_S


@dataclasses.dataclass(frozen=True, slots=True)
class Promise:
    """A file that may be uploaded now: the request that does it, and until when it can be used."""

    file: FileRecord
    link: UploadLink
    expires_at: datetime


def promise(
    blobs: BlobStore,
    files: FileStore,
    resource_id: str,
    *,
    filename: str | None,
    media_type: str | None,
    size: int,
    rules: FileRules,
) -> Promise:
    """Let a caller upload a file. Two requests at most.

    Args:
        blobs, files: Where it goes.
        resource_id: Whose it will be.
        filename: What it is called; path and control characters are taken off.
        media_type: Its type; None: told by its name.
        size: Exactly how many bytes will come.
        rules: What is taken.

    Raises:
        InvalidInputError, TooLargeError: Such a file is not taken.
        ConflictError: The resource is being erased.
    """
    name = clean_filename(filename) if filename is not None else None
    kind = media_type or media_type_of("attachment:", filename=name) or UNKNOWN_TYPE
    rules.check_type("contentType", kind)
    rules.check_size("size", size)
    file = FileRecord(name=f"u-{secrets.token_hex(16)}", state="promised", media_type=kind, filename=name, size=size)
    files.expect(resource_id, [file])
    expires_at = clock.now() + timedelta(seconds=UPLOAD_LIFETIME_S)
    key = key_of_name(file.name, resource_id)
    link = blobs.upload_link(key, size=size, content_type=kind, expires_in_s=UPLOAD_LIFETIME_S)
    return Promise(file, link, expires_at)


def complete(blobs: BlobStore, files: FileStore, resource_id: str, name: str, *, rules: FileRules) -> FileRecord:
    """Check a file that was uploaded, so that messages may use it. One that was checked before is returned as it is.

    Raises:
        NotFoundError: No such file.
        ConflictError: Its bytes have not come (yet).
        InvalidInputError, TooLargeError: It is not what was promised, or not taken; it is gone.
    """
    file = files.find(resource_id, name)
    if file is None or file.state == "gone":
        raise NotFoundError("Attachment not found", code="ATTACHMENT_NOT_FOUND")
    if file.state == "promised":
        file = check_upload(blobs, files, resource_id, file, rules=rules)
    files.hold(resource_id, [name])
    return file


def check_upload(
    blobs: BlobStore, files: FileStore, resource_id: str, file: FileRecord, *, rules: FileRules
) -> FileRecord:
    """The same for a promised file that is at hand: size and type are told by the bytes that came."""
    key = key_of_name(file.name, resource_id)
    try:
        size = blobs.head(key).size
        start = blobs.first_bytes(key, SNIFFED_BYTES) if size else b""
    except NotFoundError as error:
        raise ConflictError(
            f"attachment {file.name}: expected its bytes to be uploaded, found none; upload them first",
            code="ATTACHMENT_NOT_UPLOADED",
        ) from error
    try:
        rules.check_size("size", size)
        if file.size is not None and size != file.size:
            raise InvalidInputError("size", f"expected the {file.size} bytes that were promised, found {size}")
        kind, fits = checked_type(file.media_type, start)
        if not fits:
            raise InvalidInputError(
                "contentType",
                f"expected {file.media_type}, found bytes of {kind}; upload it again under its own type",
                code="ATTACHMENT_TYPE_MISMATCH",
            )
        rules.check_type("contentType", kind)
    except Exception:
        files.refuse(resource_id, file.name)
        blobs.delete([key])
        raise
    checked = dataclasses.replace(file, state="ready", media_type=kind, size=size)
    if not files.settle(resource_id, checked):
        found = files.find(resource_id, file.name)
        if found is None or found.state != "ready":
            raise NotFoundError("Attachment not found", code="ATTACHMENT_NOT_FOUND")
    return checked


def hold_files(
    blobs: BlobStore | None, files: FileStore, resource_id: str, names: Iterable[str], *, rules: FileRules
) -> Mapping[str, FileRecord]:
    """Keep files that a message is about to use; promised ones are checked first. Those that are not there are left out.

    Two requests, and those of a check for every promised one.
    """
    held = dict(files.hold(resource_id, tuple(names)))
    for name, file in held.items():
        if file.state == "promised":
            if blobs is None:
                raise NotFoundError("Attachment not found", code="ATTACHMENT_NOT_FOUND")
            held[name] = check_upload(blobs, files, resource_id, file, rules=rules)
    return held
