"""Flows with agents of Pydantic AI."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from typing import Any

from fastmcp.client import Client
from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent, RunContext
from pydantic_ai.exceptions import ApprovalRequired
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import (
    ModelMessagesTypeAdapter,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
)
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import ExternalToolset

from everstep import Context, Flow, node
from everstep.agents.pydantic_ai import EverstepDurability
from tests.integration.agents.life import Place, act, drive

VERSION = importlib.metadata.version("pydantic-ai-slim")


def model(script: str) -> OpenAIChatModel:
    return OpenAIChatModel(script, provider=OpenAIProvider(base_url=Place.url, api_key=Place.key()))


async def watch(ctx: RunContext[Any], events: Any) -> None:
    """Emit what the model says while it says it."""
    async for event in events:
        if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
            ctx.deps.emit("text", said=event.part.content)
        elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
            ctx.deps.emit("text", said=event.delta.content_delta)


def agent_of(script: str, *, is_watched: bool = False) -> Agent[Any, str]:
    durability = EverstepDurability[Any](event_stream_handler=watch if is_watched else None)
    later = ExternalToolset(
        [ToolDefinition(name="later", parameters_json_schema={"type": "object"})], id="elsewhere"
    )
    agent = Agent(model(script), name="first", deps_type=object, capabilities=[durability], toolsets=[later])

    @agent.tool_plain
    def look(n: int) -> str:
        return act("look", n)

    @agent.tool_plain(requires_approval=True)
    def delete(n: int) -> str:
        return act("delete", n)

    @agent.tool
    def pay(ctx: RunContext[Any], n: int) -> str:
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        return act("pay", n)

    @agent.tool_plain(metadata={"everstep": False})
    async def second(input: str) -> str:
        inner = Agent(model("look-2"), name="second", capabilities=[EverstepDurability[Any]()])

        @inner.tool_plain(name="look")
        def look_there(n: int) -> str:
            return act("look", n)

        return f"{input}: {(await inner.run(input)).output}"

    return agent


def transcript(messages: Any) -> list[Any]:
    """Return what was said, without when."""
    kept = ModelMessagesTypeAdapter.dump_python(messages, mode="json")
    return [
        [m["kind"], [{k: p.get(k) for k in ("content", "args", "tool_call_id")} for p in m["parts"]]]
        for m in kept
    ]


@node(output="said", halts=True, retry=2)
async def ask(script: str, question: str) -> list[Any]:
    result = await agent_of(script).run(question)
    return transcript(result.all_messages())


@node(output="said", retry=2)
async def listen(ctx: Context, script: str, question: str) -> list[Any]:
    result = await agent_of(script, is_watched=True).run(question, deps=ctx)
    return transcript(result.all_messages())


@node(output="said")
async def fetch(script: str, question: str) -> list[Any]:
    transport = StdioTransport(sys.executable, Place.mcp_arguments(), env=dict(os.environ), keep_alive=False)
    there = MCPToolset[Any](Client(transport, init_timeout=60), id="there")
    agent = Agent(model(script), name="first", toolsets=[there], capabilities=[EverstepDurability[Any]()])
    result = await agent.run(question)
    return transcript(result.all_messages())


FLOWS = {one.name: Flow(one.name, [one]) for one in (ask, fetch, listen)}


def live(*, store: str, url: str, flow: str, inputs: dict[str, Any], run_id: str) -> dict[str, Any]:
    Place.url = url
    return drive(store, FLOWS[flow], inputs, run_id)
