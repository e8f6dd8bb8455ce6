"""What every system of the comparison does, and how it tells what that took.

A script of a system gives a function for each workload to `main`, which calls the one that is asked for and
prints what it returns as one line of JSON.

    w1   a chain of --n trivial steps, each durable before the next begins; each returns a small dict
    w2   --n steps, each of which appends a message of 1 KiB to what is kept
    w3   --n runs of 5 steps each, --conc of them in flight
    w4c  a run that dies inside a step, --at steps after its beginning; w4r is its resume in another process,
         which with --warm has resumed another copy of the run before
    w5   one run of --n branches side by side, and a join
    w6   --n steps, each of which returns a value of 10 MiB
    w7   one run of one step in a fresh process
    cpu  w1 without syncs, several times over in one process
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

MIB = 1 << 20
LARGE = 10 * MIB
RUNS_OF_STEPS = 5
REPEATS = 5
"""How often `cpu` does its work; the least counts."""
Row = dict[str, Any]


def small(i: int) -> dict[str, Any]:
    """Return what a trivial step returns."""
    return {"ok": True, "i": i, "s": "hello"}


def message(i: int) -> dict[str, Any]:
    """Return a chat message of about 1 KiB."""
    return {"role": "user", "i": i, "content": f"{i:08d}" + "m" * 1000}


def payload(i: int) -> str:
    """Return 10 MiB of text that is the same each time, and unlike that of another number."""
    import random

    return random.Random(i).randbytes(LARGE // 2).hex()


class Timer:
    """Measures the time and the processor time of a block."""

    def __enter__(self) -> Timer:
        self._cpu, self._began = time.process_time(), time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._began
        self.cpu = time.process_time() - self._cpu


def timed(timer: Timer, units: int) -> Row:
    """Tell what was measured, and of how many steps, runs or branches."""
    return {"seconds": timer.seconds, "cpu_seconds": timer.cpu, "units": units}


def least_cpu(work: Callable[[], object], units: int) -> Row:
    """Do some work several times, and tell the least processor time for one of its units."""
    timers = []
    for _ in range(REPEATS):
        with Timer() as timer:
            work()
        timers.append(timer)
    return timed(min(timers, key=lambda timer: timer.cpu), units)


def finish(row: Row, job: argparse.Namespace, steps: int) -> Row:
    """Add what the steps take on disk; call it when the store is closed."""
    if job.store == "sqlite" and job.workload != "w7":  # whose whole process is measured
        _fold_logs(Path(job.dir))
        row["bytes"] = sum(file.stat().st_size for file in Path(job.dir).rglob("*") if file.is_file()) / steps
    return row


def _fold_logs(folder: Path) -> None:
    """Fold write-ahead logs back into their databases: some systems leave them, and sizes are compared."""
    import sqlite3

    for file in folder.rglob("*.db"):
        connection = sqlite3.connect(file, timeout=5)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()


def emit_resume(step: int, ready: float) -> Row:
    """Tell how long it took to come back to the step in which the run died; call it where that begins."""
    return {"seconds": time.time() - ready, "resumed_step": step}


def force_sqlite(connection: Any, sync: str) -> None:
    """Make a connection as durable as is asked for, if anything is."""
    if sync != "default":
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {sync.upper()}")


def arguments(workloads: Mapping[str, object]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workload", required=True, choices=sorted(workloads))
    parser.add_argument("--store", default="sqlite", choices=["sqlite", "postgres"])
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--conc", type=int, default=1)
    parser.add_argument("--at", type=int, help="after so many steps w4 dies; nine tenths of n unless told")
    parser.add_argument("--dir", required=True, help="a folder of its own, the same for w4c and w4r")
    parser.add_argument("--warm", help="a copy of it, on which the work is done once before it counts")
    parser.add_argument("--db", default="bench", help="the name of a PostgreSQL database")
    parser.add_argument("--sync", default="default", choices=["default", "full", "normal", "off"])
    parser.add_argument("--variant", default="")
    return parser.parse_args()


def main(system: str, workloads: Mapping[str, Callable[[argparse.Namespace], Row | None]]) -> None:
    """Do one workload and print what it took."""
    job = arguments(workloads)
    dsn = os.environ.get("BENCH_PG", "postgresql://postgres@127.0.0.1:55432/{db}")
    job.dsn = dsn.format(db=job.db)
    job.at = job.n * 9 // 10 if job.at is None else job.at
    for folder in filter(None, (job.warm, job.dir)):
        job.dir, job.dbfile = folder, str(Path(folder) / "bench.db")
        Path(folder).mkdir(parents=True, exist_ok=True)
        job.t_ready = time.time()
        row = workloads[job.workload](job)
    tell(system, job, row or {})


def tell(system: str, job: argparse.Namespace, row: Row) -> None:
    """Print a result."""
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    what = {"system": system, "workload": job.workload, "n": job.n, "memory_mb": memory}
    print(json.dumps(what | row), file=sys.__stdout__, flush=True)
