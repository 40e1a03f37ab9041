"""Moves files out of messages into storage, before the messages are stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from copy import copy
from dataclasses import dataclass, field
from typing import Any, TypeVar

from agent_memory.attachments import change_files, echo_to_reference, key_of, reference_to
from agent_memory.errors import ConfigurationError
from agent_memory.file_data import decode
from agent_memory.messages import Message, ToolPart
from agent_memory.ports import BlobStore
from agent_memory.processors.base import InputContext, OutputContext, RunContext, run_now

UPLOADS = "uploads"  # in RunContext.shared: keys that this run wrote, removed should it be stopped

Self = TypeVar("Self", bound="AttachmentUploader")


@dataclass(slots=True)
class _Target:
    """Where a run's files go."""

    resource_id: str | None = None
    run_id: str = ""
    uploads: list[str] = field(default_factory=list)
    submit: Callable[..., Future[Any]] = run_now


class AttachmentUploader:
    """Puts the bytes of new messages' files into storage and leaves a reference.

    Files are taken wherever they sit: in file parts and in `experimental_attachments` (where the same file is in both it
    is uploaded once), as data URLs or bare base64, and as data URLs inside tool results. Addresses are left alone; nothing is
    fetched. A link that was signed for this owner becomes the reference again, so links in the history never go stale.
    Loaded messages are not touched.

    Before the model: the messages of the request. After it: files that the model or its tools made. If an upload fails the
    turn fails; what a stopped run uploaded is removed.

    To keep files elsewhere, override `upload`; to choose what is uploaded, override `process_message`.

    Args:
        blobs: Where the files go; None: the run's storage for files.
    """

    id = "attachment-uploader"
    name = "AttachmentUploader"

    def __init__(self, blobs: BlobStore | None = None) -> None:
        self.blobs = blobs
        self._target = _Target()

    def process_input(self, ctx: InputContext) -> list[Message] | None:
        """Upload the files of new messages, and of outcomes that came in for stored calls."""
        worker = self._for(ctx.run)
        if worker is None:
            return None
        _settled_outcomes(worker, ctx.run)
        return worker._process([m for m in ctx.messages if ctx.message_list.source(m.id) == "input"], ctx.messages)

    def process_output_result(self, ctx: OutputContext) -> list[Message] | None:
        """Upload the files that the model and its tools made."""
        worker = self._for(ctx.run)
        return None if worker is None else worker._process(ctx.messages, ctx.messages)

    def process_message(self, message: Message) -> Message:
        """The message with references in place of its files; the same message where it has none."""
        target = self._target
        waiting: dict[str, Future[str]] = {}

        def start(address: str, media_type: str | None, filename: str | None) -> None:
            if address not in waiting and (found := decode(address, media_type=media_type, filename=filename)):
                waiting[address] = target.submit(self.upload, found.data, found.media_type)

        def finish(address: str, _media_type: str | None, _filename: str | None) -> str | None:
            if address in waiting:
                return waiting[address].result()
            return None if target.resource_id is None else echo_to_reference(address, target.resource_id)

        # Twice over the message: all uploads run at once, and equal files are one upload.
        change_files(message, start)
        return change_files(message, finish)

    def upload(self, data: bytes, content_type: str | None) -> str:
        """Store bytes and return what the message holds in their place: a reference, or any URL."""
        target = self._target
        if self.blobs is None or target.resource_id is None:
            raise ConfigurationError(
                "the attachment uploader has nowhere to put files: pass blobs=, set the attachments bucket, "
                "or override upload()",
                code="ATTACHMENT_UPLOADER_MISSING_STORAGE",
            )
        reference = reference_to(data, use=target.run_id)
        key = key_of(reference, target.resource_id)
        assert key is not None
        # Noted before it is written: a put whose answer is lost has happened all the same.
        target.uploads.append(key)
        self.blobs.put(key, data, content_type)
        return reference

    def _for(self: Self, run: RunContext) -> Self | None:
        """This uploader at work for one run; None for a run that stores nothing."""
        if run.thread_id is None or run.read_only:
            return None
        worker = copy(self)
        if run.blobs is None:
            # The run itself reads files for the prompt, and removes uploads when it is stopped.
            run.blobs = self.blobs
        worker.blobs = self.blobs if self.blobs is not None else run.blobs
        uploads = run.shared.setdefault(UPLOADS, [])
        worker._target = _Target(run.resource_id, run.run_id, uploads, run.submit)
        return worker

    def _process(self, new: Sequence[Message], given: Sequence[Message]) -> list[Message] | None:
        changed = {message.id: self.process_message(message) for message in new}
        if all(changed[message.id] is message for message in new):
            return None
        return [changed.get(message.id, message) for message in given]


def _settled_outcomes(worker: AttachmentUploader, run: RunContext) -> None:
    """Outcomes of client tools sit in stored messages, which hooks cannot change: their calls are set one by one."""
    for message in run.messages.updated():
        stored = run.messages.stored(message.id)
        before = (
            {} if stored is None else {p.invocation.tool_call_id: p for p in stored.parts if isinstance(p, ToolPart)}
        )
        new = [p for p in message.parts if isinstance(p, ToolPart) and before.get(p.invocation.tool_call_id) != p]
        done = worker.process_message(message.with_parts(new))
        for part, old in zip(done.parts, new, strict=True):
            if isinstance(part, ToolPart) and part is not old:
                run.messages.set_invocation(message.id, part.invocation)
