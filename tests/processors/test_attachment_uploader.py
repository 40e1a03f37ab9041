"""Files leave messages before these are stored."""

from __future__ import annotations

import base64
from unittest.mock import patch

import pytest

from agent_memory import Agent, Memory, MemoryArgs
from agent_memory.attachments import keys_in, owner_prefix
from agent_memory.errors import ConfigurationError, InvalidInputError, TooLargeError, UnavailableError
from agent_memory.file_rules import FileRules
from agent_memory.messages import FilePart, TextPart
from agent_memory.messages.message import message_to_json
from agent_memory.options import MemoryOptions
from agent_memory.ports import FileRecord, PromptFile
from agent_memory.processors.attachment_uploader import AttachmentUploader
from agent_memory.processors.input_filter import MemoryInputFilter
from agent_memory.processors.message_history import MessageHistory
from agent_memory.processors.pipeline import Pipeline
from tests.support.build import call, stored
from tests.support.fake_blobs import FakeBlobs
from tests.support.fake_store import FakeStore
from tests.support.models import FakeModel
from tests.support.runs import assistant, make_run, process_input, seed, user

PNG = b"\x89PNG\r\n\x1a\n" + bytes(200) * 5
URL = "data:image/png;base64," + base64.b64encode(PNG).decode()


@pytest.fixture
def blobs() -> FakeBlobs:
    return FakeBlobs()


@pytest.fixture
def store() -> FakeStore:
    return FakeStore()


def picture(url=URL, **fields):
    return {"type": "file", "mediaType": "image/png", "url": url, **fields}


def upload(store, blobs, raw, **fields):
    run = make_run(store, raw, blobs=blobs, **fields)
    return process_input(run, MemoryInputFilter(), MessageHistory(), AttachmentUploader())


