"""Agents of the OpenAI Agents SDK inside nodes: `DurableRunner().run(agent, input)`."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import Any, Literal, TypeVar

from everstep.agents.calls import (
    Calls,
    Costs,
    StepOptions,
    approved,
    checked,
    checked_span,
    digest,
    missing,
)
from everstep.agents.openai_parts import DurableModel, DurableProvider, durable_server, durable_session
from everstep.errors import BadRequest
from everstep.graph.author.context import Context
from everstep.model.durations import Span
from everstep.steps import running

try:
    from agents import (
        Agent,
        FunctionTool,
        Handoff,
        Model,
        RunConfig,
        Runner,
        RunResult,
        RunResultStreaming,
        RunState,
        Tool,
        TResponseInputItem,
        tool,
    )
    from agents.items import ToolApprovalItem
    from agents.memory import Session
    from agents.run import AgentRunner, get_default_agent_runner, set_default_agent_runner
    from agents.tool_context import ToolContext
except ImportError as error:
    raise missing("openai-agents 0.18.1 or newer", "openai-agents", error) from error

__all__ = ["DurableRunner", "StepOptions"]

TContext = TypeVar("TContext")
_RUNNING: ContextVar[_Run | None] = ContextVar("everstep_agent_run", default=None)
"""The run of an agent that this code belongs to."""
_LOCAL = ("computer", "editor", "executor", "on_invoke_tool")
"""What tools have that act in this process."""
_CALLS = "_everstep_calls"
"""What results and states have that belong to a durable run: its calls."""


class DurableRunner:
    """A `Runner` for nodes: every model, tool and MCP call of an agent is a step of the node.

    Outside a node, and inside a step, it is `Runner`. Agents that an agent hands over to, and those it has as
    tools, are run the same way. `run` waits for people where a tool needs an approval; the node has
    `halts=True`.
    """

    def __init__(
        self,
        *,
        model: StepOptions | None = None,
        tools: StepOptions | None = None,
        tool: Mapping[str, StepOptions | Literal[False]] | None = None,
        timeout: Span | None = None,
        costs: Costs | None = None,
    ) -> None:
        """Say how steps are made, with options of `ctx.step`: calls of models, of tools, of one tool by name.

        `False` for a tool lets it run in the node itself. `timeout` is how long an approval may take. `costs`
        says what `ctx.spend` counts for a model call, given its usage.
        """
        self._model = checked(model, "model")
        self._tools = checked(tools, "tools")
        self._tool = {
            name: own if own is False else checked(own, f"tool {name!r}")
            for name, own in (tool or {}).items()
        }
        self._timeout = checked_span(timeout)
        self.costs = costs

    async def run(
        self,
        starting_agent: Agent[TContext],
        input: str | list[TResponseInputItem] | RunState[TContext],
        *,
        run_config: RunConfig | None = None,
        session: Session | None = None,
        **options: Any,
    ) -> RunResult:
        """Run an agent as `Runner.run` does; returns once no tool call waits for an approval."""
        context = running()
        if context is None:
            return await Runner.run(starting_agent, input, run_config=run_config, session=session, **options)
        run = _Run(self, _calls_of(context, starting_agent, input), run_config)
        result = await run.to_the_end(starting_agent, input, session=session, **options)
        options.pop("context", None)  # a state has it already
        while result.interruptions:
            state = await self.approvals(result)
            result = await run.to_the_end(starting_agent, state, session=session, **options)
        return result

    def run_streamed(
        self,
        starting_agent: Agent[TContext],
        input: str | list[TResponseInputItem] | RunState[TContext],
        *,
        run_config: RunConfig | None = None,
        session: Session | None = None,
        **options: Any,
    ) -> RunResultStreaming:
        """Run an agent as `Runner.run_streamed` does. If it ends with interruptions, see `approvals`."""
        context = running()
        if context is None:
            return Runner.run_streamed(
                starting_agent, input, run_config=run_config, session=session, **options
            )
        run = _Run(self, _calls_of(context, starting_agent, input), run_config)
        return run.streamed(starting_agent, input, session=session, **options)

    async def approvals(self, result: RunResult | RunResultStreaming) -> RunState[Any]:
        """Wait for people to approve the tool calls that a run was interrupted for.

        Returns the state to go on with: `runner.run_streamed(agent, await runner.approvals(result))`.
        """
        context = running()
        if context is None:
            raise BadRequest("approvals are waited for in nodes.", fix="Outside, use result.to_state().")
        state = result.to_state()
        calls = _calls_of(context, result.last_agent, result)
        setattr(state, _CALLS, calls)
        for item in result.interruptions:
            name, arguments = item.name or "tool", _read(item.arguments)
            said = await approved(context, calls, name, _call_id(item), arguments, self._timeout)
            if said.approved:
                state.approve(item)
            elif said.comment:
                state.reject(item, rejection_message=said.comment)
            else:
                state.reject(item)
        return state

    def options_of(self, name: str) -> StepOptions | Literal[False]:
        """Return how calls of a tool are made; false if it runs in the node itself."""
        own = self._tool.get(name, StepOptions())
        return own if own is False else {**self._tools, **own}

    @property
    def model_options(self) -> StepOptions:
        """How calls of models are made."""
        return self._model


class _Run:
    """One run of an agent in a node: its calls, and stand-ins for all it is made of."""

    def __init__(self, runner: DurableRunner, calls: Calls, config: RunConfig | None) -> None:
        self._runner = runner
        self._calls = calls
        self._given = config
        self._config = self._durable_config(RunConfig() if config is None else config)
        self._agents: dict[int, tuple[Agent[Any], Agent[Any]]] = {}
        """Stand-ins of agents by the ids of those, and both."""
        self._session: tuple[Session, Session] | None = None
        """What stands for a session, and that."""
        self._base = _install()

    def inside(self, agent: Agent[Any], input: Any, config: RunConfig | None) -> _Run:
        """Return a run that this one begins, with this one's configuration unless it has its own."""
        what = f"{agent.name} {_question(input)}"
        calls = getattr(input, _CALLS, None) or self._calls.inside(what, agent.name, _made_of(agent))
        return _Run(self._runner, calls, self._given if config is None else config)

    def called(self, one: FunctionTool, call_id: str) -> _Run:
        """Return what the runs belong to that a tool begins, so that those of other calls are others."""
        return _Run(self._runner, self._calls.inside(call_id, one.name, {}), self._given)

    async def to_the_end(
        self, agent: Agent[Any], input: Any, *, session: Session | None, **options: Any
    ) -> RunResult:
        token = _RUNNING.set(self)
        try:
            result = await self._base.run(self._agent(agent), input, **self._with(session), **options)
        finally:
            _RUNNING.reset(token)
        setattr(result, _CALLS, self._calls)
        return result

    def streamed(
        self, agent: Agent[Any], input: Any, *, session: Session | None, **options: Any
    ) -> RunResultStreaming:
        token = _RUNNING.set(self)
        try:
            result = self._base.run_streamed(self._agent(agent), input, **self._with(session), **options)
        finally:
            _RUNNING.reset(token)
        setattr(result, _CALLS, self._calls)
        return result

    def _with(self, session: Session | None) -> dict[str, Any]:
        if session is not None and (self._session is None or self._session[1] is not session):
            self._session = (durable_session(session, self._calls), session)
        memory = None if session is None or self._session is None else self._session[0]
        return {"run_config": self._config, "session": memory}

    def _durable_config(self, config: RunConfig) -> RunConfig:
        options, costs = self._runner.model_options, self._runner.costs
        provider = DurableProvider(config.model_provider, self._calls, options, costs)
        return replace(config, model_provider=provider, model=self._model(config.model))

    def _model(self, model: str | Model | None) -> str | Model | None:
        if isinstance(model, Model) and not isinstance(model, DurableModel):
            return DurableModel(model, self._calls, self._runner.model_options, self._runner.costs)
        return model

    def _agent(self, agent: Agent[Any]) -> Agent[Any]:
        """Return what stands for an agent in this run."""
        if id(agent) in self._agents:
            return self._agents[id(agent)][1]
        made = copy.copy(agent)
        self._agents[id(agent)] = (agent, made)
        self._agents[id(made)] = (made, made)
        made.model = self._model(agent.model)
        made.tools = [self._tool(agent, one) for one in agent.tools]
        made.mcp_servers = [durable_server(server, self._calls) for server in agent.mcp_servers]
        made.handoffs = [
            self._handoff(one) if isinstance(one, Handoff) else self._agent(one) for one in agent.handoffs
        ]
        if made.mcp_servers:
            vars(made)["get_mcp_tools"] = partial(self._mcp_tools, made)
        return made

    async def _mcp_tools(self, agent: Agent[Any], context: Any) -> list[Tool]:
        found = await type(agent).get_mcp_tools(agent, context)
        return [self._tool(agent, one) for one in found]

    def _handoff(self, handoff: Handoff[Any, Any]) -> Handoff[Any, Any]:
        made, invoke = copy.copy(handoff), handoff.on_invoke_handoff

        async def hand_over(context: Any, arguments: str) -> Agent[Any]:
            return self._agent(await invoke(context, arguments))

        made.on_invoke_handoff = hand_over
        return made

    def _tool(self, agent: Agent[Any], one: Tool) -> Tool:
        if not isinstance(one, FunctionTool):
            if any(getattr(one, name, None) is not None for name in _LOCAL):
                raise BadRequest(
                    f"tool {one.name!r} of agent {agent.name!r} acts here, and is no function tool.",
                    fix="Give the agent a function_tool that does it.",
                )
            return one  # the model's provider runs it
        made, is_agent = copy.copy(one), getattr(one, "_is_agent_tool", False)

        async def invoke(told: ToolContext[Any], arguments: str) -> Any:
            node = running()
            options = self._runner.options_of(one.name)
            if node is None or options is False:
                return await one.on_invoke_tool(told, arguments)
            if is_agent:
                return await self._ask_agent(one, told, arguments)
            call = partial(_invoke, one, told, arguments)
            return await self._calls.make(
                node, one.name, call, options, call_id=told.tool_call_id, asked=arguments
            )

        made.on_invoke_tool = invoke
        if not is_agent and hasattr(made, "timeout_seconds"):
            made.timeout_seconds = None  # it is over inside the step, so that this is recorded, too
        return made

    async def _ask_agent(self, one: FunctionTool, told: ToolContext[Any], arguments: str) -> Any:
        """Run an agent that is a tool: not as one step, but with steps of its own."""
        token = _RUNNING.set(self.called(one, told.tool_call_id))
        try:
            return await one.on_invoke_tool(told, arguments)
        finally:
            _RUNNING.reset(token)


