"""Everything about a run that can be refused, before its first event: input, owner, repeats, loads, input guardrails."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from concurrent.futures import wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent_memory import clock, observe
from agent_memory._schema import check_schema
from agent_memory.agent import tool_calls, turn
from agent_memory.agent.memory_processors import MemoryProcessors, memory_processors
from agent_memory.agent.pool import submit
from agent_memory.agent.tools import Tool, client_tool
from agent_memory.errors import (
    AccessDeniedError,
    AgentMemoryError,
    ConfigurationError,
    ConflictError,
    InvalidInputError,
    Tripwire,
    TurnInProgressError,
)
from agent_memory.ids import check_id, new_id
from agent_memory.messages import Message
from agent_memory.messages.from_input import InputMessages, messages_from_input
from agent_memory.messages.list import MessageList
from agent_memory.messages.merge import apply_tool_outcome
from agent_memory.messages.message import Content, message_from_json
from agent_memory.messages.parts import ToolPart
from agent_memory.ports import TurnRecord, TurnStart
from agent_memory.processors.base import RunContext
from agent_memory.processors.input_filter import MADE_IDS
from agent_memory.processors.pipeline import Pipeline, arrange

if TYPE_CHECKING:
    from agent_memory.agent.run import Run
    from agent_memory.messages.from_input import ToolOutcome

REGENERATE_WINDOW = 200  # rows after a question that a regenerate replaces at most


@dataclass(slots=True)
class Prepared:
    """A run that is ready to answer."""

    ctx: RunContext
    pipeline: Pipeline
    tools: Mapping[str, Tool]
    input_ids: frozenset[str]


def prepare(run: Run, raw: Any, decisions: tuple[ToolOutcome, ...], resumed: Mapping[str, Any] | None) -> Prepared:
    """Check, load and filter. Raises the errors a caller gets instead of a stream.

    Requests before the model: one hop for the header and all loads (together), then what processors need to hydrate; for
    a thread that does not exist yet, one more to see that its id is not somebody else's; before all that, one for the
    quota where one is set.
    """
    options, agent = run.options, run.agent
    run_id = options.run_id or new_id("run-")
    if "::" in check_id("runId", run_id):
        raise InvalidInputError("runId", "expected an id without '::', which separates run and call in approval ids")
    schema = (options.structured_output or {}).get("schema")
    if schema:
        check_schema("structuredOutput.schema", schema)
    thread_id, resource_id = _conversation(run)
    given = InputMessages() if resumed is not None else _read(raw, thread_id, resource_id)
    # A call that came in a message without an id of its own is found in storage by the call's id.
    loose = (told for told in given.folded_outcomes if told.message_id not in given.given_ids)
    outcomes = (*given.tool_outcomes, *loose, *decisions)
    messages = MessageList(thread_id=thread_id, resource_id=resource_id)
    messages.system.untagged.extend(text for text in (_instructions(run),) if text)
    for text in (*options.system, *given.system):
        messages.system.add(text, "user-provided")
    if options.context is not None:
        messages.add(messages_from_input(options.context, new_id=new_id).messages, "context")
    ctx = RunContext(
        run_id=run_id,
        agent_id=agent.id,
        messages=messages,
        thread_id=thread_id,
        resource_id=resource_id,
        request_context=options.request_context,
        tool_outcomes=outcomes,
        submit=submit,
        emit=run.emit,
        should_stop=run.should_stop,
    )
    observe.enter(run_id=run_id, agent_id=agent.id, thread_id=thread_id, resource=observe.pseudonym(resource_id))
    ctx.shared[MADE_IDS] = frozenset(m.id for m in given.messages) - given.given_ids
    automatic = memory_processors(run, ctx)
    inputs, outputs = arrange(
        automatic.inputs,
        automatic.outputs,
        agent.input_processors if options.input_processors is None else options.input_processors,
        agent.output_processors if options.output_processors is None else options.output_processors,
        automatic.trailing,
    )
    pipeline = Pipeline(inputs, outputs, ctx)
    if resumed is not None and ctx.store is None:
        _restore(messages, resumed, decisions)
    messages.add(given.messages, "input")
    key = turn.turn_key(
        idempotency_key=options.idempotency_key,
        messages=given.messages,
        given_ids=given.given_ids,
        outcomes=outcomes,
        regenerate=options.regenerate,
        run_id=run_id,
    )
    if run.quota is not None and run.quota_owner is not None and resumed is None and not options.admitted:
        # Before anything is loaded: a caller over its limit shall cost one request and no more.
        run.quota.admit(run.quota_owner)
    prepared = Prepared(ctx, pipeline, _tools(run, automatic), frozenset(m.id for m in given.messages))
    try:
        _load(run, prepared, key, given)
        if run.replayed is None and run.tripwire is None:
            _place_answer(run, prepared, given, resumed)
            _take_decisions(run, ctx)
    except Tripwire as tripwire:
        from agent_memory.agent.run import info_of

        run.tripwire = info_of(tripwire)
    except BaseException:
        release(ctx)
        raise
    if run.tripwire is not None:
        release(ctx)
    return prepared


def _read(raw: Any, thread_id: str | None, resource_id: str | None) -> InputMessages:
    return messages_from_input(raw, thread_id=thread_id, resource_id=resource_id, new_id=lambda: new_id("msg-"))


def _conversation(run: Run) -> tuple[str | None, str | None]:
    if run.memory is None:
        return None, None
    if not run.memory.resource:
        raise InvalidInputError(
            "memory.resource", "expected the id of the thread's owner", code="AGENT_MEMORY_MISSING_RESOURCE_ID"
        )
    return check_id("memory.thread", run.memory.thread), check_id("memory.resource", run.memory.resource)


def _instructions(run: Run) -> str:
    if run.options.instructions is not None:
        return run.options.instructions
    given = run.agent.instructions
    return given(run.options.request_context) if callable(given) else given


def _tools(run: Run, automatic: MemoryProcessors) -> dict[str, Tool]:
    """All tools of a run by name: the agent's, memory's, the call's own sets, and those of the caller's side."""
    tools = {**run.agent.tools, **automatic.tools, **run.options.toolsets}
    for name, raw in run.options.client_tools.items():
        tools.setdefault(name, client_tool(name, raw))
    return tools


def _restore(messages: MessageList, resumed: Mapping[str, Any], decisions: tuple[ToolOutcome, ...]) -> None:
    """Put the messages of a suspended run without memory back, with what was decided."""
    for index, raw in enumerate(resumed.get("messages", ())):
        message = message_from_json(raw, f"state.messages.{index}")
        for outcome in decisions:
            message = apply_tool_outcome(message, outcome) or message
        messages.add([message], "input")


# ------------------------------------------------------------------------------------------------- loads and repeats


def _load(run: Run, prepared: Prepared, key: turn.TurnKey, given: InputMessages) -> None:
    ctx, pipeline = prepared.ctx, prepared.pipeline
    store = ctx.store
    if store is None or ctx.thread_id is None or ctx.resource_id is None:
        pipeline.process_input(pipeline.start_loads())
        return
    if not ctx.read_only:
        ctx.turn = turn.new_record(key, ctx.run_id)
    header = submit(store.begin_turn, ctx.resource_id, ctx.thread_id, ctx.turn)
    loads = pipeline.start_loads()
    wait([header, *loads.values()])
    start: TurnStart = header.result()
    ctx.header = start.header
    if start.header is None:
        owner = store.owner_of(ctx.thread_id)
        if owner is not None and owner != ctx.resource_id:
            ctx.turn = None
            raise AccessDeniedError("Access denied: thread belongs to a different resource")
    elif start.repeat is not None and ctx.turn is not None:
        loads = _repeat(run, prepared, key, start.repeat, given) or loads
    if run.replayed is None:
        pipeline.process_input(loads)
        if run.options.regenerate:
            _drop_old_answer(ctx, given)


def _repeat(
    run: Run, prepared: Prepared, key: turn.TurnKey, earlier: TurnRecord, given: InputMessages
) -> dict[str, Any] | None:
    """Decide what an earlier turn of the same key means; returns new loads where the input's ids changed."""
    ctx = prepared.ctx
    assert ctx.store is not None and ctx.header is not None and ctx.turn is not None
    own, ctx.turn = ctx.turn, None
    resource_id, thread_id = ctx.header.thread.resource_id, ctx.header.thread.id
    dead = earlier.state == "failed" or (earlier.state == "running" and earlier.deadline <= clock.now_ms())
    if dead:
        ctx.turn = own
        if key.guessed and clock.now_ms() - earlier.started_at > turn.REPEAT_WINDOW_MS:
            return None
        return _reuse(prepared, earlier, given)
    if turn.is_repeat(key, earlier, ctx.header.turns):
        if earlier.state == "running":
            raise TurnInProgressError(
                f"this turn is running (run {earlier.run_id}); try again in a moment for its answer"
            )
        run.replayed = stored_message(ctx, earlier.answer_id)
        if run.replayed is not None:
            ctx.answer_id = run.replayed.id
            return None
    # The same key, and a turn of its own all the same: register it under a name of its own.
    ctx.turn = dataclasses.replace(own, key=f"{own.key}:{ctx.run_id}")
    again = ctx.store.begin_turn(resource_id, thread_id, ctx.turn)
    ctx.header = again.header or ctx.header
    return None