class TestInput:
    def test_a_file_part_becomes_a_reference_to_the_same_bytes(self, store, blobs):
        run = upload(store, blobs, [user("look", "u1") | {"parts": [picture(filename="dot.png")]}])
        part = run.messages.get("u1").parts[0]
        assert part.data.startswith("attachment://")
        assert (part.mime_type, part.filename) == ("image/png", "dot.png")
        [key] = keys_in(run.messages.get("u1"), "ada")
        assert key.startswith(owner_prefix("ada"))
        assert blobs.objects[key] == PNG
        assert blobs.types[key] == "image/png"
        assert run.shared["uploads"] == [key]

    def test_case_26_attachments_and_parts_are_both_taken_and_equal_files_once(self, store, blobs):
        attachments = [
            {"url": URL, "contentType": "image/png", "name": "a.png"},
            {"url": "https://example.org/b.png", "contentType": "image/png"},
        ]
        message = stored("u1", "user", "see", {"type": "file", "data": URL}, experimental_attachments=attachments)
        changed = AttachmentUploader(blobs)._for(make_run(store)).process_message(message)
        first, second = changed.content.experimental_attachments
        assert first.url == changed.parts[1].data != URL
        assert (first.content_type, first.name) == ("image/png", "a.png")
        assert second.url == "https://example.org/b.png"
        assert changed.parts[1].mime_type == "image/png"
        assert blobs.puts == 1
        assert message.parts[1].data == URL, "the message handed in is not changed"
        assert "base64" not in str(message_to_json(changed))

    def test_percent_encoded_and_bare_data_are_taken_too(self, store, blobs):
        raw = [user("x", "u1") | {"parts": [picture("data:text/plain,hi%20there"), picture(URL.split(",")[1])]}]
        upload(store, blobs, raw)
        assert sorted(blobs.objects.values()) == sorted([PNG, b"hi there"])

    def test_the_bytes_of_an_echo_are_not_uploaded(self, store, blobs):
        seed(store, [stored("u1", "user", {"type": "file", "data": URL})])
        upload(store, blobs, [user("x", "u1") | {"parts": [picture()]}, assistant("y", id="a1"), user("z", "u2")])
        assert blobs.puts == 0

    def test_loaded_history_is_not_uploaded_again(self, store, blobs):
        seed(store, [stored("u1", "user", {"type": "file", "data": URL})])
        before = store.rows("trip-42")
        upload(store, blobs, [user("hi", "u2")])
        assert blobs.puts == 0
        assert store.rows("trip-42") == before

    def test_a_signed_link_that_comes_back_is_stored_as_its_reference(self, store, blobs):
        run = upload(store, blobs, [user("x", "u1") | {"parts": [picture()]}])
        reference = run.messages.get("u1").parts[0].data
        link = blobs.link(keys_in(run.messages.get("u1"), "ada")[0])
        again = upload(store, blobs, [user("again", "u2") | {"parts": [picture(link)]}])
        assert again.messages.get("u2").parts[0].data == reference
        stranger = make_run(
            store, [user("x", "u3") | {"parts": [picture(link)]}], resource="bob", thread="t2", blobs=blobs
        )
        process_input(stranger, AttachmentUploader())
        assert stranger.messages.get("u3").parts[0].data == link

    def test_case_92_pictures_in_outcomes_of_client_tools_are_moved(self, store, blobs):
        seed(store, [stored("a1", "assistant", "wait", call("t1"))])
        told = call("t1", "result", result={"image": URL, "note": "data: words, not a file"})
        run = upload(store, blobs, [assistant(told, id="a1")])
        [changed] = run.messages.updated()
        result = changed.parts[1].invocation.result
        assert result["image"].startswith("attachment://")
        assert result["note"] == "data: words, not a file"
        assert blobs.puts == 1

    def test_case_26_a_failing_upload_fails_the_turn_and_names_what_was_written(self, store, blobs):
        blobs.fail, blobs.fail_on = UnavailableError("busy"), 2
        other = "data:image/png;base64," + base64.b64encode(PNG + b"2").decode()
        raw = [user("x", "u1") | {"parts": [picture(), picture(other)]}]
        run = make_run(store, raw, blobs=blobs)
        with pytest.raises(UnavailableError):
            process_input(run, AttachmentUploader())
        blobs.delete(run.shared["uploads"])
        assert blobs.objects == {}

    def test_two_runs_with_the_same_picture_share_no_object(self, store, blobs):
        raw = [user("x", "u1") | {"parts": [picture()]}]
        first, second = make_run(store, raw, blobs=blobs), make_run(store, raw, blobs=blobs, resource="ada")
        second.run_id = "run-2"
        for run in (first, second):
            process_input(run, AttachmentUploader())
        blobs.delete(second.shared["uploads"])
        [key] = keys_in(first.messages.get("u1"), "ada")
        assert blobs.objects[key] == PNG

    def test_read_only_runs_and_runs_without_memory_upload_nothing(self, store, blobs):
        raw = [user("x", "u1") | {"parts": [picture()]}]
        upload(store, blobs, raw, options=MemoryOptions.of({"read_only": True}))
        process_input(make_run(None, raw, thread=None, resource=None, blobs=blobs), AttachmentUploader())
        assert blobs.puts == 0

    def test_without_a_place_for_files_the_error_says_so(self, store):
        with pytest.raises(ConfigurationError, match="nowhere to put files"):
            upload(store, None, [user("x", "u1") | {"parts": [picture()]}])
        upload(store, None, [user("no file", "u2")])


class TestOutput:
    def test_case_92_files_of_the_model_and_of_tools_are_moved_before_the_turn_is_stored(self, store, blobs):
        run = make_run(store, [user("draw", "u1")], blobs=blobs)
        tool = stored("x", "assistant", call("t1", "result", result=[{"image": URL}])).parts[0]
        run.messages.begin_answer(stored("answer-1", "assistant"))
        run.messages.set_answer_parts([TextPart("here"), FilePart(URL, "image/png"), tool])
        Pipeline((), (AttachmentUploader(), MessageHistory()), run).process_output_result(None)
        text, file, called = store.rows("trip-42")[1].parts
        assert text.text == "here"
        assert file.data.startswith("attachment://")
        assert called.invocation.result[0]["image"] == file.data
        assert blobs.puts == 1


class Noted:
    """A FileStore that notes what it is told, in the order of the puts."""

    def __init__(self, blobs, held=()):
        self.blobs, self.held = blobs, held
        self.expected, self.asked, self.requests = [], [], 0

    def expect(self, resource_id, files):
        self.requests += 1
        self.expected += [(resource_id, file.name, file.media_type, file.size, self.blobs.puts) for file in files]

    def hold(self, resource_id, names):
        self.asked.append((resource_id, tuple(names)))
        return {name: FileRecord(name=name, media_type="image/png", filename="up.png") for name in self.held}


