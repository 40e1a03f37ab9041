"""Memory options: what they are, their defaults, and how they are read and merged.

Options are written in snake_case or camelCase, in Python or in a request::

    MemoryOptions.of({"last_messages": 20, "semantic_recall": True})
    MemoryOptions.of({"lastMessages": 20, "semanticRecall": {"topK": 3, "messageRange": 2}})

The options that are sections of their own (``semantic_recall``, ``working_memory``, ``generate_title``) take True, False or an
object; an object turns the section on unless it says ``enabled: False``. None means "not given" everywhere.
Reading history and saving it are separate: ``last_messages=0`` (or False) loads nothing and still saves,
``read_only=True`` loads and saves nothing.
"""

# ruff: noqa: RUF009 - `option` is dataclasses.field with a reader, not a value shared by all instances
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from agent_memory import _option_fields as read
from agent_memory._json import FrozenDict, thaw
from agent_memory._option_fields import check, expected, option, read_into
from agent_memory.errors import ConfigurationError, InvalidInputError

DEFAULT_LAST_MESSAGES: Final = 10
MAX_TOP_K: Final = 100
MAX_RANGE: Final = 100  # neighbours are read by number, gaps included: 100 hits of 201 rows are 202 requests

# -------------------------------------------------------------------------------------------------------- the options


@dataclass(frozen=True, slots=True)
class MessageRange:
    """How many neighbours of a recalled message come along, at most 100 on either side."""

    before: int = option(read.whole(0, MAX_RANGE), 1)
    after: int = option(read.whole(0, MAX_RANGE), 1)

    def __post_init__(self) -> None:
        check(self)


def _range(value: Any, at: str, current: Any, strict: bool) -> MessageRange:
    if isinstance(value, MessageRange):
        return value
    if isinstance(value, Mapping):
        around: MessageRange = read_into(MessageRange, value, at, current, strict)
        return around
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_RANGE:
        raise expected(at, f"a whole number from 0 to {MAX_RANGE}, or an object with before and after", value)
    return MessageRange(value, value)


@dataclass(frozen=True, slots=True)
class TokenWindow:
    """History limited by tokens instead of by count.

    Attributes:
        max_tokens: The most tokens of history.
        at_max_remove_tokens: How many tokens are let go at once when it is full, oldest first; a quarter by default.
    """

    max_tokens: int = field(metadata={"read": read.whole(1)})
    at_max_remove_tokens: int = option(read.whole(0), -1)

    def __post_init__(self) -> None:
        if self.at_max_remove_tokens in (-1, None):
            object.__setattr__(
                self, "at_max_remove_tokens", read.whole(1)(self.max_tokens, "maxTokens", None, True) // 4
            )
        check(self)
        if self.at_max_remove_tokens > self.max_tokens:
            raise InvalidInputError(
                "messageHistory.atMaxRemoveTokens",
                f"expected at most maxTokens ({self.max_tokens}), found {self.at_max_remove_tokens}",
            )


def _window(value: Any, at: str, current: Any, strict: bool) -> Any:
    if value is False or isinstance(value, TokenWindow):
        return value or None
    if not isinstance(value, Mapping):
        raise expected(at, "an object with max_tokens, or False", value)
    if value.get("max_tokens", value.get("maxTokens")) is not None:
        current = None  # the share to remove follows the new size unless it is given too
    elif current is None:
        raise InvalidInputError(f"{at}.maxTokens", "expected a whole number from 1 up, found nothing")
    return read_into(TokenWindow, value, at, current, strict)


