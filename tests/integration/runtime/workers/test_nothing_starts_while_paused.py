"""Workers in the middle of many runs: a second after a pause nothing more of it starts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic

import pytest

from everstep import AsyncHost, Flow, Status
from tests.integration.runtime.workers.pausing import Watched, looping

pytestmark = [pytest.mark.stores("sqlite", "postgres", "redis"), pytest.mark.slow]
LIMIT = 1.0
"""Seconds after which nothing starts, on a machine that gives each of us its turn."""
REST = 0.4
"""Seconds that are looked at beyond that."""


class Lag:
    """For how long the event loop was kept from its turn, as others have the machine."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def watch(self) -> None:
        while True:
            before = monotonic()
            await asyncio.sleep(0.01)
            self.longest = max(self.longest, monotonic() - before - 0.01)


def test_nothing_of_a_run_a_group_or_a_flow_starts_a_second_after_its_pause(url: str) -> None:
    asyncio.run(_many(url))


async def _many(url: str) -> None:
    watched, lag = Watched(), Lag()
    flows = [looping(watched, "orders"), looping(watched, "mails")]
    watching = asyncio.create_task(lag.watch())
    async with AsyncHost(url) as caller, AsyncHost(url) as one, AsyncHost(url) as other:
        names: dict[str, tuple[str, str]] = {}
        for k in range(12):
            flow, group = flows[k % 2], "acme" if k % 4 < 2 else "beta"
            info = await caller.start(flow, {"n": 0}, run_id=f"run-{k}", group=group)
            names[info.run_id] = (flow.name, group)
        workers = [host.worker(flows, concurrency=8) for host in (one, other)]
        working = [asyncio.create_task(worker.run()) for worker in workers]
        await _until(lambda: len({run_id for _, run_id, _ in watched.began}) == len(names))

        paused: set[str] = set()

        async def check(pausing: object, which: Callable[[str], bool]) -> None:
            assert not isinstance(pausing, BaseException)
            at, lag.longest = monotonic(), 0.0
            paused.update(filter(which, names))
            await asyncio.sleep(LIMIT + REST)
            limit = LIMIT + 3 * lag.longest
            late = [(t - at, run) for t, run, _ in watched.began if run in paused and t - at > limit]
            assert not late, f"something started later than {limit:.2f} s after the pause"
            running = {run for t, run, _ in watched.began if t > at}
            assert running >= names.keys() - paused, "what is not paused goes on"
            rows = {info.run_id: info for info in await caller.runs()}
            assert all(rows[name].status is Status.RUNNING and not rows[name].is_driven for name in paused)

        await check(await caller.fleet.pause("run-0", by="ann"), lambda name: name == "run-0")
        of_beta = names.items() - {("run-0", names["run-0"])}
        beta = {name for name, lane in of_beta if lane == ("mails", "beta")}
        await check(await caller.fleet.pause(flow="mails", group="beta"), beta.__contains__)
        acme = {name for name, (_, group) in names.items() if group == "acme"}
        await check(await caller.fleet.pause(group="acme"), acme.__contains__)
        await check(
            await caller.fleet.pause(flow="orders"), lambda name: names[name][0] == "orders" or name in acme
        )
        assert len(await caller.fleet.pauses()) == 4
        assert await caller.fleet.untaken() == []

        for named in ({"flow": "orders"}, {"flow": "mails", "group": "beta"}, {"group": "acme"}):
            assert await caller.fleet.unpause(**named)
        await _goes_on(watched, names.keys() - {"run-0"})
        assert await caller.fleet.unpause("run-0")
        await _goes_on(watched, names.keys())
        for worker in workers:
            worker.stop()
        for task in (*working, watching):
            task.cancel()
        await asyncio.gather(*working, watching, return_exceptions=True)


async def _until(holds: Callable[[], bool]) -> None:
    ends = monotonic() + 60
    while not holds():
        assert monotonic() < ends, "it never came to that"
        await asyncio.sleep(0.02)


async def _goes_on(watched: Watched, names: object) -> None:
    at = monotonic()
    await _until(lambda: {run for t, run, _ in watched.began if t > at} == set(names))  # type: ignore[call-overload]


def test_a_lone_run_in_the_foreground_stops_as_soon(url: str) -> None:
    asyncio.run(_alone(url))


async def _alone(url: str) -> None:
    watched, lag = Watched(), Lag()
    flow: Flow = looping(watched)
    watching = asyncio.create_task(lag.watch())
    async with AsyncHost(url) as caller, AsyncHost(url) as host:
        driving = asyncio.create_task(host.run(flow, {"n": 0}, run_id="run"))
        await _until(lambda: len(watched.began) > 3)
        await caller.fleet.pause("run", by="ann", comment="a look")
        at, lag.longest = monotonic(), 0.0
        result = await driving
        limit = LIMIT + 3 * lag.longest
        assert (result.is_paused, result.status) == (True, Status.RUNNING)
        assert all(t - at <= limit for t, _, _ in watched.began)
        info = await caller.info("run")
        assert (info.is_driven, info.paused_by and info.paused_by.comment) == (False, "a look")
        watching.cancel()
