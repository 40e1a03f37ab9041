"""The parts of a message: a tagged union over `type` that keeps what it does not know.

Every part keeps fields it has no name for in `extra`, and a part of an unknown type passes through unchanged as
`UnknownPart`, so ``part_to_json(part_from_json(x)) == x`` for every JSON object with a `type`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final, Literal, TypeAlias, TypeVar

from agent_memory._json import EMPTY, FrozenDict, FrozenList, freeze
from agent_memory.errors import InvalidInputError


class _Missing:
    """The value of a field that is not there, where null is a value of its own."""

    __slots__ = ()
    _one: ClassVar[_Missing | None] = None

    def __new__(cls) -> _Missing:
        if cls._one is None:
            cls._one = super().__new__(cls)
        return cls._one

    def __repr__(self) -> str:
        return "MISSING"

    def __bool__(self) -> bool:
        return False

    def __reduce__(self) -> tuple[Any, ...]:
        return (_Missing, ())


MISSING: Final = _Missing()

ToolState = Literal[
    "partial-call", "call", "approval-requested", "approval-responded", "result", "output-error", "output-denied"
]

TOOL_STATE_RANK: Final[dict[str, int]] = {
    "partial-call": 0,
    "call": 1,
    "approval-requested": 2,
    "approval-responded": 3,
    "result": 4,
    "output-error": 4,
    "output-denied": 4,
}
TERMINAL_RANK: Final = 4
OUTCOME_STATES: Final = frozenset({"approval-responded", "result", "output-error", "output-denied"})

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Approval:
    """A request to approve a tool call, and its answer. `approved` is None until decided."""

    id: str | None = None
    approved: bool | None = None
    reason: str | None = None
    extra: FrozenDict = EMPTY

    _names: ClassVar[dict[str, str]] = {"id": "id", "approved": "approved", "reason": "reason"}


@dataclass(frozen=True, slots=True)
class ToolInvocation:
    """One tool call with its state and, later, its outcome."""

    state: ToolState
    tool_call_id: str
    tool_name: str
    args: Any = MISSING
    result: Any = MISSING
    error_text: str | None = None
    is_error: bool | None = None
    raw_input: Any = MISSING
    approval: Approval | None = None
    step: int | None = None
    extra: FrozenDict = EMPTY

    _names: ClassVar[dict[str, str]] = {
        "state": "state",
        "toolCallId": "tool_call_id",
        "toolName": "tool_name",
        "args": "args",
        "result": "result",
        "errorText": "error_text",
        "isError": "is_error",
        "rawInput": "raw_input",
        "approval": "approval",
        "step": "step",
    }

    @property
    def rank(self) -> int:
        """Position in the order of states; a terminal state has `TERMINAL_RANK`."""
        return TOOL_STATE_RANK[self.state]

    @property
    def is_pending(self) -> bool:
        """Whether an outcome is still to come."""
        return self.rank < TERMINAL_RANK

    @property
    def is_outcome(self) -> bool:
        """Whether a client may send this state: an answer to an approval, or a terminal state."""
        return self.state in OUTCOME_STATES

    def advanced_by(self, other: ToolInvocation) -> bool:
        """Whether `other` moves this call forward: this one is not terminal and the other ranks higher."""
        return self.is_pending and other.rank > self.rank


@dataclass(frozen=True, slots=True)
class TextPart:
    """Text."""

    text: str
    provider_metadata: Any = None
    created_at: int | None = None
    extra: FrozenDict = EMPTY

    type: ClassVar[str] = "text"
    _names: ClassVar[dict[str, str]] = {"text": "text"}


@dataclass(frozen=True, slots=True)
class ReasoningPart:
    """The model's reasoning. `details` holds entries such as ``{"type": "text", "text": …}``."""

    reasoning: str | None = None
    details: FrozenList | None = None
    provider_metadata: Any = None
    created_at: int | None = None
    extra: FrozenDict = EMPTY

    type: ClassVar[str] = "reasoning"
    _names: ClassVar[dict[str, str]] = {"reasoning": "reasoning", "details": "details"}

    @property
    def text(self) -> str:
        """The reasoning as text, taken from `details` where `reasoning` is empty."""
        if self.reasoning:
            return self.reasoning
        texts = (detail.get("text") for detail in self.details or () if isinstance(detail, dict))
        return "".join(text for text in texts if isinstance(text, str))


