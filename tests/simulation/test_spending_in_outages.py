"""What a lone async node spends while the store is away holds up neither its event loop nor its record."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest

from everstep import Context, Flow, node
from everstep.errors import HostClosed, StoreUnavailable
from everstep.testing.simulation.hub import SECOND
from everstep.testing.simulation.played import ITSELF, played
from everstep.testing.simulation.world import Here, World


@pytest.mark.parametrize("is_remote", [False, True])
@pytest.mark.parametrize("awaits", [False, True])
@pytest.mark.parametrize("away", [1, 20])
def test_others_on_the_loop_go_on_while_an_outage_is_waited_out(
    is_remote: bool, awaits: bool, away: int
) -> None:
    world = World(is_remote=is_remote)
    gaps: list[float] = []
    heard: list[StoreUnavailable] = []
    spent: list[Decimal] = []

    @node(output="b")
    async def spends(a: int, ctx: Context) -> int:
        if not heard:
            world.store.away_until = world.hub.now + away * SECOND
        for part in range(3):
            noted = ctx.spend(usd=Decimal("0.01") * 2**part)
            if awaits:
                await noted
        return a

    flow = played(Flow("f", [spends], durability="strong"), ITSELF)

    async def tick() -> None:
        last = world.hub.now
        while True:
            await asyncio.sleep(0.01)
            gaps.append((world.hub.now - last) / SECOND)
            last = world.hub.now

    async def main(here: Here) -> None:
        ticking = asyncio.create_task(tick())
        async with here.async_host(owns_loop=True) as host:
            while True:
                try:
                    result = await host.run(flow, {"a": 1}, run_id="A")
                except StoreUnavailable as error:
                    heard.append(error)
                    await asyncio.sleep(30)
                else:
                    break
        ticking.cancel()
        assert result.status == "completed"
        spent.append(result._books.spent["usd"])

    def program(here: Here) -> None:
        with here.runner() as runner:
            runner.run(main(here))

    world.start("app", program)
    world.run()
    assert not world.troubles
    assert max(gaps) < 0.05
    assert bool(heard) is (away == 20 and not is_remote)
    assert spent == [Decimal("0.07")] or (heard and spent[0] > Decimal("0.07"))


@pytest.mark.parametrize("awaits", [False, True])
@pytest.mark.parametrize("away", [20, 100])
def test_a_host_that_is_closed_meanwhile_leaves_a_run_that_goes_on(awaits: bool, away: int) -> None:
    world = World(is_remote=True)
    spent: list[Decimal] = []

    @node(output="b")
    async def spends(a: int, ctx: Context) -> int:
        if not world.store.away_until:
            world.store.away_until = world.hub.now + away * SECOND
        noted = ctx.spend(usd=1)
        if awaits:
            await noted
        return a

    flow = played(Flow("f", [spends], durability="strong"), ITSELF)

    async def main(here: Here) -> None:
        host = here.async_host(owns_loop=True)
        running = asyncio.create_task(host.run(flow, {"a": 1}, run_id="A"))
        await asyncio.sleep(1)
        stopping = asyncio.create_task(host.close())
        with pytest.raises(HostClosed):
            await running
        await stopping
        await asyncio.sleep(away)
        async with here.async_host(owns_loop=True) as another:
            result = await another.resume("A", flow)
        assert result.status == "completed"
        spent.append(result._books.spent["usd"])

    def program(here: Here) -> None:
        with here.runner() as runner:
            runner.run(main(here))

    world.start("app", program)
    world.run()
    assert not world.troubles
    once, twice = Decimal(1), Decimal(2)
    assert spent == ([twice] if away == 20 and awaits else [once])
