"""What every BlobStore does."""

from __future__ import annotations

import urllib.request
from urllib.parse import parse_qs, urlsplit

import pytest

from agent_memory.aws.dynamodb.keys import blob_prefix
from agent_memory.aws.s3 import S3BlobStore
from agent_memory.errors import NotFoundError, StorageError, UnavailableError
from agent_memory.ports import BlobStore, StoredBlob
from agent_memory.ports.archive import Archive
from tests.contract.conftest import World
from tests.support.faults import Faults

KEYS = ("o/r/a", "o/a%2Fb/é 🙂", "o/r/x+y&z=1", "o/" + "k" * 900)


def test_the_store_has_every_method_of_the_port(world: World) -> None:
    assert isinstance(world.blobs, BlobStore)


@pytest.mark.parametrize("key", KEYS, ids=range(len(KEYS)))
@pytest.mark.parametrize("size", [0, 1, 6_000_000])
def test_bytes_come_back_as_they_went_in(world: World, key: str, size: int) -> None:
    data = bytes(range(256))[:size] if size < 256 else b"\x00\xff" * (size // 2)
    assert world.blobs.put(key, data, "image/png") == StoredBlob(key, size, "image/png")
    world.blobs.put(key, data, "image/png")
    assert world.blobs.get(key) == data
    world.blobs.delete([key, key, "o/never"])
    with pytest.raises(NotFoundError):
        world.blobs.get(key)


def test_a_prefix_keeps_stores_of_one_bucket_apart(world: World) -> None:
    first, second = (S3BlobStore(world.s3, world.names.bucket, prefix) for prefix in ("one/", "two/"))
    first.put("k", b"1")
    second.put("k", b"2")
    assert (first.get("k"), second.get("k")) == (b"1", b"2")
    second.delete(["k"])
    assert first.get("k") == b"1"
    assert world.objects() == ["one/k"]


def test_more_keys_than_one_request_takes_are_all_removed(world: World) -> None:
    world.blobs.put("k1100", b"x")
    world.blobs.delete([f"k{n}" for n in range(1101)])
    assert world.objects() == []
    world.blobs.delete([])


def test_keys_are_listed_in_order_page_by_page_and_only_under_their_prefix(world: World) -> None:
    store = S3BlobStore(world.s3, world.names.bucket, "stage/")
    names = ["kept/a", "kept/b é", "kept/b/1", "kept/c"]
    for key in [*names, "keps", "kept-too", "other/kept/a"]:
        store.put(key, b"x")
    world.blobs.put("kept/elsewhere", b"x")
    assert store.list_keys("kept/") == tuple(names)
    assert store.list_keys("kept/", limit=2) == tuple(names[:2])
    assert store.list_keys("kept/", after=names[1], limit=2) == tuple(names[2:])
    assert store.list_keys("kept/", after=names[3]) == ()
    assert store.list_keys("none/") == ()


def test_a_link_yields_the_bytes_and_names_the_file(world: World) -> None:
    world.blobs.put("o/r/file", b"bytes", "text/plain")
    link = world.blobs.link("o/r/file", expires_in_s=60, filename='naïve "q".txt')
    asked = parse_qs(urlsplit(link).query)
    assert asked["X-Amz-Expires"] == ["60"]
    assert asked["response-content-disposition"] == [
        "inline; filename=\"na_ve _q_.txt\"; filename*=UTF-8''na%C3%AFve%20%22q%22.txt"
    ]
    if world.kind == "emulator":
        with urllib.request.urlopen(link) as answer:
            assert answer.read() == b"bytes"


def test_a_busy_bucket_and_a_wrong_one_are_told_apart(world: World) -> None:
    faults = Faults(world.s3)
    faults.refuse("GetObject", "SlowDown", 1, status=503)
    with pytest.raises(UnavailableError):
        world.blobs.get("k")
    faults.lose_answer("PutObject")
    with pytest.raises(UnavailableError):
        world.blobs.put("k", b"x")
    with pytest.raises(StorageError, match="NoSuchBucket"):
        S3BlobStore(world.s3, "no-such-bucket-here").put("k", b"x")


def test_prefixes_of_owners_never_contain_each_other() -> None:
    owners = ("team", "team-1", "TEAM-1", "team/1", "..", ".", "~", "%7E", "é" * 200, "x" * 512, "~" + "a" * 64)
    prefixes = [blob_prefix(owner) for owner in owners]
    assert len(set(prefixes)) == len(owners)
    assert not [(a, b) for a in prefixes for b in prefixes if a != b and b.startswith(a)]
    assert all(prefix.isascii() and len(prefix) < 210 and "/../" not in f"/{prefix}" for prefix in prefixes)


def test_a_large_object_is_written_in_pieces_and_read_by_ranges(world: World) -> None:
    pieces = [b"a" * 5 * 1024 * 1024, b"b" * 10]
    upload = world.blobs.begin_upload("o/r/big", "application/zip", expires=True)
    tags = [world.blobs.upload_piece("o/r/big", upload, number, data) for number, data in enumerate(pieces, 1)]
    assert world.blobs.upload_piece("o/r/big", upload, 2, pieces[1]) == tags[1]
    with pytest.raises(NotFoundError):
        world.blobs.head("o/r/big")
    world.blobs.finish_upload("o/r/big", upload, tags)
    world.blobs.finish_upload("o/r/big", upload, tags)
    assert world.blobs.head("o/r/big").size == 5 * 1024 * 1024 + 10
    assert world.blobs.get_range("o/r/big", 5 * 1024 * 1024 - 2, 5) == b"aabbb"
    assert world.blobs.get_range("o/r/big", 5 * 1024 * 1024 + 5, 500) == b"bbbbb"
    assert world.blobs.get_range("o/r/big", 6 * 1024 * 1024, 5) == b""
    if world.kind == "moto":  # the emulator drops the tags of an upload in pieces
        tagged = world.s3.get_object_tagging(Bucket=world.names.bucket, Key="o/r/big")["TagSet"]
        assert tagged == [{"Key": "expires", "Value": "soon"}]


def test_unfinished_uploads_are_removed_by_prefix(world: World) -> None:
    for key in ("o/r/one", "o/r/two", "o/r2/three"):
        world.blobs.upload_piece(key, world.blobs.begin_upload(key, "text/plain"), 1, b"x")
    assert world.blobs.abort_uploads("o/r/") == 2
    left = world.s3.list_multipart_uploads(Bucket=world.names.bucket).get("Uploads", [])
    assert [entry["Key"] for entry in left] == ["o/r2/three"]
    assert world.blobs.abort_uploads("o/r/") == 0


@pytest.mark.parametrize("versioned", [False, True])
def test_all_versions_under_a_prefix_are_listed_and_removed(world: World, versioned: bool) -> None:
    bucket = world.names.bucket
    if versioned:
        world.s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    for number in range(3):
        world.blobs.put(f"o/r/k{number}", b"old")
        world.blobs.put(f"o/r/k{number}", b"newer")
    world.blobs.put("o/r2/k", b"another's")
    world.blobs.delete(["o/r/k0"])
    found, cursor = [], None
    while True:
        page, cursor = world.blobs.list_versions("o/r/", cursor=cursor, limit=2)
        found += page
        if cursor is None:
            break
    assert len(found) == len(set(found)) == (7 if versioned else 2)
    assert {entry.key for entry in found} == ({"o/r/k0", "o/r/k1", "o/r/k2"} if versioned else {"o/r/k1", "o/r/k2"})
    assert sum(entry.marker for entry in found) == (1 if versioned else 0)
    texts = [world.blobs.get_version(entry) for entry in found if not entry.marker]
    assert sorted(texts) == ([b"newer"] * 3 + [b"old"] * 3 if versioned else [b"newer"] * 2)
    world.blobs.delete_versions(found)
    world.blobs.delete_versions(found)
    assert world.blobs.list_versions("")[0] == tuple(world.blobs.list_versions("o/r2/")[0])
    left, _ = world.blobs.list_versions("")
    assert [entry.key for entry in left] == ["o/r2/k"]


def test_what_is_put_for_a_week_carries_the_tag_of_the_lifecycle_rule(world: World) -> None:
    world.blobs.put_for_a_week("o/r/k", b"x", "text/plain")
    assert world.blobs.get("o/r/k") == b"x"
    assert isinstance(world.blobs, Archive)
    tagged = world.s3.get_object_tagging(Bucket=world.names.bucket, Key="o/r/k")["TagSet"]
    assert tagged == [{"Key": "expires", "Value": "soon"}]