@dataclass(frozen=True, slots=True)
class SemanticRecallOptions:
    """Recall of older messages by meaning.

    Attributes:
        top_k: How many hits, at most 100.
        message_range: Neighbours of each hit.
        scope: Search all threads of the resource, or the current thread.
        threshold: Keep hits whose cosine is at least this, in mode ``vector`` alone: fused scores are relative. None keeps all.
        index_name: Another vector index than the deployment's.
        filter: Pairs of message metadata that hits must have.
        mode: By meaning alone, or by meaning and words together.
        max_messages: The most messages that recall may add to the prompt, neighbours included; None: no limit of its own.
    """

    top_k: int = option(read.whole(1, MAX_TOP_K), 4)
    message_range: MessageRange = option(_range, MessageRange())
    scope: Literal["resource", "thread"] = option(read.choice("resource", "thread"), "resource")
    threshold: float | None = option(read.number)
    index_name: str | None = option(read.text)
    filter: FrozenDict | None = option(read.mapping)
    mode: Literal["vector", "hybrid"] = option(read.choice("vector", "hybrid"), "vector")
    max_messages: int | None = option(read.whole(1))

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True)
class WorkingMemoryOptions:
    """A text (or object) about the user that the model keeps up to date.

    Attributes:
        scope: One for all threads of the resource, or one per thread.
        template: Markdown to fill in; None (and no schema) means the built-in one.
        schema: JSON Schema instead of a template; a pydantic model class is taken too.
        version: ``vnext`` offers the model a tool that changes pieces instead of the whole.
        read_only: The model sees it and gets no tool to change it.
        agent_managed: False: only the application writes it; the prompt mentions no tool.
    """

    scope: Literal["resource", "thread"] = option(read.choice("resource", "thread"), "resource")
    template: str | None = option(read.text)
    schema: FrozenDict | None = option(read.schema)
    version: Literal["stable", "vnext"] = option(read.choice("stable", "vnext"), "stable")
    read_only: bool = option(read.flag, False)
    agent_managed: bool = option(read.flag, True)

    def __post_init__(self) -> None:
        check(self)
        if self.template is not None and self.schema is not None:
            raise InvalidInputError("workingMemory", "expected a template or a schema, found both; remove one")


@dataclass(frozen=True, slots=True)
class TitleOptions:
    """Titles written by a model after the answer.

    Attributes:
        model: A name, a ChatModel, or a function of the request context; None: the agent's model.
        instructions: A text, or a function of the request context; None: the built-in ones.
        min_messages: How many messages the thread must have first.
        emit_event: Make the title inside the run and send it on the stream (the stream then ends later).
    """

    model: Any = option(read.model)
    instructions: Any = option(read.instructions)
    min_messages: int = option(read.whole(1), 1)
    emit_event: bool = option(read.flag, False)

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True)
class MemoryOptions:
    """All options of a memory.

    Attributes:
        last_messages: How many of the newest messages are loaded; 0: none (saving goes on).
        message_history: Limits history by tokens. The default count then does not apply (`history_limit`).
        semantic_recall, working_memory, generate_title: Their sections, or None where they are off.
        read_only: Load, and store nothing: no message, no title, no working memory.
        retain_full_input: Take the input as sent instead of filtering it against stored history.
        expire_days: Rows expire this many days after they were written; None: never.
        last_messages_given: Whether `last_messages` was set by somebody rather than by default.
    """

    last_messages: int = option(read.count_or_off, DEFAULT_LAST_MESSAGES)
    message_history: TokenWindow | None = option(_window)
    semantic_recall: SemanticRecallOptions | None = option(read.section(lambda: SemanticRecallOptions))
    working_memory: WorkingMemoryOptions | None = option(read.section(lambda: WorkingMemoryOptions))
    generate_title: TitleOptions | None = option(read.section(lambda: TitleOptions))
    read_only: bool = option(read.flag, False)
    retain_full_input: bool = option(read.flag, False)
    expire_days: float | None = option(read.days)
    last_messages_given: bool = False

    def __post_init__(self) -> None:
        check(self)
        if self.last_messages != DEFAULT_LAST_MESSAGES:
            object.__setattr__(self, "last_messages_given", True)

    @staticmethod
    def of(raw: Mapping[str, Any] | MemoryOptions | None = None, *, strict: bool = True) -> MemoryOptions:
        """Read options. Raises InvalidInputError naming the field, what was expected and what was found.

        `strict` refuses unknown keys and names the nearest known one; without it (requests) they are ignored.
        Raises ConfigurationError for observational memory, whose place is reserved.
        """
        if isinstance(raw, MemoryOptions):
            return raw
        return MemoryOptions().merged(raw or {}, strict=strict)

    def merged(self, overrides: Mapping[str, Any] | MemoryOptions | None, *, strict: bool = True) -> MemoryOptions:
        """These options with `overrides` on top; sections are merged key by key. Errors as for `of`."""
        if overrides is None:
            return self
        if isinstance(overrides, MemoryOptions):
            return overrides
        if not isinstance(overrides, Mapping):
            raise expected("options", "an object", overrides)
        merged = read_into(MemoryOptions, _without_reserved(overrides, strict), "", self, strict)
        given = overrides.get("last_messages", overrides.get("lastMessages")) is not None
        return replace(merged, last_messages_given=True) if given else merged

    def narrowed(self, overrides: Mapping[str, Any] | None) -> MemoryOptions:
        """These options with only those `overrides` that make memory show or keep less: what an end user may ask.

        That is fewer last messages, fewer hits and neighbours, sections switched off, read only. The rest is ignored.
        """
        if not overrides:
            return self
        asked = self.merged(overrides, strict=False)
        recall = self.semantic_recall if asked.semantic_recall is not None else None
        if recall is not None and asked.semantic_recall is not None:
            wanted = asked.semantic_recall
            recall = replace(
                recall,
                top_k=min(recall.top_k, wanted.top_k),
                message_range=MessageRange(
                    min(recall.message_range.before, wanted.message_range.before),
                    min(recall.message_range.after, wanted.message_range.after),
                ),
                scope="thread" if "thread" in (recall.scope, wanted.scope) else "resource",
            )
        return replace(
            self,
            last_messages=min(self.last_messages, asked.last_messages),
            last_messages_given=self.last_messages_given or asked.last_messages < self.last_messages,
            semantic_recall=recall,
            working_memory=self.working_memory if asked.working_memory is not None else None,
            generate_title=self.generate_title if asked.generate_title is not None else None,
            read_only=self.read_only or asked.read_only,
        )

    @property
    def history_limit(self) -> int | None:
        """How many of the newest messages may be loaded; None: only `message_history` limits them."""
        if self.message_history is not None and not self.last_messages_given:
            return None
        return self.last_messages

    @property
    def loads_history(self) -> bool:
        """Whether any history is loaded by count or by tokens."""
        return self.history_limit != 0