class TestNotes:
    def test_bytes_are_noted_before_they_are_written_also_by_an_uploader_placed_by_hand(self, store, blobs):
        files = Noted(blobs)
        run = upload(store, blobs, [user("x", "u1") | {"parts": [picture()]}], files=files)
        name = run.messages.get("u1").parts[0].data.removeprefix("attachment://")
        assert files.expected == [("ada", name, "image/png", len(PNG), 0)]
        assert files.asked == []

    def test_all_files_of_a_message_are_noted_in_one_request(self, store, blobs):
        files = Noted(blobs)
        others = ["data:text/plain," + "x" * n for n in range(1, 9)]
        parts = [picture(), *(picture(other, mediaType="text/plain") for other in others)]
        upload(store, blobs, [user("x", "u1") | {"parts": parts}], files=files)
        assert (files.requests, len(files.expected), blobs.puts) == (1, 9, 9)

    def test_an_uploader_with_storage_of_its_own_notes_nothing_in_the_runs(self, store, blobs):
        files = Noted(blobs)
        run = make_run(store, [user("x", "u1") | {"parts": [picture()]}], blobs=FakeBlobs(), files=files)
        process_input(run, AttachmentUploader(blobs))
        assert blobs.puts == 1
        assert files.expected == []

    def test_references_are_held_before_the_model_is_asked_and_unknown_ones_refused(self, store, blobs):
        upload_name, gone = "u-" + "a" * 32, "u-" + "b" * 32
        files = Noted(blobs, held=(upload_name,))
        parts = [picture(f"attachment://{upload_name}", mediaType=None)]
        run = upload(store, blobs, [user("x", "u1") | {"parts": parts}], files=files)
        assert files.asked == [("ada", (upload_name,))]
        part = run.messages.get("u1").parts[0]
        assert (part.mime_type, part.filename) == ("image/png", "up.png")
        with pytest.raises(InvalidInputError, match=gone):
            upload(store, blobs, [user("x", "u2") | {"parts": [picture(f"attachment://{gone}")]}], files=files)
        link = blobs.link(f"{owner_prefix('ada')}files/{gone}")
        run = upload(store, blobs, [user("x", "u3") | {"parts": [picture(link)]}], files=files)
        assert run.messages.get("u3").parts[0].data == link, "a link to what is gone stays what it is"

    def test_rules_of_the_run_hold(self, store, blobs):
        rules = FileRules(max_bytes=10)
        with pytest.raises(TooLargeError):
            upload(store, blobs, [user("x", "u1") | {"parts": [picture()]}], file_rules=rules)
        parts = [picture("https://example.org/a/b", filename="../../x\x00.png")]
        run = upload(store, blobs, [user("x", "u2") | {"parts": parts}], file_rules=rules)
        assert run.messages.get("u2").parts[0].filename == "x.png"
        parts = [picture("data:text/plain,hi", filename="a/b\\c\u202e.txt", mediaType="text/plain")]
        run = upload(store, blobs, [user("x", "u3") | {"parts": parts}], file_rules=rules)
        assert run.messages.get("u3").parts[0].filename == "c.txt"

    def test_runs_under_one_id_never_share_a_name(self, store, blobs):
        raw = [user("x", "u1") | {"parts": [picture()]}]
        first, second = (process_input(make_run(store, raw, blobs=blobs), AttachmentUploader()) for _ in range(2))
        assert first.run_id == second.run_id
        blobs.delete(second.shared["uploads"])
        [key] = keys_in(first.messages.get("u1"), "ada")
        assert blobs.objects[key] == PNG

    def test_files_that_a_tool_found_are_held_before_the_answer_is_stored(self, store, blobs):
        name, old = "a" * 64, "b" * 64
        files = Noted(blobs)
        run = make_run(store, [user("show", "u1")], blobs=blobs, files=files)
        found = {"image": f"attachment://{name}", "link": blobs.link(f"{owner_prefix('ada')}files/{old}")}
        tool = stored("x", "assistant", call("t1", "result", result=found)).parts[0]
        run.messages.begin_answer(stored("answer-1", "assistant"))
        run.messages.set_answer_parts([tool, FilePart(URL, "image/png")])
        Pipeline((), (AttachmentUploader(), MessageHistory()), run).process_output_result(None)
        assert files.asked == [("ada", (name, old))]
        assert store.rows("trip-42")[1].parts[0].invocation.result["link"] == f"attachment://{old}"


