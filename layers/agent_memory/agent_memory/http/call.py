"""A request on its way through a handler: checked values, who calls, and the agent or memory it means."""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent_memory import runtime
from agent_memory._json import loads
from agent_memory.errors import AccessDeniedError, InvalidInputError, NotFoundError
from agent_memory.http.identity import TRUSTED, Identity
from agent_memory.http.request import Request
from agent_memory.http.router import Route
from agent_memory.ids import check_id
from agent_memory.memory.base import Owner, Unset

if TYPE_CHECKING:
    from agent_memory.agent.agent import Agent
    from agent_memory.memory import Memory
    from agent_memory.ports import Thread
    from agent_memory.settings import Settings


@dataclass(slots=True)
class Call:
    """One call of a handler.

    Attributes:
        request, route: What came and what it matched.
        identity: Who calls.
        params: Path parameters, decoded.
        query, body: Checked values; absent keys are absent.
        settings: Of the deployment.
        deadline: When a run must have ended, `time.monotonic()` seconds, or None.
    """

    request: Request
    route: Route
    settings: Settings
    identity: Identity = TRUSTED
    params: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)
    deadline: float | None = None

    # -- what is named

    def id(self, name: str) -> str:
        """A path parameter that is an id. Raises InvalidInputError."""
        return check_id(name, self.params[name], where="path")

    @property
    def idempotency_key(self) -> str | None:
        """The caller's name for this call."""
        return self.request.header("idempotency-key")

    @property
    def owner(self) -> Owner:
        """The resource that the call means, UNSET where none is named.

        Raises AccessDeniedError where query and body name two, of which one cannot be the owner.
        """
        self.check_one_owner(self.query.get("resourceId"), self.body.get("resourceId"))
        return self.identity.owner(self.named_resource)

    def required_owner(self) -> str:
        """The same for calls that need a resource. Raises InvalidInputError, AccessDeniedError."""
        self.check_one_owner(self.query.get("resourceId"), self.body.get("resourceId"))
        return self.identity.required(self.named_resource)

    @property
    def query_owner(self) -> Owner:
        """The same by the query alone, for calls whose body names another resource."""
        return self.identity.owner(self.query.get("resourceId"))

    @property
    def named_resource(self) -> str | None:
        """The resource that the caller names in query or body."""
        named = self.query.get("resourceId")
        return named if named is not None else self.body.get("resourceId")

    @property
    def request_context(self) -> Mapping[str, Any]:
        """What the application passes along; {} for what cannot be read, which never fails a call."""
        given = self.body.get("requestContext")
        if isinstance(given, dict):
            return given
        text = next(iter(self.request.query.get("requestContext") or ()), "")
        try:
            value = loads(base64.b64decode(text, validate=False)) if text else {}
        except (binascii.Error, ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}

    # -- agents and memory

    @property
    def agent_id(self) -> str | None:
        """The agent named in path, query or body."""
        for named in (self.params.get("agentId"), self.query.get("agentId"), self.query.get("networkId")):
            if named is not None:
                return named
        for key in ("agentId", "networkId"):
            if isinstance(self.body.get(key), str):
                return str(self.body[key])
        return None

    def agent(self) -> Agent | None:
        """The named agent, or None where none is named. Raises NotFoundError."""
        return None if self.agent_id is None else runtime.get_agent(self.agent_id)

    def named_agent(self) -> Agent:
        """The agent of a call that must name one. Raises InvalidInputError, NotFoundError."""
        agent = self.agent()
        if agent is None:
            raise InvalidInputError("agentId", "expected the id of an agent, found nothing", where="query")
        return agent

    def memory(self) -> Memory:
        """The memory to read with: the named agent's, else a plain one over the deployment's storage."""
        agent = self.agent()
        if agent is not None and agent.memory is not None:
            return agent.memory
        return plain_memory()

    def memory_to_write(self) -> Memory:
        """The memory of the named agent. Raises InvalidInputError where none is named or it has no memory."""
        agent = self.named_agent()
        if agent.memory is None:
            raise InvalidInputError("agentId", f"agent {agent.id} has no memory", where="query", code="NOT_ENABLED")
        return agent.memory

    def thread_owner(self, memory: Memory, thread_id: str, owner: Owner | None = None) -> str:
        """The resource that a call on a thread means: `owner` (the call's), else the thread's own.

        Raises NotFoundError where nobody is named and the thread does not exist.
        """
        owner = self.owner if owner is None else owner
        found = memory.storage.owner_of(thread_id) if isinstance(owner, Unset) else owner
        if found is None:
            raise NotFoundError("Thread not found", code="THREAD_NOT_FOUND")
        return found

    def check_one_owner(self, *named: str | None) -> None:
        """Refuse a trusted caller that names different resources for one thing. Raises AccessDeniedError."""
        if self.identity.trusted and len(set(named) - {None}) > 1:
            raise AccessDeniedError("Access denied: the call names two resources")

    def check_thread(self, memory: Memory, thread_id: str, owner: str) -> None:
        """Refuse a thread of another resource than `owner`. Raises AccessDeniedError."""
        if self.identity.trusted and memory.storage.owner_of(thread_id) not in (None, owner):
            raise AccessDeniedError("Access denied: thread belongs to a different resource")

    def thread(self, memory: Memory, thread_id: str) -> Thread:
        """An existing thread that the caller may see. Raises NotFoundError, AccessDeniedError."""
        owner = self.owner
        thread = memory.get_thread(thread_id, resource_id=owner)
        if thread is None:
            if not isinstance(owner, Unset) and memory.storage.owner_of(thread_id) not in (None, owner):
                raise AccessDeniedError("Access denied: thread belongs to a different resource")
            raise NotFoundError("Thread not found", code="THREAD_NOT_FOUND")
        return thread


def plain_memory() -> Memory:
    """A memory without recall and working memory over the deployment's storage."""
    from agent_memory.memory import Memory

    memory = Memory()
    memory.bind(runtime.services())
    return memory


def deadline_of(context: Any, settings: Settings) -> float | None:
    """When a run must close itself, `time.monotonic()` seconds: a little before the function's own deadline.

    None where the context tells none. The time kept is `stop_before_deadline_ms`, for closing the stream and storing.
    """
    remaining = getattr(context, "get_remaining_time_in_millis", None)
    left_ms = remaining() if callable(remaining) else None
    return time.monotonic() + (left_ms - settings.stop_before_deadline_ms) / 1000 if left_ms else None
