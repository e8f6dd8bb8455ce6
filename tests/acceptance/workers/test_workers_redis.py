"""Four workers on one Redis: killed at random, the server too; every effect of every run once by its key.

`EVERSTEP_SOAK=1` lets them drive two thousand runs.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from everstep import Host
from everstep.errors import LeaseConflict, StoreError
from tests.acceptance.workers.test_workers import FLOWS, IS_SOAK, answer_some, begin, effects, judge, until
from tests.acceptance.workers.worker_flows import sleepers
from tests.servers import warm
from tests.servers.running import private
from tests.servers.valkey import ValkeyServer

RUNS = 2000 if IS_SOAK else 36
KILLS = 60 if IS_SOAK else 4
PATIENCE = 1200.0 if IS_SOAK else 90.0
Hire = Callable[..., warm.Process]


@pytest.fixture
def server() -> Iterator[ValkeyServer]:
    with private(ValkeyServer) as running:
        assert isinstance(running, ValkeyServer)
        yield running


@pytest.fixture
def hire(tmp_path: Path, server: ValkeyServer) -> Iterator[Hire]:
    """Start workers as processes of their own; those left at the end are killed."""
    staff: list[warm.Process] = []

    def start(**more: str) -> warm.Process:
        command = [sys.executable, "-m", "everstep", "worker", str(FLOWS), "--store", server.url]
        environment = {**os.environ, "EVERSTEP_EFFECTS": f"{tmp_path}/effects", **more}
        with (tmp_path / f"worker{len(staff)}.txt").open("wb") as said:
            staff.append(warm.Process(command, stdout=said, stderr=said, env=environment))
        return staff[-1]

    yield start
    for worker in staff:
        if worker.poll() is None:
            worker.kill()
        worker.wait(20)


def again(work: Callable[[], Any]) -> Any:
    """Do something with the store, however often it is away meanwhile."""
    for _ in range(200):
        try:
            return work()
        except (StoreError, LeaseConflict):
            time.sleep(0.05)
    return work()


def test_runs_end_as_they_should_while_workers_and_the_server_are_killed(
    tmp_path: Path, hire: Hire, server: ValkeyServer
) -> None:
    whims, kills, restarts = Random(7), 0, 0
    with Host(server.url) as host:
        workers = [hire() for _ in range(4)]
        for number in range(RUNS):
            again(lambda number=number: begin(host, number))  # type: ignore[misc]
        next_kill = time.monotonic() + 0.5

        def storm() -> bool:
            nonlocal kills, restarts, next_kill
            with suppress(StoreError):
                answer_some(host, whims, 0.5)
            if kills < KILLS and time.monotonic() >= next_kill:
                k = whims.randrange(4)
                workers[k].kill()
                workers[k].wait(20)
                if kills % 4 == 1:
                    server.kill()
                    server.start()
                    restarts += 1
                workers[k] = hire()
                kills += 1
                next_kill = time.monotonic() + whims.uniform(0.3, 0.9)
            counts = again(host.fleet.counts).runs
            return kills == KILLS and counts == {"completed": RUNS}

        until(storm, PATIENCE)
        for number in range(RUNS):
            judge(host, tmp_path, number)
        assert host.waits() == []
    assert (kills, restarts > 0) == (KILLS, True)
    print(f"\n{RUNS} runs, {kills} kills, {restarts} restarts, {len(effects(tmp_path))} effects")


@pytest.mark.soak
def test_a_stopped_worker_that_wakes_after_its_lease_expired_writes_nothing(
    tmp_path: Path, hire: Hire, server: ValkeyServer
) -> None:
    with Host(server.url) as host:
        host.start(sleepers, {"x": 1}, run_id="r")
        asleep = hire(EVERSTEP_SLEEPS="1")
        until(lambda: bool(effects(tmp_path)))
        asleep.send_signal(signal.SIGSTOP)
        heir = hire()
        until(lambda: host.info("r").status.is_final)
        before = [record.checkpoint_id for record in host.history("r")]
        asleep.send_signal(signal.SIGCONT)
        time.sleep(0.3)
        for _ in range(2):
            asleep.send_signal(signal.SIGTERM)
        asleep.wait(20)
        assert [record.checkpoint_id for record in host.history("r")] == before
        assert [line["begun"] for line in effects(tmp_path)] == [asleep.pid, heir.pid]