@dataclass(frozen=True, slots=True)
class ToolPart:
    """A tool call and its outcome (wire type ``tool-invocation``)."""

    invocation: ToolInvocation
    provider_executed: bool | None = None
    title: str | None = None
    preliminary: bool | None = None
    provider_metadata: Any = None
    created_at: int | None = None
    extra: FrozenDict = EMPTY

    type: ClassVar[str] = "tool-invocation"
    _names: ClassVar[dict[str, str]] = {
        "toolInvocation": "invocation",
        "providerExecuted": "provider_executed",
        "title": "title",
        "preliminary": "preliminary",
    }


@dataclass(frozen=True, slots=True)
class FilePart:
    """A file. `data` is a data URL, bare base64, an http(s) URL or a reference to stored bytes."""

    data: str
    mime_type: str | None = None
    filename: str | None = None
    provider_metadata: Any = None
    created_at: int | None = None
    extra: FrozenDict = EMPTY

    type: ClassVar[str] = "file"
    _names: ClassVar[dict[str, str]] = {"data": "data", "mimeType": "mime_type", "filename": "filename"}


@dataclass(frozen=True, slots=True)
class SourcePart:
    """A citation with a URL: ``{"url", "id", "title"…}``."""

    source: Any = None
    provider_metadata: Any = None
    created_at: int | None = None
    extra: FrozenDict = EMPTY

    type: ClassVar[str] = "source"
    _names: ClassVar[dict[str, str]] = {"source": "source"}


@dataclass(frozen=True, slots=True)
class SourceDocumentPart:
    """A citation of a document; its fields live in `extra` as they came."""

    provider_metadata: Any = None
    created_at: int | None = None
    extra: FrozenDict = EMPTY

    type: ClassVar[str] = "source-document"
    _names: ClassVar[dict[str, str]] = {}


@dataclass(frozen=True, slots=True)
class StepStartPart:
    """The boundary before each model call."""

    model: Any = None
    provider_metadata: Any = None
    created_at: int | None = None
    extra: FrozenDict = EMPTY

    type: ClassVar[str] = "step-start"
    _names: ClassVar[dict[str, str]] = {"model": "model"}


@dataclass(frozen=True, slots=True)
class ErrorPart:
    """An error that the conversation shows: text or ``{"name", "message"}``."""

    error: Any = None
    provider_metadata: Any = None
    created_at: int | None = None
    extra: FrozenDict = EMPTY

    type: ClassVar[str] = "error"
    _names: ClassVar[dict[str, str]] = {"error": "error"}


@dataclass(frozen=True, slots=True)
class DataPart:
    """Custom data; `kind` is the whole wire type, e.g. ``data-weather``."""

    kind: str
    data: Any = MISSING
    id: str | None = None
    provider_metadata: Any = None
    created_at: int | None = None
    extra: FrozenDict = EMPTY

    _names: ClassVar[dict[str, str]] = {"data": "data", "id": "id"}

    @property
    def type(self) -> str:
        """The wire type, ``data-<name>``."""
        return self.kind


@dataclass(frozen=True, slots=True)
class UnknownPart:
    """A part of a type this version does not know, kept as it came."""

    raw: FrozenDict

    @property
    def type(self) -> str:
        """The wire type."""
        return str(self.raw["type"])

    @property
    def provider_metadata(self) -> Any:
        """Provider metadata, if the part has any."""
        return self.raw.get("providerMetadata")


Part: TypeAlias = (
    TextPart
    | ReasoningPart
    | ToolPart
    | FilePart
    | SourcePart
    | SourceDocumentPart
    | StepStartPart
    | ErrorPart
    | DataPart
    | UnknownPart
)

_COMMON = {"providerMetadata": "provider_metadata", "createdAt": "created_at"}
_KINDS: Final[dict[str, Any]] = {
    kind.type: kind
    for kind in (
        TextPart,
        ReasoningPart,
        ToolPart,
        FilePart,
        SourcePart,
        SourceDocumentPart,
        StepStartPart,
        ErrorPart,
    )
}
_PART_NAMES: Final[dict[Any, dict[str, str]]] = {kind: kind._names | _COMMON for kind in (*_KINDS.values(), DataPart)}
_DEFAULTS: Final[dict[Any, dict[str, Any]]] = {}
_REQUIRED: Final[dict[str, tuple[tuple[str, type], ...]]] = {
    "text": (("text", str),),
    "file": (("data", str),),
    "tool-invocation": (("toolInvocation", dict),),
}
_OPTIONAL_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "mimeType": (str,),
    "filename": (str,),
    "reasoning": (str,),
    "details": (list,),
    "providerExecuted": (bool,),
    "title": (str,),
    "preliminary": (bool,),
    "id": (str,),
    "errorText": (str,),
    "isError": (bool,),
    "step": (int,),
    "approved": (bool,),
    "reason": (str,),
    "createdAt": (int,),
}


