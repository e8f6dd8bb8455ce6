"""What a run was made of is freed when it is over: nothing is left to the garbage collector."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep import AsyncHost, Flow, Host, node


@node(output="b")
def double(a: int) -> int:
    return 2 * a


@node(output="c")
async def add(b: int) -> int:
    return b + 1


@node(output="d")
async def square(b: int) -> int:
    return b * b


FLOW = Flow("fan", [double, add, square], durability="strong")


@pytest.fixture
def garbage() -> Iterator[list[object]]:
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield gc.garbage
    finally:
        gc.set_debug(0)
        gc.enable()
        gc.garbage.clear()


def ours(garbage: list[object]) -> list[str]:
    gc.collect()
    return [type(thing).__qualname__ for thing in garbage if type(thing).__module__.startswith("everstep.")]


def test_a_run_leaves_nothing_to_the_garbage_collector(tmp_path: Path, garbage: list[object]) -> None:
    with Host(f"sqlite:///{tmp_path}/runs.db") as host:
        for a in range(2):
            assert host.run(FLOW, {"a": a})["d"] == 4 * a * a
        assert ours(garbage) == []


def test_runs_side_by_side_leave_nothing_to_it_either(tmp_path: Path, garbage: list[object]) -> None:
    async def work() -> None:
        async with AsyncHost(f"sqlite:///{tmp_path}/runs.db") as host:
            await asyncio.gather(*(host.run(FLOW, {"a": a}) for a in range(5)))
            assert ours(garbage) == []

    asyncio.run(work())
