"""Workers that clean up at regular times: one at a time does, by the rules that are set."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from everstep import AsyncHost, Flow, Retention, node
from everstep.errors import BadRequest
from everstep.results import Worker
from everstep.runtime.retention.collect import Collector
from everstep.testing import ManualClock

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


def test_it_removes_old_rows_of_the_audit_log_if_it_is_told_to_and_goes_on_after_any_failure(
    url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    collected = Collector.everything
    failures = [RuntimeError("a bug"), BadRequest("not now")]

    async def fails_twice(self: Collector, *names: Any, **how: Any) -> Any:
        if failures:
            raise failures.pop()
        return await collected(self, *names, **how)

    monkeypatch.setattr(Collector, "everything", fails_twice)

    async def play() -> None:
        async with AsyncHost(url, clock=clock) as host:
            await host.run(FLOW, {"a": 1}, run_id="A", by="ann")
            clock.advance(timedelta(days=300))
            await host.retention.pin("A", "looked at", by="bob")
            clock.advance(timedelta(days=66))
            worker = host.worker([FLOW], gc_every="5s", audit_older_than="365d")
            working = asyncio.create_task(worker.run())
            async with asyncio.timeout(20):
                while [row.by for row in await host.fleet.audit()] != ["bob"]:
                    clock.advance(timedelta(seconds=5))
                    await asyncio.sleep(0.01)
            worker.stop()
            await working

    asyncio.run(play())
    said = [record.getMessage() for record in caplog.records if "clean-up failed" in record.getMessage()]
    assert len(said) == 2 and "not now" in said[0] and "RuntimeError('a bug')" in said[1]


def test_a_worker_that_does_not_clean_up_is_told_of_no_age() -> None:
    async def ask() -> None:
        async with AsyncHost("memory:") as host:
            host.worker([FLOW], audit_older_than="365d")

    with pytest.raises(BadRequest, match="does not clean up"):
        asyncio.run(ask())


def test_a_span_that_is_none_is_refused() -> None:
    async def ask() -> None:
        async with AsyncHost("memory:") as host:
            host.worker([FLOW], gc_every=0)

    with pytest.raises(BadRequest, match="gc_every"):
        asyncio.run(ask())
