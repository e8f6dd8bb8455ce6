"""A run that kills its owner, and the runs that are driven beside it."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

from everstep import Context, Durability, Flow, Host, node
from everstep.client.host import AsyncHost
from everstep.engine.leases import beside
from everstep.runtime.workers import suspects
from everstep.testing import ManualClock


class Size(NamedTuple):
    """How long the steps of a killer's neighbours take, and how often it may kill."""

    neighbours: int
    step: float
    attempts: int


SMALL, LIKE_A_FLEET = Size(3, 0.4, 2), Size(6, 60.0, 10)


def flow_in(folder: Path, size: Size, *, is_fixed: bool = False) -> Flow:
    """Return a flow whose runs hold a worker for a while, and of which one kills it."""

    @node(output="done")
    def work(name: str) -> str:
        with (folder / "calls").open("a") as calls:
            calls.write(f"{name}\n")
        if name == "killer" and not is_fixed:
            # The neighbours have begun by then, and not ended.
            all_of_them = size.neighbours + 1
            while (folder / "calls").read_text().count("\n") < all_of_them and not (
                folder / "alone"
            ).exists():
                time.sleep(0.01)
            os._exit(139)
        time.sleep(size.step)
        return name

    return Flow("work", [work], durability=Durability("strong", max_resume_attempts=size.attempts))


def is_over(url: str) -> bool:
    """True if every run has ended. Nothing is open when the next worker is forked."""
    with Host(url) as host:
        return all(info.status.is_final for info in host.runs())


def supervise(url: str, flow: Flow, folder: Path) -> int:
    """Start a worker anew as often as it dies, until every run has ended; returns how often that was."""
    deaths = 0
    while True:
        child = os.fork()
        if child == 0:
            try:
                with Host(url) as host:
                    host.work([flow])
            finally:
                os._exit(1)
        while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
            if is_over(url):
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return deaths
            time.sleep(0.1)
        assert os.waitstatus_to_exitcode(ended[1]) == 139
        deaths += 1
        (folder / "alone").touch()


@pytest.mark.parametrize(
    "size", [SMALL, pytest.param(LIKE_A_FLEET, marks=pytest.mark.soak)], ids=["small", "like a fleet"]
)
def test_a_run_that_kills_its_worker_is_abandoned_and_its_neighbours_complete(
    tmp_path: Path, size: Size
) -> None:
    """A supervisor restarts the worker as often as it dies."""
    url, flow = f"sqlite:///{tmp_path}/runs.db", flow_in(tmp_path, size)
    neighbours = [f"neighbour {number}" for number in range(size.neighbours)]
    with Host(url) as host:
        for name in (neighbours[0], "killer", *neighbours[1:]):
            host.start(flow, {"name": name}, run_id=name.replace(" ", "-"))
    assert supervise(url, flow, tmp_path) == size.attempts + 1
    with Host(url) as host:
        completed = {name.replace(" ", "-"): "completed" for name in neighbours}
        assert {info.run_id: info.status for info in host.runs()} == {**completed, "killer": "abandoned"}
        calls = Counter((tmp_path / "calls").read_text().splitlines())
        assert calls["killer"] == size.attempts + 1, "twice beside others, then alone"
        assert all(calls[name] <= 3 for name in neighbours), calls
        result = host.resume("killer", flow_in(tmp_path, size, is_fixed=True))
        assert (result.status, result["done"]) == ("completed", "killer")


@pytest.mark.parametrize("concurrency", [1, 8])
def test_a_run_that_kills_every_worker_a_cron_job_starts_is_abandoned_after_as_many_deaths(
    tmp_path: Path, concurrency: int
) -> None:
    url, attempts, deaths = f"sqlite:///{tmp_path}/runs.db", 4, 0
    (tmp_path / "alone").touch()
    flow = flow_in(tmp_path, Size(0, 0.0, attempts))
    with Host(url) as host:
        host.start(flow, {"name": "killer"}, run_id="killer")
    for _ in range(attempts + 2):
        child = os.fork()
        if child == 0:
            try:
                with Host(url) as host:
                    host.work([flow], until_idle=True, concurrency=concurrency)
                os._exit(0)
            finally:
                os._exit(1)
        deaths += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 139
    with Host(url) as host:
        assert (host.info("killer").status, deaths) == ("abandoned", attempts + 1)


async def die(host: AsyncHost, clock: ManualClock, times: int, *, shared: bool) -> None:
    """Let so many owners of run r die, each having driven others beside it or not."""
    store = host.durability.checkpoint_store
    assert store is not None
    for number in range(times):
        owner = beside(f"o{number}") if shared else f"o{number}"
        await store.lease("r", owner=owner, ttl=timedelta(seconds=1), process=None)
        clock.advance(2)


