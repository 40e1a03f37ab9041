"""Moves files out of messages into storage, before the messages are stored."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from copy import copy
from dataclasses import dataclass, field
from typing import Any, TypeVar

from agent_memory.attachments import (
    NewFile,
    addresses_in,
    change_files,
    echo_to_reference,
    key_of,
    name_of,
    reference_to,
)
from agent_memory.errors import ConfigurationError
from agent_memory.file_data import FileData, decode
from agent_memory.file_rules import FileRules, clean_filename
from agent_memory.messages import Message, ToolPart
from agent_memory.messages.file_types import checked_type
from agent_memory.ports import BlobStore, FileRecord, FileStore
from agent_memory.processors._saving import UPLOADS
from agent_memory.processors.base import InputContext, OutputContext, RunContext, run_now
from agent_memory.sent_files import SentFiles

Self = TypeVar("Self", bound="AttachmentUploader")


@dataclass(slots=True)
class _Target:
    """Where a run's files go. `use` is in their names, so that no other run's upload has the same."""

    resource_id: str | None = None
    use: str = ""
    uploads: list[str] = field(default_factory=list)
    submit: Callable[..., Future[Any]] = run_now
    sent: SentFiles | None = None
    noted: set[str] = field(default_factory=set)


class AttachmentUploader:
    """Puts the bytes of new messages' files into storage and leaves a reference.

    Files are taken wherever they sit: in file parts and in `experimental_attachments` (where the same file is in both it
    is uploaded once), as data URLs or bare base64, and as data URLs inside tool results. Addresses are left alone unless
    fetching is switched on. A link that was signed for this owner becomes the reference again, so links in the history never
    go stale. Loaded messages are not touched.

    Before the model: the messages of the request, which are held to the rules: how many files, how large, of which types; a
    type is kept where the bytes do not speak against it. After it: files that the model or its tools made. If an upload fails
    the turn fails; what a stopped run uploaded is removed.

    To keep files elsewhere, override `upload`; to choose what is uploaded, override `process_message`.

    Args:
        blobs: Where the files go; None: the run's storage for files.
        files: Where it is noted what messages use, so that unused files are removed; None: where the run's storage is used, what
            belongs to that, else nowhere.
        rules: What files are taken; None: the run's rules.
    """

    id = "attachment-uploader"
    name = "AttachmentUploader"

    def __init__(
        self, blobs: BlobStore | None = None, *, files: FileStore | None = None, rules: FileRules | None = None
    ) -> None:
        self.blobs = blobs
        self.files = files
        self.rules = rules
        self._target = _Target()

    def process_input(self, ctx: InputContext) -> list[Message] | None:
        """Upload the files of new messages, and of outcomes that came in for stored calls."""
        worker = self._for(ctx.run)
        if worker is None:
            return None
        new = [m for m in ctx.messages if ctx.message_list.source(m.id) == "input"]
        outcomes = _settled_outcomes(ctx.run)
        # All references of the request are looked up at once, and before the model is asked anything.
        worker._target.sent = worker._sent([*new, *(message for message, _ in outcomes)])
        worker._settle(outcomes, ctx.run)
        return worker._process(new, ctx.messages)

    def process_output_result(self, ctx: OutputContext) -> list[Message] | None:
        """Upload the files that the model and its tools made."""
        worker = self._for(ctx.run)
        if worker is None:
            return None
        worker._hold(message for message in ctx.messages if message.role == "assistant")
        return worker._process(ctx.messages, ctx.messages)

    def process_message(self, message: Message) -> Message:
        """The message with references in place of its files; the same message where it has none."""
        target = self._target
        found: dict[str, FileData] = {}
        waiting: dict[str, tuple[Future[str], str | None]] = {}

        def collect(address: str, media_type: str | None, filename: str | None) -> None:
            if address in found:
                return
            file = decode(address, media_type=media_type, filename=filename)
            if file is None and target.sent is not None:
                file = target.sent.fetched(address)
            if file is not None:
                kind, _ = checked_type(file.media_type, file.data)
                if target.sent is not None:
                    target.sent.check(file.data, kind)
                found[address] = FileData(file.data, kind)

        def finish(address: str, media_type: str | None, filename: str | None) -> str | NewFile | None:
            if address in waiting:
                upload, kind = waiting[address]
                return NewFile(upload.result(), kind, clean_filename(filename) if filename else filename)
            if target.sent is not None:
                return target.sent.changed(address, media_type, filename)
            return None if target.resource_id is None else echo_to_reference(address, target.resource_id)

        # Twice over the message: all uploads run at once, and equal files are one upload.
        change_files(message, collect)
        if type(self).upload is AttachmentUploader.upload:
            self._note(found.values())
        for address, file in found.items():
            waiting[address] = target.submit(self.upload, file.data, file.media_type), file.media_type
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
        reference = reference_to(data, use=target.use)
        key = key_of(reference, target.resource_id)
        assert key is not None
        self._note([FileData(data, content_type)])
        # A put whose answer is lost has happened all the same.
        target.uploads.append(key)
        self.blobs.put(key, data, content_type)
        return reference

    def _note(self, found: Iterable[FileData]) -> None:
        """Note bytes before they are written, so that those which no message ever takes are found again. One request."""
        target = self._target
        if self.files is None or target.resource_id is None:
            return
        records: dict[str, FileRecord] = {}
        for file in found:
            name = name_of(reference_to(file.data, use=target.use))
            if name is not None and name not in target.noted:
                records[name] = FileRecord(name=name, media_type=file.media_type, size=len(file.data))
        if records:
            self.files.expect(target.resource_id, tuple(records.values()))
            target.noted |= records.keys()

    def of_owner(self: Self, resource_id: str) -> Self:
        """This uploader for messages of one owner outside of a run; `uploads` then tells what it wrote."""
        worker = copy(self)
        worker._target = _Target(resource_id, secrets.token_hex(8))
        return worker

    @property
    def uploads(self) -> tuple[str, ...]:
        """Keys of what was written for this run or owner."""
        return tuple(self._target.uploads)

    def take(self, messages: Sequence[Message]) -> list[Message]:
        """New messages of a caller, held to the rules, with references in place of their files."""
        self._target.sent = self._sent(messages)
        return [self.process_message(message) for message in messages]

    def _for(self: Self, run: RunContext) -> Self | None:
        """This uploader at work for one run; None for a run that stores nothing."""
        if run.thread_id is None or run.read_only:
            return None
        worker = copy(self)
        if run.blobs is None:
            # The run itself reads files for the prompt, and removes uploads when it is stopped.
            run.blobs = self.blobs
        worker.blobs = self.blobs if self.blobs is not None else run.blobs
        if worker.files is None and worker.blobs is run.blobs:
            worker.files = run.files
        worker.rules = self.rules or run.file_rules
        uploads = run.shared.setdefault(UPLOADS, [])
        use = run.shared.setdefault("upload_use", secrets.token_hex(8))
        worker._target = _Target(run.resource_id, use, uploads, run.submit)
        return worker

    def _sent(self, messages: Iterable[Message]) -> SentFiles | None:
        owner = self._target.resource_id
        if owner is None:
            return None
        rules = self.rules or FileRules()
        return SentFiles.of(messages, owner, blobs=self.blobs, files=self.files, rules=rules)

    def _hold(self, messages: Iterable[Message]) -> None:
        """Keep files that answers refer to until they are stored: a tool may have found them by an old link. Else no request."""
        owner = self._target.resource_id
        if owner is None or self.files is None:
            return
        addresses = [address for message in messages for address in addresses_in(message)]
        names = dict.fromkeys(
            name_of(address) or name_of(echo_to_reference(address, owner) or "") for address in addresses
        )
        known = tuple(name for name in names if name is not None)
        if known:
            self.files.hold(owner, known)

    def _process(self, new: Sequence[Message], given: Sequence[Message]) -> list[Message] | None:
        changed = {message.id: self.process_message(message) for message in new}
        if all(changed[message.id] is message for message in new):
            return None
        return [changed.get(message.id, message) for message in given]

    def _settle(self, outcomes: Sequence[tuple[Message, Sequence[ToolPart]]], run: RunContext) -> None:
        """Outcomes of client tools sit in stored messages, which hooks cannot change: their calls are set one by one."""
        for message, new in outcomes:
            done = self.process_message(message)
            for part, old in zip(done.parts, new, strict=True):
                if isinstance(part, ToolPart) and part is not old:
                    run.messages.set_invocation(message.id, part.invocation)


def _settled_outcomes(run: RunContext) -> list[tuple[Message, list[ToolPart]]]:
    """Stored messages cut down to the outcomes that came in for them, and these."""
    found = []
    for message in run.messages.updated():
        stored = run.messages.stored(message.id)
        before = (
            {} if stored is None else {p.invocation.tool_call_id: p for p in stored.parts if isinstance(p, ToolPart)}
        )
        new = [p for p in message.parts if isinstance(p, ToolPart) and before.get(p.invocation.tool_call_id) != p]
        found.append((message.with_parts(new), new))
    return found
