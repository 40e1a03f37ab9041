"""Tools an agent may call: typed Python functions, JSON Schema with code, or JSON Schema that the caller's side runs."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, get_type_hints, overload

from agent_memory._json import EMPTY
from agent_memory._schema import compile_schema
from agent_memory.errors import ConfigurationError, InvalidInputError
from agent_memory.ports import ToolSpec

if TYPE_CHECKING:
    from agent_memory.ports import MessageStore

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")  # what Bedrock Converse and OpenAI accept as a tool name


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool is told about the run that calls it. The owner comes from here, never from the model.

    Attributes:
        agent_id, run_id, tool_call_id: Of this call.
        thread_id, resource_id: The conversation and its owner; None without memory.
        request_context: What the application passed along.
        store: The message store of the run, or None.
        should_stop: Whether the caller asked to stop.
    """

    agent_id: str = ""
    run_id: str = ""
    tool_call_id: str = ""
    thread_id: str | None = None
    resource_id: str | None = None
    request_context: Mapping[str, Any] = EMPTY
    store: MessageStore | None = None
    should_stop: Callable[[], bool] = field(default=lambda: False)


class Tool:
    """One tool.

    Args:
        id: Its name for the model: letters, digits, ``_`` and ``-``, at most 64.
        description: What it does, for the model.
        execute: ``execute(args, context)``; None: the tool runs on the caller's side.
        input_schema: JSON Schema of the arguments.
        requires_approval: Whether a person must approve each call.
    """

    def __init__(
        self,
        id: str,
        *,
        description: str = "",
        execute: Callable[[Any, ToolContext], Any] | None = None,
        input_schema: Mapping[str, Any] | None = None,
        requires_approval: bool = False,
    ) -> None:
        if not _NAME.fullmatch(id):
            raise ConfigurationError(
                f"a tool id is 1 to 64 letters, digits, _ or -; found {id!r:.80}", code="TOOL_ID_INVALID"
            )
        self.id = id
        self.description = description
        self.requires_approval = requires_approval
        self._execute = execute
        self._schema = input_schema
        self._validate: Callable[[Any], Any] | None = None

    @property
    def runs_here(self) -> bool:
        """Whether the server runs this tool (otherwise the caller does)."""
        return self._execute is not None

    @property
    def input_schema(self) -> Mapping[str, Any]:
        """JSON Schema of the arguments."""
        return self._schema or {"type": "object", "properties": {}}

    def spec(self) -> ToolSpec:
        """The tool as a model sees it."""
        return ToolSpec(self.id, self.description, self.input_schema)

    def check(self, args: Any) -> Any:
        """Return the arguments as `execute` takes them; raise InvalidInputError where they do not fit the schema."""
        if self._validate is None:
            self._validate = compile_schema(self.input_schema)
        from fastjsonschema import JsonSchemaValueException

        try:
            return self._validate(args)
        except JsonSchemaValueException as error:
            raise InvalidInputError(str(error.name).replace("data", "args", 1), error.message) from None

    def run(self, args: Any, context: ToolContext) -> Any:
        """Check the arguments and run the tool. An async function is awaited."""
        if self._execute is None:
            raise ConfigurationError(f"tool {self.id} runs on the caller's side", code="TOOL_WITHOUT_CODE")
        outcome = self._execute(self.check(args), context)
        if inspect.isawaitable(outcome):
            from agent_memory.processors.pipeline import wait

            return wait(outcome)
        return outcome


