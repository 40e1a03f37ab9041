"""Shows working memory to the model, and gives it the tool that keeps it up to date."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from agent_memory import working_memory as text_of
from agent_memory._json import dumps, loads, thaw
from agent_memory._schema import SchemaError, compile_schema
from agent_memory.agent.tools import Tool, ToolContext
from agent_memory.errors import ConfigurationError, ConflictError
from agent_memory.messages.list import MessageList
from agent_memory.options import MemoryOptions, WorkingMemoryOptions
from agent_memory.ports import MessageStore, WorkingMemoryRecord
from agent_memory.processors._conversation import needed_conversation
from agent_memory.processors.base import InputContext, LoadContext

if TYPE_CHECKING:
    from agent_memory.working_memory import Update

MISSING_STORAGE: Final = "WORKING_MEMORY_MISSING_STORAGE_ADAPTER"
KEPT_RUNS: Final = 1_000


class WorkingMemory:
    """Working memory.

    Before the model one system text is added: the current text as delimited data and, where the model may change it, how.
    There is no output hook: the tool writes at once, and what it was called with is not stored with the conversation.

    Args:
        storage: Where it lies; None: the run's storage.
        template: Markdown to fill in; None: the built-in one.
        schema: JSON Schema (or a pydantic model class) in place of a template.
        scope: One text for all threads of the resource, or one per thread.
        version: ``vnext``: the tool changes pieces of the text instead of the whole.
        read_only: The model sees the text and gets no tool.
        agent_managed: False: only the application writes it, and the model gets no tool.
    """

    id = "working-memory"
    name = "WorkingMemory"

    def __init__(
        self,
        storage: MessageStore | None = None,
        template: str | None = None,
        schema: Any = None,
        scope: Literal["resource", "thread"] = "resource",
        version: Literal["stable", "vnext"] = "stable",
        read_only: bool = False,
        agent_managed: bool = True,
    ) -> None:
        section = {
            "template": template,
            "schema": schema,
            "scope": scope,
            "version": version,
            "read_only": read_only,
            "agent_managed": agent_managed,
        }
        given = {key: value for key, value in section.items() if value is not None}
        options = MemoryOptions.of({"working_memory": given}).working_memory
        assert options is not None
        self._set_up(options, storage, read_only)

    @classmethod
    def of(
        cls, options: WorkingMemoryOptions, *, storage: MessageStore | None = None, read_only: bool = False
    ) -> WorkingMemory:
        """The processor that these options ask for; `read_only` is the run's own switch."""
        made = cls.__new__(cls)
        made._set_up(options, storage, read_only)
        return made

    def _set_up(self, options: WorkingMemoryOptions, storage: MessageStore | None, read_only: bool) -> None:
        self.options = options
        self.storage = storage
        self.writable = options.agent_managed and not options.read_only and not read_only
        self.template = options.template or text_of.DEFAULT_TEMPLATE
        self._lock = threading.Lock()
        self._seen: OrderedDict[str, int] = OrderedDict()

    def load(self, ctx: LoadContext) -> WorkingMemoryRecord | None:
        """The current text. One request."""
        place = needed_conversation(ctx.run, self.storage, name="WorkingMemory", code=MISSING_STORAGE)
        if place is None:
            return None
        record = place.store.get_working_memory(place.resource_id, self._thread(place.thread_id))
        self._saw(ctx.run.run_id, record)
        return record

    def process_input(self, ctx: InputContext) -> MessageList | None:
        """Add the system text."""
        run = ctx.run
        if needed_conversation(run, self.storage, name="WorkingMemory", code=MISSING_STORAGE) is None:
            return None
        record = ctx.loaded
        if self.options.scope == "thread" and run.store is not None and self.storage in (None, run.store):
            # Read beside the header: of a thread that does not exist (any more) nothing is known.
            record = record if run.header is not None else None
        writable = self.writable and not run.read_only
        run.messages.system.add(self.system_text(record, writable=writable), "memory")
        return ctx.message_list

    def system_text(self, record: WorkingMemoryRecord | None, *, writable: bool | None = None) -> str:
        """What the model is told about a record."""
        return text_of.system_text(
            None if record is None else record.text,
            template=self.template,
            schema=self.options.schema,
            version=self.options.version,
            writable=self.writable if writable is None else writable,
        )

    def tools(self) -> dict[str, Tool]:
        """The tool ``updateWorkingMemory``; none where the model may not change working memory."""
        if not self.writable:
            return {}
        if self.options.schema is not None:
            made = _UpdateTool(_SCHEMA_HELP, _schema_input(self.options.schema), self._merge)
        elif self.options.version == "vnext":
            made = _UpdateTool(_VNEXT_HELP, _VNEXT_INPUT, self._change_piece)
        else:
            made = _UpdateTool(_MARKDOWN_HELP, _MARKDOWN_INPUT, self._replace)
        return {made.id: made}

    # -- the three tools

    def _replace(self, args: Mapping[str, Any], context: ToolContext) -> Mapping[str, Any]:
        """Replace the whole text, on the version that the model has seen."""
        given = args.get("memory")
        if given is None:
            return _refusal("memory is missing: send the whole new text")
        new = given if isinstance(given, str) else dumps(given)
        store, resource_id, thread_id = self._place(context)
        record = store.get_working_memory(resource_id, thread_id)
        update = text_of.merge_markdown_update(None if record is None else record.text, new, self.template)
        if update.text is None:
            return _answer(update)
        version = self._version_seen(context.run_id, record)
        try:
            if record is not None and record.version != version:
                raise ConflictError("changed meanwhile")
            if record is None:
                record = text_of.update_with_retry(
                    store, resource_id, thread_id, lambda text: new if text is None else _raise_conflict()
                )
            else:
                record = store.put_working_memory(resource_id, thread_id, new, expected_version=version)
        except ConflictError:
            record = store.get_working_memory(resource_id, thread_id)
            self._saw(context.run_id, record)
            now = text_of.escape(record.text) if record is not None else ""
            refusal = _refusal("another conversation changed it meanwhile: call again with both changes in the text")
            return {**refusal, "current": now}
        self._saw(context.run_id, record)
        return {"success": True}

    def _merge(self, args: Mapping[str, Any], context: ToolContext) -> Mapping[str, Any]:
        """Merge fields into the object."""
        given: Any = args.get("memory", args)
        if isinstance(given, str):
            try:
                given = loads(given)
            except ValueError:
                return _refusal("memory is no JSON object")
        if given is None or given == {}:
            return {"success": True}
        if not isinstance(given, Mapping):
            return _refusal("memory is no JSON object")
        wrong = _misfit(self.options.schema or {}, given)
        if wrong is not None:
            return _refusal(wrong)
        return self._apply(context, lambda text: text_of.merge_schema(text, given))

    def _change_piece(self, args: Mapping[str, Any], context: ToolContext) -> Mapping[str, Any]:
        """Append a piece, or change one."""
        new = args.get("newMemory")
        search = args.get("searchString")
        reason = args.get("updateReason") or "append-new-memory"
        if not isinstance(new, str) or (search is not None and not isinstance(search, str)):
            return _refusal("newMemory and searchString are texts")
        if reason not in text_of.REASONS:
            return _refusal(f"updateReason is one of {', '.join(text_of.REASONS)}")

        def change(text: str | None) -> Update:
            return text_of.apply_vnext(
                text, new, search=search, reason=reason, template=self.template, scope=self.options.scope
            )

        return self._apply(context, change)

    def _apply(self, context: ToolContext, change: Any) -> Mapping[str, Any]:
        last: list[Update] = []

        def tried(text: str | None) -> str | None:
            last[:] = [change(text)]
            return last[0].text

        store, resource_id, thread_id = self._place(context)
        self._saw(context.run_id, text_of.update_with_retry(store, resource_id, thread_id, tried))
        return _answer(last[0])

    # -- inside

    def _thread(self, thread_id: str | None) -> str | None:
        return thread_id if self.options.scope == "thread" else None

    def _place(self, context: ToolContext) -> tuple[MessageStore, str, str | None]:
        """Where the text of the call's owner lies: the owner comes from the run, never from the model."""
        store = self.storage if self.storage is not None else context.store
        if store is None or context.resource_id is None or context.thread_id is None:
            raise ConfigurationError("working memory needs a run with a thread and a storage", code=MISSING_STORAGE)
        return store, context.resource_id, self._thread(context.thread_id)

    def _saw(self, run_id: str, record: WorkingMemoryRecord | None) -> None:
        with self._lock:
            self._seen[run_id] = 0 if record is None else record.version
            self._seen.move_to_end(run_id)
            while len(self._seen) > KEPT_RUNS:
                self._seen.popitem(last=False)

    def _version_seen(self, run_id: str, record: WorkingMemoryRecord | None) -> int:
        with self._lock:
            return self._seen.get(run_id, 0 if record is None else record.version)


