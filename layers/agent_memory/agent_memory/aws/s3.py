"""Bytes in S3: attachments and the overflow bodies of large messages."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn
from urllib.parse import quote

from botocore.exceptions import ClientError, ConnectionError, HTTPClientError

from agent_memory.errors import NotFoundError, StorageError, TooLargeError, UnavailableError
from agent_memory.messages.file_types import is_active
from agent_memory.ports import StoredBlob, UploadLink
from agent_memory.ports.archive import BlobVersion

MAX_DELETE_KEYS: Final = 1_000  # of one DeleteObjects request
EXPIRES_TAG: Final = "expires=soon"  # the bucket's lifecycle rule removes objects of this tag
MAX_LIST_KEYS: Final = 1_000  # of one ListObjectsV2 request
COPY_PART_BYTES: Final = 64 * 1024 * 1024  # a copy of more outlasts a request's time
COPIES_AT_ONCE: Final = 4
_BUSY: Final = frozenset({"InternalError", "RequestTimeout", "ServiceUnavailable", "SlowDown", "ThrottlingException"})


class S3BlobStore:
    """A BlobStore and an Archive in a bucket.

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

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        """See `BlobStore.get`. One request."""

        def read() -> bytes:
            answer = self._client.get_object(**self._place(key))
            size = int(answer["ContentLength"])
            if max_bytes is not None and size > max_bytes:
                answer["Body"].close()
                raise TooLargeError(f"expected at most {max_bytes} bytes under {key}, found {size}; use a link to it")
            body: bytes = answer["Body"].read()
            return body

        found: bytes = self._call("get", key, read)
        return found

    def head(self, key: str) -> StoredBlob:
        """See `BlobStore.head`."""
        answer = self._call("head", key, lambda: self._client.head_object(**self._place(key)))
        return StoredBlob(key, int(answer["ContentLength"]), answer.get("ContentType"))

    def first_bytes(self, key: str, count: int) -> bytes:
        """See `BlobStore.first_bytes`."""
        return self.get_range(key, 0, count)

    def copy(self, key: str, new_key: str) -> None:
        """See `BlobStore.copy`. One request to look and one to copy; beyond 64 MB one for every 64 MB, four at a time."""
        from boto3.s3.transfer import TransferConfig

        parts = TransferConfig(
            multipart_threshold=COPY_PART_BYTES, multipart_chunksize=COPY_PART_BYTES, max_concurrency=COPIES_AT_ONCE
        )
        source = self._place(key)
        self._call("copy", key, lambda: self._client.copy(source, **self._place(new_key), Config=parts))

    def delete(self, keys: Sequence[str]) -> None:
        """See `BlobStore.delete`. One request per 1,000 keys."""
        self._delete([{"Key": self._prefix + key} for key in dict.fromkeys(keys)])

    def _delete(self, objects: Sequence[Mapping[str, str]]) -> None:
        for start in range(0, len(objects), MAX_DELETE_KEYS):
            batch = objects[start : start + MAX_DELETE_KEYS]
            request = {"Objects": batch, "Quiet": True}
            send = functools.partial(self._client.delete_objects, Bucket=self._bucket, Delete=request)
            answer = self._call("delete", batch[0]["Key"], send)
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

    def link(
        self, key: str, *, expires_in_s: int = 3600, filename: str | None = None, content_type: str | None = None
    ) -> str:
        """See `BlobStore.link`. No request: the link is signed here, and ends with the session that signed it."""
        params = self._place(key)
        disposition = "inline"
        if content_type is not None:
            params["ResponseContentType"] = content_type
            disposition = "attachment" if is_active(content_type) else "inline"
        if filename is not None:
            # RFC 6266: the plain form for old clients, the encoded one for names outside ASCII.
            plain = "".join(c if c.isascii() and c.isprintable() and c not in '"\\' else "_" for c in filename)
            disposition += f"; filename=\"{plain}\"; filename*=UTF-8''{quote(filename)}"
        if filename is not None or disposition != "inline":
            params["ResponseContentDisposition"] = disposition
        url: str = self._client.generate_presigned_url("get_object", Params=params, ExpiresIn=expires_in_s)
        return url

    def upload_link(self, key: str, *, size: int, content_type: str, expires_in_s: int) -> UploadLink:
        """See `BlobStore.upload_link`. No request: size, type and "only once" are signed, so S3 holds the caller to them."""
        params = {**self._place(key), "ContentLength": size, "ContentType": content_type, "IfNoneMatch": "*"}
        url = self._client.generate_presigned_url("put_object", Params=params, ExpiresIn=expires_in_s)
        return UploadLink(url, "PUT", {"content-type": content_type, "if-none-match": "*"})

    # Large objects, in pieces.

    def put_for_a_week(self, key: str, data: bytes, content_type: str) -> None:
        """See `Archive.put_for_a_week`."""
        options = {"Body": data, "ContentType": content_type, "Tagging": EXPIRES_TAG}
        self._call("put", key, lambda: self._client.put_object(**self._place(key), **options))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """See `Archive.get_range`."""
        span = f"bytes={start}-{start + length - 1}"

        def read() -> bytes:
            try:
                body: bytes = self._client.get_object(**self._place(key), Range=span)["Body"].read()
            except ClientError as error:
                if error.response.get("Error", {}).get("Code") == "InvalidRange":
                    return b""
                raise
            return body

        found: bytes = self._call("get", key, read)
        return found

    def begin_upload(self, key: str, content_type: str, *, expires: bool = False) -> str:
        """See `Archive.begin_upload`. One request."""
        tags = {"Tagging": EXPIRES_TAG} if expires else {}
        begin = functools.partial(
            self._client.create_multipart_upload, **self._place(key), ContentType=content_type, **tags
        )
        return str(self._call("begin upload", key, begin)["UploadId"])

    def upload_piece(self, key: str, upload_id: str, number: int, data: bytes) -> str:
        """See `Archive.upload_piece`. One request."""
        send = functools.partial(
            self._client.upload_part, **self._place(key), UploadId=upload_id, PartNumber=number, Body=data
        )
        return str(self._call("upload", key, send)["ETag"])

    def finish_upload(self, key: str, upload_id: str, tags: Sequence[str]) -> None:
        """See `Archive.finish_upload`. One request, and one more where it had been finished."""
        parts = [{"PartNumber": number, "ETag": tag} for number, tag in enumerate(tags, 1)]
        finish = functools.partial(
            self._client.complete_multipart_upload,
            **self._place(key),
            UploadId=upload_id,
            MultipartUpload={"Parts": parts},
        )
        try:
            finish()
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") == "NoSuchUpload":
                self.head(key)  # an earlier call has finished it, or the object is missing and this tells
                return
            self._translate("finish upload", key, error)

    # Everything under a prefix, versions included.

    def list_versions(
        self, prefix: str, *, cursor: Any = None, limit: int = 1_000
    ) -> tuple[tuple[BlobVersion, ...], Any]:
        """See `Archive.list_versions`."""
        more = {} if cursor is None else {"KeyMarker": cursor[0], "VersionIdMarker": cursor[1]}
        ask = functools.partial(
            self._client.list_object_versions,
            Bucket=self._bucket,
            Prefix=self._prefix + prefix,
            MaxKeys=limit,
            **{name: marker for name, marker in more.items() if marker},
        )
        answer = self._call("list", prefix, ask)
        found = [
            BlobVersion(
                key=entry["Key"][len(self._prefix) :],
                version=entry["VersionId"],
                size=int(entry.get("Size", 0)),
                latest=bool(entry["IsLatest"]),
                marker=kind == "DeleteMarkers",
            )
            for kind in ("Versions", "DeleteMarkers")
            for entry in answer.get(kind, [])
        ]
        if not answer.get("IsTruncated"):
            return tuple(found), None
        return tuple(found), [answer.get("NextKeyMarker", ""), answer.get("NextVersionIdMarker", "")]

    def get_version(self, version: BlobVersion) -> bytes:
        """See `Archive.get_version`."""
        place = {**self._place(version.key), "VersionId": version.version}
        body: bytes = self._call("get", version.key, lambda: self._client.get_object(**place)["Body"].read())
        return body

    def delete_versions(self, versions: Sequence[BlobVersion]) -> None:
        """See `Archive.delete_versions`."""
        self._delete([{"Key": self._prefix + entry.key, "VersionId": entry.version} for entry in versions])

    def abort_uploads(self, prefix: str) -> int:
        """See `Archive.abort_uploads`. One request per 1,000 uploads and one for each."""
        count = 0
        more: dict[str, str] = {}
        while True:
            ask = functools.partial(
                self._client.list_multipart_uploads, Bucket=self._bucket, Prefix=self._prefix + prefix, **more
            )
            answer = self._call("list uploads", prefix, ask)
            for entry in answer.get("Uploads", []):
                place = {"Bucket": self._bucket, "Key": entry["Key"], "UploadId": entry["UploadId"]}
                try:
                    self._call("abort", prefix, functools.partial(self._client.abort_multipart_upload, **place))
                except NotFoundError:
                    continue
                count += 1
            if not answer.get("IsTruncated"):
                return count
            more = {"KeyMarker": answer["NextKeyMarker"], "UploadIdMarker": answer["NextUploadIdMarker"]}

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
        if code in ("NoSuchKey", "NoSuchVersion", "NoSuchUpload", "404", "NotFound"):
            raise NotFoundError(f"expected stored bytes under {key}, found none", code="BLOB_NOT_FOUND") from error
        if code in _BUSY or status >= 500:
            raise UnavailableError(f"{what}: expected the bucket to answer, found it busy; call again later") from error
        raise StorageError(
            f"{what}: expected success, found {code or status}; check the bucket's name and the permissions of the role"
        ) from error
