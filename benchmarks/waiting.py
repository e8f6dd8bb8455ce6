"""What waiting costs: an idle worker beside many halted runs, and how late timers fire when many are due.

    python benchmarks/waiting.py [--halted 10000] [--burst 1000] [--seconds 20] [--workers 1] [--json]

The worker is a process of its own. Its statements are counted by SQLite's own trace, its time by the kernel.
Reading the change counter (`PRAGMA data_version`) is counted apart: it reads no table.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw

from everstep import AsyncHost, Flow, node, wait

idle = Flow("idle", [wait.approval("ok", context={"amount": 120}, timeout="30d")])


@node(output="drift", effects="pure")
def drift(nap: wait.TimerOutput) -> int:
    return nap.drift_ms


burst = Flow("burst", [wait.timer("nap", until="at"), drift])


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--halted", type=int, default=10_000)
    options.add_argument("--burst", type=int, default=1_000)
    options.add_argument("--seconds", type=int, default=20)
    options.add_argument("--workers", type=int, default=1)
    options.add_argument("--json", action="store_true")
    options.add_argument("--work", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.work:
        asyncio.run(work(given.work))
        return
    found = asyncio.run(measure(given.halted, given.burst, given.seconds, given.workers))
    if given.json:
        print(json.dumps(found, indent=2))
    else:
        for name, value in found.items():
            print(f"{name:>34}  {value}")


async def work(url: str) -> None:
    """Be the worker: one line of counts whenever a line comes in."""
    counts = {"queries": 0, "looks": 0}

    def count(event: dict[str, Any]) -> None:
        counts["looks" if "data_version" in event["sql"] else "queries"] += 1

    apsw.connection_hooks.append(lambda db: db.trace_v2(apsw.SQLITE_TRACE_STMT, count))
    async with AsyncHost(url) as host:
        worker = host.worker([idle, burst])
        task = asyncio.ensure_future(worker.run())
        loop = asyncio.get_running_loop()
        print("ready", flush=True)
        while await loop.run_in_executor(None, sys.stdin.readline):
            used = resource.getrusage(resource.RUSAGE_SELF)
            told = {**counts, "cpu": used.ru_utime + used.ru_stime, "rss": rss()}
            print(json.dumps(told), flush=True)
        worker.stop()
        await task


def rss() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


class Process:
    def __init__(self, url: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--work", url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def ask(self) -> dict[str, float]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        told: dict[str, float] = json.loads(self._process.stdout.readline())
        return told

    def stop(self) -> None:
        self._process.communicate(timeout=60)


async def measure(halted: int, count: int, seconds: int, workers: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/runs.db"
        found: dict[str, Any] = {}
        async with AsyncHost(url) as host:
            await make(host, min(100, halted))
            found["memory with few halted, MiB"] = round(await watch(url, 2, {}), 1)
            began = time.monotonic()
            await make(host, halted - min(100, halted))
            found["halted runs"] = halted
            found["made, runs a second"] = round(halted / (time.monotonic() - began))
            found["memory with all halted, MiB"] = round(await watch(url, seconds, found), 1)
            found.update(await fire(host, url, count, workers))
        return found


async def make(host: AsyncHost, count: int) -> None:
    for start in range(0, count, 200):
        await asyncio.gather(*(host.run(idle) for _ in range(min(200, count - start))))


async def watch(url: str, seconds: int, found: dict[str, Any]) -> float:
    """Let a worker idle for a while; returns its memory."""
    process = Process(url)
    await asyncio.sleep(3)  # it has looked around
    before, began = process.ask(), time.monotonic()
    await asyncio.sleep(seconds)
    after, span = process.ask(), time.monotonic() - began
    process.stop()
    found["idle worker, % of a core"] = round(100 * (after["cpu"] - before["cpu"]) / span, 2)
    found["idle worker, queries a second"] = round((after["queries"] - before["queries"]) / span, 2)
    found["idle worker, looks a second"] = round((after["looks"] - before["looks"]) / span, 1)
    return after["rss"]


async def fire(host: AsyncHost, url: str, count: int, workers: int) -> dict[str, Any]:
    """Let timers be due, evenly over one second, and see when they fire and their runs end."""
    processes = [Process(url) for _ in range(workers)]
    first = datetime.now(UTC) + timedelta(seconds=3 + count / 250)
    due = [first + timedelta(seconds=i / count) for i in range(count)]
    for start in range(0, count, 200):
        await asyncio.gather(
            *(host.run(burst, {"at": due[i]}, run_id=f"b{i}") for i in range(start, min(start + 200, count)))
        )
    if datetime.now(UTC) >= first:
        raise SystemExit("the machine is too slow: timers were due before all of them were set")
    cpu = sum(p.ask()["cpu"] for p in processes)
    await asyncio.sleep((first - datetime.now(UTC)).total_seconds() + 1)
    while await host.runs(flow="burst", status="halted", limit=1) or await host.runs(
        flow="burst", status="running", limit=1
    ):
        await asyncio.sleep(0.1)
    cpu = sum(p.ask()["cpu"] for p in processes) - cpu
    for process in processes:
        process.stop()
    fired, ended = [], []
    for i in range(count):
        (row,) = await host.waits(f"b{i}", status=None)
        assert row.settled_at is not None
        fired.append((row.settled_at - due[i]).total_seconds() * 1000)
        end = (await host.info(f"b{i}")).ended_at
        assert end is not None
        ended.append((end - due[i]).total_seconds() * 1000)
    return {
        "timers due in one second": count,
        "workers": workers,
        "fired after, ms (p50, p99)": percentiles(fired),
        "run ended after, ms (p50, p99)": percentiles(ended),
        "worker time for one timer, ms": round(1000 * cpu / count, 2),
    }


def percentiles(values: list[float]) -> list[int]:
    values = sorted(values)
    return [round(values[int(len(values) * p)]) for p in (0.5, 0.99)]


if __name__ == "__main__":
    main()
