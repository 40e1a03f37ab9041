"""What a signed-in end user may set: one table, which the checks, the documentation and the tests read.

A trusted caller may set everything. An end user speaks for themselves alone: they may say things, decide on calls that wait
for them and narrow what memory does, and may not write what passes for the author's or the model's words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from agent_memory.errors import AccessDeniedError

if TYPE_CHECKING:
    from agent_memory.agent.agent import Agent
    from agent_memory.http.identity import Identity
    from agent_memory.messages import Message

Outcome = Literal["allowed", "narrowed", "ignored", "refused"]


@dataclass(frozen=True, slots=True)
class Rule:
    """What becomes of a thing that an end user sets.

    Attributes:
        outcome: ``allowed``: as sent. ``narrowed``: what asks for less counts, the rest is left out. ``ignored``: left out.
            ``refused``: the call is answered with an error and does nothing.
        what: The reason, or what is left.
        narrow: For ``narrowed`` values: given the value and the agent, what is left of it, or None.
    """

    outcome: Outcome
    what: str
    narrow: Callable[[Any, Agent], Any] | None = None


def _steps(value: Any, agent: Agent) -> Any:
    return min(value, agent.max_steps)


def _only(wanted: bool) -> Callable[[Any, Agent], Any]:
    return lambda value, _agent: wanted if value is wanted else None


def _fewer(value: Any, agent: Agent) -> Any:
    own = 0 if agent.memory is None else agent.memory.options.last_messages
    if value is False:
        return False
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= own else None


_PLACE: Final = Rule(
    "allowed", "a place of their own: ids of threads, chats and runs mean something to their owner only"
)
_OWNER: Final = Rule("ignored", "the resource of the token takes its place")
_AUTHOR: Final = Rule("ignored", "the agent's author decides it")
_SAID: Final = Rule("allowed", "their own words")
_DECISION: Final = Rule("allowed", "a call that waits in a thread of their own is theirs to decide")

BODY: Final[Mapping[str, Rule]] = {
    "messages": Rule("narrowed", "see the roles below"),
    "message": _SAID,
    "signal": _SAID,
    "id": _PLACE,
    "threadId": _PLACE,
    "runId": _PLACE,
    "expectedRunId": _PLACE,
    "agentId": Rule("allowed", "every agent of the deployment is for all its users"),
    "memory": Rule(
        "narrowed", "`thread` with title and metadata as sent, `resource` as `resourceId`, `options` see below"
    ),
    "resourceId": _OWNER,
    "instructions": _AUTHOR,
    "system": _AUTHOR,
    "context": _AUTHOR,
    "modelSettings": _AUTHOR,
    "providerOptions": _AUTHOR,
    "toolChoice": _AUTHOR,
    "maxSteps": Rule("narrowed", "at most the agent's own", _steps),
    "requireToolApproval": Rule("narrowed", "true counts; false would take the author's approvals away", _only(True)),
    "activeTools": Rule("allowed", "leaves some of the agent's tools out, adds none"),
    "clientTools": Rule("allowed", "tools of their page; a name that the agent has stays the agent's"),
    "structuredOutput": Rule("allowed", "the shape of their answer"),
    "requestContext": Rule(
        "allowed", "tools and processors get it as the caller's word; the owner never comes from it"
    ),
    "data": Rule("allowed", "arguments of a tool, which gets its owner from the token"),
    "toolCallId": _DECISION,
    "approved": _DECISION,
    "resumeData": _DECISION,
    "streamOptions": Rule("narrowed", "what counts of a body"),
    "reason": _DECISION,
    "trigger": Rule("allowed", "the last answer of their own thread is made again"),
    "messageId": _PLACE,
    "ifIdle": Rule("narrowed", "what becomes of their own message; of `streamOptions` what counts of a body"),
    "ifActive": Rule("allowed", "what becomes of their own message"),
}
"""Keys in the bodies of calls that run agents or tools."""

OPTIONS: Final[Mapping[str, Rule]] = {
    "readOnly": Rule("narrowed", "true: nothing of the turn is stored", _only(True)),
    "lastMessages": Rule("narrowed", "fewer than the agent's own, or false", _fewer),
    "semanticRecall": Rule("narrowed", "false: nothing is recalled", _only(False)),
    "workingMemory": Rule("narrowed", "false: it is neither shown nor changed", _only(False)),
    "…": Rule("ignored", "every other option is the author's"),
}
"""Keys of ``memory.options``."""

ROLES: Final[Mapping[str, Rule]] = {
    "user": _SAID,
    "assistant, tool": Rule(
        "narrowed",
        "outcomes and approvals of calls that wait in the stored thread; the rest is left out where there is a thread, and "
        "counts for this call alone where there is none",
    ),
    "system": Rule("refused", "400: instructions are the author's"),
}
"""Roles of messages that a run gets."""

STORED: Final[Mapping[str, Rule]] = {
    "thread id, title, metadata": Rule("allowed", "of their own threads"),
    "expiry of a thread": Rule("narrowed", "sooner than it is; 403 for later or never"),
    "message of role user": Rule("allowed", "saved, changed or deleted"),
    "expiry of a message": Rule("ignored", "the agent's author and the deployment decide how long it is kept"),
    "message of another role": Rule("refused", "400: it would pass for the model's words"),
    "parts of a stored answer": Rule("refused", "403: the same, on changing a message; deleting it is allowed"),
    "metadata of a stored message": Rule("allowed", "ratings and the like, on answers too"),
    "working memory": Rule("allowed", "their own; models get it as data"),
    "resource of a message or copy": _OWNER,
}
"""What the memory routes store."""

TRUSTED_ONLY: Final[Mapping[str, Rule]] = {
    "threads:transfer_thread": Rule("refused", "403: gives a thread to another owner"),
    "personal_data:import_data": Rule("refused", "403: it holds answers, which would pass for the model's words"),
    "personal_data:erase_data": Rule("refused", "403: it cannot be undone, and it closes the resource for a day"),
    "jobs:start_job": Rule("refused", "403: replaying, comparing and building the index are the operator's"),
    "jobs:retry_job": Rule("refused", "403: running a failed job again is the operator's"),
}
"""Handlers of routes that only trusted callers may call; every other route is for end users too."""


def check_route(identity: Identity, handler: str) -> None:
    """Refuse a route that is for trusted callers. Raises AccessDeniedError."""
    if handler in TRUSTED_ONLY and not identity.trusted:
        raise AccessDeniedError(
            "only a caller that is not bound to one resource may do that; ask whoever runs this service",
            code="NOT_ALLOWED",
        )


def body_of(body: Mapping[str, Any], identity: Identity, agent: Agent) -> Mapping[str, Any]:
    """What counts of the body of a run."""
    return body if identity.trusted else _left(BODY, body, agent)


def options_of(options: Mapping[str, Any], identity: Identity, agent: Agent) -> Mapping[str, Any]:
    """What counts of ``memory.options``."""
    if identity.trusted:
        return options
    return _left(OPTIONS, {name: value for name, value in options.items() if name in OPTIONS}, agent)


def _left(rules: Mapping[str, Rule], given: Mapping[str, Any], agent: Agent) -> dict[str, Any]:
    left = {}
    for name, value in given.items():
        rule = rules.get(name)
        if rule is None or rule.outcome == "ignored":
            continue
        found = value if rule.narrow is None else rule.narrow(value, agent)
        if found is not None:
            left[name] = found
    return left


def change_check(identity: Identity, content: Any) -> Callable[[Message], None] | None:
    """What must hold of a stored message before `content` may change it: an end user's hand stays off answers.

    The check raises AccessDeniedError. None: no check is needed.
    """
    if identity.trusted or (isinstance(content, dict) and content.keys() <= {"metadata"}):
        return None

    def check(stored: Message) -> None:
        if stored.role != "user":
            raise AccessDeniedError(
                f"message {stored.id}: expected one of role user, found {stored.role}; only its metadata may be changed",
                code="NOT_ALLOWED",
            )

    return check


def table() -> tuple[tuple[str, str, str], ...]:
    """All rules as rows for people: what, what becomes of it, why."""
    from agent_memory.http.routes import ROUTES

    paths: dict[str, str] = {}
    for route in ROUTES:
        paths.setdefault(route.handler, f"{route.method} {route.pattern}")
    groups = (
        ("`{}`", BODY),
        ("`memory.options.{}`", OPTIONS),
        ("messages: role {}", ROLES),
        ("stored: {}", STORED),
        ("route {}", {f"`{paths[handler]}`": rule for handler, rule in TRUSTED_ONLY.items()}),
    )
    return tuple((form.format(name), rule.outcome, rule.what) for form, rules in groups for name, rule in rules.items())