def to_config_json(options: MemoryOptions) -> dict[str, Any]:
    """The settings as ``GET /api/memory/config`` answers them (the value of ``config``)."""
    config: dict[str, Any] = {
        "lastMessages": options.last_messages or False,
        "semanticRecall": _recall_json(options.semantic_recall),
        "generateTitle": _title_json(options.generate_title),
        "workingMemory": _working_memory_json(options.working_memory),
        "observationalMemory": {"enabled": False},
        "readOnly": options.read_only,
    }
    if options.message_history is not None:
        config["messageHistory"] = {
            "maxTokens": options.message_history.max_tokens,
            "atMaxRemoveTokens": options.message_history.at_max_remove_tokens,
        }
    return config


def _recall_json(recall: SemanticRecallOptions | None) -> dict[str, Any] | Literal[False]:
    if recall is None:
        return False
    around = recall.message_range
    optional = {
        "threshold": recall.threshold,
        "indexName": recall.index_name,
        "filter": thaw(recall.filter),
        "maxMessages": recall.max_messages,
    }
    return {
        "topK": recall.top_k,
        "messageRange": around.before
        if around.before == around.after
        else {"before": around.before, "after": around.after},
        "scope": recall.scope,
        "mode": recall.mode,
        **{key: value for key, value in optional.items() if value is not None},
    }


def _title_json(title: TitleOptions | None) -> dict[str, Any] | bool:
    if title is None:
        return False
    named = {"model": title.model, "instructions": title.instructions}
    config: dict[str, Any] = {key: value for key, value in named.items() if isinstance(value, str)}
    if title.min_messages != 1:
        config["minMessages"] = title.min_messages
    if title.emit_event:
        config["emitEvent"] = True
    return config or True


def _working_memory_json(working: WorkingMemoryOptions | None) -> dict[str, Any]:
    if working is None:
        return {"enabled": False}
    config: dict[str, Any] = {"enabled": True, "scope": working.scope, "version": working.version}
    if working.schema is not None:
        config["schema"] = thaw(working.schema)
    elif working.template is not None:
        config["template"] = working.template
    if working.read_only:
        config["readOnly"] = True
    if not working.agent_managed:
        config["agentManaged"] = False
    return config


def _without_reserved(raw: Mapping[str, Any], strict: bool) -> dict[str, Any]:
    rest = dict(raw)
    for key in ("observational_memory", "observationalMemory"):
        value = rest.pop(key, None)
        wanted = value.get("enabled", True) if isinstance(value, Mapping) else value
        if wanted:
            message = "observational memory is not built yet; leave it out or set it to False"
            if strict:
                raise ConfigurationError(message, code="OBSERVATIONAL_MEMORY_NOT_BUILT")
            raise InvalidInputError(key, message)
    return rest
