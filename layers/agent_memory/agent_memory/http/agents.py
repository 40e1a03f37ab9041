"""Routes that describe agents and tools, and run a tool by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_memory import runtime
from agent_memory._json import dumps
from agent_memory.agent.tool_calls import to_json_value
from agent_memory.agent.tools import ToolContext
from agent_memory.errors import AgentMemoryError, InvalidInputError, NotFoundError
from agent_memory.http.call import Call

if TYPE_CHECKING:
    from agent_memory.agent.agent import Agent
    from agent_memory.agent.tools import Tool


class ToolFailedError(AgentMemoryError):
    """A tool that was called by itself failed. 400, because callers repeat a 5xx and would run it again."""

    default_code = "TOOL_FAILED"
    status = 400


def list_agents(call: Call) -> Any:
    """All agents by id."""
    return {agent_id: agent_json(agent, call) for agent_id, agent in runtime.agents().items()}


def get_agent(call: Call) -> Any:
    """One agent."""
    return agent_json(call.named_agent(), call)


def get_tool(call: Call) -> Any:
    """One tool of an agent."""
    return tool_json(_tool(call))


def list_tools(_call: Call) -> Any:
    """The tools of all agents by id."""
    return {tool_id: tool_json(tool) for agent in runtime.agents().values() for tool_id, tool in agent.tools.items()}


def execute_tool(call: Call) -> Any:
    """Run a tool; answers its bare result."""
    tool, agent = _tool(call), call.named_agent()
    if not tool.runs_here:
        raise InvalidInputError("toolId", f"tool {tool.id} runs on the caller's side", where="path")
    context = ToolContext(
        agent_id=agent.id,
        resource_id=call.identity.resource_id,
        request_context=call.request_context,
        store=agent.services.store,
    )
    try:
        return to_json_value(tool.run(call.body.get("data", {}), context))
    except InvalidInputError as error:
        raise InvalidInputError(error.field.replace("args", "data", 1), error.detail) from None
    except AgentMemoryError:
        raise
    except Exception as error:
        raise ToolFailedError(str(error) or type(error).__name__) from error


def agent_json(agent: Agent, call: Call) -> dict[str, Any]:
    """An agent as clients read it. Instructions are shown to trusted callers only."""
    provider, model_id = _model(agent)
    instructions = agent.instructions if isinstance(agent.instructions, str) else ""
    return {
        "id": agent.id,
        "name": agent.name,
        "description": agent.description,
        "instructions": instructions if call.identity.trusted else "",
        "tools": {tool_id: tool_json(tool) for tool_id, tool in agent.tools.items()},
        "agents": {},
        "workflows": {},
        "inputProcessors": [{"id": p.id, "name": p.id} for p in agent.input_processors],
        "outputProcessors": [{"id": p.id, "name": p.id} for p in agent.output_processors],
        "provider": provider,
        "modelId": model_id,
        "modelVersion": "v2",
        "supportsMemory": agent.memory is not None,
        "defaultOptions": {"maxSteps": agent.max_steps},
        "source": "code",
    }


def tool_json(tool: Tool) -> dict[str, Any]:
    """A tool as clients read it."""
    return {
        "id": tool.id,
        "description": tool.description,
        "requireApproval": tool.requires_approval,
        "inputSchema": dumps({"json": tool.input_schema}),
    }


def _tool(call: Call) -> Tool:
    tool = call.named_agent().tools.get(call.params["toolId"])
    if tool is None:
        raise NotFoundError("Tool not found", code="TOOL_NOT_FOUND")
    return tool


def _model(agent: Agent) -> tuple[str, str]:
    """Provider and id of the agent's model, without making an adapter for it."""
    model = agent.model if agent.model is not None else agent.services.model
    if not isinstance(model, str):
        return model.provider, model.model_id
    places = [place for place in (model.find(":"), model.find("/")) if place > 0]
    return (model[: min(places)], model[min(places) + 1 :]) if places else (model, model)
