"""A caller that is cancelled while the store grants it a run leaves no lease behind."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everstep import AsyncHost, Flow, node
from everstep.model.leases import Lease
from everstep.registry import Opened
from everstep.runtime.system import SystemClock
from everstep.stores.memory import MemoryStore


class LateStore(MemoryStore):
    """A store on this machine that takes its time to grant a lease."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.was_asked, self.goes_on = asyncio.Event(), asyncio.Event()

    async def lease(self, *given: Any, **named: Any) -> Lease:
        self.was_asked.set()
        await self.goes_on.wait()
        return await super().lease(*given, **named)


def test_what_is_granted_to_a_caller_that_has_given_up_is_given_back() -> None:
    asyncio.run(_give_up())


async def _give_up() -> None:
    @node(output="a")
    async def fails_once(x: int) -> int:
        if not store.was_asked.is_set():
            raise ValueError("not yet")
        return x

    flow, store = Flow("f", [fails_once]), LateStore()
    async with AsyncHost(Opened(store, store.artifacts, "memory:")) as host:
        await host.run(flow, {"x": 1}, run_id="A")
        resuming = asyncio.create_task(host.resume("A", flow))
        await store.was_asked.wait()
        resuming.cancel()
        await asyncio.sleep(0)
        store.goes_on.set()
        with pytest.raises(asyncio.CancelledError):
            await resuming
        row = await store.run("A")
        assert row is not None and (row.lease, row.status) == (None, "failed")
        assert (await host.resume("A", flow))["a"] == 1
