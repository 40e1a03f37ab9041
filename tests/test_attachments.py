"""References to files, links to them, and what a model is handed."""

from __future__ import annotations

import base64

import pytest

from agent_memory import attachments
from agent_memory.attachments import (
    echo_to_reference,
    key_of,
    keys_in,
    owner_prefix,
    reference_to,
    resolve_links,
    to_prompt_file,
)
from agent_memory.aws._converse import converse_request
from agent_memory.aws.dynamodb.keys import blob_prefix
from agent_memory.file_data import decode
from agent_memory.messages import Attachment, FilePart
from agent_memory.messages.file_types import checked_type, is_active
from agent_memory.openai._body import completion_request
from agent_memory.ports import ModelRequest, PromptMessage, PromptText
from tests.support.build import call, stored
from tests.support.fake_blobs import FakeBlobs

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(40))
PNG_64 = base64.b64encode(PNG).decode()
OWNERS = ["ada", "team-1", "TEAM-1", "a/b", "..", ".", "~x", "ø漢😀", "x" * 300, "a b", "%2E"]


@pytest.fixture
def blobs() -> FakeBlobs:
    return FakeBlobs()


def test_an_owners_prefix_is_its_own_and_the_one_that_other_objects_have():
    prefixes = [owner_prefix(owner) for owner in OWNERS]
    assert prefixes == [blob_prefix(owner) for owner in OWNERS]
    assert not any(a != b and a.startswith(b) for a in prefixes for b in prefixes)


def test_a_reference_names_no_owner_and_leads_to_the_readers_own_file():
    reference = reference_to(PNG, use="run-1")
    assert key_of(reference, "ada").startswith(owner_prefix("ada"))
    assert key_of(reference, "bob").startswith(owner_prefix("bob"))
    assert reference_to(PNG, use="run-2") != reference
    assert reference_to(PNG, use="run-1") == reference


@pytest.mark.parametrize(
    "address",
    [
        "attachment://../../o/bob/files/x",
        "attachment://" + "A" * 64,
        "attachment://",
        "attachment://" + "a" * 64 + "/../x",
        "s3://our-bucket/bob/x.png",
        "https://example.org/x.png",
    ],
)
def test_case_86_only_names_that_we_made_have_a_key(address, blobs):
    assert key_of(address, "ada") is None
    message = stored("u1", "user", {"type": "file", "data": address, "mimeType": "image/png"})
    assert resolve_links(message, blobs) is message
    assert blobs.links == 0


def test_case_87_links_are_signed_when_read(blobs):
    reference = reference_to(PNG)
    raw = {"type": "file", "data": reference, "mimeType": "image/png", "filename": "dot.png"}
    message = stored(
        "u1",
        "user",
        raw,
        call("t1", "result", result={"images": [reference, "text"]}),
        experimental_attachments=[{"url": reference, "contentType": "image/png", "name": "dot.png"}],
    )
    once, again = resolve_links(message, blobs), resolve_links(message, blobs, expires_in_s=60)
    assert once.parts[0].data.startswith("https://files.example/")
    assert once.parts[0].data != again.parts[0].data
    assert once.parts[0].mime_type == "image/png"
    assert once.content.experimental_attachments[0].url.startswith("https://")
    assert once.parts[1].invocation.result["images"][0].startswith("https://")
    assert once.parts[1].invocation.result["images"][1] == "text"
    assert "Expires=60" in again.parts[0].data
    assert keys_in(message, "ada") == (key_of(reference, "ada"),)


@pytest.mark.parametrize("owner", OWNERS)
def test_an_echoed_link_becomes_its_reference_again(owner, blobs):
    reference = reference_to(PNG, use="run-1")
    link = blobs.link(key_of(reference, owner))
    assert echo_to_reference(link, owner) == reference
    assert echo_to_reference(link, "somebody else") is None
    assert echo_to_reference("https://example.org/x.png", owner) is None


def test_case_86_the_model_gets_bytes_of_own_files_and_addresses_as_they_are(blobs):
    reference = reference_to(PNG)
    blobs.put(key_of(reference, "ada"), PNG)

    def prompt_file(address, **fields):
        return to_prompt_file(FilePart(address, **fields), blobs=blobs, resource_id="ada")

    assert prompt_file(reference, mime_type="image/png").data == PNG
    assert prompt_file(f"data:image/png;base64,{PNG_64}").data == PNG
    assert prompt_file(PNG_64).media_type == "image/png"
    assert prompt_file("https://example.org/a.png").url == "https://example.org/a.png"
    assert prompt_file("file:///etc/passwd") is None
    assert prompt_file("s3://bucket/key") is None
    assert prompt_file(reference_to(b"gone")) is None
    assert to_prompt_file(FilePart(reference), blobs=blobs, resource_id="bob") is None
    shown = to_prompt_file(Attachment(reference, "image/png", "dot.png"), blobs=blobs, resource_id="ada")
    assert (shown.data, shown.filename) == (PNG, "dot.png")