class _RunsInside(AgentRunner):
    """Runs agents that begin inside a durable run as durable ones: those that are tools, or guardrails."""

    def __init__(self, base: AgentRunner) -> None:
        self.base = base

    async def run(self, starting_agent: Agent[Any], input: Any, **kwargs: Any) -> RunResult:
        around = _RUNNING.get()
        if around is None or running() is None:
            return await self.base.run(starting_agent, input, **kwargs)
        session = kwargs.pop("session", None)
        inner = around.inside(starting_agent, input, kwargs.pop("run_config", None))
        return await inner.to_the_end(starting_agent, input, session=session, **kwargs)

    def run_sync(self, starting_agent: Agent[Any], input: Any, **kwargs: Any) -> RunResult:
        return self.base.run_sync(starting_agent, input, **kwargs)

    def run_streamed(self, starting_agent: Agent[Any], input: Any, **kwargs: Any) -> RunResultStreaming:
        around = _RUNNING.get()
        if around is None or running() is None:
            return self.base.run_streamed(starting_agent, input, **kwargs)
        session = kwargs.pop("session", None)
        inner = around.inside(starting_agent, input, kwargs.pop("run_config", None))
        return inner.streamed(starting_agent, input, session=session, **kwargs)


def _calls_of(context: Context, agent: Agent[Any], input: Any) -> Calls:
    """Return the calls of a run: those of the one that it goes on with, if it does."""
    found: Calls | None = getattr(input, _CALLS, None)
    return found or Calls.of(context, agent.name, _made_of(agent), _question(input))