def _reuse(prepared: Prepared, earlier: TurnRecord, given: InputMessages) -> dict[str, Any] | None:
    """Answer a failed turn again: its stored question stays the question, its unfinished answer goes."""
    ctx = prepared.ctx
    ctx.shared["replaces"] = earlier.answer_id
    users = [m for m in given.messages if m.role == "user"]
    known = list(earlier.user_ids)[-len(users) :] if users else []
    if len(known) != len(users) or [m.id for m in users] == known:
        return None
    renamed = dict(zip((m.id for m in users), known, strict=True))
    messages = [m.replace(id=renamed.get(m.id, m.id)) for m in given.messages]
    ctx.messages.remove(m.id for m in given.messages)
    ctx.messages.add(messages, "input")
    prepared.input_ids = frozenset(m.id for m in messages)
    return prepared.pipeline.start_loads()


def stored_message(ctx: RunContext, message_id: str | None) -> Message | None:
    """A message of the run's thread as it is stored now."""
    if message_id is None or ctx.store is None or ctx.thread_id is None or ctx.resource_id is None:
        return None
    seq = ctx.store.find(ctx.resource_id, ctx.thread_id, [message_id]).get(message_id)
    if seq is None:
        return None
    return next(iter(ctx.store.get_messages(ctx.resource_id, [(ctx.thread_id, seq)])), None)


