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
                row = WorkerRow(
                    worker_id="neighbour",
                    host="here",
                    pid=neighbour.pid,
                    flows=(FLOW.name,),
                    concurrency=1,
                    started_at=clock.now(),
                    process=other,
                )
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


async def glances(clock: ManualClock, count: int) -> None:
    for _ in range(count):
        clock.advance(GLANCE)
        await asyncio.sleep(0.15)  # a few of its ticks, which are those of the event loop
