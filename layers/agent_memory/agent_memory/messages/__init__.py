"""Messages, their parts, and the list of a run."""

from agent_memory.messages.message import Attachment, Content, Message, Role
from agent_memory.messages.parts import (
    Approval,
    DataPart,
    ErrorPart,
    FilePart,
    Part,
    ReasoningPart,
    SourceDocumentPart,
    SourcePart,
    StepStartPart,
    TextPart,
    ToolInvocation,
    ToolPart,
    ToolState,
    UnknownPart,
    part_from_json,
    part_to_json,
)

__all__ = [
    "Approval",
    "Attachment",
    "Content",
    "DataPart",
    "ErrorPart",
    "FilePart",
    "Message",
    "Part",
    "ReasoningPart",
    "Role",
    "SourceDocumentPart",
    "SourcePart",
    "StepStartPart",
    "TextPart",
    "ToolInvocation",
    "ToolPart",
    "ToolState",
    "UnknownPart",
    "part_from_json",
    "part_to_json",
]
