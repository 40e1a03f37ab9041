import base64

import pytest

from agent_memory.messages.media import as_url, is_address, is_url, media_type_of, split_data_url


@pytest.mark.parametrize(
    ("data", "given", "filename", "expected"),
    [
        ("AAAA", "a/b", None, "a/b"),
        ("iVBORw0KGgo=", "image/*", None, "image/png"),
        ("data:text/plain;charset=utf-8,x", None, None, "text/plain"),
        ("data:;base64,/9j/4AAQ", None, None, "image/jpeg"),
        (base64.b64encode(b"RIFF\x10\x20\x30\x40WEBPVP8 ").decode(), None, None, "image/webp"),
        (base64.b64encode(b"RIFF\x10\x20\x30\x40WAVEfmt ").decode(), None, None, None),
        (base64.b64encode(b"GIF89a....").decode(), None, None, "image/gif"),
        (base64.b64encode(b"%PDF-1.7").decode(), None, None, "application/pdf"),
        ("AAAA", None, "Report.DOCX", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
        ("https://e.example/a.png?sig=x.pdf#y", None, None, "image/png"),
        ("https://e.example/", None, None, None),
        ("AAAA", "nonsense", None, None),
    ],
)
def test_the_type_of_a_file(data, given, filename, expected):
    assert media_type_of(data, given=given, filename=filename) == expected


def test_urls_paths_and_base64_are_told_apart():
    assert is_url("https://e.example")
    assert is_url("data:,x")
    assert not is_url("iVBORw0KGgo=")
    assert is_address("/files/1")
    assert not is_address("/9j/4AAQ")
    assert not is_address("//uQxAAA")


def test_data_urls_are_taken_apart():
    assert split_data_url("data:text/plain;charset=utf-8,a%20b") == ("text/plain", False, "a%20b")
    assert split_data_url("DATA:image/png;base64,AA,AA") == ("image/png", True, "AA,AA")
    assert split_data_url("data:,x") == (None, False, "x")
    assert split_data_url("data:x") is None
    assert split_data_url("https://e.example") is None


def test_bare_base64_becomes_a_data_url():
    assert as_url("AAAA", "a/b") == "data:a/b;base64,AAAA"
    assert as_url("/9j/4AAQ", None) == "data:application/octet-stream;base64,/9j/4AAQ"
    assert as_url("/files/1", None) == "/files/1"