class TestOwnUploader:
    def test_upload_can_be_overridden(self, store):
        kept = []

        class Elsewhere(AttachmentUploader):
            def upload(self, data, content_type):
                kept.append((data, content_type))
                return "https://cdn.example/1"

        run = process_input(make_run(store, [user("x", "u1") | {"parts": [picture()]}]), Elsewhere())
        assert run.messages.get("u1").parts[0].data == "https://cdn.example/1"
        assert kept == [(PNG, "image/png")]

    def test_process_message_can_be_overridden(self, store, blobs):
        class OnlyUsers(AttachmentUploader):
            def process_message(self, message):
                return message if "keep" in message.text else super().process_message(message)

        raw = [
            user("keep", "u1") | {"parts": [{"type": "text", "text": "keep"}, picture()]},
            user("x", "u2") | {"parts": [picture()]},
        ]
        run = process_input(make_run(store, raw, blobs=blobs), OnlyUsers())
        assert run.messages.get("u1").parts[1].data == URL
        assert run.messages.get("u2").parts[0].data.startswith("attachment://")


class TestAgent:
    class Guard:
        """Stops the run in one hook."""

        id = "guard"

        def __init__(self, hook):
            setattr(self, hook, self.stop)

        def stop(self, ctx):
            ctx.abort("no")

    def ask(self, store, blobs, *, inputs=(), outputs=(), model=None):
        memory = Memory(storage=store)
        uploader = AttachmentUploader(blobs)
        agent = Agent("a", model=model or FakeModel(), memory=memory, output_processors=outputs)
        agent.input_processors = (uploader, *inputs)
        content = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "look"}, picture()]}
        return agent.generate([content], memory=MemoryArgs("trip-42", "ada"))

    def test_the_model_sees_the_bytes_of_a_file_that_was_moved(self, store, blobs):
        model = FakeModel()
        self.ask(store, blobs, model=model)
        [file] = [p for m in model.requests[0].messages for p in m.content if isinstance(p, PromptFile)]
        assert (file.data, file.media_type) == (PNG, "image/png")
        assert store.rows("trip-42")[0].parts[1].data.startswith("attachment://")
        assert len(blobs.objects) == 1

    @pytest.mark.parametrize("hook", ["process_input", "process_llm_request"])
    def test_case_65_an_input_guard_behind_the_uploader_leaves_no_object(self, store, blobs, hook):
        result = self.ask(store, blobs, inputs=[self.Guard(hook)])
        assert result.tripwire.reason == "no"
        assert blobs.puts == 1
        assert blobs.objects == {}
        assert store.rows("trip-42") == ()

    @pytest.mark.parametrize("hook", ["process_output_stream", "process_output_step", "process_output_result"])
    def test_case_65_an_output_guard_leaves_no_object(self, store, blobs, hook):
        assert self.ask(store, blobs, outputs=[self.Guard(hook)]).tripwire.reason == "no"
        assert blobs.objects == {}
        assert store.rows("trip-42") == ()

    def test_case_26_a_failing_upload_calls_no_model_and_stores_nothing(self, store, blobs):
        blobs.fail = UnavailableError("busy")
        model = FakeModel()
        with pytest.raises(UnavailableError):
            self.ask(store, blobs, model=model)
        assert model.requests == []
        assert store.rows("trip-42") == ()

    def test_a_turn_that_may_be_stored_keeps_its_files(self, store, blobs):
        commit = store.commit

        def answer_lost(given):
            commit(given)
            raise UnavailableError("no answer")

        with patch.object(store, "commit", answer_lost), pytest.raises(UnavailableError):
            self.ask(store, blobs)
        [key] = keys_in(store.rows("trip-42")[0], "ada")
        assert blobs.objects[key] == PNG