class _UpdateTool(Tool):
    """The tool of working memory. Arguments that nearly fit are taken: models wrap and unwrap objects at will."""

    def __init__(self, description: str, schema: Mapping[str, Any], execute: Any) -> None:
        super().__init__(text_of.TOOL_ID, description=description, execute=execute, input_schema=schema)

    def check(self, args: Any) -> Any:
        """Return the arguments as they came; each variant says itself what is wrong with them."""
        return args if isinstance(args, Mapping) else {"memory": args}


def _answer(update: Update) -> Mapping[str, Any]:
    return {"success": True} if update.refused is None else _refusal(update.refused)


def _refusal(message: str) -> Mapping[str, Any]:
    return {"success": False, "message": message}


def _raise_conflict() -> str:
    raise ConflictError("changed meanwhile")


def _misfit(schema: Mapping[str, Any], value: Mapping[str, Any]) -> str | None:
    """What about an update does not fit the schema; None where it fits."""
    try:
        check = compile_schema(_relaxed(thaw(schema)))
    except SchemaError:
        return None  # a schema this validator does not know limits nothing
    from fastjsonschema import JsonSchemaValueException

    try:
        check(thaw(value))
    except JsonSchemaValueException as error:
        return str(error.message).replace("data", "memory", 1)
    return None


