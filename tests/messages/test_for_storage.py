import pytest

from agent_memory.messages.for_storage import for_storage
from tests.support.build import STEP, call, stored


def test_a_message_without_anything_to_leave_out_is_the_same_object():
    message = stored(
        "a1", "assistant", STEP, " spaces stay ", call("c1"), {"type": "data-x", "data": 1}, content=" spaces stay "
    )

    assert for_storage(message) is message


def test_half_arrived_calls_and_working_memory_updates_are_left_out():
    message = stored(
        "a1",
        "assistant",
        "x",
        call("c1", "partial-call"),
        call("c2", "result", name="updateWorkingMemory", result={}),
        call("c3", "result", name="setWorkingMemory", result={}),
        call("c4"),
    )

    assert [part.invocation.tool_call_id for part in for_storage(message).parts[1:]] == ["c3", "c4"]


def test_working_memory_spans_are_cut_out_of_text():
    message = stored(
        "a1", "assistant", " before <working_memory>\n# a\n</working_memory>after <working_memory>b</working_memory> ",
        content="x <working_memory>b</working_memory>",
    )  # fmt: skip

    kept = for_storage(message)

    assert kept.text == "before after"
    assert kept.content.content == "x"


@pytest.mark.parametrize(
    "words", ["a <working_memory> b ", "</working_memory> b <working_memory>", " <Working_memory>x"]
)
def test_text_without_a_whole_span_stays(words):
    message = stored("a1", "assistant", words)

    assert for_storage(message) is message


def test_a_flood_of_open_tags_is_quick():
    message = stored("a1", "assistant", "<working_memory>" * 100_000)

    assert for_storage(message) is message


def test_a_message_of_which_nothing_is_left_is_not_stored():
    assert for_storage(stored("a1", "assistant")) is None
    assert for_storage(stored("a1", "assistant", STEP, call("c1", "partial-call"))) is None
    assert for_storage(stored("a1", "assistant", "<working_memory>b</working_memory>")) is None
    assert for_storage(stored("s1", "system", "be brief")) is None
    assert for_storage(stored("u1", "user", experimental_attachments=[{"url": "u:1"}])) is not None
