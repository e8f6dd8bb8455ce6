"""Workers on one folder that are killed at random: every effect of every run once by its key.

`EVERSTEP_SOAK=1` lets them drive five hundred runs.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from everstep import Host
from tests.acceptance.workers.test_workers import FLOWS, IS_SOAK, answer_some, begin, effects, judge, until
from tests.acceptance.workers.worker_flows import sleepers
from tests.servers import warm

RUNS = 500 if IS_SOAK else 15
KILLS = 40 if IS_SOAK else 4
PATIENCE = 1200.0 if IS_SOAK else 120.0
Hire = Callable[..., warm.Process]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/store"


@pytest.fixture
def hire(tmp_path: Path, url: str) -> Iterator[Hire]:
    """Start workers as processes of their own; those left at the end are killed."""
    staff: list[warm.Process] = []

    def start(**more: str) -> warm.Process:
        command = [sys.executable, "-m", "everstep", "worker", str(FLOWS), "--store", url]
        environment = {**os.environ, "EVERSTEP_EFFECTS": f"{tmp_path}/effects", **more}
        with (tmp_path / f"worker{len(staff)}.txt").open("wb") as said:
            staff.append(warm.Process(command, stdout=said, stderr=said, env=environment))
        return staff[-1]

    yield start
    for worker in staff:
        if worker.poll() is None:
            worker.kill()
        worker.wait(20)


def test_runs_end_as_they_should_while_workers_are_killed(tmp_path: Path, url: str, hire: Hire) -> None:
    whims, kills = Random(7), 0
    with Host(url) as host:
        workers = [hire() for _ in range(3)]
        for number in range(RUNS):
            begin(host, number)
        next_kill = time.monotonic() + 0.5

        def storm() -> bool:
            nonlocal kills, next_kill
            answer_some(host, whims, 0.5)
            if kills < KILLS and time.monotonic() >= next_kill:
                k = whims.randrange(3)
                workers[k].kill()
                workers[k].wait(20)
                workers[k] = hire()
                kills += 1
                next_kill = time.monotonic() + whims.uniform(0.3, 0.9)
            return kills == KILLS and host.fleet.counts().runs == {"completed": RUNS}

        until(storm, PATIENCE)
        for number in range(RUNS):
            judge(host, tmp_path, number)
        assert host.waits() == []
        assert not any(found.flaws for found in host.storage.verify())
    for worker in workers:
        worker.terminate()
        worker.wait(20)
    # A caller that opens the folder next writes what those who were killed owe.
    Host(url).close()
    for number in range(RUNS):
        latest = json.loads((tmp_path / f"store/checkpoints/r{number}/latest.json").read_text())
        assert latest["status"] == "completed", number


def test_a_stopped_worker_that_wakes_after_its_lease_expired_writes_nothing(
    tmp_path: Path, url: str, hire: Hire
) -> None:
    with Host(url) as host:
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
    latest = json.loads((tmp_path / "store/checkpoints/r/latest.json").read_text())
    assert latest["checkpoint_id"] == before[-1]
