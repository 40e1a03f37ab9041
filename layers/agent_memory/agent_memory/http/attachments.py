"""Routes of files that are uploaded past the body limit, and stable addresses of all files."""

from __future__ import annotations

from typing import Any

from agent_memory import clock, runtime
from agent_memory.agent.services import Services
from agent_memory.attachments import LINK_LIFETIME_S, SCHEME, key_of_name, name_of
from agent_memory.errors import ConfigurationError, NotFoundError
from agent_memory.http.call import Call
from agent_memory.http.response import Response
from agent_memory.ports import BlobStore, FileRecord, FileStore


def create_attachment(call: Call) -> dict[str, Any]:
    """Promise a file: answers the request that uploads it, to be used within the hour."""
    from agent_memory.uploads import promise

    services = runtime.services()
    blobs, files = _stores(services)
    promised = promise(
        blobs,
        files,
        call.required_owner(),
        filename=call.body.get("filename"),
        media_type=call.body.get("contentType"),
        size=call.body["size"],
        rules=services.file_rules,
    )
    return {
        **_shown(promised.file),
        "url": promised.link.url,
        "method": promised.link.method,
        "headers": dict(promised.link.headers),
        "expiresAt": clock.to_iso(promised.expires_at),
    }


def complete_attachment(call: Call) -> dict[str, Any]:
    """Check an uploaded file, so that messages may use it."""
    from agent_memory.uploads import complete

    services = runtime.services()
    blobs, files = _stores(services)
    owner, name = call.required_owner(), _name(call)
    file = complete(blobs, files, owner, name, rules=services.file_rules)
    return {**_shown(file), "url": _link(blobs, owner, file)}


def get_attachment(call: Call) -> Response:
    """Send the caller to a link that is signed now. Two requests."""
    services = runtime.services()
    owner, name = call.required_owner(), _name(call)
    if services.blobs is None:
        raise _not_found()
    known = services.files.find(owner, name) if services.files is not None else None
    if known is not None and known.state != "ready":
        raise _not_found()
    try:
        stored = services.blobs.head(key_of_name(name, owner))
    except NotFoundError as error:
        raise _not_found() from error
    kind = (known.media_type if known is not None else None) or stored.content_type
    file = FileRecord(name=name, media_type=kind, filename=known.filename if known is not None else None)
    return Response(302, {"location": _link(services.blobs, owner, file), "cache-control": "private, no-store"})


def _shown(file: FileRecord) -> dict[str, Any]:
    return {
        "id": file.name,
        "reference": SCHEME + file.name,
        "filename": file.filename,
        "contentType": file.media_type,
        "size": file.size,
    }


def _link(blobs: BlobStore, owner: str, file: FileRecord) -> str:
    return blobs.link(
        key_of_name(file.name, owner),
        expires_in_s=LINK_LIFETIME_S,
        filename=file.filename,
        content_type=file.media_type or "application/octet-stream",
    )


def _name(call: Call) -> str:
    """The file that the path names. Raises NotFoundError for what names none."""
    name = name_of(SCHEME + call.params["name"])
    if name is None:
        raise _not_found()
    return name


def _stores(services: Services) -> tuple[BlobStore, FileStore]:
    if services.blobs is None or services.files is None:
        raise ConfigurationError(
            "this deployment takes no uploads; set ATTACHMENTS_BUCKET and RUNS_TABLE", code="SETTING_MISSING"
        )
    return services.blobs, services.files


def _not_found() -> NotFoundError:
    return NotFoundError("Attachment not found", code="ATTACHMENT_NOT_FOUND")
