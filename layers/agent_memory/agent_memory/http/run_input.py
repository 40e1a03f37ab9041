"""From the body of a run's request to what an agent takes, and what each caller may ask of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from agent_memory.agent.result import MemoryArgs, RunOptions
from agent_memory.errors import AccessDeniedError, InvalidInputError
from agent_memory.http.call import Call
from agent_memory.http.permitted import body_of, options_of

if TYPE_CHECKING:
    from agent_memory.agent.agent import Agent
    from agent_memory.http.active_runs import ActiveRun

LATER: Final = (
    *("instructions", "system", "context", "modelSettings", "providerOptions", "toolChoice", "activeTools", "maxSteps"),
    *("clientTools", "requireToolApproval", "structuredOutput"),
)
"""Keys of ``streamOptions`` that a run gets which another call does."""


def memory_args(call: Call, agent: Agent, *, thread: Any = None) -> MemoryArgs | None:
    """Which conversation a body means: ``memory.thread`` and ``memory.resource``, else `thread` and ``resourceId``.

    A signed-in identity takes the place of every resource. Raises InvalidInputError for a thread without an owner.
    """
    given = call.body.get("memory") or {}
    call.check_one_owner(given.get("resource"), call.body.get("resourceId"))
    place = given.get("thread", thread if thread is not None else call.body.get("threadId"))
    if place is None:
        return None
    named = given.get("resource")
    owner = call.identity.resource(named if named is not None else call.body.get("resourceId"))
    thread_id, title, metadata = place, None, None
    if isinstance(place, dict):
        thread_id, title, metadata = place["id"], place.get("title"), place.get("metadata")
    if owner is None:
        owner = _owner_of(thread_id)
    options = given.get("options")
    if options is not None:
        options = options_of(options, call.identity, agent)
    return MemoryArgs(thread_id, owner, title, metadata, options)


def _owner_of(thread_id: str) -> str:
    """The owner of a thread that was named without one."""
    from agent_memory import runtime

    store = runtime.services().store
    owner = store.owner_of(thread_id) if store is not None else None
    if owner is None:
        raise InvalidInputError("memory.resource", "expected the id of the thread's owner, found nothing")
    return owner


def run_options(call: Call, agent: Agent, *, regenerate: bool = False, active: ActiveRun | None = None) -> RunOptions:
    """What a body sets beside the messages. Raises InvalidInputError."""
    body = body_of(call.body, call.identity, agent)
    return replace(
        options_from(body),
        run_id=body.get("runId"),
        idempotency_key=call.idempotency_key,
        regenerate=regenerate,
        request_context=call.request_context,
        should_stop=active.should_stop if active else None,
        arrived=active.arrived if active else None,
        deadline=call.deadline,
        quota_owner=call.identity.resource_id,
    )


def options_from(body: Mapping[str, Any], *, at: str = "") -> RunOptions:
    """What the keys of a body mean to a run; `at` stands before the names of fields in errors. Raises InvalidInputError."""
    instructions = body.get("instructions")
    return RunOptions(
        instructions=None if instructions is None else "\n".join(_texts(instructions, f"{at}instructions")),
        system=tuple(_texts(body.get("system"), f"{at}system")),
        context=body.get("context"),
        model_settings=body.get("modelSettings"),
        provider_options=body.get("providerOptions"),
        tool_choice=body.get("toolChoice"),
        active_tools=body.get("activeTools"),
        max_steps=body.get("maxSteps"),
        client_tools=_client_tools(body.get("clientTools") or {}, f"{at}clientTools"),
        require_tool_approval=body.get("requireToolApproval"),
        structured_output=body.get("structuredOutput"),
    )


def later_options(call: Call, agent: Agent, given: Mapping[str, Any] | None, *, at: str) -> dict[str, Any]:
    """What counts of ``streamOptions`` for a run that another call does: keys of a job, checked. Raises InvalidInputError."""
    allowed = body_of(given or {}, call.identity, agent)
    options = {name: allowed[name] for name in LATER if allowed.get(name) is not None}
    options_from(options, at=f"{at}.")
    memory = (allowed.get("memory") or {}).get("options")
    return {
        "options": options,
        "memoryOptions": None if memory is None else dict(options_of(memory, call.identity, agent)),
        "requestContext": {**(allowed.get("requestContext") or {}), **call.request_context},
    }


def input_messages(call: Call, memory: MemoryArgs | None) -> Any:
    """The messages of a body.

    Those of a signed-in user may hold no system message. Answers that such a user sends count only against stored ones
    (the input filter takes tool outcomes from them): a thread without stored messages would take them all as said by
    the model, so there they are left out.
    """
    messages = call.body["messages"]
    if call.identity.trusted or not isinstance(messages, list | dict):
        return messages
    listed = messages if isinstance(messages, list) else [messages]
    roles = [message.get("role") if isinstance(message, dict) else "user" for message in listed]
    if "system" in roles:
        raise InvalidInputError(f"messages.{roles.index('system')}.role", "expected no system message from an end user")
    if memory is None or set(roles) <= {"user"} or _has_messages(memory):
        return messages
    own = [message for message, role in zip(listed, roles, strict=True) if role == "user"]
    if not own:
        raise InvalidInputError("messages", "expected a user message: nothing is stored that these could go on from")
    return own


def _has_messages(memory: MemoryArgs) -> bool:
    from agent_memory import runtime

    store = runtime.services().store
    header = store.get_thread(memory.resource, memory.thread) if store is not None else None
    return header is not None and header.message_count > 0


def check_place(call: Call, thread_id: str, owner: str) -> None:
    """Refuse a run of another thread or resource than the call names. Raises AccessDeniedError."""
    memory = call.body.get("memory") or {}
    place = memory.get("thread")
    threads = {place["id"] if isinstance(place, dict) else place, call.body.get("threadId")} - {None}
    resources = {memory.get("resource"), call.body.get("resourceId")} - {None}
    if not call.identity.trusted:
        resources = {call.identity.resource_id}
    if threads - {thread_id} or resources - {owner}:
        raise AccessDeniedError("Access denied: the run belongs to a different thread or resource")


def _client_tools(given: Mapping[str, Any], field: str) -> Mapping[str, Mapping[str, Any]]:
    for name, tool in given.items():
        if not isinstance(tool, dict):
            raise InvalidInputError(f"{field}.{name}", f"expected an object, found {type(tool).__name__}")
    return given


def _texts(given: Any, field: str) -> list[str]:
    """Texts of a system prompt: a text, a system message, or a list of either."""
    if given is None:
        return []
    texts = []
    for item in given if isinstance(given, list) else [given]:
        text = item.get("content") if isinstance(item, dict) else item
        if not isinstance(text, str):
            raise InvalidInputError(field, "expected a text, a system message with a text, or a list of those")
        texts.append(text)
    return texts
