"""Type checkers see what durable calls give, in nodes that are async and in those that are not.

mypy reads this file with all others, as it does `test_signatures.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine
from datetime import datetime
from typing import Any, assert_type

import pytest

from everstep import AsyncContext, Context, Flow, Host, Node, node, step
from everstep.errors import BadRequest


def count(word: str) -> int:
    return len(word)


async def count_soon(word: str) -> int:
    return len(word)


@step
def count_by_itself(word: str) -> int:
    return len(word)


@step(retry=2, name="soon")
async def count_by_itself_soon(word: str) -> int:
    return len(word)


@node(name="agent", output="found")
def agent(ctx: Context) -> list[Any]:
    found = ctx.step("count", count, "abc", retry=2, timeout="1m", effects="pure")
    assert_type(found, int)
    assert_type(ctx.now(), datetime)
    assert_type(ctx.uuid(), str)
    assert_type(ctx.random(), float)
    assert_type(count_by_itself("abc"), int)
    return [found, count_by_itself("ab")]


@node(name="agent", output="found")
async def agent_soon(ctx: AsyncContext) -> list[Any]:
    asked = ctx.step("count", count_soon, "abc", key=1)
    _ = assert_type(asked, Coroutine[Any, Any, int])
    assert_type(await ctx.step("count", count, "abc"), int)  # on a thread
    assert_type(ctx.now(), datetime)
    by_itself = count_by_itself_soon("ab")
    _ = assert_type(by_itself, Coroutine[Any, Any, int])
    awaited: Awaitable[int] = by_itself
    return [await asked, await awaited]


@pytest.mark.parametrize("made", [agent, agent_soon])
def test_a_durable_call_gives_what_its_function_returns(made: Node) -> None:
    with Host("memory:") as host:
        assert host.run(Flow("agents", [made]))["found"] == [3, 2]


@node(name="agent")
def with_typos(ctx: Context) -> None:
    with pytest.raises(BadRequest):
        ctx.step("count", count, "abc", on_change="ask")  # type: ignore[call-overload]
    with pytest.raises(BadRequest):
        ctx.step("count", count, "abc", keep="always")  # type: ignore[call-overload]
    with pytest.raises(BadRequest):
        ctx.step("count", count, "abc", retry="patiently")  # type: ignore[call-overload]


@node(name="agent")
async def with_typos_soon(ctx: AsyncContext) -> None:
    with pytest.raises(BadRequest):
        await ctx.step("count", count, "abc", on_change="ask")  # type: ignore[call-overload]
    with pytest.raises(BadRequest):
        await ctx.step("count", count, "abc", keep="always")  # type: ignore[call-overload]


@pytest.mark.parametrize("made", [with_typos, with_typos_soon])
def test_typos_in_options_of_a_durable_call_are_found(made: Node) -> None:
    with Host("memory:") as host:
        assert host.run(Flow("agents", [made])).status == "completed"
