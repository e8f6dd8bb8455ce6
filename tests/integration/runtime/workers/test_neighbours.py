"""A worker that dies is noticed by the other workers of its machine before its leases run out."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from everstep import Flow, Status, node
from everstep.client.host import AsyncHost
from everstep.model.leases import Process, WorkerRow
from everstep.runtime.system import ProcFs
from everstep.runtime.workers.worker import GLANCE, MEET
from everstep.testing import ManualClock

DAY = timedelta(days=1)


@node(output="b")
def double(a: int) -> int:
    return 2 * a


FLOW = Flow("doubling", [double])


def process_of(pid: int) -> Process:
    me, fields = ProcFs().me(), Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    assert me is not None
    return msgspec.structs.replace(me, pid=pid, started=int(fields[19]))


def row_of(process: Process, flow: Flow, clock: ManualClock) -> WorkerRow:
    return WorkerRow(
        worker_id="neighbour",
        host="here",
        pid=process.pid,
        flows=(flow.name,),
        concurrency=1,
        started_at=clock.now(),
        process=process,
    )


@pytest.mark.parametrize("comes", ["first", "later"])
def test_the_runs_of_a_worker_that_dies_are_taken_over_by_its_neighbour(tmp_path: Path, comes: str) -> None:
    """No lease runs out and no sweep comes round: the clock stands still but for the glances."""
    clock = ManualClock()
    assert ProcFs().is_here(process_of(os.getpid()))

    async def work() -> None:
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as neighbour:
            other = process_of(neighbour.pid)
            async with AsyncHost(f"sqlite:///{tmp_path}/runs.db", clock=clock) as host:
                store = host.durability.checkpoint_store
                assert store is not None
                await host.start(FLOW, {"a": 1}, run_id="R")
                row = row_of(other, FLOW, clock)
                await store.lease("R", owner="neighbour", ttl=DAY, process=other)
                worker = host.worker([FLOW])
                if comes == "first":
                    await store.report(row, DAY)
                working = asyncio.ensure_future(worker.run())
                await glances(clock, 2)
                await store.report(row, DAY)
                await glances(clock, int(MEET / GLANCE) + 2)
                assert worker.stats.claimed == 0
                neighbour.kill()
                neighbour.wait()
                for _ in range(int(MEET)):
                    await glances(clock, 1)
                    if worker.stats.completed:
                        break
                worker.stop()
                assert (await working).completed == 1
                assert (await host.info("R")).status is Status.COMPLETED

    asyncio.run(work())


class Gates:
    """Runs that end when they are let go, in the order in which they began."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self._gates: list[asyncio.Event] = []

        @node(output="b")
        async def gated(a: int) -> int:
            self.begun.append(a)
            self._gates.append(asyncio.Event())
            await self._gates[-1].wait()
            return a

        self.flow = Flow("gated", [gated])

    async def begin(self, count: int) -> None:
        """Wait until so many runs have begun."""
        async with asyncio.timeout(60):
            while len(self.begun) < count:
                await asyncio.sleep(0.005)

    async def let_go(self) -> None:
        """End the run that began last, and wait for the next."""
        self._gates[-1].set()
        await self.begin(len(self.begun) + 1)

    def open(self) -> None:
        for gate in self._gates:
            gate.set()


BACKLOG, ORPHANS = tuple(range(1, 8)), (8, 9, 10)


@pytest.mark.parametrize("backlog", [(), BACKLOG], ids=["nothing else is due", "more is due"])
def test_a_busy_worker_takes_over_more_as_soon_as_it_has_room(
    tmp_path: Path, backlog: tuple[int, ...]
) -> None:
    """Run 0 holds one of its two places. If more is due, it is full whenever it rests.

    Else the clock stands still from the first takeover on: no second look at dead owners comes by it.
    """
    clock, runs = ManualClock(), Gates()

    async def work() -> None:
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as neighbour:
            other = process_of(neighbour.pid)
            async with AsyncHost(f"sqlite:///{tmp_path}/runs.db", clock=clock) as host:
                store = host.durability.checkpoint_store
                assert store is not None
                for a in (0, *backlog, *ORPHANS):
                    await host.start(runs.flow, {"a": a}, run_id=f"R{a}", priority=-a)
                for a in ORPHANS:
                    await store.lease(f"R{a}", owner=f"owner {a}", ttl=DAY, process=other)
                await store.report(row_of(other, runs.flow, clock), DAY)
                worker = host.worker([runs.flow], concurrency=2)
                working = asyncio.ensure_future(worker.run())
                await runs.begin(2 if backlog else 1)
                neighbour.kill()
                neighbour.wait()
                while not backlog and len(runs.begun) == 1:
                    await glances(clock, 1)
                while len(runs.begun) < 1 + len(backlog) + len(ORPHANS):
                    clock.advance(GLANCE if backlog else 0)
                    await runs.let_go()
                runs.open()
                worker.stop()
                assert (await working).completed == len(runs.begun)

    asyncio.run(work())
    assert not backlog or runs.begun[-1] in backlog


async def glances(clock: ManualClock, count: int) -> None:
    for _ in range(count):
        clock.advance(GLANCE)
        await asyncio.sleep(0.15)  # a few of its ticks, which are those of the event loop
