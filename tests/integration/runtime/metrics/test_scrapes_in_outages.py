"""A scrape answers at once, and says so, while the store is out of reach."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from everstep import AsyncHost, Flow, node
from everstep.runtime.metrics.store_view import FRESH, PATIENCE, SHARE, SLOW, Seen, StoreView
from everstep.runtime.system import RealSystem
from everstep.testing import ManualClock
from tests.integration.runtime.metrics.exposition_text import read
from tests.integration.runtime.metrics.test_every_metric import number
from tests.servers.proxy import proxy_before

pytestmark = pytest.mark.servers


@node(output="b")
async def double(a: int) -> int:
    return 2 * a


PLAIN = Flow("plain", [double])


async def until(is_so: Callable[[], bool], seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not is_so():
            await asyncio.sleep(0.01)


def test_it_says_that_the_store_is_away_and_what_was_known_of_it(redis_url: str) -> None:
    async def main() -> None:
        with proxy_before(redis_url) as (proxy, through):
            clock = ManualClock()
            async with AsyncHost(through, clock=clock, metrics=True) as host:
                await host.run(PLAIN, {"a": 1})
                told = read(await host.fleet.metrics())
                assert number(told, "everstep_store_up") == 1
                proxy.is_down = True
                proxy.drop_all()
                clock.advance("30s")
                for _ in range(3):
                    began = time.monotonic()
                    told = read(await host.fleet.metrics())
                    assert time.monotonic() - began < PATIENCE + 1.0
                    clock.advance(SLOW + 1)
                assert number(told, "everstep_store_up") == 0
                assert number(told, "everstep_store_seen_seconds") >= 30
                assert number(told, "everstep_runs", status="completed") == 1
                assert number(told, "everstep_runs_ended_total", flow="plain") == 1
                proxy.is_down = False
                view = host._services._made.views[0]
                await until(lambda: view.look().is_up)

    asyncio.run(main())


def test_an_outage_that_a_worker_waits_out_is_counted(redis_url: str) -> None:
    async def main() -> None:
        with proxy_before(redis_url) as (proxy, through):
            async with AsyncHost(through, metrics=True) as host:
                worker = host.worker([PLAIN], grace=0)
                task = asyncio.ensure_future(worker.run())
                before = number(read(await host.fleet.metrics()), "everstep_store_outages_total")
                proxy.is_down = True
                proxy.drop_all()
                await until(lambda: host._services.weather.error is not None)
                during = number(read(await host.fleet.metrics()), "everstep_store_outages_total")
                proxy.is_down = False
                await until(lambda: host._services.weather.error is None)
                after = number(read(await host.fleet.metrics()), "everstep_store_outages_total")
                worker.stop()
                await task
                assert (before, during, after) == (0, 1, 1)

    asyncio.run(main())


class Asked:
    """What a view asks, as often and for as long as the test says."""

    def __init__(self, clock: ManualClock) -> None:
        self.times = 0
        self.takes = 0.0
        self.answers = threading.Event()
        self.answers.set()
        self._clock = clock

    async def see(self) -> Seen:
        self.times += 1
        await asyncio.to_thread(self.answers.wait)
        self._clock.advance(self.takes)
        return Seen(counts=_NOTHING, breakers={}, workers=[], backlog=None, waiting={}, now=self._clock.now())


_NOTHING: Any = None


def test_a_store_that_is_slow_to_count_is_asked_seldom() -> None:
    clock = ManualClock()
    asked = Asked(clock)
    view = StoreView(asked.see, RealSystem(clock))
    asked.takes = 0.5
    assert view.look().is_up
    clock.advance(FRESH)
    assert view.look().age == FRESH, "it was asked again too soon"
    clock.advance(SHARE * 0.5)
    assert view.look().age == 0
    assert asked.times == 2


def test_however_many_scrape_the_store_is_asked_once_and_none_waits_for_long() -> None:
    clock = ManualClock()
    asked = Asked(clock)
    asked.answers.clear()
    view = StoreView(asked.see, RealSystem(clock))
    began = time.monotonic()
    threads = [threading.Thread(target=view.look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.monotonic() - began < 8 * PATIENCE
    assert asked.times == 1
    clock.advance(SLOW + 1)
    assert not view.look().is_up
    began = time.monotonic()
    view.look()
    assert time.monotonic() - began < PATIENCE, "who knows that it is away does not wait for it"
    asked.answers.set()
