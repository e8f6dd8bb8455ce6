"""Flows with agents of the OpenAI Agents SDK."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from pathlib import Path
from typing import Any

from agents import Agent, OpenAIResponsesModel, SQLiteSession, function_tool, set_tracing_disabled
from agents.mcp import MCPServerStdio
from openai import AsyncOpenAI

from everstep import Context, Flow, node
from everstep.agents.openai import DurableRunner
from tests.integration.agents.life import Place, act, drive

VERSION = importlib.metadata.version("openai-agents")
set_tracing_disabled(True)


def model(script: str) -> OpenAIResponsesModel:
    client = AsyncOpenAI(base_url=Place.url, api_key=Place.key(), max_retries=0)
    return OpenAIResponsesModel(script, client)


@function_tool
def look(n: int) -> str:
    return act("look", n)


@function_tool(needs_approval=True)
def delete(n: int) -> str:
    return act("delete", n)


def agent_of(script: str) -> Agent[Any]:
    second = Agent[Any](name="second", model=model("look-2"), tools=[look])
    return Agent(
        name="first",
        model=model(script),
        tools=[look, delete, second.as_tool("second", "Asks another agent.")],
        handoffs=[second],
    )


@node(output="said", halts=True, retry=2)
async def ask(script: str, question: str) -> list[Any]:
    result = await DurableRunner().run(agent_of(script), question, max_turns=30)
    return result.to_input_list()


@node(output="said")
async def fetch(script: str, question: str) -> list[Any]:
    params = {"command": sys.executable, "args": Place.mcp_arguments(), "env": dict(os.environ)}
    async with MCPServerStdio(params, name="there", client_session_timeout_seconds=60) as server:  # type: ignore[arg-type]  # a TypedDict
        agent = Agent[Any](name="first", model=model(script), mcp_servers=[server])
        result = await DurableRunner().run(agent, question)
    return result.to_input_list()


@node(output="said", retry=2)
async def remember(script: str, question: str, memory: str) -> list[Any]:
    session = SQLiteSession("talk", Path(memory))
    for turn in range(2):
        await DurableRunner().run(agent_of(script), f"{question} {turn}", session=session)
    return list(await session.get_items())


@node(output="said", retry=2)
async def listen(ctx: Context, script: str, question: str) -> list[Any]:
    result = DurableRunner().run_streamed(agent_of(script), question, max_turns=30)
    async for event in result.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            ctx.emit("text", said=event.data.delta)
    return result.to_input_list()


@node(output="said", halts=True)
async def listen_and_ask(ctx: Context, script: str, question: str) -> list[Any]:
    runner, agent = DurableRunner(), agent_of(script)
    result = runner.run_streamed(agent, question)
    async for _ in result.stream_events():
        pass
    while result.interruptions:
        result = runner.run_streamed(agent, await runner.approvals(result))
        async for _ in result.stream_events():
            pass
    return result.to_input_list()


FLOWS = {one.name: Flow(one.name, [one]) for one in (ask, fetch, remember, listen, listen_and_ask)}


def live(*, store: str, url: str, flow: str, inputs: dict[str, Any], run_id: str) -> dict[str, Any]:
    Place.url = url
    return drive(store, FLOWS[flow], inputs, run_id)
