"""What stands in for models, sessions and servers of the OpenAI Agents SDK. Apart from what runs agents."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import fields, replace
from functools import partial, wraps
from typing import Any

from everstep.agents.calls import Calls, Costs, StepOptions, missing, spend, with_key
from everstep.steps import running

try:
    from agents import Model, ModelProvider, ModelResponse, ModelSettings, OpenAIResponsesWSModel, Usage
    from agents.exceptions import ModelBehaviorError
    from agents.items import TResponseOutputItem, TResponseStreamEvent
    from agents.mcp import MCPServer
    from agents.memory import Session
    from mcp.types import Tool as McpTool
    from openai import BaseModel
    from pydantic import TypeAdapter
except ImportError as error:
    raise missing("openai-agents 0.18.1 or newer", "openai-agents", error) from error

_USAGE = TypeAdapter(Usage)
_MCP_TOOLS = TypeAdapter(list[McpTool])
_LAST = frozenset({"response.completed", "response.incomplete", "response.failed"})
"""Events that end a stream."""
_MEMORY = ("get_items", "add_items", "pop_item", "clear_session", "run_compaction")


class Said(BaseModel):
    """What a model said, read from JSON as OpenAI's client reads it: what is new or missing is no error."""

    output: list[TResponseOutputItem]
    events: list[TResponseStreamEvent]


class DurableModel(Model):
    """A model whose calls are steps of the node that is running; elsewhere it is the model itself."""

    def __init__(self, model: Model, calls: Calls, options: StepOptions, costs: Costs | None) -> None:
        self._model = model
        self._calls = calls
        self._options = options
        self._costs = costs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    async def close(self) -> None:
        await self._model.close()

    def get_retry_advice(self, request: Any) -> Any:
        return self._model.get_retry_advice(request)

    async def get_response(
        self, system_instructions: Any, input: Any, model_settings: ModelSettings, *args: Any, **kwargs: Any
    ) -> Any:
        ask = partial(self._model.get_response, system_instructions, input)
        context = running()
        if context is None:
            return await ask(model_settings, *args, **kwargs)

        async def respond() -> Any:
            response = await ask(self._with_key(model_settings), *args, **kwargs)
            await spend(self._costs, response.usage)
            return _plain_response(response)

        kept = await self._calls.make(context, "model", respond, self._options, asked=_newest(input))
        output = Said.construct(output=kept["output"]).output
        return ModelResponse(**{**kept, "output": output, "usage": _USAGE.validate_python(kept["usage"])})

    def _with_key(self, settings: ModelSettings) -> ModelSettings:
        """Return settings that hand over the key of the call; as headers of a socket they would open one."""
        if isinstance(self._model, OpenAIResponsesWSModel):
            return settings
        return replace(settings, extra_headers=with_key(settings.extra_headers) or None)

    async def stream_response(
        self, system_instructions: Any, input: Any, model_settings: ModelSettings, *args: Any, **kwargs: Any
    ) -> AsyncIterator[TResponseStreamEvent]:
        """Hand on what the model says while it says it; its last event comes once the call is recorded.

        A stream that breaks off is not recorded, and begins anew when it is asked for again.
        """
        stream = partial(self._model.stream_response, system_instructions, input)
        context = running()
        if context is None:
            async for event in stream(model_settings, *args, **kwargs):
                yield event
            return
        live: asyncio.Queue[TResponseStreamEvent | None] = asyncio.Queue()
        last: list[TResponseStreamEvent] = []

        async def listen() -> Any:
            events: list[Any] = []
            async for event in stream(self._with_key(model_settings), *args, **kwargs):
                events.append(event)
                if last or event.type in _LAST:
                    last.append(event)
                else:
                    live.put_nowait(event)
            if not last:
                raise ModelBehaviorError("the model's stream ended before its response was complete")
            await spend(self._costs, getattr(getattr(last[0], "response", None), "usage", None))
            return list(_joined([_plain(event) for event in events]))

        # Half of it has been heard when it breaks off: the node has to know, so it is not tried again here.
        options: StepOptions = {**self._options, "retry": None}
        call = asyncio.ensure_future(
            self._calls.make(context, "model_stream", listen, options, asked=_newest(input))
        )
        call.add_done_callback(lambda _: live.put_nowait(None))
        try:
            while (heard := await live.get()) is not None:
                yield heard
            kept = await call
        finally:
            if call.cancel():
                await asyncio.wait([call])
        for said in last or Said.construct(events=kept).events:
            yield said


class DurableProvider(ModelProvider):
    """A provider of models whose calls are steps."""

    def __init__(
        self, provider: ModelProvider, calls: Calls, options: StepOptions, costs: Costs | None
    ) -> None:
        self._provider = provider
        self._calls = calls
        self._options = options
        self._costs = costs

    def get_model(self, model_name: str | None) -> Model:
        return DurableModel(self._provider.get_model(model_name), self._calls, self._options, self._costs)

    async def aclose(self) -> None:
        await self._provider.aclose()


