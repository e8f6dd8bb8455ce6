"""Many schedules over both clock changes of zones: each time once, though workers die and clocks differ."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from everstep import AsyncHost, Host
from everstep.registry import open_store
from everstep.testing import ManualClock
from everstep.testing.killing import Crashed, Killer, crash, killing
from tests.integration.runtime.operations.timetable import (
    BEGAN,
    NOTING,
    Entry,
    FleetClock,
    expected,
    steps,
    table,
)

ROOT = Path(__file__).resolve().parents[4]
SKEWS = (60.0, 0.0, -60.0)
MADE = {"time_input": "due", "overlap": "allow", "catch_up": "300d"}
MANY = int(os.environ.get("EVERSTEP_SCHEDULES", "10000"))
PATIENCE = 900.0


def moved_to(at: datetime, skew: float) -> ManualClock:
    return ManualClock(at + timedelta(seconds=skew))


def check_runs(found: dict[str, str], due: dict[str, datetime]) -> None:
    """Each time has its run, with the time that it is for, and there is no other."""
    missed, more = due.keys() - found.keys(), found.keys() - due.keys()
    assert not missed and not more, f"{len(missed)} times missed, {len(more)} runs of none"
    assert found == {run_id: at.isoformat() for run_id, at in due.items()}


@pytest.mark.slow
@pytest.mark.stores("sqlite")
def test_each_time_of_many_schedules_is_run_once_over_all_clock_changes(tmp_path: Path) -> None:
    entries, chance, url = table(64, 3), Random(3), f"sqlite:///{tmp_path}/runs.db"
    due, deaths = expected(entries), 0
    with Host(url, clock=ManualClock(BEGAN)) as host:
        for one in entries:
            host.schedules.create(NOTING, one.schedule_id, cron=one.cron, zone=one.zone, **MADE)  # type: ignore[arg-type]
    for at in steps(timedelta(hours=7)):
        clock = moved_to(at, chance.choice(SKEWS))
        killer = Killer(chance.randrange(1, 40) if chance.random() < 0.5 else None, act=crash)
        with suppress(Crashed), Host(killing(open_store(url, clock), by=killer), clock=clock) as host:
            host.work([NOTING], until_idle=True)
        deaths += killer.at is not None and len(killer.points) >= int(killer.at)
    with Host(url, clock=ManualClock(at + timedelta(days=1))) as host:
        host.work([NOTING], until_idle=True)
        runs = host.runs(flow="noting", limit=1000)
        check_runs({one.run_id: host.state(one.run_id)["was"] for one in runs}, due)
        told = [host.schedules.get(one.schedule_id) for one in entries]
    assert (sum(one.missed for one in told), sum(one.started for one in told)) == (0, len(due))
    assert deaths > 10 and len(due) > 64


class Fleet:
    """Three workers, each with a clock of its own, that are killed at random."""

    def __init__(self, url: str, folder: Path, chance: Random) -> None:
        self._url, self._folder, self._chance = url, folder, chance
        self.deaths = 0
        self._workers = [self._begun(skew) for skew in SKEWS]

    def _begun(self, skew: float) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.integration.runtime.operations.timetable"]
        said = [self._url, str(self._folder), str(skew)]
        return subprocess.Popen([*command, *said], cwd=ROOT, stderr=subprocess.DEVNULL)

    def kill_one(self) -> None:
        place = self._chance.randrange(len(SKEWS))
        self._workers[place].send_signal(signal.SIGKILL)
        self._workers[place].wait()
        self._workers[place] = self._begun(SKEWS[place])
        self.deaths += 1

    def dismiss(self) -> None:
        for worker in self._workers:
            worker.kill()
            worker.wait()


async def made(host: AsyncHost, entries: list[Entry]) -> None:
    for k in range(0, len(entries), 200):
        await asyncio.gather(
            *(
                host.schedules.create(NOTING, one.schedule_id, cron=one.cron, zone=one.zone, **MADE)  # type: ignore[arg-type]
                for one in entries[k : k + 200]
            )
        )


async def completed(host: AsyncHost) -> int:
    return int((await host.fleet.count(by="status", where="flow = noting")).runs.get("completed", 0))


async def all_runs(host: AsyncHost) -> dict[str, str]:
    found: dict[str, str] = {}
    before = None
    while page := await host.runs(flow="noting", limit=1000, before=before):
        for one in page:
            found[one.run_id] = str((await host.state(one.run_id))["was"])
        before = page[-1].run_id
    return found


@pytest.mark.soak
@pytest.mark.parametrize(
    ("kind", "size"), [("sqlite", MANY), ("postgres", MANY), ("redis", MANY), ("folder", 500), ("s3", 500)]
)
def test_a_fleet_that_is_killed_at_random_runs_each_time_once(
    kind: str, size: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    local = {"sqlite": f"sqlite:///{tmp_path}/runs.db", "folder": f"file://{tmp_path}/runs"}
    url = local.get(kind) or str(request.getfixturevalue(f"{kind}_url"))
    clock, chance, entries = FleetClock(tmp_path), Random(11), table(size, 11)
    clock.set(BEGAN)
    due, begun = expected(entries), time.monotonic()

    async def run() -> tuple[dict[str, str], int]:
        async with AsyncHost(url, clock=clock) as host:
            await made(host, entries)
            there = time.monotonic() - begun
            fleet = Fleet(url, tmp_path, chance)
            try:
                for at in steps(timedelta(hours=4)):
                    clock.set(at)
                    await asyncio.sleep(0.3)
                    if chance.random() < 0.12:
                        fleet.kill_one()
                until = time.monotonic() + PATIENCE
                while await completed(host) < len(due) and time.monotonic() < until:
                    await asyncio.sleep(2)
                    if chance.random() < 0.2:
                        fleet.kill_one()
                await asyncio.sleep(2)
            finally:
                fleet.dismiss()
            print(f"{size} schedules made in {there:.0f} s")
            return await all_runs(host), fleet.deaths

    found, deaths = asyncio.run(run())
    print(
        f"{kind}: {len(found)} runs of {len(due)} times of {size} schedules; "
        f"{deaths} workers were killed; {time.monotonic() - begun:.0f} s"
    )
    check_runs(found, due)
    assert deaths > 10


@pytest.mark.soak
def test_an_idle_worker_with_many_schedules_asks_little_and_rests(tmp_path: Path) -> None:
    """What it asks is counted statement by statement, over a minute in which nothing is due."""
    url, statements = f"sqlite:///{tmp_path}/runs.db", 0

    def count(*_: object) -> bool:
        nonlocal statements
        statements += 1
        return True

    async def run() -> tuple[float, float]:
        nonlocal statements
        async with AsyncHost(url) as host:
            for k in range(0, MANY, 200):
                every = (
                    host.schedules.create(NOTING, f"s{one}", every="30d", time_input="due")
                    for one in range(k, min(k + 200, MANY))
                )
                await asyncio.gather(*every)
            await host.work([NOTING], until_idle=True)
            worker = host.worker([NOTING])
            working = asyncio.ensure_future(worker.run())
            await asyncio.sleep(5)
            store: Any = host._parts.services.store
            store._db.exec_trace = count
            begun, used, statements = time.monotonic(), time.process_time(), 0
            await asyncio.sleep(60)
            passed, spent = time.monotonic() - begun, time.process_time() - used
            store._db.exec_trace = None
            worker.stop()
            await working
            assert (await host.fleet.count(by="status")).runs == {"halted": MANY}
            return statements / passed, spent / passed

    asked, busy = asyncio.run(run())
    print(f"{MANY} schedules: {asked:.2f} statements a second, {busy:.2%} of a core")
    assert asked <= 2 and busy <= 0.01
