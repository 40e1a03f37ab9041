"""Files of messages when threads are copied or handed over, and when links come back."""

from __future__ import annotations

import base64
from typing import Any
from unittest.mock import patch

import pytest

from agent_memory.attachments import key_of, owner_prefix, reference_to, resolve_links
from agent_memory.errors import AccessDeniedError, ConflictError, UnavailableError
from agent_memory.memory import Memory
from agent_memory.memory.files import copy_files
from agent_memory.messages import Attachment, FilePart, Message, TextPart
from tests.support.fake_blobs import FakeBlobs
from tests.support.memories import Bench, message

PICTURE = b"\x89PNG picture"
REFERENCE = reference_to(PICTURE)


def with_picture(blobs: FakeBlobs) -> Message:
    blobs.put(key_of(REFERENCE, "ada") or "", PICTURE, "image/png")
    return message("m1", "look").with_content(
        parts=(TextPart("look"), FilePart(REFERENCE, "image/png", "cat.png")),
        experimental_attachments=(Attachment(REFERENCE, "image/png", "cat.png"),),
    )


def test_a_clone_for_another_owner_has_files_of_its_own_case_90(bench: Bench) -> None:
    blobs = FakeBlobs()
    memory = Memory(storage=bench.store, blobs=blobs)
    memory.save_messages([with_picture(blobs)])

    same = memory.clone_thread("t1")
    other = memory.clone_thread("t1", resource_id="bob")

    assert len(blobs.objects) == 2
    copy = next(key for key in blobs.objects if key.startswith(owner_prefix("bob")))
    assert (blobs.objects[copy], blobs.types[copy]) == (PICTURE, "image/png")
    for clone in (same, other):
        (row,) = memory.recall(clone.thread.id).messages
        attachment = (row.content.experimental_attachments or ())[0]
        assert (attachment.url, attachment.content_type, attachment.name) == (REFERENCE, "image/png", "cat.png")
        assert owner_prefix(clone.thread.resource_id).replace("/", "") in str(
            resolve_links(row, blobs).parts[1].data  # type: ignore[union-attr]
        ).replace("/", "")


def test_a_transfer_takes_the_files_along(bench: Bench) -> None:
    blobs = FakeBlobs()
    memory = Memory(storage=bench.store, blobs=blobs)
    memory.save_messages([with_picture(blobs)])

    memory.transfer_thread("t1", "bob")

    assert blobs.get(key_of(REFERENCE, "bob") or "") == PICTURE


def test_a_link_that_comes_back_is_stored_as_its_reference_case_87(bench: Bench) -> None:
    blobs = FakeBlobs()
    memory = Memory(storage=bench.store, blobs=blobs)
    sent = with_picture(blobs)
    shown = resolve_links(sent, blobs)
    assert shown != sent

    memory.save_messages([shown])

    (row,) = memory.recall("t1").messages
    assert row.parts[1] == sent.parts[1]
    assert row.content.experimental_attachments == sent.content.experimental_attachments


def test_a_save_that_fails_for_one_thread_keeps_the_files_of_those_that_are_stored(bench: Bench) -> None:
    blobs = FakeBlobs()
    memory = Memory(storage=bench.store, blobs=blobs)
    memory.save_messages([message(f"m{n:03d}", thread="t2", minute=n) for n in range(120)])
    file = FilePart(f"data:image/png;base64,{base64.b64encode(PICTURE).decode()}", "image/png", None)
    other = FilePart(f"data:image/png;base64,{base64.b64encode(PICTURE + b'2').decode()}", "image/png", None)

    with pytest.raises(ConflictError, match="new thread"):
        memory.save_messages(
            [
                message("a", thread="t1").with_content(parts=(file,)),
                message("b", thread="t2", minute=-1).with_content(parts=(other,)),
            ]
        )

    (row,) = memory.recall("t1").messages
    part = row.parts[0]
    assert isinstance(part, FilePart)
    assert blobs.get(key_of(part.data, "ada") or "") == PICTURE


def test_a_save_that_may_be_stored_keeps_its_files(bench: Bench) -> None:
    blobs, save = FakeBlobs(), bench.store.save_messages
    memory = Memory(storage=bench.store, blobs=blobs)
    file = FilePart(f"data:image/png;base64,{base64.b64encode(PICTURE).decode()}", "image/png", None)

    def answer_lost(*args: Any, **fields: Any) -> None:
        save(*args, **fields)
        raise UnavailableError("no answer")

    with patch.object(bench.store, "save_messages", answer_lost), pytest.raises(UnavailableError):
        memory.save_messages([message("a").with_content(parts=(file,))])

    (row,) = memory.recall("t1").messages
    part = row.parts[0]
    assert isinstance(part, FilePart)
    assert blobs.get(key_of(part.data, "ada") or "") == PICTURE


def test_a_save_that_is_refused_leaves_no_file_behind(bench: Bench) -> None:
    blobs = FakeBlobs()
    memory = Memory(storage=bench.store, blobs=blobs)
    memory.save_messages([message("b", owner="bob")])
    file = FilePart(f"data:image/png;base64,{base64.b64encode(PICTURE).decode()}", "image/png", None)
    with pytest.raises(AccessDeniedError):
        memory.save_messages([message("a").with_content(parts=(file,))])
    assert (blobs.puts, blobs.objects) == (1, {})


def test_files_that_are_gone_are_left_out() -> None:
    blobs = FakeBlobs()
    sent = with_picture(blobs)
    blobs.objects.clear()

    assert copy_files(blobs, [sent], "ada", "bob") == 0
    assert copy_files(None, [sent], "ada", "bob") == 0
