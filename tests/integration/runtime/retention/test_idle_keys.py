"""What is kept of keys of limits goes with the clean-up, once nothing counts for them."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from everstep import AsyncHost, Debounce, Flow, Limit, Singleton, node, wait
from everstep.ports.limits import LimitingStore
from everstep.testing import ManualClock

pytestmark = pytest.mark.stores("sqlite", "postgres", "redis")


@node(output="sent")
def send(customer: str) -> str:
    return customer


RATED = Flow("rated", [send], limits=[Limit("customer", rate="3/1m")])
ALONE = Flow(
    "alone", [wait.timer("later", duration="1h"), send], limits=[Singleton("customer", on_conflict="queue")]
)
CALM = Flow("calm", [send], limits=[Debounce("customer", "5s")])
KINDS = ("run ", "one ", "soon ")


def test_a_key_is_forgotten_once_nothing_counts_for_it(url: str) -> None:
    async def run() -> None:
        clock = ManualClock()
        async with AsyncHost(url, clock=clock) as host:
            store = cast(LimitingStore, host._services.store)

            async def kept() -> set[str]:
                found = [key for kind in KINDS for key in await store.limit_states(kind)]
                return {key.split("=")[-1] for key in found}

            for flow in (RATED, ALONE, CALM):
                await host.start(flow, {"customer": f"{flow.name} ann"}, run_id=flow.name)
            clock.advance(10)
            await host.work([RATED, ALONE, CALM], until_idle=True)
            assert await kept() == {"rated ann", "alone ann", "calm ann"}

            await host.retention.gc()
            assert "rated ann" in await kept(), "it counts for the rest of the minute"
            clock.advance(120)
            await host.retention.gc()
            assert await kept() == {"alone ann"}, "its run has not ended"
            clock.advance(3600)
            await host.work([ALONE], until_idle=True)
            assert (await host.info("alone")).status == "completed"
            assert (await host.retention.gc()).leftovers >= 1
            assert await kept() == set()

    asyncio.run(run())


def test_a_start_that_comes_while_its_key_is_cleaned_up_is_not_forgotten(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        clock = ManualClock()
        async with AsyncHost(url, clock=clock) as host:
            store = cast(LimitingStore, host._services.store)
            await host.run(RATED, {"customer": "ann"})
            clock.advance(120)
            change = store.change_limit

            async def late(key: str, judge: object) -> object:
                monkeypatch.setattr(store, "change_limit", change)
                await host.run(RATED, {"customer": "ann"})
                return await change(key, judge)  # type: ignore[arg-type]

            monkeypatch.setattr(store, "change_limit", late)
            await host.retention.gc()
            assert [key.split("=")[-1] for key in await store.limit_states("run ")] == ["ann"]

    asyncio.run(run())
