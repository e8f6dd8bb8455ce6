"""Agents of Pydantic AI inside nodes: `Agent(..., capabilities=[EverstepDurability()])`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import replace
from datetime import datetime
from itertools import count
from typing import Any, Literal, cast
from uuid import NAMESPACE_OID, uuid5

from everstep.agents.calls import (
    Calls,
    Costs,
    StepOptions,
    approved,
    checked,
    checked_span,
    digest,
    is_in_order,
    missing,
    spend,
    stable_id,
    with_key,
)
from everstep.errors import BadRequest
from everstep.model.durations import Span
from everstep.steps import current, running
from everstep.wait import CallbackOutput, callback

try:
    from pydantic_ai import (
        DeferredToolRequests,
        DeferredToolResults,
        RunContext,
        ToolApproved,
        ToolDenied,
        __version__,
    )
    from pydantic_ai.agent import EventStreamHandler
    from pydantic_ai.durable_exec import (
        JSON_CODEC,
        BaseDurabilityCapability,
        CallableOperationBackend,
        DurabilityEngineSpec,
        DurableOperationBackend,
        DurableOperationId,
        EventStreamHandlerId,
        JournalOperationNamer,
        ModelCancelSuspendedResponseId,
        ModelCompactMessagesId,
        ModelRequestId,
        RoleBasedOperationConfig,
        ToolsetCallToolId,
        ToolsetGetInstructionsId,
        ToolsetGetToolsId,
        ToolsetValidateToolArgumentsId,
    )
    from pydantic_ai.messages import ModelMessagesTypeAdapter, ToolCallPart
    from pydantic_ai.models import Model, ModelRequestParameters
    from pydantic_ai.tools import AgentDepsT
    from pydantic_ai.toolsets import AbstractToolset, FunctionToolset, ToolsetTool

    if not hasattr(BaseDurabilityCapability, "get_default_run_id"):
        # Every life would have an id of its own for the same run, and find none of its calls in the records.
        raise ImportError(f"{__version__} makes the ids of runs itself")
except ImportError as error:
    raise missing("Pydantic AI 2.61 or newer", "pydantic-ai", error) from error

__all__ = ["EverstepDurability", "StepOptions"]

_KINDS: frozenset[Literal["function", "mcp", "dynamic"]] = frozenset({"function", "mcp", "dynamic"})
_READS = (ToolsetGetToolsId, ToolsetGetInstructionsId, ToolsetValidateToolArgumentsId)
"""What changes nothing, and may be done again if a crash comes before the next call is recorded."""


class EverstepDurability(BaseDurabilityCapability[AgentDepsT]):
    """Makes every model, tool and MCP call of an agent a step of the node that runs the agent.

    Outside a node, and inside a step, the agent is as it was. With `waits` a tool call that needs an approval
    waits for it, and one that is executed elsewhere waits for its result; the node has `halts=True`. Without,
    they end the agent's run with `DeferredToolRequests`, as they do without this capability.
    """

    engine_spec = DurabilityEngineSpec(
        engine_name="everstep",
        durable_unit_noun="step",
        durable_container_noun="node",
        codec=JSON_CODEC,
        unsupported_runtime_toolset_kinds=_KINDS,
        wrapped_toolset_kinds=_KINDS,
        # A server is connected by the first call that needs it: if all of them are recorded, it never is.
        toolset_lifecycles={
            "function": "enter-always",
            "mcp": "enter-in-durable-unit",
            "dynamic": "enter-never",
        },
        tool_config_key="everstep",
    )

    def __init__(
        self,
        *,
        models: Mapping[str, Model] | None = None,
        event_stream_handler: EventStreamHandler[AgentDepsT] | None = None,
        name: str | None = None,
        model: StepOptions | None = None,
        tools: StepOptions | None = None,
        waits: bool = True,
        timeout: Span | None = None,
        costs: Costs | None = None,
    ) -> None:
        """Take what the capabilities of Pydantic AI for other engines take, and how steps are made.

        `model` and `tools` are options of `ctx.step`; those of one tool go by its metadata, under `everstep`,
        and `False` there lets it run in the node itself. `timeout` is how long waits may take. `costs` says
        what `ctx.spend` counts for a model call, given its `RequestUsage`.
        """
        super().__init__(models=models, event_stream_handler=event_stream_handler, name=name)
        self._model_options = checked(model, "model")
        self._tool_options = checked(tools, "tools")
        self._waits = waits
        self._timeout = checked_span(timeout)
        self._costs = costs
        self._begun = count()
        self._given: ContextVar[tuple[str, bool]] = ContextVar("everstep_run_id", default=("", False))
        """The newest id that was given to a run of the agent, and whether the order of runs counts there."""
        self._calls: ContextVar[Calls | None] = ContextVar("everstep_calls", default=None)

    @property
    def in_durable_context(self) -> bool:
        return running() is not None

    async def before_run(self, ctx: RunContext[AgentDepsT]) -> None:
        await super().before_run(ctx)
        if not self.in_durable_context:
            return
        given, in_order = self._given.get()
        if ctx.run_id != given:
            what = f"id {ctx.run_id}"  # who runs the agent tells its runs apart
        elif in_order:
            what = ""
        else:
            what = f"{self.name} {digest(repr((ctx.prompt, len(ctx.messages))))}"
        self._calls.set(Calls.known_as(current(), what, self.name, self._made_of()))

    def _made_of(self) -> dict[str, Any]:
        """Return what makes the agent what it is, as far as it is known before the model is asked."""
        if self.agent is None:
            return {}
        tools: list[str] = []

        def note(toolset: AbstractToolset[Any]) -> None:
            tools.extend(toolset.tools if isinstance(toolset, FunctionToolset) else [f"{toolset.id}.*"])

        for toolset in self.agent.toolsets:
            toolset.apply(note)
        model = self.agent.model
        return {
            "model": model.model_name if isinstance(model, Model) else model,
            "tools": sorted({*tools}),
        }

    def get_default_run_id(self) -> str | None:
        context = running()
        if context is None:
            return None
        in_order = is_in_order()
        number = context.occurrence("agent run") if in_order else f"beside {next(self._begun)}"
        self._given.set((stable_id(context, f"{self.name} {number}"), in_order))
        return self._given.get()[0]

    def get_default_conversation_id(self, run_id: str) -> str | None:
        return str(uuid5(NAMESPACE_OID, run_id)) if self.in_durable_context else None

    async def get_run_start_time(self, run_id: str) -> datetime | None:
        return current().now() if self.in_durable_context else None

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[AgentDepsT], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        """Wait for people to approve tool calls, and for other systems to make them."""
        calls = self._calls.get()
        if not self._waits or not self.in_durable_context or calls is None:
            return None
        results = DeferredToolResults()
        for call in requests.approvals:
            said = await approved(
                current(), calls, call.tool_name, call.tool_call_id, call.args_as_dict(), self._timeout
            )
            results.approvals[call.tool_call_id] = (
                ToolApproved() if said.approved else ToolDenied(said.comment or "The tool call was denied.")
            )
        for call in requests.calls:
            results.calls[call.tool_call_id] = await self._result_of(calls, call)
        return results

    async def _result_of(self, calls: Calls, call: ToolCallPart) -> Any:
        shown = {"tool": call.tool_name, "arguments": call.args_as_dict(), "tool_call_id": call.tool_call_id}
        said: CallbackOutput = await current().wait(
            callback(calls.wait_name(call.tool_name, call.tool_call_id), context=shown, timeout=self._timeout)
        )
        return said.payload

    def get_durable_operation_backend(self) -> DurableOperationBackend[StepOptions]:
        def of_tool(
            operation_id: DurableOperationId, tool: object | None, tool_name: str
        ) -> StepOptions | Literal[False]:
            found = self._build_resolve_tool_config(self._tool_options)(
                cast("ToolsetTool[Any] | None", tool), tool_name
            )
            return cast("StepOptions | Literal[False]", found)

        return _Backend(
            self.name,
            self._calls,
            self._costs,
            RoleBasedOperationConfig(
                model=self._model_options,
                event=StepOptions(effects="read_only"),
                capability=self._tool_options,
                tool=self._tool_options,
                resolve_tool=of_tool,
            ),
        )

    def _normalize_unit_config(self, config: Any) -> Any:
        unknown = (config or {}).keys() - StepOptions.__annotations__.keys()
        if unknown:
            raise BadRequest(
                f"a tool of agent {self.name!r} has {sorted(unknown)} in its metadata for everstep.",
                fix=f"It takes {', '.join(StepOptions.__annotations__)}.",
            )
        return config or {}


class _Backend(CallableOperationBackend[StepOptions]):
    """Makes the calls of an agent as steps of the node that is running."""

    def __init__(
        self,
        agent: str,
        calls: ContextVar[Calls | None],
        costs: Costs | None,
        config: RoleBasedOperationConfig[StepOptions],
    ) -> None:
        super().__init__(namer=JournalOperationNamer(agent), config=config)
        self._agent = agent
        self._calls = calls
        self._costs = costs

    def bind(self, operation: Any) -> Any:
        if isinstance(operation.operation_id, ModelRequestId):
            ask = operation.handler

            async def ask_once(params: Any) -> Any:
                settings = params.model_settings or {}
                headers = with_key(settings.get("extra_headers"))
                if headers:
                    params = replace(params, model_settings={**settings, "extra_headers": headers})
                response = await ask(params)
                await spend(self._costs, getattr(response, "usage", None))
                return response

            operation = replace(operation, handler=ask_once)
        return super().bind(operation)

    async def execute(
        self,
        *,
        operation_id: DurableOperationId,
        name: str,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...],
        config: StepOptions,
    ) -> object:
        calls = self._calls.get()
        context = running()
        if calls is None or context is None:
            return await body()
        run = next((part for part in cache_key if isinstance(part, RunContext)), None)
        call_id = "" if run is None else run.tool_call_id or ""
        if isinstance(operation_id, EventStreamHandlerId):
            call_id = _which(cache_key[0])
        if isinstance(operation_id, _READS):
            config = {**config, "effects": "read_only"}
        return await calls.make(
            context,
            self._name_of(operation_id, run),
            body,
            config,
            call_id=call_id,
            asked=_asked(operation_id, cache_key),
        )

    def _name_of(self, operation_id: DurableOperationId, run: RunContext[Any] | None) -> str:
        tool = "" if run is None else run.tool_name or ""
        match operation_id:
            case ModelRequestId(streaming=is_streamed):
                return "model_stream" if is_streamed else "model"
            case ModelCompactMessagesId():
                return "compact"
            case ModelCancelSuspendedResponseId():
                return "cancel"
            case EventStreamHandlerId():
                return "event"
            case ToolsetCallToolId():
                return tool
            case ToolsetValidateToolArgumentsId():
                return f"{tool}.validate"
            case ToolsetGetToolsId(toolset_id=toolset):
                return f"{toolset}.tools"
            case ToolsetGetInstructionsId(toolset_id=toolset):
                return f"{toolset}.instructions"
        return self._namer.operation_name(operation_id).removeprefix(f"{self._agent}__")


def _which(event: object) -> str:
    """Return what tells an event from others. Those of tools come in the order in which these end."""
    part = getattr(event, "part", None) or getattr(event, "result", None)
    call_id = getattr(part, "tool_call_id", "") or ""
    return f"{getattr(event, 'event_kind', '')} {call_id}" if call_id else ""


def _asked(operation_id: DurableOperationId, cache_key: tuple[object, ...]) -> Any:
    """Return what a call is about, as far as it is the same in every life: no times, no ids of requests."""
    match operation_id:
        case ModelRequestId():
            messages, parameters = cache_key[1], cache_key[3]
            assert isinstance(messages, list) and isinstance(parameters, ModelRequestParameters)
            last = ModelMessagesTypeAdapter.dump_python(messages[-1:], mode="json")
            said = [
                {name: value for name, value in part.items() if name != "timestamp"}
                for message in last
                for part in message["parts"]
            ]
            is_first = len(messages) == 1
            return [*said, *_instructions(parameters)] if is_first else said
        case ToolsetCallToolId():
            return cache_key[1]
    return None


def _instructions(parameters: ModelRequestParameters) -> list[str]:
    """Return the instructions that are not made anew for each run."""
    return [part.content for part in parameters.instruction_parts or () if not part.dynamic]