def _defaults(kind: Any) -> dict[str, Any]:
    found = _DEFAULTS.get(kind)
    if found is None:
        found = _DEFAULTS[kind] = {field.name: field.default for field in fields(kind)}
    return found


def _read(
    cls: Callable[..., T], names: dict[str, str], raw: dict[str, Any], skip: str | None = None, /, **given: Any
) -> T:
    extra: dict[str, Any] = {}
    defaults = _defaults(cls)
    for key, value in raw.items():
        if key == skip:
            continue
        name = names.get(key)
        wanted = _OPTIONAL_TYPES.get(key)
        # A null where absence is the default, or a value of another type, is somebody's data: keep it as it came.
        if (
            name is None
            or (value is None and defaults[name] is not MISSING)
            or (wanted and not (isinstance(value, wanted) and (type(value) is not bool or bool in wanted)))
        ):
            extra[key] = value
        else:
            given[name] = value
    return cls(**given, extra=freeze(extra) if extra else EMPTY)


def _write(value: Any, names: dict[str, str]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, name in names.items():
        item = getattr(value, name)
        if item is MISSING or (item is None and key not in ("args", "result", "rawInput", "data")):
            continue
        out[key] = item
    out.update(value.extra)
    return out


def invocation_from_json(raw: dict[str, Any], path: str = "toolInvocation") -> ToolInvocation:
    """Read a tool invocation. Raises InvalidInputError that names the field."""
    for key in ("toolCallId", "toolName"):
        if not isinstance(raw.get(key), str) or not raw[key]:
            raise InvalidInputError(f"{path}.{key}", f"expected a non-empty string, found {_found(raw.get(key))}")
    state = raw.get("state")
    if not isinstance(state, str) or state not in TOOL_STATE_RANK:
        raise InvalidInputError(f"{path}.state", f"expected one of {', '.join(TOOL_STATE_RANK)}, found {_found(state)}")
    frozen = dict(freeze(dict(raw)))
    approval = frozen.get("approval")
    if isinstance(approval, dict):
        frozen["approval"] = _read(Approval, Approval._names, approval)
    elif approval is not None:
        raise InvalidInputError(f"{path}.approval", f"expected an object, found {_found(approval)}")
    return _read(ToolInvocation, ToolInvocation._names, frozen)


def invocation_to_json(invocation: ToolInvocation) -> dict[str, Any]:
    """The wire form of a tool invocation."""
    out = _write(invocation, ToolInvocation._names)
    if invocation.approval is not None:
        out["approval"] = approval_to_json(invocation.approval)
    return out


def approval_to_json(approval: Approval) -> dict[str, Any]:
    """The wire form of an approval."""
    return _write(approval, Approval._names)


def part_from_json(raw: Any, path: str = "parts") -> Part:
    """Read one part from its wire form. Raises InvalidInputError that names the field under `path`."""
    if not isinstance(raw, dict) or not isinstance(raw.get("type"), str) or not raw["type"]:
        raise InvalidInputError(path, f"expected an object with a string type, found {_found(raw)}")
    tag: str = raw["type"]
    for key, wanted in _REQUIRED.get(tag, ()):
        if not isinstance(raw.get(key), wanted):
            raise InvalidInputError(
                f"{path}.{key}",
                f"expected {'an object' if wanted is dict else 'a string'}, found {_found(raw.get(key))}",
            )
    if tag == "tool-invocation":
        invocation = invocation_from_json(raw["toolInvocation"], f"{path}.toolInvocation")
        rest = dict(freeze({k: v for k, v in raw.items() if k != "toolInvocation"}))
        rest["toolInvocation"] = invocation
        return _read(ToolPart, _PART_NAMES[ToolPart], rest, "type")
    frozen = freeze(dict(raw))
    kind = _KINDS.get(tag)
    if kind is not None:
        part: Part = _read(kind, _PART_NAMES[kind], frozen, "type")
        return part
    if tag.startswith("data-") and len(tag) > len("data-"):
        return _read(DataPart, _PART_NAMES[DataPart], frozen, "type", kind=tag)
    return UnknownPart(frozen)


def part_to_json(part: Part) -> dict[str, Any]:
    """The wire form of a part."""
    if isinstance(part, UnknownPart):
        return dict(part.raw)
    out: dict[str, Any] = {"type": part.type}
    out.update(_write(part, _PART_NAMES[type(part)]))
    if isinstance(part, ToolPart):
        out["toolInvocation"] = invocation_to_json(part.invocation)
    return out


def _found(value: Any) -> str:
    return "nothing" if value is None else type(value).__name__
