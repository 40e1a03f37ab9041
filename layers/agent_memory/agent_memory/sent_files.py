"""The files of messages that a caller sends: held to the rules, and references among them looked up, all at once."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from agent_memory.attachments import NewFile, addresses_in, echo_to_reference, name_of
from agent_memory.errors import InvalidInputError
from agent_memory.file_data import FileData
from agent_memory.file_rules import FileRules, clean_filename
from agent_memory.messages import FilePart, Message
from agent_memory.ports import BlobStore, FileRecord, FileStore

FIELD = "messages"  # that errors name
FETCHED_BYTES: Final = 50 * 1024 * 1024  # of all files that a request has us fetch: they are in memory together
FETCHING_S: Final = 20.0


@dataclass(slots=True)
class SentFiles:
    """What is known of the files of new messages of one owner."""

    owner: str
    rules: FileRules
    held: Mapping[str, FileRecord] | None = None
    """Files that references among them name and that are there; None where nothing is noted of files."""
    addresses: frozenset[str] = frozenset()
    """Those of file parts and attachments; what stands in tool results is not the caller's wish to send a file."""
    _fetched: dict[str, FileData | None] = field(default_factory=dict)
    _fetching_s: float = 0.0

    @classmethod
    def of(
        cls,
        messages: Iterable[Message],
        owner: str,
        *,
        blobs: BlobStore | None,
        files: FileStore | None,
        rules: FileRules,
    ) -> SentFiles:
        """Look at messages. Without references no request, else two, and those of a check for each upload not checked yet.

        Raises:
            InvalidInputError: Too many files, or a reference to one that is not there.
            ConflictError: A reference to an upload whose bytes have not come.
        """
        explicit: set[str] = set()
        names: dict[str, None] = {}
        addresses: set[str] = set()
        for message in messages:
            sent = {part.data for part in message.parts if isinstance(part, FilePart)}
            sent |= {item.url for item in message.content.experimental_attachments or ()}
            rules.check_count(FIELD, len(sent))
            addresses |= sent
            for address in addresses_in(message):
                named = name_of(address)
                if named is not None:
                    explicit.add(named)
                found = named or name_of(echo_to_reference(address, owner) or "")
                if found is not None:
                    names[found] = None
        if not names or files is None:
            return cls(owner, rules, None if files is None else {}, frozenset(addresses))
        from agent_memory.uploads import hold_files

        held = hold_files(blobs, files, owner, names, rules=rules)
        missing = sorted(explicit - held.keys())
        if missing:
            raise InvalidInputError(
                FIELD,
                f"expected references to files that are there, found {missing[0]}; upload it (again)",
                code="ATTACHMENT_NOT_FOUND",
            )
        return cls(owner, rules, held, frozenset(addresses))

    def check(self, data: bytes, media_type: str | None) -> None:
        """Hold the bytes of a file to the rules. Raises InvalidInputError, TooLargeError."""
        self.rules.check_size(FIELD, len(data))
        self.rules.check_type(FIELD, media_type)

    def fetched(self, address: str) -> FileData | None:
        """The bytes behind an address of somebody else's, where fetching is switched on; None: it stays an address.

        Raises InvalidInputError, TooLargeError.
        """
        if not self.rules.fetch_remote or address not in self.addresses:
            return None
        if echo_to_reference(address, self.owner) is not None:
            return None
        if address not in self._fetched:
            from agent_memory.remote_files import TIMEOUT_S, fetch

            taken = sum(len(file.data) for file in self._fetched.values() if file is not None)
            began = time.monotonic()
            self._fetched[address] = fetch(
                address,
                max_bytes=max(0, min(self.rules.max_bytes, FETCHED_BYTES - taken)),
                timeout_s=max(0.0, min(TIMEOUT_S, FETCHING_S - self._fetching_s)),
            )
            self._fetching_s += time.monotonic() - began
        return self._fetched[address]

    def changed(self, address: str, media_type: str | None, filename: str | None) -> NewFile | None:
        """What a message holds of a file whose bytes did not come with it; None: what it came as."""
        name = name_of(address) or name_of(echo_to_reference(address, self.owner) or "")
        record = None
        if name is not None and (self.held is None or name in self.held):
            record = FileRecord(name=name) if self.held is None else self.held[name]
        now = NewFile(address, media_type, clean_filename(filename) if filename else filename)
        if record is not None:
            now = dataclasses.replace(
                now,
                address=record.reference,
                media_type=record.media_type or media_type,
                filename=now.filename or record.filename,
            )
        return None if now == NewFile(address, media_type, filename) else now
