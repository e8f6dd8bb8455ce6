"""A fleet at its limit: processes of workers that drive what was admitted before, as fast as they can.

    python benchmarks/fleet_limit.py URL [--runs 2000] [--workers 2] [--concurrency 32] [--rounds 3]
                                     [--dbos PYTHON]

Runs of no step (one node, committed with the end of its run) and of five steps (each committed) are admitted,
32 callers at once, and then driven by worker processes that wait for a sign. Beside that, on PostgreSQL, the
least that does the same, written by hand with the same batching (`fleet_by_hand.py`), and with `--dbos` the
same work through the queue of DBOS (`fleet_dbos.py`, run by the Python that has it). Of each side: runs a
second admitted and driven, the processor of its own processes a run, connections a worker at the most, and
what PostgreSQL counts: bytes of log a run, and how many of the updates of its runs were HOT.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import fleet_by_hand  # type: ignore[import-not-found]  # lies beside this script
import psycopg

from everstep import AsyncHost, Flow, Host, node

AT_ONCE = 32
SCHEMA = "fleet"
HERE = Path(__file__).parent


@node(output="out")
async def step(previous: Any) -> int:
    return 1


def flow_of(steps: int) -> Flow:
    links = [
        step.with_name(f"s{k}").with_inputs(previous=f"v{k}").with_outputs(f"v{k + 1}")
        for k in range(max(steps, 1))
    ]
    return Flow(f"steps-{steps}", links, durability="strong" if steps else "partial")


async def admit(url: str, runs: int, steps: int) -> None:
    flow, room = flow_of(steps), asyncio.Semaphore(AT_ONCE)
    async with AsyncHost(url) as host:

        async def one() -> None:
            async with room:
                await host.start(flow, {"v0": 0})

        await asyncio.gather(*(one() for _ in range(runs)))


async def drive(url: str, steps: int, concurrency: int) -> int:
    async with AsyncHost(url) as host:
        stats = await host.work([flow_of(steps)], concurrency=concurrency, until_idle=True)
    return stats.completed


def work(side: str, url: str, steps: int, concurrency: int, sign: str) -> None:
    """Be a worker process: wait for the sign, drive what is there, and tell what that took."""
    driver = fleet_by_hand.work if side == "hand" else drive
    print("ready", flush=True)
    while not Path(sign).exists():
        time.sleep(0.005)
    began, processor = time.time(), time.process_time()
    done = asyncio.run(driver(url, steps, concurrency))
    told = {"began": began, "ended": time.time(), "cpu": time.process_time() - processor, "done": done}
    print(json.dumps(told), flush=True)


class Counted:
    """What PostgreSQL counts while something goes on."""

    def __init__(self, url: str) -> None:
        self._db = psycopg.connect(url, autocommit=True)
        self._pid = self._db.info.backend_pid
        self._began = self._one("SELECT pg_current_wal_lsn()")
        self.connections = 0

    def _one(self, query: str, *values: Any) -> Any:
        row = self._db.execute(query, values).fetchone()
        return None if row is None else row[0]

    def look(self) -> None:
        """Take note of how many connections there are."""
        query = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> %s"
        self.connections = max(self.connections, self._one(query, self._pid))

    @property
    def wal(self) -> int:
        return int(self._one("SELECT pg_current_wal_lsn() - %s::pg_lsn", self._began))

    def updates(self, schema: str) -> tuple[int, int]:
        time.sleep(1.5)  # the server writes its statistics down once a second
        query = (
            "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables "
            "WHERE schemaname = %s AND relname = 'runs'"
        )
        row = self._db.execute(query, (schema,)).fetchone()
        return (row[0], row[1]) if row is not None else (0, 0)

    def drop(self, schema: str) -> None:
        self._db.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


class NothingCounted:
    """The same of a store that does not count."""

    connections = wal = 0

    def look(self) -> None: ...


@contextmanager
def workers(command: list[str], count: int, sign: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Start worker processes, each at the point where it waits for the sign."""
    started = [
        subprocess.Popen([*command, str(sign)], stdout=subprocess.PIPE, text=True) for _ in range(count)
    ]
    try:
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == "ready"
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()


def drained(command: list[str], count: int, runs: int, counted: Any) -> dict[str, float]:
    """Let workers drive what was admitted; returns what that took."""
    with tempfile.TemporaryDirectory() as folder, workers(command, count, Path(folder) / "go") as started:
        (Path(folder) / "go").touch()
        while any(process.poll() is None for process in started):
            counted.look()
            time.sleep(0.05)
        told = [json.loads(process.stdout.read() if process.stdout else "") for process in started]
    assert sum(one["done"] for one in told) >= runs, told
    took = max(one["ended"] for one in told) - min(one["began"] for one in told)
    return {"runs/s": runs / took, "cpu µs": sum(one["cpu"] for one in told) / runs * 1e6}


def one_round(side: str, given: argparse.Namespace, steps: int) -> dict[str, float]:
    """Admit and drive on one side."""
    is_postgres = given.url.startswith("postgres")
    counted: Any = Counted(given.url) if is_postgres else NothingCounted()
    url, python = given.url, sys.executable
    script = str(HERE / ("fleet_dbos.py" if side == "dbos" else "fleet_limit.py"))
    if is_postgres and side == "everstep":
        counted.drop(SCHEMA)
        url = f"{given.url}?schema={SCHEMA}"
        Host(url).close()
    if side == "hand":
        fleet_by_hand.prepare(given.url)
    if side == "dbos":
        python = given.dbos
    before, began = counted.wal, time.perf_counter()
    if side == "dbos":
        subprocess.run([python, script, "admit", url, str(given.runs), str(steps)], check=True)
        admitted = float("nan")
    else:
        asyncio.run(
            fleet_by_hand.admit(url, given.runs, AT_ONCE) if side == "hand" else admit(url, given.runs, steps)
        )
        admitted = given.runs / (time.perf_counter() - began)
    command = [python, script, "work", side, url, str(steps), str(given.concurrency)]
    told = drained(command, given.workers, given.runs, counted)
    told |= {"admitted/s": admitted, "connections": counted.connections / given.workers}
    if is_postgres:
        told["log B"] = (counted.wal - before) / given.runs
        schema = {"everstep": SCHEMA, "hand": fleet_by_hand.SCHEMA, "dbos": "dbos"}[side]
        updates, hot = counted.updates(schema)
        told["hot %"] = 100 * hot / updates if updates else 0.0
    return told


def main() -> None:
    if sys.argv[1:2] == ["work"]:
        work(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]), sys.argv[6])
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("url")
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--concurrency", type=int, default=AT_ONCE)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dbos", help="the Python that has DBOS")
    given = parser.parse_args()
    sides = [
        "everstep",
        *(["hand"] if given.url.startswith("postgres") else []),
        *(["dbos"] if given.dbos else []),
    ]
    for steps in (0, 5):
        found: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
        for _ in range(given.rounds):
            for side in sides:
                found[side].append(one_round(side, given, steps))
        for side, rounds in found.items():
            told = {name: median(one[name] for one in rounds) for name in rounds[0]}
            print(
                f"{steps} steps, {side}: " + ", ".join(f"{name} {value:,.0f}" for name, value in told.items())
            )


if __name__ == "__main__":
    main()
