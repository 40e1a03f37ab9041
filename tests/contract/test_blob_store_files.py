"""What a BlobStore does for attachments: looks, copies, links and uploads."""

from __future__ import annotations

import urllib.error
import urllib.request
from urllib.parse import parse_qs, urlsplit

import pytest

from agent_memory.aws import s3
from agent_memory.errors import NotFoundError, TooLargeError
from agent_memory.ports import StoredBlob
from tests.contract.conftest import World


def test_size_type_and_beginning_are_told_without_reading_the_rest(world: World) -> None:
    world.blobs.put("k", b"0123456789", "text/plain")
    world.blobs.put("empty", b"", "text/plain")
    assert world.blobs.head("k") == StoredBlob("k", 10, "text/plain")
    assert (world.blobs.first_bytes("k", 4), world.blobs.first_bytes("k", 99)) == (b"0123", b"0123456789")
    assert world.blobs.first_bytes("empty", 4) == b""
    for look in (lambda: world.blobs.head("none"), lambda: world.blobs.first_bytes("none", 4)):
        with pytest.raises(NotFoundError):
            look()


def test_a_bound_is_kept_before_anything_is_read(world: World) -> None:
    world.blobs.put("k", b"0123456789")
    assert world.blobs.get("k", max_bytes=10) == b"0123456789"
    with pytest.raises(TooLargeError, match="found 10"):
        world.blobs.get("k", max_bytes=9)


@pytest.mark.parametrize("size", [0, 10, 20_000_000], ids=["empty", "small", "in parts"])
def test_a_copy_has_bytes_and_type(world: World, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "COPY_PART_BYTES", 8_000_000)
    world.blobs.put("a b/é", b"x" * size, "image/png")
    world.blobs.copy("a b/é", "copy")
    world.blobs.copy("a b/é", "copy")
    assert world.blobs.head("copy") == StoredBlob("copy", size, "image/png")
    assert world.blobs.get("copy") == b"x" * size
    with pytest.raises(NotFoundError):
        world.blobs.copy("none", "copy")


@pytest.mark.parametrize(
    ("kind", "disposition"),
    [
        ("image/png", None),
        ("text/html", "attachment"),
        ("text/HTML; charset=utf-8", "attachment"),
        ("image/svg+xml", "attachment"),
        ("application/xhtml+xml", "attachment"),
        ("text/xml", "attachment"),
        ("application/javascript", "attachment"),
        ("text/ecmascript", "attachment"),
    ],
)
def test_a_link_names_the_type_and_says_save_where_a_browser_would_run_it(
    world: World, kind: str, disposition: str | None
) -> None:
    world.blobs.put("k", b"x", "application/octet-stream")
    link = world.blobs.link("k", content_type=kind)
    asked = parse_qs(urlsplit(link).query)
    assert asked["response-content-type"] == [kind]
    assert asked.get("response-content-disposition") == ([disposition] if disposition else None)
    if world.kind == "emulator":
        with urllib.request.urlopen(link) as answer:
            assert answer.headers["content-type"] == kind
            assert answer.headers["content-disposition"] == disposition


def test_an_upload_link_takes_what_was_signed_once(world: World) -> None:
    link = world.blobs.upload_link("k", size=5, content_type="image/png", expires_in_s=60)
    assert (link.method, dict(link.headers)) == ("PUT", {"content-type": "image/png", "if-none-match": "*"})
    assert "content-length" in parse_qs(urlsplit(link.url).query)["X-Amz-SignedHeaders"][0]
    world.skip_on_moto("it does not check signatures of links")

    def put(data: bytes, **changes: str) -> int:
        headers = {**link.headers, **{name.replace("_", "-"): value for name, value in changes.items()}}
        request = urllib.request.Request(link.url, data=data, method=link.method, headers=headers)
        try:
            with urllib.request.urlopen(request) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    assert (put(b"123456"), put(b"1234"), put(b"12345", content_type="text/html")) == (403, 403, 403)
    assert (put(b"12345"), put(b"54321")) == (200, 412)
    assert world.blobs.get("k") == b"12345"
