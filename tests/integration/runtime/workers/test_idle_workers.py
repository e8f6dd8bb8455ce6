"""A worker that has nothing to do leaves the store and the loop alone."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from everstep import Flow, Host, node, wait
from everstep.client.host import AsyncHost
from everstep.model.enums import Status
from everstep.registry import open_store
from everstep.testing import ManualClock
from everstep.testing.conformance.kit import Chain
from everstep.testing.killing import killing

LOOKS = 5


class Counting:
    """Counts writes by kind, and ends a worker that looks for work without end."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()

    @contextmanager
    def write(self, kind: str) -> Iterator[None]:
        self.kinds[kind] += 1
        assert self.kinds["claim_due"] <= LOOKS
        yield


@node(output="b")
def double(a: int) -> int:
    return 2 * a


FLOW = Flow("doubling", [double])


@pytest.mark.parametrize("flow_hash", [FLOW.plan.hash, "another"], ids=["driven by another", "another flow"])
@pytest.mark.parametrize("url", ["memory:", "sqlite:///{}/runs.db"], ids=["memory", "sqlite"])
def test_a_due_run_that_others_drive_keeps_no_worker_busy(tmp_path: Path, url: str, flow_hash: str) -> None:
    clock, counting = ManualClock(), Counting()

    async def work() -> None:
        opened = killing(open_store(url.format(tmp_path), clock), by=counting)
        name = FLOW.name if flow_hash == FLOW.plan.hash else "tripling"
        chain = Chain("run", clock, flow_id=name, flow_hash=flow_hash)
        due = chain.wait("w", due_at=clock.now() + timedelta(seconds=1))
        await opened.store.put([chain.admission(status=Status.HALTED, waits=(due,))])
        clock.advance(2)
        if flow_hash == FLOW.plan.hash:
            await opened.store.lease("run", owner="another", ttl=timedelta(hours=1), process=None)
        async with AsyncHost(opened, clock=clock) as host:
            worker = host.worker([FLOW])
            working = asyncio.ensure_future(worker.run())
            await asyncio.wait({working}, timeout=0.2)
            worker.stop()
            assert (await working).claimed == 0

    asyncio.run(work())
    assert 1 <= counting.kinds["claim_due"] <= LOOKS


def test_a_run_that_halts_again_where_it_was_is_claimed_less_and_less_often(tmp_path: Path) -> None:
    """As one whose wait is due by its row, and which its records do not know."""
    clock = ManualClock()
    flow = Flow("asking", [wait.approval("ok", timeout="1h")])
    with Host(f"sqlite:///{tmp_path}/runs.db", clock=clock) as host:
        assert host.run(flow, run_id="run").status == "halted"
    with sqlite3.connect(tmp_path / "runs.db") as database:
        other = "00000000-0000-4000-8000-000000000000"
        database.execute("UPDATE waits SET wait_id = ?, due_at = 1, wake_at = 1", [other])
    database.close()

    async def work() -> list[int]:
        async with AsyncHost(f"sqlite:///{tmp_path}/runs.db", clock=clock) as host:
            worker = host.worker([flow])
            working = asyncio.ensure_future(worker.run())
            claims: list[int] = []
            for claimed in range(1, 6):
                async with asyncio.timeout(60):
                    while worker.stats.halted < claimed:  # then it has been left to rest, too
                        await asyncio.sleep(0.01)
                claims.append(worker.stats.claimed)
                clock.advance(10)
            await asyncio.wait({working}, timeout=0.25)
            claims.append(worker.stats.claimed)
            worker.stop()
            await working
            assert (await host.info("run")).status == "halted"
            return claims

    # It rests for 1, 2, 4, 8 and 16 seconds, and 10 pass between two looks.
    assert asyncio.run(work()) == [1, 2, 3, 4, 5, 5]


@pytest.mark.parametrize("turns", range(6))
def test_a_worker_that_was_stopped_can_still_be_cancelled(turns: int) -> None:
    begun = asyncio.Event()

    @node(output="never")
    async def hang() -> int:
        begun.set()
        await asyncio.Event().wait()
        return 1

    async def work() -> None:
        flow = Flow("hanging", [hang])
        async with AsyncHost("memory:") as host:
            await host.start(flow, run_id="run")
            worker = host.worker([flow], grace=60)
            working = asyncio.ensure_future(worker.run())
            await begun.wait()
            worker.stop()
            for _ in range(turns):
                await asyncio.sleep(0)
            working.cancel()
            await asyncio.wait({working}, timeout=60)
            assert working.cancelled()
            assert worker.stats.handed_back == 1
            assert not (await host.info("run")).is_driven

    asyncio.run(work())