class FunctionTool(Tool):
    """A tool made of a typed Python function; its schema and checks come from the annotations (by pydantic)."""

    def __init__(self, function: Callable[..., Any], *, id: str, description: str, requires_approval: bool) -> None:
        super().__init__(id, description=description, execute=self._call, requires_approval=requires_approval)
        self._function = function
        self._model: Any = None
        hints = {name: hint for name, hint in inspect.get_annotations(function).items() if name != "return"}
        self._context_name = next(
            (n for n in inspect.signature(function).parameters if n == "context" or hints.get(n) in _CONTEXT_HINTS),
            None,
        )

    def _arguments(self) -> Any:
        if self._model is None:
            from pydantic import ConfigDict, create_model

            hints = get_type_hints(self._function, include_extras=True)
            fields: dict[str, Any] = {}
            for name, parameter in inspect.signature(self._function).parameters.items():
                if name == self._context_name:
                    continue
                if name not in hints:
                    raise ConfigurationError(
                        f"tool {self.id}: parameter {name} needs a type annotation", code="TOOL_NOT_TYPED"
                    )
                default = ... if parameter.default is inspect.Parameter.empty else parameter.default
                fields[name] = (hints[name], default)
            self._model = create_model(self.id, __config__=ConfigDict(extra="forbid"), **fields)
        return self._model

    @property
    def input_schema(self) -> Mapping[str, Any]:
        """JSON Schema of the function's parameters."""
        if self._schema is None:
            schema = self._arguments().model_json_schema()
            schema.pop("title", None)
            for spec in schema.get("properties", {}).values():
                spec.pop("title", None)
            schema.setdefault("properties", {})
            self._schema = schema
        return self._schema

    def check(self, args: Any) -> Any:
        """Parse the arguments by the annotations."""
        from pydantic import ValidationError

        try:
            parsed = self._arguments().model_validate(args)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            path = ".".join(["args", *(str(part) for part in first["loc"])])
            raise InvalidInputError(path, first["msg"]) from None
        return {name: getattr(parsed, name) for name in type(parsed).model_fields}

    def _call(self, args: Any, context: ToolContext) -> Any:
        if self._context_name is not None:
            args[self._context_name] = context
        return self._function(**args)


_CONTEXT_HINTS: Final = (ToolContext, "ToolContext")


@overload
def tool(function: Callable[..., Any], /) -> FunctionTool: ...
@overload
def tool(
    *, id: str | None = None, description: str | None = None, requires_approval: bool = False
) -> Callable[[Callable[..., Any]], FunctionTool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    id: str | None = None,
    description: str | None = None,
    requires_approval: bool = False,
) -> Any:
    """Make a tool of a typed function: ``@tool`` or ``@tool(requires_approval=True)``.

    The docstring's first paragraph is the description. A parameter named `context` (or annotated ToolContext) is
    handed the run's ToolContext and hidden from the model.
    """

    def make(function: Callable[..., Any]) -> FunctionTool:
        doc = inspect.getdoc(function) or ""
        return FunctionTool(
            function,
            id=id or function.__name__,
            description=description if description is not None else doc.split("\n\n", 1)[0].replace("\n", " "),
            requires_approval=requires_approval,
        )

    return make if function is None else make(function)


def as_tools(tools: Any) -> dict[str, Tool]:
    """Tools by id, from a list of tools and typed functions or a mapping. Raises ConfigurationError on a double id."""
    items = list(tools.values()) if isinstance(tools, Mapping) else list(tools)
    found: dict[str, Tool] = {}
    for item in items:
        made = item if isinstance(item, Tool) else tool(item)
        if made.id in found:
            raise ConfigurationError(f"two tools are named {made.id}; ids must differ", code="TOOL_ID_TWICE")
        found[made.id] = made
    return found


def client_tool(name: str, raw: Mapping[str, Any]) -> Tool:
    """A tool that came with the call and runs on the caller's side."""
    schema = raw.get("inputSchema", raw.get("parameters"))
    if isinstance(schema, Mapping) and "jsonSchema" in schema:
        schema = schema["jsonSchema"]
    if schema is not None and not isinstance(schema, Mapping):
        raise InvalidInputError(f"clientTools.{name}.inputSchema", f"expected an object, found {type(schema).__name__}")
    try:
        return Tool(name, description=str(raw.get("description") or ""), input_schema=schema)
    except ConfigurationError as error:
        raise InvalidInputError(f"clientTools.{name}", error.message) from None
