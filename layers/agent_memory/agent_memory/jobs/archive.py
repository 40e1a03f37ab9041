"""The file that an export writes and an import reads: JSON Lines in a zip, whose parts are made and read one at a time.

::

    threads-00001.jsonl          {"id", "title", "titleSource", "metadata", "createdAt", "updatedAt", "expiresAt", "usage"}
    messages-00001.jsonl         messages as the API shows them: thread by thread, in the order of threads and of messages
    working-memory-00001.jsonl   {"threadId", "version", "text", "updatedAt"}     oldest first; threadId null: the resource's
    attachments-00001.jsonl      {"name", "filename", "contentType", "size", "sha256", "threadId", "messageId"}
    manifest.json                {"format", "schema", "resourceId", "exportedAt", "counts", "files": [{"name", "rows", …}]}
"""

from __future__ import annotations

import hashlib
import io
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from typing import IO, Any, Final, cast

from agent_memory._json import dumps, loads
from agent_memory.errors import InvalidInputError, NotFoundError
from agent_memory.ports.archive import Archive

FORMAT: Final = "agent-memory-export"
SCHEMA: Final = 1
MANIFEST: Final = "manifest.json"
MAX_FILE_BYTES: Final = 64 * 1024 * 1024  # of one file in a zip when it is read; exports make them smaller

_DATE: Final = (1980, 1, 1, 0, 0, 0)  # the first that a zip can hold: the same rows give the same bytes


def lines(rows: Iterable[Any]) -> bytes:
    """JSON Lines."""
    return b"".join(dumps(row).encode() + b"\n" for row in rows)


def entry(name: str, data: bytes, offset: int) -> tuple[bytes, dict[str, Any]]:
    """A file as it stands in a zip at `offset`, and what the directory at the zip's end has to say of it."""
    packer = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
    packed = packer.compress(data) + packer.flush()
    described = {
        "name": name,
        "crc": zlib.crc32(data),
        "bytes": len(data),
        "packed": len(packed),
        "offset": offset,
        "sha256": hashlib.sha256(data).hexdigest(),
    }
    return _info(described).FileHeader(zip64=False) + packed, described


def directory(entries: Sequence[dict[str, Any]], offset: int) -> bytes:
    """What a zip of these files ends with; `offset` is where the last of them ends."""
    end = _End(offset)
    with zipfile.ZipFile(cast("IO[bytes]", end), "w") as writer:  # it writes, tells and flushes, and no more
        for described in entries:
            info = _info(described)
            writer.filelist.append(info)
            writer.NameToInfo[info.filename] = info
    return end.written


def _info(described: dict[str, Any]) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(described["name"], _DATE)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o600 << 16
    info.CRC, info.file_size = described["crc"], described["bytes"]
    info.compress_size, info.header_offset = described["packed"], described["offset"]
    return info


class _End:
    """The end of a file whose beginning was written elsewhere. It cannot seek, so nothing tries to."""

    def __init__(self, offset: int) -> None:
        self._offset = offset
        self.written = b""

    def tell(self) -> int:
        return self._offset + len(self.written)

    def write(self, data: bytes) -> int:
        self.written += data
        return len(data)

    def flush(self) -> None:
        pass


class ZipOfBlob:
    """A zip in a bucket, of which only what is asked for is read.

    Args:
        blobs: The bucket.
        key: The object.

    Raises InvalidInputError where it is no zip of this format.
    """

    def __init__(self, blobs: Archive, key: str) -> None:
        try:
            self._zip = zipfile.ZipFile(io.BufferedReader(_Ranges(blobs, key), 256 * 1024))
        except zipfile.BadZipFile as error:
            raise _unreadable("a zip", "something else") from error
        self.manifest = self._manifest()
        try:
            self.files: dict[str, dict[str, Any]] = {file["name"]: file for file in self.manifest["files"]}
        except (KeyError, TypeError) as error:
            raise _unreadable(f"files with names in {MANIFEST}", "something else") from error

    def names(self, kind: str) -> list[str]:
        """The files of a kind, e.g. ``messages``, in order."""
        return sorted(name for name in self.files if name.startswith(f"{kind}-"))

    def rows(self, name: str) -> list[Any]:
        """The rows of a file, whose bytes must be those that were exported."""
        data = self._read(name)
        if hashlib.sha256(data).hexdigest() != self.files[name].get("sha256"):
            raise _unreadable(f"{name} as it was exported", "other bytes than its checksum names")
        try:
            return [loads(line) for line in data.splitlines()]
        except (ValueError, RecursionError) as error:
            raise _unreadable(f"{name} to be JSON Lines", "something else") from error

    def _manifest(self) -> dict[str, Any]:
        try:
            found = loads(self._read(MANIFEST))
        except (ValueError, RecursionError) as error:
            raise _unreadable(f"{MANIFEST} to be JSON", "something else") from error
        if not isinstance(found, dict) or found.get("format") != FORMAT or not isinstance(found.get("files"), list):
            raise _unreadable(f"an export of the format {FORMAT}", "another file")
        if found.get("schema") != SCHEMA:
            raise _unreadable(f"schema {SCHEMA}", f"{str(found.get('schema'))[:20]}")
        return found

    def _read(self, name: str) -> bytes:
        try:
            if self._zip.getinfo(name).file_size > MAX_FILE_BYTES:
                raise _unreadable(f"{name} of at most {MAX_FILE_BYTES} bytes", "more")
            with self._zip.open(name) as file:
                data = file.read(MAX_FILE_BYTES + 1)
        except (KeyError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError) as error:
            raise _unreadable(f"{name} in the zip", "none that can be read") from error
        return data


class _Ranges(io.RawIOBase):
    """An object as a file that can be read anywhere."""

    def __init__(self, blobs: Archive, key: str) -> None:
        self._blobs = blobs
        self._key = key
        try:
            self._size = blobs.head(key).size
        except NotFoundError as error:
            raise _unreadable("a file in the bucket", "none of that name") from error
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        if self._at >= self._size or not len(buffer):
            return 0
        data = self._blobs.get_range(self._key, self._at, len(buffer))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def _unreadable(expected: str, found: str) -> InvalidInputError:
    return InvalidInputError("source", f"expected {expected}, found {found}", code="IMPORT_UNREADABLE")
