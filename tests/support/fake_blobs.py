"""A blob store in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from agent_memory.errors import NotFoundError, TooLargeError
from agent_memory.ports import StoredBlob, UploadLink


class FakeBlobs:
    """Bytes by key. `fail` is an error to raise on a put: with `fail_on`, only on the put of that number (from 1)."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.types: dict[str, str | None] = {}
        self.puts = 0
        self.links = 0
        self.fail: Any = None
        self.fail_on: int | None = None

    def put(self, key: str, data: bytes, content_type: str | None = None) -> StoredBlob:
        self.puts += 1
        if self.fail is not None and self.fail_on in (None, self.puts):
            raise self.fail
        self.objects[key] = data
        self.types[key] = content_type
        return StoredBlob(key, len(data), content_type)

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        if key not in self.objects:
            raise NotFoundError(f"no object {key}")
        if max_bytes is not None and len(self.objects[key]) > max_bytes:
            raise TooLargeError(f"{key}: {len(self.objects[key])} bytes")
        return self.objects[key]

    def head(self, key: str) -> StoredBlob:
        return StoredBlob(key, len(self.get(key)), self.types.get(key))

    def first_bytes(self, key: str, count: int) -> bytes:
        return self.get(key)[:count]

    def copy(self, key: str, new_key: str) -> None:
        self.objects[new_key], self.types[new_key] = self.get(key), self.types.get(key)

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.objects.pop(key, None)

    def list_keys(self, prefix: str, *, after: str | None = None, limit: int = 1_000) -> tuple[str, ...]:
        found = [key for key in sorted(self.objects) if key.startswith(prefix) and (after is None or key > after)]
        return tuple(found[: min(limit, 1_000)])

    def upload_link(self, key: str, *, size: int, content_type: str, expires_in_s: int) -> UploadLink:
        headers = {"content-type": content_type, "content-length": str(size)}
        return UploadLink(f"https://files.example/bucket/{quote(key)}?X-Expires={expires_in_s}", "PUT", headers)

    def link(
        self, key: str, *, expires_in_s: int = 3600, filename: str | None = None, content_type: str | None = None
    ) -> str:
        self.links += 1
        return f"https://files.example/bucket/{quote(key)}?X-Expires={expires_in_s}&X-Signature={self.links}"
