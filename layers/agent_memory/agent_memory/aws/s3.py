"""Bytes in S3: attachments and the overflow bodies of large messages."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn
from urllib.parse import quote

from botocore.exceptions import ClientError, ConnectionError, HTTPClientError

from agent_memory.errors import NotFoundError, StorageError, UnavailableError
from agent_memory.ports import StoredBlob

MAX_DELETE_KEYS: Final = 1_000  # of one DeleteObjects request
MAX_LIST_KEYS: Final = 1_000  # of one ListObjectsV2 request
_BUSY: Final = frozenset({"InternalError", "RequestTimeout", "ServiceUnavailable", "SlowDown", "ThrottlingException"})


class S3BlobStore:
    """A BlobStore in a bucket.

    Args:
        client: A boto3 ``s3`` client; it signs the links too, so it must carry the credentials of a long session.
        bucket: Name of the bucket.
        prefix: Put before every key, e.g. ``"stage/"``. Callers never see it.
    """

    def __init__(self, client: Any, bucket: str, prefix: str = "") -> None:
        self._client = client
        self._bucket = bucket
        self._prefix = prefix

    def put(self, key: str, data: bytes, content_type: str | None = None) -> StoredBlob:
        """See `BlobStore.put`. One request."""
        options = {} if content_type is None else {"ContentType": content_type}
        self._call("put", key, lambda: self._client.put_object(**self._place(key), Body=data, **options))
        return StoredBlob(key, len(data), content_type)

    def get(self, key: str) -> bytes:
        """See `BlobStore.get`. One request."""

        body: bytes = self._call("get", key, lambda: self._client.get_object(**self._place(key))["Body"].read())
        return body

    def delete(self, keys: Sequence[str]) -> None:
        """See `BlobStore.delete`. One request per 1,000 keys."""
        wanted = list(dict.fromkeys(keys))
        for start in range(0, len(wanted), MAX_DELETE_KEYS):
            batch = wanted[start : start + MAX_DELETE_KEYS]
            request = {"Objects": [{"Key": self._prefix + key} for key in batch], "Quiet": True}
            send = functools.partial(self._client.delete_objects, Bucket=self._bucket, Delete=request)
            answer = self._call("delete", batch[0], send)
            errors = answer.get("Errors") or []
            if errors:
                raise StorageError(
                    f"delete: expected {len(batch)} objects to be removed, found {len(errors)} refused with "
                    f"{errors[0].get('Code')}; check the permissions of the role"
                )

    def list_keys(self, prefix: str, *, after: str | None = None, limit: int = MAX_LIST_KEYS) -> tuple[str, ...]:
        """See `BlobStore.list_keys`. One request."""
        request = {"Prefix": self._prefix + prefix, "MaxKeys": min(limit, MAX_LIST_KEYS)}
        if after is not None:
            request["StartAfter"] = self._prefix + after
        send = functools.partial(self._client.list_objects_v2, Bucket=self._bucket, **request)
        answer = self._call("list", prefix, send)
        return tuple(entry["Key"][len(self._prefix) :] for entry in answer.get("Contents", ()))

    def link(self, key: str, *, expires_in_s: int = 3600, filename: str | None = None) -> str:
        """See `BlobStore.link`. No request: the link is signed here, and ends with the session that signed it."""
        params = self._place(key)
        if filename is not None:
            # RFC 6266: the plain form for old clients, the encoded one for names outside ASCII.
            plain = "".join(c if c.isascii() and c.isprintable() and c not in '"\\' else "_" for c in filename)
            params["ResponseContentDisposition"] = f"inline; filename=\"{plain}\"; filename*=UTF-8''{quote(filename)}"
        url: str = self._client.generate_presigned_url("get_object", Params=params, ExpiresIn=expires_in_s)
        return url

    def _place(self, key: str) -> dict[str, Any]:
        return {"Bucket": self._bucket, "Key": self._prefix + key}

    def _call(self, what: str, key: str, request: Callable[[], Any]) -> Any:
        try:
            return request()
        except ClientError as error:
            self._translate(what, key, error)
        except (ConnectionError, HTTPClientError) as error:
            raise UnavailableError(f"{what}: expected the bucket to answer, found none; call again later") from error

    def _translate(self, what: str, key: str, error: ClientError) -> NoReturn:
        response: Any = error.response
        code = response.get("Error", {}).get("Code", "")
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if code in ("NoSuchKey", "404", "NotFound"):
            raise NotFoundError(f"expected stored bytes under {key}, found none", code="BLOB_NOT_FOUND") from error
        if code in _BUSY or status >= 500:
            raise UnavailableError(f"{what}: expected the bucket to answer, found it busy; call again later") from error
        raise StorageError(
            f"{what}: expected success, found {code or status}; check the bucket's name and the permissions of the role"
        ) from error