def _drop_old_answer(ctx: RunContext, given: InputMessages) -> None:
    """Take everything after the question out of the prompt and out of storage (in this turn's commit)."""
    question = next((m for m in reversed(given.messages) if m.role == "user"), None)
    ctx.regenerates = None if question is None else question.id
    stored = ctx.messages.stored(question.id) if question is not None else None
    if question is None or stored is None or stored.seq is None or ctx.header is None:
        return
    assert ctx.store is not None and ctx.resource_id is not None and ctx.thread_id is not None
    after = ctx.header.next_seq - stored.seq - 1
    if after > REGENERATE_WINDOW:
        raise ConflictError(
            f"regenerate replaces at most {REGENERATE_WINDOW} messages after the question; found {after}. "
            "Delete the tail first"
        )
    rows = [m for m in ctx.messages.of("memory") if m.seq is not None and m.seq > stored.seq]
    if len(rows) < after:
        rows = [m for m in ctx.store.latest(ctx.resource_id, ctx.thread_id, after) if (m.seq or 0) > stored.seq]
    ctx.messages.remove(m.id for m in rows)
    ctx.removed = tuple(ctx.messages.stored(m.id) or m for m in rows)


# ------------------------------------------------------------------------------------------------- where the answer goes


def _place_answer(run: Run, prepared: Prepared, given: InputMessages, resumed: Mapping[str, Any] | None) -> None:
    """Choose the message that holds the answer: the assistant message that is continued, or a new one."""
    ctx = prepared.ctx
    replaces = ctx.shared.get("replaces")
    unfinished = ctx.messages.stored(replaces) if replaces else None
    if unfinished is not None and unfinished.id not in prepared.input_ids:
        ctx.messages.remove([unfinished.id])
        ctx.removed = (*ctx.removed, unfinished)
    continued = _continued(ctx, given, resumed)
    run.continues = continued is not None
    if continued is None:
        begin_answer(ctx)
    else:
        ctx.answer_id = continued.id
        ctx.messages.begin_answer(continued)


