"""Processors: what happens to messages before and after the model.

The built-in ones and what a processor of one's own needs. Each name loads its module when it is first used, because
imports are part of a cold start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

_WHERE = {
    "AttachmentUploader": "attachment_uploader",
    "BedrockGuardrail": "bedrock_guardrail",
    "ErrorContext": "base",
    "InputChange": "base",
    "InputContext": "base",
    "LoadContext": "base",
    "MemoryInputFilter": "input_filter",
    "MessageHistory": "message_history",
    "OutputContext": "base",
    "OutputStepContext": "base",
    "Processor": "base",
    "RegexFilter": "regex_filter",
    "RegexFilterProcessor": "regex_filter",
    "RequestContext": "base",
    "ResponseContext": "base",
    "RunContext": "base",
    "SemanticRecall": "semantic_recall",
    "StepChange": "base",
    "StepContext": "base",
    "StreamContext": "base",
    "TokenLimiter": "token_limiter",
    "TokenLimiterProcessor": "token_limiter",
    "ToolCallFilter": "tool_call_filter",
    "ToolResultChange": "base",
    "ToolResultContext": "base",
    "UnicodeNormalizer": "unicode_normalizer",
    "WorkingMemory": "working_memory",
}

if TYPE_CHECKING:
    from agent_memory.processors.attachment_uploader import AttachmentUploader
    from agent_memory.processors.base import (
        ErrorContext,
        InputChange,
        InputContext,
        LoadContext,
        OutputContext,
        OutputStepContext,
        Processor,
        RequestContext,
        ResponseContext,
        RunContext,
        StepChange,
        StepContext,
        StreamContext,
        ToolResultChange,
        ToolResultContext,
    )
    from agent_memory.processors.bedrock_guardrail import BedrockGuardrail
    from agent_memory.processors.input_filter import MemoryInputFilter
    from agent_memory.processors.message_history import MessageHistory
    from agent_memory.processors.regex_filter import RegexFilter, RegexFilterProcessor
    from agent_memory.processors.semantic_recall import SemanticRecall
    from agent_memory.processors.token_limiter import TokenLimiter, TokenLimiterProcessor
    from agent_memory.processors.tool_call_filter import ToolCallFilter
    from agent_memory.processors.unicode_normalizer import UnicodeNormalizer
    from agent_memory.processors.working_memory import WorkingMemory

__all__ = [
    "AttachmentUploader",
    "BedrockGuardrail",
    "ErrorContext",
    "InputChange",
    "InputContext",
    "LoadContext",
    "MemoryInputFilter",
    "MessageHistory",
    "OutputContext",
    "OutputStepContext",
    "Processor",
    "RegexFilter",
    "RegexFilterProcessor",
    "RequestContext",
    "ResponseContext",
    "RunContext",
    "SemanticRecall",
    "StepChange",
    "StepContext",
    "StreamContext",
    "TokenLimiter",
    "TokenLimiterProcessor",
    "ToolCallFilter",
    "ToolResultChange",
    "ToolResultContext",
    "UnicodeNormalizer",
    "WorkingMemory",
]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        from importlib import import_module

        return getattr(import_module(f"agent_memory.processors.{_WHERE[name]}"), name)
    raise AttributeError(f"module agent_memory.processors has no attribute {name}")


def __dir__() -> list[str]:
    return sorted(__all__)
