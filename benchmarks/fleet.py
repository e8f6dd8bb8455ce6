"""A fleet at its limit, what it gains by more workers, and what a listing costs among many runs.

    python -m benchmarks.fleet limit [--help]
    python -m benchmarks.fleet workers URL [--runs 200] [--steps 20] [--concurrency 8]
    python -m benchmarks.fleet listing URL OTHER_URL [--many 100000]

`limit` makes the table of `docs/performance.md` (`fleet_limit.py`), with servers of its own. `workers` lets
one worker, then four, drive the same number of runs with steps of 5 ms, each time from when they are all
ready. `listing` fills the first store with a hundred runs, the other with many, and lists the newest fifty
of each in turn. Stores of these two must be empty, and are not emptied afterwards.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

from everstep import Flow, Host, node
from everstep.model.enums import Status
from everstep.ports.store import Admission, Commit, RunFilter
from everstep.registry import open_store
from everstep.runtime.system import SystemClock

FEW, SHOWN, GROUP = 100, 50, 500
BODY = b"\x00" * 300


@node(output="out")
def step(previous: Any) -> int:
    time.sleep(0.005)
    return 1


def chain(n: int) -> Flow:
    links = [
        step.with_name(f"s{k}").with_inputs(previous=f"v{k}").with_outputs(f"v{k + 1}") for k in range(n)
    ]
    return Flow("chain", links, durability="strong")


flow = chain(int(os.environ.get("STEPS", "20")))


def drive(url: str, workers: int, runs: int, steps: int, concurrency: int) -> float:
    """Return how many steps a second so many workers make, until all runs have ended."""
    with Host(url) as host:
        done = host.fleet.counts().runs.get("completed", 0)
        command = [sys.executable, "-m", "everstep", "worker", f"{Path(__file__)}:flow", "--store", url]
        environment = {**os.environ, "STEPS": str(steps)}
        started = [
            subprocess.Popen(
                [*command, "--concurrency", str(concurrency)],
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for _ in range(workers)
        ]
        try:
            while len(host.fleet.workers()) < workers:
                time.sleep(0.05)
            began = time.perf_counter()
            for _ in range(runs):
                host.start(chain(steps), {"v0": 0})
            while host.fleet.counts().runs.get("completed", 0) < done + runs:
                time.sleep(0.02)
            took = time.perf_counter() - began
        finally:
            for process in started:
                process.terminate()
            for process in started:
                process.wait()
        while host.fleet.workers():
            time.sleep(0.05)
    return runs * steps / took


async def fill(url: str, count: int) -> Any:
    """Return a store with so many runs that have ended."""
    store = open_store(url, SystemClock()).store
    now = datetime.now(UTC)
    for first in range(0, count, GROUP):
        numbers = range(first, min(first + GROUP, count))
        await store.put([_ended(k, now + timedelta(milliseconds=k)) for k in numbers])
    return store


def _ended(k: int, now: datetime) -> Commit:
    admission = Admission(
        flow_id=f"flow-{k % 2}",
        flow_version="1",
        flow_hash="0" * 64,
        blueprint=b"{}",
        created_at=now,
        owner=None,
        ttl=timedelta(seconds=30),
        process=None,
    )
    return Commit(f"run-{k}", 1, f"c-{k}", None, 0, BODY, True, Status.COMPLETED, admission, ended_at=now)


async def compare(few_url: str, many_url: str, many: int) -> None:
    few, crowd = await fill(few_url, FEW), await fill(many_url, many)
    for name, wanted in {
        "all": RunFilter(limit=SHOWN),
        "of a flow": RunFilter(limit=SHOWN, flow_id="flow-1"),
        "completed": RunFilter(limit=SHOWN, status=Status.COMPLETED),
    }.items():
        times: dict[int, list[float]] = {FEW: [], many: []}
        for _ in range(200):
            for count, store in ((FEW, few), (many, crowd)):
                began = time.perf_counter()
                await store.list(wanted)
                times[count].append(time.perf_counter() - began)
        small, large = median(times[FEW]), median(times[many])
        print(
            f"{name:10} {small * 1e6:6.0f} µs of {FEW}, {large * 1e6:6.0f} µs of {many:,}:"
            f" {large / small:.2f} ×"
        )
    await few.close()
    await crowd.close()


def main() -> None:
    if sys.argv[1:2] == ["limit"]:
        from benchmarks import fleet_limit

        fleet_limit.main(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("workers", "listing"))
    parser.add_argument("url", nargs="+")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--many", type=int, default=100_000)
    given = parser.parse_args()
    if given.what == "listing":
        asyncio.run(compare(given.url[0], given.url[1], given.many))
        return
    for _ in range(given.rounds):
        one, four = (drive(given.url[0], n, given.runs, given.steps, given.concurrency) for n in (1, 4))
        print(f"one worker {one:.0f} steps/s, four {four:.0f} steps/s: {four / one:.2f} ×")


if __name__ == "__main__":
    main()