def durable_session(session: Session, calls: Calls) -> Session:
    """Return a session whose every use is a step, so that a later life finds the memory as it was then.

    A step may be taken twice if its process dies before it is recorded; what was added then is not added
    again, and what was taken out not once more.
    """
    made, memory = copy.copy(session), _Memory(session)

    def replace(name: str, method: Callable[..., Awaitable[Any]]) -> None:
        @wraps(method)
        async def call(*args: Any, **kwargs: Any) -> Any:
            context = running()
            if context is None:
                return await method(*args, **kwargs)
            may_be_done = context.is_resumed or context.attempt > 1
            items = (args[0] if args else kwargs["items"]) if name == "add_items" else []

            async def use() -> Any:
                if may_be_done and await memory.has_been(name, items):
                    return memory.newest if name == "pop_item" else None
                return await method(*args, **kwargs)

            options: StepOptions = {"effects": "read_only"} if name == "get_items" else {}
            said = await calls.make(context, f"session.{name}", use, options)
            memory.note(name, items, said)
            return said

        vars(made)[name] = call

    for name in _MEMORY:
        if hasattr(session, name):
            replace(name, getattr(session, name))
    return made


class _Memory:
    """What is the newest item of a session as far as its run knows, which tells whether a step was taken."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._items: list[Any] | None = None
        """The newest items, as many as are known; none if nothing is."""

    @property
    def newest(self) -> Any:
        return self._items[-1] if self._items else None

    def note(self, name: str, items: list[Any], said: Any) -> None:
        """Note that the session was used."""
        if name == "get_items":
            self._items = list(said)
        elif name == "add_items" and self._items is not None:
            self._items += items
        elif name == "pop_item" and self._items:
            self._items = self._items[:-1] or None
        else:
            self._items = [] if name == "clear_session" else None

    async def has_been(self, name: str, items: list[Any]) -> bool:
        """Return whether the session is as if a step had been taken that no record knows of."""
        if name == "add_items" and items:
            found = await self._session.get_items(limit=len(items) + 1)
            before = found[: -len(items)]
            is_there = len(found) >= len(items) and all(map(_is_same, found[-len(items) :], items))
            if self._items is None or not is_there:
                return is_there
            if not self._items:
                return not before
            return bool(before) and _is_same(before[0], self.newest)
        if name == "pop_item" and self._items:
            found = await self._session.get_items(limit=1)
            return not found or not _is_same(found[0], self.newest)
        return False


def _is_same(stored: Any, item: Any) -> bool:
    """Return whether a session has this item. Some give it an id of their own, and leave out what is none."""
    item = json.loads(json.dumps(item))
    return all(stored.get(name) == said for name, said in item.items() if name != "id" and said is not None)


def durable_server(server: MCPServer, calls: Calls) -> MCPServer:
    """Return an MCP server whose list of tools is a step; their calls are, as those of all tools."""
    made = copy.copy(server)
    method = server.list_tools

    @wraps(method)
    async def list_tools(*args: Any, **kwargs: Any) -> Any:
        context = running()
        if context is None:
            return await method(*args, **kwargs)

        async def ask() -> Any:
            return _MCP_TOOLS.dump_python(
                await method(*args, **kwargs), mode="json", exclude_unset=True, by_alias=True
            )

        kept = await calls.make(context, f"{server.name}.tools", ask, {"effects": "read_only"})
        return _MCP_TOOLS.validate_python(kept)

    vars(made)["list_tools"] = list_tools
    return made


def _newest(input: Any) -> Any:
    """Return what a model is asked that it was not asked before."""
    return input[-1] if isinstance(input, list) and input else input


def _plain_response(response: ModelResponse) -> dict[str, Any]:
    return {
        **{field.name: getattr(response, field.name) for field in fields(response)},
        "output": [_plain(item) for item in response.output],
        "usage": _USAGE.dump_python(response.usage, mode="json"),
    }


def _plain(item: Any) -> Any:
    """Return what a model said as JSON has it. What was never set stays so: APIs refuse it if it is null."""
    if not isinstance(item, BaseModel):
        return item
    return item.model_dump(mode="json", exclude_unset=True, by_alias=True, warnings=False)


def _joined(events: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield events with the deltas that follow each other as one: as much is said, in fewer words."""
    newest: dict[str, Any] | None = None
    for event in events:
        is_delta = event["type"].endswith(".delta") and isinstance(event.get("delta"), str)
        if newest is not None and is_delta and _is_same_part(newest, event):
            newest = {**event, "delta": newest["delta"] + event["delta"]}
            continue
        if newest is not None:
            yield newest
        newest = event if is_delta else None
        if not is_delta:
            yield event
    if newest is not None:
        yield newest


def _is_same_part(one: dict[str, Any], other: dict[str, Any]) -> bool:
    names = ("type", "item_id", "output_index", "content_index", "summary_index")
    return all(one.get(name) == other.get(name) for name in names)
