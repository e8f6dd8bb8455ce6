"""A keyframe that is written while flows inside are under way: `verify` finds nothing wrong with it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from everstep import END, AsyncHost, Flow, Status, ifelse, node
from everstep.graph.author.node import Node


def looping(done: asyncio.Event) -> Flow:
    """A flow with a loop whose first node waits until another branch has written its keyframes."""

    @node(output="n")
    async def slow(n: int) -> int:
        await done.wait()
        return n + 1

    @ifelse(when_true="slow", when_false=END)
    def more(n: int) -> bool:
        return n < 2

    return Flow("inner", [slow, more], entry="slow")


def ticking(done: asyncio.Event) -> list[Node]:
    @node(output="text")
    async def tick(text: str) -> str:
        return text + "x" * 30_000

    @ifelse(when_true="tick", when_false=END)
    async def again(text: str) -> bool:
        if len(text) > 400_000:
            done.set()
        return not done.is_set()

    return [tick, again]


@pytest.mark.parametrize("is_map", [False, True], ids=["nested", "map"])
def test_a_run_is_sound_although_a_loop_inside_had_only_begun_at_a_keyframe(
    tmp_path: Path, is_map: bool
) -> None:
    async def main() -> None:
        done = asyncio.Event()
        inside = looping(done).as_node().lift("n")
        inner = (
            inside.map_over("n").with_inputs(n="ns").with_outputs(n="out")
            if is_map
            else inside.with_outputs(n="out")
        )
        flow = Flow("m", [inner, *ticking(done)], entry="tick", durability="strong")
        async with AsyncHost(f"sqlite:///{tmp_path}/runs.db") as host:
            given = {"ns": [0, 1]} if is_map else {"n": 0}
            result = await host.run(flow, {**given, "text": ""}, run_id="r")
            assert result.status is Status.COMPLETED
            assert result["out"] == ([2, 2] if is_map else 2)
            assert sum(checkpoint.keyframe for checkpoint in await host.checkpoints("r")) > 1
            (verified,) = await host.storage.verify(["r"])
            assert verified.flaws == ()

    asyncio.run(main())