def begin_answer(ctx: RunContext) -> None:
    """Let what the model says from here on be an answer under an id of its own."""
    ctx.answer_id = new_id("msg-")
    ctx.messages.begin_answer(
        Message(
            id=ctx.answer_id,
            role="assistant",
            content=Content(),
            created_at=clock.now(),
            thread_id=ctx.thread_id,
            resource_id=ctx.resource_id,
        )
    )


def _continued(ctx: RunContext, given: InputMessages, resumed: Mapping[str, Any] | None) -> Message | None:
    shown = ctx.messages.of("memory", "input")
    if resumed is not None:
        return _suspended_answer(ctx, shown, resumed["answerId"])
    last = shown[-1] if shown else None
    if last is None or last.role != "assistant":
        return None
    told = {outcome.tool_call_id for outcome in ctx.tool_outcomes}
    if any(isinstance(part, ToolPart) and part.invocation.tool_call_id in told for part in last.parts):
        return last
    sent = given.messages[-1] if given.messages else None
    return last if sent is not None and sent.id == last.id else None


def _suspended_answer(ctx: RunContext, shown: Sequence[Message], answer_id: str) -> Message:
    """The answer that a suspended run goes on with; turns that came behind it are taken out of the prompt."""
    place = next((place for place, message in enumerate(shown) if message.id == answer_id), None)
    if place is None:
        raise ConflictError("the message whose tool call waits was removed, or lies too far back in its thread")
    ctx.messages.remove(message.id for message in shown[place + 1 :])
    return shown[place]


def _take_decisions(run: Run, ctx: RunContext) -> None:
    """Consume the approvals that came in: each once, by a conditional write, before anything runs."""
    message = ctx.messages.get(ctx.answer_id)
    for part in message.parts if message is not None else ():
        if not isinstance(part, ToolPart) or part.invocation.state != "approval-responded":
            continue
        call = part.invocation
        run_id = tool_calls.run_id_of(call.approval)
        runs = run.agent.services.runs
        if runs is None or run_id is None:
            raise ConfigurationError("an approval came in, and there is no run store that knows its run")
        suspended = runs.find_suspended(run_id, owner=ctx.resource_id)
        approval = call.approval
        decision = {"approved": bool(approval and approval.approved), "reason": approval.reason if approval else None}
        if suspended is None or runs.decide(suspended, call.tool_call_id, decision) is None:
            raise ConflictError(f"tool call {call.tool_call_id} was decided before, or its run has expired")


def release(ctx: RunContext) -> None:
    """After a turn that was refused or stopped: remove what it uploaded, and forget that it was running.

    What fails here is noted only: the record's deadline clears it up later, and the first error is what counts.
    """
    uploads = ctx.shared.get("uploads")
    if ctx.blobs is not None and uploads:
        try:
            ctx.blobs.delete(list(uploads))
        except AgentMemoryError as error:
            ctx.notes["release_failed"] = error.code
    if ctx.store is not None and ctx.header is not None and ctx.turn is not None:
        try:
            ctx.store.fail_turn(ctx.header, dataclasses.replace(ctx.turn, state="running"))
        except AgentMemoryError as error:
            ctx.notes["release_failed"] = error.code
