"""Workers that clean up at regular times: one at a time does, by the rules that are set."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from everstep import AsyncHost, Flow, Retention, node
from everstep.errors import BadRequest
from everstep.results import Worker

pytestmark = pytest.mark.stores("sqlite")


@node(output="b")
def double(a: int) -> int:
    return 2 * a


FLOW = Flow("doubling", [double], retention=Retention(keep_last=1))


def passes(worker: Worker) -> int:
    assert worker._cleaning is not None
    return worker._cleaning.passes


def test_of_the_workers_that_clean_up_the_longest_serving_one_does(url: str) -> None:
    async def play() -> list[int]:
        async with AsyncHost(url) as host:
            for i in range(3):
                await host.run(Flow("doubling", [double]), {"a": i})
            workers = [
                host.worker([FLOW], gc_every=None),
                *(host.worker([FLOW], gc_every=timedelta(milliseconds=100)) for _ in range(2)),
            ]
            working = []
            for worker in workers:
                working.append(asyncio.create_task(worker.run()))
                await asyncio.sleep(0.02)
            async with asyncio.timeout(20):
                while len(await host.runs()) > 1 or not passes(workers[1]):
                    await asyncio.sleep(0.02)
            first = [passes(worker) for worker in workers[1:]]
            workers[1].stop()
            await working[1]
            async with asyncio.timeout(20):
                while not passes(workers[2]):
                    await asyncio.sleep(0.02)
            for worker, task in zip(workers, working, strict=True):
                worker.stop()
                await task
            return first

    first = asyncio.run(play())
    assert first[0] >= 1 and first[1] == 0


def test_a_span_that_is_none_is_refused() -> None:
    async def ask() -> None:
        async with AsyncHost("memory:") as host:
            host.worker([FLOW], gc_every=0)

    with pytest.raises(BadRequest, match="gc_every"):
        asyncio.run(ask())
