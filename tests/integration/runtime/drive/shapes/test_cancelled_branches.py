"""Branches that are called off or fail while others of them still run."""

from __future__ import annotations

import asyncio

import pytest

from everstep import AsyncHost, Flow, Host, Node, node, parallel


@node
def after() -> int:
    return 1


async def race(turns: int, is_map: bool) -> list[tuple[str, str]]:
    """Let a branch finish so many turns of the loop after the one that wins; return the steps."""
    go = asyncio.Event()

    @node
    async def win() -> None:
        go.set()

    @node(output="v")
    async def lose(x: int) -> int:
        await go.wait()
        for _ in range(turns):
            await asyncio.sleep(0)
        return x

    member = lose.map_over("x", max_concurrency=2) if is_map else lose
    flow = Flow("f", parallel(win, member, policy="first_success") >> after, durability="strong")
    async with AsyncHost("memory:") as host:
        result = await host.run(flow, {"x": list(range(6)) if is_map else 0}, run_id="r")
        assert result.status.value == "completed"
        return [(s.path, s.status.value) for c in await host.history("r") for s in c.steps]


@pytest.mark.parametrize("is_map", [False, True])
def test_a_loser_that_finishes_together_with_the_join_settles_once(is_map: bool) -> None:
    for turns in range(60):
        steps = asyncio.run(race(turns % 20, is_map))
        assert len([status for path, status in steps if path == "lose" and status != "running"]) == 1
        assert steps.count(("join_win_lose", "completed")) == steps.count(("after", "completed")) == 1


@pytest.mark.parametrize("kind", ["node", "nested", "atomic"])
def test_a_failed_map_that_is_tolerated_waits_for_the_items_that_run(host: Host, kind: str) -> None:
    @node(output="y")
    async def work(x: int) -> int:
        if x == 1:
            raise ValueError("one")
        await asyncio.sleep(0.05)
        return x

    @node
    def other() -> int:
        return 1

    member: Node = work
    if kind != "node":
        member = Flow("inner", [work]).as_node(durability="nested" if kind == "nested" else "atomic")
    member = member.map_over("x", max_concurrency=3)
    flow = Flow("f", parallel(other, member, policy="best_effort") >> after, durability="strong")
    result = host.run(flow, {"x": [0, 1, 2, 3, 4, 5]}, run_id="r")
    steps = [(s.path, s.status.value) for c in host.history("r") for s in c.steps]
    assert result["after.__result__"] == 1
    assert steps[-3:] == [
        (member.name, "failed"),
        (f"join_other_{member.name}", "completed"),
        ("after", "completed"),
    ]
    if kind == "node":
        assert {p for p, status in steps if status == "completed"} >= {"work#0", "work#2"}
        assert not any(p in ("work#3", "work#4", "work#5") for p, _ in steps)
