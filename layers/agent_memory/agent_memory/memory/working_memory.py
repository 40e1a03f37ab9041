"""Working memory by hand: read, write, patch, delete, and its versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from agent_memory import working_memory as text_of
from agent_memory._json import dumps, loads
from agent_memory.errors import ConflictError, InvalidInputError
from agent_memory.ids import check_id
from agent_memory.memory.base import UNSET, MemoryBase, Owner, Unset
from agent_memory.options import MemoryOptions, WorkingMemoryOptions
from agent_memory.ports import WorkingMemoryRecord

PATCH_TRIES: Final = 8


class WorkingMemoryCalls(MemoryBase):
    """The part of the facade that deals with working memory.

    Under scope ``resource`` a call needs the resource (or one of its threads), under scope ``thread`` an existing thread.
    """

    def get_working_memory(
        self,
        *,
        thread_id: str | Unset = UNSET,
        resource_id: Owner = UNSET,
        thread_config: Mapping[str, Any] | None = None,
    ) -> str | None:
        """The text (JSON under a schema), or None where it was never written, was deleted, or is switched off."""
        record = self.get_working_memory_record(
            thread_id=thread_id, resource_id=resource_id, thread_config=thread_config
        )
        return None if record is None else record.text

    def get_working_memory_record(
        self,
        *,
        thread_id: str | Unset = UNSET,
        resource_id: Owner = UNSET,
        thread_config: Mapping[str, Any] | None = None,
    ) -> WorkingMemoryRecord | None:
        """The text with its version and date, or None."""
        options = self._merged(thread_config)
        if options.working_memory is None:
            return None
        return self.storage.get_working_memory(*self._keeper(options.working_memory, thread_id, resource_id))

    def update_working_memory(
        self,
        working_memory: str | Mapping[str, Any],
        *,
        thread_id: str | Unset = UNSET,
        resource_id: Owner = UNSET,
        expected_version: int | None = None,
        thread_config: Mapping[str, Any] | None = None,
    ) -> WorkingMemoryRecord:
        """Replace the text. The same text again changes nothing, not even the version.

        Args:
            working_memory: Text; under a schema an object or its JSON text.
            thread_id, resource_id: Whose.
            expected_version: The version this is based on (0: none yet); None: any.
            thread_config: Memory options for this call.

        Raises:
            InvalidInputError: Working memory is off, the text is blank, or it is the bare template and would erase what is
                known: delete it instead.
            ConflictError: The version is not the current one.
        """
        options = self._on(thread_config)
        text = _as_text(options, working_memory)
        owner, thread = self._keeper(options, thread_id, resource_id)
        current = self.storage.get_working_memory(owner, thread)
        if current is not None and current.text == text and expected_version in (None, current.version):
            return current
        if (
            current is not None
            and current.text.strip()
            and text_of.folded(text) == text_of.folded(self._template_text(options))
        ):
            raise InvalidInputError(
                "workingMemory",
                "expected more than the bare template, which would erase what is known; delete working memory instead",
            )
        return self.storage.put_working_memory(owner, thread, text, expected_version=expected_version)

    def patch_working_memory(
        self,
        patch: Mapping[str, Any],
        *,
        thread_id: str | Unset = UNSET,
        resource_id: Owner = UNSET,
        expected_version: int | None = None,
        thread_config: Mapping[str, Any] | None = None,
    ) -> WorkingMemoryRecord:
        """Change a piece. Patches made at once all survive, or the later one gets a conflict when it names a version.

        Args:
            patch: Under a schema a JSON merge patch (null removes a key); for markdown ``{"search", "replace"}``.
            thread_id, resource_id: Whose.
            expected_version: The version this is based on; None: the current one, whichever that is.
            thread_config: Memory options for this call.

        Raises:
            InvalidInputError: Working memory is off, or the patch is of the wrong kind, or its search text is not there.
            ConflictError: The version is not the current one.
        """
        options = self._on(thread_config)
        if not isinstance(patch, Mapping):
            raise InvalidInputError("patch", f"expected an object, found {type(patch).__name__}")
        owner, thread = self._keeper(options, thread_id, resource_id)
        for attempt in range(PATCH_TRIES):
            current = self.storage.get_working_memory(owner, thread)
            version = current.version if current is not None else self._last_version(owner, thread)
            if expected_version is not None and expected_version != version:
                raise ConflictError(
                    f"working memory: expected version {expected_version}, found {version}; read it and patch again",
                    code="WORKING_MEMORY_CONFLICT",
                )
            known = current.text if current is not None else ""
            text = text_of.apply_patch(known, patch, schema=options.schema is not None)
            if current is not None and text == current.text:
                return current
            try:
                return self.storage.put_working_memory(owner, thread, text, expected_version=version)
            except ConflictError:
                if expected_version is not None or attempt == PATCH_TRIES - 1:
                    raise
        raise AssertionError("the loop returns or raises")

    def delete_working_memory(
        self,
        *,
        thread_id: str | Unset = UNSET,
        resource_id: Owner = UNSET,
        expected_version: int | None = None,
        thread_config: Mapping[str, Any] | None = None,
    ) -> None:
        """Clear it on purpose. The version goes on counting. Raises ConflictError as `update_working_memory`."""
        options = self._on(thread_config)
        owner, thread = self._keeper(options, thread_id, resource_id)
        self.storage.delete_working_memory(owner, thread, expected_version=expected_version)

    def working_memory_history(
        self,
        *,
        thread_id: str | Unset = UNSET,
        resource_id: Owner = UNSET,
        thread_config: Mapping[str, Any] | None = None,
    ) -> tuple[WorkingMemoryRecord, ...]:
        """The last 20 versions, newest first."""
        options = self._on(thread_config)
        return self.storage.working_memory_history(*self._keeper(options, thread_id, resource_id))

    def get_working_memory_template(
        self, *, thread_config: Mapping[str, Any] | None = None
    ) -> Mapping[str, str] | None:
        """``{"format": "markdown" | "json", "content"}``: the template, or the schema as JSON; None where it is off."""
        options = self._merged(thread_config).working_memory
        if options is None:
            return None
        if options.schema is not None:
            return {"format": "json", "content": dumps(options.schema)}
        return {"format": "markdown", "content": self._template_text(options)}

    def get_system_message(
        self,
        *,
        thread_id: str | Unset = UNSET,
        resource_id: Owner = UNSET,
        thread_config: Mapping[str, Any] | None = None,
    ) -> str | None:
        """What a model is told of working memory, for a call made by hand; None where it is switched off.

        The tool is mentioned only where the model may change working memory.
        """
        merged = self._merged(thread_config)
        options = merged.working_memory
        if options is None:
            return None
        record = self.storage.get_working_memory(*self._keeper(options, thread_id, resource_id))
        return text_of.system_text(
            None if record is None else record.text,
            template=self._template_text(options),
            schema=options.schema,
            version=options.version,
            writable=options.agent_managed and not options.read_only and not merged.read_only,
        )

    # -- inside

    def _last_version(self, owner: str, thread: str | None) -> int:
        """The version of a text that is not there: 0, or that of its deletion."""
        history = self.storage.working_memory_history(owner, thread)
        return history[0].version if history else 0

    def _template_text(self, options: WorkingMemoryOptions) -> str:
        return options.template or text_of.DEFAULT_TEMPLATE

    def _on(self, thread_config: Mapping[str, Any] | None) -> WorkingMemoryOptions:
        options: MemoryOptions = self._merged(thread_config)
        if options.working_memory is None:
            raise InvalidInputError(
                "workingMemory", "working memory is off for this memory; switch working_memory on", code="NOT_ENABLED"
            )
        return options.working_memory

    def _keeper(
        self, options: WorkingMemoryOptions, thread_id: str | Unset, resource_id: Owner
    ) -> tuple[str, str | None]:
        """Resource and thread (None under scope ``resource``) that hold the text. Refuses a thread of somebody else."""
        if options.scope == "thread":
            if isinstance(thread_id, Unset):
                raise InvalidInputError("thread_id", "expected a thread: working memory has scope thread")
            return self._header(thread_id, resource_id).thread.resource_id, thread_id
        if isinstance(resource_id, Unset):
            if isinstance(thread_id, Unset):
                raise InvalidInputError("resource_id", "expected a resource: working memory has scope resource")
            return self._known_owner(thread_id, UNSET), None
        check_id("resource_id", resource_id)
        if not isinstance(thread_id, Unset):
            check_id("thread_id", thread_id)
            if self.storage.owner_of(thread_id) not in (None, resource_id):
                raise self._missing(thread_id, resource_id)
        return resource_id, None


def _as_text(options: WorkingMemoryOptions, value: Any) -> str:
    if isinstance(value, Mapping):
        return dumps(value)
    if not isinstance(value, str):
        raise InvalidInputError("workingMemory", f"expected a text or an object, found {type(value).__name__}")
    if not value.strip():
        raise InvalidInputError("workingMemory", "expected a text, found a blank one; delete working memory instead")
    if options.schema is not None:
        _object_of(value, "workingMemory")
    return value


def _object_of(text: str, field: str) -> dict[str, Any]:
    try:
        value = loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise InvalidInputError(field, "expected a JSON object, as working memory has a schema")
    return value
