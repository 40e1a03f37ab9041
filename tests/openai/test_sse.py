import pytest

from agent_memory.errors import ModelError
from agent_memory.openai import _sse
from agent_memory.openai._sse import events

STREAM = (
    b"\xef\xbb\xbfignored\n: comment\r\n\r\ndata: one\r\n\r\nevent: x\rdata:two\rdata:  three\r\r"
    b'data: {"a": "\xc3\xa9\xe6\x97\xa5"}\n\nid: 4\n\ndata: last'
)
EXPECTED = ["one", "two\n three", '{"a": "é日"}', "last"]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_events_are_read_however_the_bytes_are_cut(size):
    assert list(events(STREAM[start : start + size] for start in range(0, len(STREAM), size))) == EXPECTED


def test_an_event_is_given_as_soon_as_it_is_complete():
    given = []

    def pieces():
        yield b"data: one\n\nda"
        given.append("cut")
        yield b"ta: two\n\n"

    given.extend(event for event in events(pieces()))
    assert given == ["one", "cut", "two"]


def test_a_stream_without_events_ends(monkeypatch):
    assert list(events([])) == []
    monkeypatch.setattr(_sse, "MAX_EVENT_BYTES", 10)
    with pytest.raises(ModelError):
        list(events([b"x" * 11]))