def _made_of(agent: Agent[Any]) -> dict[str, Any]:
    """Return what makes an agent what it is, as far as it is not made anew for each run."""
    instructions = agent.instructions
    return {
        "instructions": digest(instructions) if isinstance(instructions, str) else "",
        "model": agent.model if isinstance(agent.model, str) else str(getattr(agent.model, "model", "")),
        "tools": sorted(one.name for one in agent.tools),
        "handoffs": sorted(
            one.agent_name if isinstance(one, Handoff) else one.name for one in agent.handoffs
        ),
    }


def _question(input: Any) -> str:
    """Return what an agent is asked, as far as that is the same in every life."""
    return input if isinstance(input, str) else json.dumps(input, default=lambda other: type(other).__name__)


def _call_id(item: ToolApprovalItem) -> str:
    raw = item.raw_item
    said = raw if isinstance(raw, dict) else vars(raw)
    return str(said.get("call_id") or said.get("id") or "")


def _install() -> AgentRunner:
    """See that runs inside durable ones are found, and return what runs agents."""
    found = get_default_agent_runner()
    if isinstance(found, _RunsInside):
        return found.base
    set_default_agent_runner(_RunsInside(found))
    return found


async def _invoke(one: FunctionTool, told: ToolContext[Any], arguments: str) -> Any:
    with_timeout = getattr(tool, "invoke_function_tool", None)
    if with_timeout is None:
        return await one.on_invoke_tool(told, arguments)
    return await with_timeout(function_tool=one, context=told, arguments=arguments)


def _read(arguments: str | None) -> Any:
    try:
        return None if arguments is None else json.loads(arguments)
    except ValueError:
        return arguments
