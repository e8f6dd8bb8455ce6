"""Atomic flows are undone as a whole: one that has begun comes to its end before its run is undone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from everstep import AsyncHost, Context, Flow, Retry, Status, node
from everstep.results import RunResult
from tests.integration.runtime.drive.undo.saga import RUN, Crashed, Killer, Outside, crash
from tests.integration.runtime.drive.undo.saga import Life as Sagas
from tests.keyframes import space_keyframes

pytestmark = pytest.mark.stores("memory")
PARTS = {"part": ["a", "b", "c"]}


def packing(outside: Outside, **options: Any) -> Flow:
    """Return a flow of two effects, with what they are made of."""

    @node(output="box", effects="effectful", idempotency_key="auto")
    def fill(part: str, ctx: Context) -> str:
        outside.do("fill", ctx.idempotency_key, part)
        return f"box of {part}"

    @node(output="label", effects="effectful", idempotency_key="auto", **options)
    def print_label(box: str, ctx: Context) -> str:
        outside.do("label", ctx.idempotency_key, box)
        return f"label on {box}"

    return Flow("packing", [fill, print_label])


def failing(label: Any) -> str:
    raise ValueError("no truck")


def one(outside: Outside) -> Flow:
    """Return a flow with one atomic flow, and a node that fails behind it."""

    def unpack(part: str, label: str, idempotency_key: str) -> None:
        outside.undo("pack", idempotency_key, part, label)

    inner = packing(outside).as_node(durability="atomic", undo=unpack).lift("label")
    return Flow("one", [inner, node(output="truck")(failing)])


def many(outside: Outside) -> Flow:
    """Return a flow with a map of atomic flows, two at a time, inside another flow."""

    def unpack(part: str, label: str, idempotency_key: str) -> None:
        outside.undo("pack", idempotency_key, part, label)

    inner = packing(outside).as_node(durability="atomic", undo=unpack).lift("label")
    around = Flow("around", [inner.map_over("part", max_concurrency=2)]).as_node().lift("label")
    return Flow("many", [around, node(output="truck")(failing)])


class Life(Sagas):
    def __init__(self, flow: Callable[[Outside], Flow], inputs: dict[str, Any]) -> None:
        super().__init__(flow)
        self.inputs = inputs

    def live(self, killer: Killer | None = None) -> RunResult | None:
        try:
            with self.host(killer) as host:
                return host.run(self.flow, self.inputs, run_id=RUN)
        except Crashed:
            self.clock.advance(300)
            return None

    def check(self, result: RunResult, status: Status = Status.FAILED) -> None:
        """Raise unless both effects of each part are there, and each part was undone once."""
        assert result.status is status
        filled = [effect.given[0] for effect in self.outside.done.values() if effect.name == "fill"]
        labels = [effect.given[0] for effect in self.outside.done.values() if effect.name == "label"]
        assert sorted(labels) == sorted(f"box of {part}" for part in filled)
        undone = sorted(effect.given for effect in self.outside.undone.values())
        assert undone == sorted((part, f"label on box of {part}") for part in filled)
        with self.host() as host:
            assert all(found.is_sound for found in host.storage.verify(RUN))


SHAPES: dict[str, tuple[Callable[[Outside], Flow], dict[str, Any]]] = {
    "one": (one, {"part": "a"}),
    "many": (many, PARTS),
}


@pytest.mark.parametrize("keyframe_bytes", [0, 1 << 16])
@pytest.mark.parametrize("name", SHAPES)
def test_what_an_atomic_flow_did_is_undone_wherever_its_process_dies(
    name: str, keyframe_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    space_keyframes(monkeypatch, lambda: keyframe_bytes)
    whole, life = Killer(), Life(*SHAPES[name])
    result = life.live(whole)
    assert result is not None
    life.check(result)
    unfinished = 0
    for at in range(2, len(whole.points) + 1):
        for cancels in (False, True):
            life = Life(*SHAPES[name])
            if life.live(Killer(at, act=crash)) is not None:
                continue  # two items ended at once, and shared a put
            begun = len(life.outside.done) // 2
            with life.host() as host:
                steps = [step for record in host.history(RUN) for step in record.steps]
                recorded = sum(s.status is Status.COMPLETED and s.undo is not None for s in steps)
                if cancels:
                    host.cancel(RUN)
            result = life.live()
            assert result is not None
            life.check(result, result.status)
            unfinished += cancels and begun > recorded
    assert unfinished


@pytest.mark.parametrize("fails", [False, True])
def test_atomic_flows_under_way_end_before_their_run_is_undone(fails: bool) -> None:
    outside = Outside()

    async def main() -> RunResult:
        begun, may_end = asyncio.Event(), asyncio.Event()

        @node(output="box", effects="effectful", idempotency_key="auto")
        async def fill(part: str, ctx: Context) -> str:
            outside.do("fill", ctx.idempotency_key, part)
            if len(outside.done) == 2:
                begun.set()
            await may_end.wait()
            return f"box of {part}"

        @node(output="label", effects="effectful", idempotency_key="auto", retry=Retry(1, first=0.01))
        async def print_label(box: str, ctx: Context) -> str:
            if ctx.attempt == 1:
                raise ConnectionError("no paper")
            outside.do("label", ctx.idempotency_key, box)
            return f"label on {box}"

        @node(output="watched")
        async def watch(part: list[str]) -> str:
            await begun.wait()
            if fails:
                may_end.set()
                raise ValueError("the roof has come down")
            await asyncio.sleep(3600)
            return ""

        def unpack(part: str, label: str, idempotency_key: str) -> None:
            outside.undo("pack", idempotency_key, part, label)

        inner = Flow("packing", [fill, print_label]).as_node(durability="atomic", undo=unpack).lift("label")
        flow = Flow("packs", [inner.map_over("part", max_concurrency=2), watch])
        async with AsyncHost("memory:") as host:
            driving = asyncio.create_task(host.run(flow, PARTS, run_id=RUN))
            await begun.wait()
            if not fails:
                assert await host.cancel(RUN) is Status.RUNNING
                await asyncio.sleep(0.01)
                may_end.set()
            return await driving

    result = asyncio.run(asyncio.wait_for(main(), 20))
    assert result.status is (Status.FAILED if fails else Status.CANCELLED)
    assert outside.shown(outside.undone) in (
        [("pack", part, f"label on box of {part}") for part in order] for order in ("ab", "ba")
    )


def test_an_atomic_flow_that_fails_while_its_run_is_cancelled_is_left_as_it_is() -> None:

    async def main() -> RunResult:
        begun = asyncio.Event()

        @node(output="box", effects="effectful", idempotency_key="auto")
        async def fill(part: str, ctx: Context) -> str:
            begun.set()
            await asyncio.sleep(0.02)
            raise ValueError("the box is torn")

        def unpack(part: str, box: str) -> None:
            raise AssertionError("nothing came of it")

        inner = Flow("packing", [fill]).as_node(durability="atomic", undo=unpack).lift("box")
        async with AsyncHost("memory:") as host:
            driving = asyncio.create_task(host.run(Flow("packs", [inner]), {"part": "a"}, run_id=RUN))
            await begun.wait()
            await host.cancel(RUN)
            return await driving

    assert asyncio.run(asyncio.wait_for(main(), 20)).status is Status.FAILED