def test_a_file_too_large_for_a_prompt_goes_as_a_link_or_is_named_in_words(blobs, monkeypatch):
    monkeypatch.setattr(attachments, "MAX_PROMPT_FILE_BYTES", len(PNG) - 1)
    reference = reference_to(PNG)
    blobs.put(key_of(reference, "ada"), PNG)
    shown = [
        to_prompt_file(FilePart(reference, kind, name), blobs=blobs, resource_id="ada")
        for kind, name in (("image/png", "dot.png"), ("video/mp4", "long.mp4"))
    ]
    assert [(file.data, file.size) for file in shown] == [(None, len(PNG))] * 2
    request = ModelRequest(messages=(PromptMessage("user", (PromptText("see"), *shown)),))
    words = f"{len(PNG)} bytes are too many to be shown"
    _, image, video = completion_request(request, "m")["messages"][0]["content"]
    assert image["image_url"]["url"] == shown[0].url
    assert words in video["text"]
    assert "long.mp4" in video["text"]
    _, image, video = converse_request(request, "m")["messages"][0]["content"]
    assert words in image["text"]
    assert "a type that this model cannot read" in video["text"]
    assert "X-Signature" not in str((image, video))


@pytest.mark.parametrize("kind", ["text/html", "image/svg+xml", "application/xhtml+xml", "text/javascript", None])
def test_links_to_files_that_a_browser_would_run_say_save(kind):
    assert is_active(kind)


@pytest.mark.parametrize(
    "kind", ["image/png", "application/pdf", "text/plain", "video/mp4", "application/octet-stream"]
)
def test_links_to_other_files_show_them(kind):
    assert not is_active(kind)


@pytest.mark.parametrize(
    ("data", "claimed", "found", "fits"),
    [
        (PNG, "image/png", "image/png", True),
        (PNG, "image/jpeg", "image/png", True),
        (PNG, None, "image/png", True),
        (PNG, "application/octet-stream", "image/png", True),
        (PNG, "text/plain", "image/png", False),
        (b"%PDF-1.7", "application/pdf", "application/pdf", True),
        (b"%PDF-1.7", "image/png", "application/pdf", False),
        (b"PK\x03\x04", "application/vnd.openxmlformats-officedocument.wordprocessingml.document", None, True),
        (b"PK\x03\x04", "image/png", "application/zip", False),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "application/msword", None, True),
        (b"OggS", "audio/ogg", None, True),
        (b"RIFF\0\0\0\0WAVE", "audio/x-wav", None, True),
        (b"RIFF\0\0\0\0WEBP", "image/png", "image/webp", True),
        (b"\0\0\0\x20ftypheic", "image/jpeg", "image/heic", True),
        (b"\0\0\0\x20ftypM4A ", "audio/mp4", None, True),
        (b"\0\0\0\x20ftypisom", "video/mp4", None, True),
        (b"\xef\xbb\xbf \n<!DOCTYPE HTML><p>", "image/png", "text/html", False),
        (b"<!-- x --><script>", "image/gif", "text/html", False),
        (b"<html>", "text/plain", None, True),
        (b"<?xml version='1.0'?><!-- x --><svg xmlns='x'>", "image/svg+xml", None, True),
        (b"<svg/onload=alert(1)>", "image/png", "image/svg+xml", False),
        (b"<?xml version='1.0'?><html>", "image/png", "application/xhtml+xml", False),
        (b"<?xml version='1.0'?><rss/>", "application/rss+xml", None, True),
        (b"a plain text", "text/plain", None, True),
        (b"a plain text", None, None, True),
        (b"MZ is a country code", "text/plain", None, True),
        (b"ID3 is a format", "text/plain", None, True),
        (b"<3 you", "text/plain", None, True),
        (b"", "image/png", None, True),
    ],
)
def test_a_type_is_kept_where_the_bytes_do_not_speak_against_it(data, claimed, found, fits):
    assert checked_type(claimed, data) == (found or claimed, fits)


@pytest.mark.parametrize(
    ("text", "data", "kind"),
    [
        (f"data:image/png;base64,{PNG_64}", PNG, "image/png"),
        (f"DATA:;base64,{PNG_64}", PNG, "image/png"),
        ("data:text/plain,caf%C3%A9%20x", "café x".encode(), "text/plain"),
        ("data:text/plain;charset=utf-8,a+b", b"a+b", "text/plain"),
        (PNG_64, PNG, "image/png"),
        (PNG_64.rstrip("="), PNG, "image/png"),
        ("data:image/png;base64," + PNG_64[:20] + "\n" + PNG_64[20:], PNG, "image/png"),
        (
            "data:image/png;base64," + PNG_64.replace("+", "%2B").replace("/", "%2F").replace("=", "%3D"),
            PNG,
            "image/png",
        ),
        (base64.urlsafe_b64encode(b"\xff\xfe\xfd").decode(), b"\xff\xfe\xfd", None),
        ("data:application/x;base64,", b"", "application/x"),
    ],
)
def test_bytes_are_read_in_every_form(text, data, kind):
    found = decode(text)
    assert (found.data, found.media_type) == (data, kind)


@pytest.mark.parametrize(
    "text", ["", "https://x.org/a", "/files/a.png", "not base64!", "data:image/png;base64,A", "data:x"]
)
def test_what_holds_no_bytes_is_not_guessed_at(text):
    assert decode(text) is None
