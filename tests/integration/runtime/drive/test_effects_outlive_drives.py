"""Threads cannot be stopped: a run is not handed on while the thread of an effect of it still runs."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from everstep import Durability, Flow, node
from everstep.client.host import AsyncHost
from everstep.errors import LeaseConflict
from everstep.graph.author.node import Node
from everstep.model.leases import Lease


class Effect:
    """An effect that lasts until it is let go, and counts how often it is made at once."""

    def __init__(self, *, timeout: float | None = None, retry: int | None = None) -> None:
        self.begun = threading.Event()
        self.may_end = threading.Event()
        self.calls = 0
        self.live = 0
        self.most = 0
        self.node: Node = node(
            name="charge",
            output="paid",
            effects="effectful",
            idempotency_key="auto",
            timeout=timeout,
            retry=retry,
        )(self._make)

    def _make(self, amount: int) -> int:
        self.calls += 1
        self.live += 1
        self.most = max(self.most, self.live)
        self.begun.set()
        self.may_end.wait(20)
        self.live -= 1
        return amount

    async def has_begun(self) -> None:
        assert await asyncio.to_thread(self.begun.wait, 10)

    def flow(self, ttl: float = 30) -> Flow:
        return Flow("billing", [self.node], durability=Durability("strong", lease_ttl=timedelta(seconds=ttl)))


@pytest.mark.parametrize("timeout", [None, 60.0], ids=["no time limit", "a time limit"])
@pytest.mark.parametrize("url", ["memory:", "sqlite:///{}/runs.db"], ids=["memory", "sqlite"])
def test_a_stopped_worker_keeps_a_run_until_its_effect_has_ended(
    tmp_path: Path, url: str, timeout: float | None
) -> None:
    effect = Effect(timeout=timeout)
    flow = effect.flow()

    async def work() -> None:
        async with AsyncHost(url.format(tmp_path)) as first:
            await first.start(flow, {"amount": 1}, run_id="r")
            worker = first.worker([flow], grace=0.01)
            working = asyncio.ensure_future(worker.run())
            await effect.has_begun()
            worker.stop()
            assert (await working).handed_back == 1
            second = first if url == "memory:" else AsyncHost(url.format(tmp_path))
            assert (await second.work([flow], until_idle=True)).claimed == 0
            with pytest.raises(LeaseConflict):
                await second.resume("r", flow)
            effect.may_end.set()
            while (await second.info("r")).is_driven:
                await asyncio.sleep(0.01)
            assert (await second.work([flow], until_idle=True)).completed == 1
            if second is not first:
                await second.close()

    asyncio.run(work())
    assert (effect.calls, effect.most) == (2, 1)


def test_a_lease_is_renewed_after_its_host_was_closed_while_an_effect_runs(tmp_path: Path) -> None:
    effect, url = Effect(), f"sqlite:///{tmp_path}/runs.db"
    flow = effect.flow(ttl=0.4)

    async def abandon() -> None:
        async with AsyncHost(url) as first:
            driving = asyncio.ensure_future(first.run(flow, {"amount": 1}, run_id="r"))
            await effect.has_begun()
            driving.cancel()
            await asyncio.gather(driving, return_exceptions=True)

    async def watch() -> None:
        async with AsyncHost(url) as second:
            before = await lease_of(second, "r")
            assert before is not None
            while (now := await lease_of(second, "r")) is not None and now.expires_at == before.expires_at:
                await asyncio.sleep(0.01)
            assert now is not None and now.epoch == before.epoch
            effect.may_end.set()
            while (await second.info("r")).is_driven:
                await asyncio.sleep(0.01)
            assert (await second.work([flow], until_idle=True)).completed == 1

    asyncio.run(abandon())
    asyncio.run(watch())
    assert (effect.calls, effect.most) == (2, 1)


async def lease_of(host: AsyncHost, run_id: str) -> Lease | None:
    store = host.durability.checkpoint_store
    row = await store.run(run_id) if store is not None else None
    assert row is not None
    return row.lease


def test_an_effect_past_its_time_limit_keeps_the_lease_too(tmp_path: Path) -> None:
    effect, url = Effect(timeout=0.05, retry=5), f"sqlite:///{tmp_path}/runs.db"
    flow = effect.flow()

    async def work() -> None:
        async with AsyncHost(url) as first, AsyncHost(url) as second:
            driving = asyncio.ensure_future(first.run(flow, {"amount": 1}, run_id="r"))
            await effect.has_begun()
            await asyncio.sleep(0.2)
            driving.cancel()
            await asyncio.gather(driving, return_exceptions=True)
            assert (await second.work([flow], until_idle=True)).claimed == 0
            effect.may_end.set()
            while (await second.info("r")).is_driven:
                await asyncio.sleep(0.01)
            assert (await second.work([flow], until_idle=True)).completed == 1

    asyncio.run(work())
    assert effect.most == 1