def _relaxed(schema: Any) -> Any:
    """The schema of an update: nothing is required, and null removes a field."""
    if not isinstance(schema, dict):
        return schema
    relaxed = {key: value for key, value in schema.items() if key != "required"}
    properties = relaxed.get("properties")
    if isinstance(properties, dict):
        relaxed["properties"] = {name: _or_null(_relaxed(spec)) for name, spec in properties.items()}
    for key in ("$defs", "definitions"):
        if isinstance(relaxed.get(key), dict):
            relaxed[key] = {name: _relaxed(spec) for name, spec in relaxed[key].items()}
    return relaxed


def _or_null(schema: Any) -> Any:
    return {"anyOf": [schema, {"type": "null"}]} if isinstance(schema, dict) and schema else schema


def _schema_input(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    plain = thaw(schema)
    definitions = {key: plain.pop(key) for key in ("$defs", "definitions") if key in plain}
    plain.pop("required", None)
    return {"type": "object", "properties": {"memory": plain}, "required": ["memory"], **definitions}


_MARKDOWN_HELP: Final = (
    "Replaces what is known about the user. Send the whole new text, with everything that still holds."
)
_SCHEMA_HELP: Final = "Merges fields into what is known about the user. Send only what changes; null removes a field."
_VNEXT_HELP: Final = "Adds a piece to what is known about the user, or changes one."
_MARKDOWN_INPUT: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"memory": {"type": "string", "description": "The whole new text, in Markdown."}},
    "required": ["memory"],
}
_VNEXT_INPUT: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "newMemory": {"type": "string", "description": "The text to add, or to put in place of searchString."},
        "searchString": {"type": "string", "description": "The piece of the current text that changes, word for word."},
        "updateReason": {"type": "string", "enum": list(text_of.REASONS)},
    },
    "required": ["newMemory"],
}