@asynccontextmanager
async def worked_after_deaths(*, shared: bool) -> AsyncIterator[tuple[AsyncHost, Flow]]:
    """Open a host whose worker has come to run r after nine owners of it died."""
    clock = ManualClock()

    @node(output="b")
    async def double(a: int) -> int:
        return 2 * a

    flow = Flow("f", [double], durability=Durability("strong", max_resume_attempts=3))
    async with AsyncHost("memory:", clock=clock) as host:
        await host.start(flow, {"a": 1}, run_id="r")
        await die(host, clock, 9, shared=shared)
        await host.work([flow], until_idle=True)
        yield host, flow


@pytest.mark.parametrize(("shared", "status"), [(True, "completed"), (False, "abandoned")])
def test_only_owners_that_drove_nothing_else_speak_against_a_run(shared: bool, status: str) -> None:
    async def work() -> None:
        async with worked_after_deaths(shared=shared) as (host, _):
            assert (await host.info("r")).status == status

    asyncio.run(work())


def test_a_suspect_is_driven_when_nothing_else_is_and_nothing_is_claimed_beside_it() -> None:
    clock, live_now, seen = ManualClock(), Counter[str](), dict[str, int]()

    @node(output="b")
    async def hold(a: int, ctx: Context) -> int:
        live_now[ctx.run_id] += 1
        seen[ctx.run_id] = sum(live_now.values())
        await asyncio.sleep(0.01)
        live_now[ctx.run_id] -= 1
        return a

    flow = Flow("f", [hold], durability="strong")

    async def work() -> None:
        async with AsyncHost("memory:", clock=clock) as host:
            await host.start(flow, {"a": 1}, run_id="r")
            await die(host, clock, 2, shared=True)
            for number in range(3):
                await host.start(flow, {"a": 1}, run_id=f"n{number}")
            stats = await host.work([flow], until_idle=True)
            assert (stats.completed, stats.claimed) == (4, 4)

    asyncio.run(work())
    assert seen["r"] == 1 and max(seen.values()) > 1


def test_a_suspect_that_cannot_be_alone_is_driven_beside_the_others_after_a_while() -> None:
    clock, begun, may_end = ManualClock(), dict[str, asyncio.Event](), asyncio.Event()

    @node(output="b")
    async def hold(a: int, ctx: Context) -> int:
        begun[ctx.run_id].set()
        await may_end.wait()
        return a

    flow = Flow("f", [hold], durability=Durability("strong", lease_ttl=timedelta(hours=1)))

    async def work() -> None:
        async with AsyncHost("memory:", clock=clock) as host:
            for run_id in ("long", "r", "late"):
                begun[run_id] = asyncio.Event()
            await host.start(flow, {"a": 1}, run_id="r")
            await die(host, clock, 2, shared=True)
            await host.start(flow, {"a": 1}, run_id="long")
            worker = host.worker([flow])
            working = asyncio.ensure_future(worker.run())
            await begun["long"].wait()
            await host.start(flow, {"a": 1}, run_id="late")
            for _ in range(20):
                await asyncio.sleep(0.01)
            assert not begun["r"].is_set() and not begun["late"].is_set()
            clock.advance(suspects.PATIENCE + 1)
            await asyncio.wait_for(begun["r"].wait(), 20)
            may_end.set()
            while worker.stats.completed < 3:
                await asyncio.sleep(0.01)
            worker.stop()
            await working

    asyncio.run(work())


def test_a_worker_that_is_stopped_while_a_suspect_rests_says_nothing_against_it() -> None:
    """Also one that drives a run at a time, and so would have died of this one alone."""
    clock = ManualClock()

    @node(output="b")
    async def double(a: int) -> int:
        return 2 * a

    flow = Flow("f", [double], durability="strong")

    async def work() -> None:
        async with AsyncHost("memory:", clock=clock) as host:
            store = host.durability.checkpoint_store
            assert store is not None
            await host.start(flow, {"a": 1}, run_id="r")
            await die(host, clock, 3, shared=False)
            for _ in range(4):
                worker = host.worker([flow], concurrency=1)
                working = asyncio.ensure_future(worker.run())
                while not worker.stats.claimed:
                    await asyncio.sleep(0.01)
                worker.stop()
                await working
                clock.advance(60)
            row = await store.run("r")
            assert row is not None and row.lease is not None and row.lease.takeovers == 3

    asyncio.run(work())


def test_an_abandoned_run_can_be_left_to_the_workers_again() -> None:
    async def work() -> None:
        async with worked_after_deaths(shared=False) as (host, flow):
            assert (await host.info("r")).status == "abandoned"
            info = await host.fleet.reopen("r", flow)
            assert (info.status, info.is_driven) == ("running", False)
            assert (await host.work([flow], until_idle=True)).completed == 1
            assert (await host.fleet.reopen("r", flow)).status == "completed", "nothing is left to do"
            again = await host.fleet.reopen("r", flow, start="double")
            assert (again.status, again.is_driven) == ("running", False)
            assert (await host.work([flow], until_idle=True)).completed == 1

    asyncio.run(work())
