"""The raw side of `everstep bench`: the least that any engine must do to keep the same steps.

A journal in SQLite with one row a step, committed before the next step begins, and nothing around it.
"""

from __future__ import annotations

import asyncio
import os
import queue
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec

from everstep.cli.bench.values import (
    BRANCHES_A_COMMIT,
    DIED,
    STEPS_A_RUN,
    Sample,
    bytes_in,
    large,
    message,
    run_python,
    small,
)

REST_OF_ROW = "x" * 200
"""What an engine keeps beside the value: ids, times, names. With the columns it comes to about 300 bytes."""
CREATE = (
    "CREATE TABLE IF NOT EXISTS steps(run TEXT, seq INTEGER, name TEXT, status TEXT, value BLOB, "
    "PRIMARY KEY(run, seq)) WITHOUT ROWID"
)
INSERT = "INSERT INTO steps VALUES (?, ?, ?, ?, ?)"
SELECT = "SELECT seq, value FROM steps WHERE run = ? ORDER BY seq"

HELLO = f"""
import argparse, asyncio, json, pathlib, sqlite3
parser = argparse.ArgumentParser()
parser.add_argument("file")
db = sqlite3.connect(parser.parse_args().file, isolation_level=None)
db.execute("PRAGMA journal_mode = WAL")
db.execute("PRAGMA synchronous = FULL")
db.execute({CREATE!r})
async def hello():
    db.execute({INSERT!r}, ("r", 1, "step", "{REST_OF_ROW}", json.dumps("hello world")))
    db.close()
    print("hello world")
asyncio.run(hello())
"""

DIE = "import sys; from everstep.cli.bench.raw import die; die(sys.argv[1], int(sys.argv[2]))"

Row = tuple[str, int, str, str, bytes]


@contextmanager
def journal(folder: Path, synchronous: str = "FULL") -> Iterator[sqlite3.Connection]:
    """Open the journal in a folder; any thread may use it, one at a time."""
    db = sqlite3.connect(folder / "raw.db", isolation_level=None, check_same_thread=False)
    try:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA synchronous = {synchronous}")
        db.execute(CREATE)
        yield db
    finally:
        db.close()


def row(run: int, step: int, value: object) -> Row:
    return str(run), step, "step", REST_OF_ROW, msgspec.json.encode(value)


def commit_together(db: sqlite3.Connection, rows: Sequence[Row]) -> None:
    """Write rows in one commit."""
    db.execute("BEGIN IMMEDIATE")
    db.executemany(INSERT, rows)
    db.execute("COMMIT")


def chain(
    folder: Path, n: int, *, synchronous: str = "FULL", value: Callable[[int], object] = small
) -> Sample:
    """Write n steps of one run, one commit each."""
    with journal(folder, synchronous) as db:
        began = perf_counter()
        for step in range(n):
            db.execute(INSERT, row(0, step, value(step)))
        seconds = perf_counter() - began
    return Sample(seconds / n, bytes_in(folder) / n)


def chain_normal(folder: Path, n: int) -> Sample:
    return chain(folder, n, synchronous="NORMAL")


def chain_files(folder: Path, n: int) -> Sample:
    """Write n steps, each to a file of its own that is flushed and renamed, and its folder flushed."""
    began = perf_counter()
    for step in range(n):
        *_, rest, value = row(0, step, small(step))
        temporary = folder / f"{step}.tmp"
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        os.write(file, rest.encode() + value)
        os.fsync(file)
        os.close(file)
        temporary.rename(folder / f"{step:010d}")
        parent = os.open(folder, os.O_RDONLY)
        os.fsync(parent)
        os.close(parent)
    return Sample((perf_counter() - began) / n, bytes_in(folder) / n)


def appended(folder: Path, n: int) -> Sample:
    return chain(folder, n, value=message)


def runs_in_turn(folder: Path, n: int, *, synchronous: str = "FULL") -> Sample:
    """Write n runs, one after the other, each step in a commit of its own."""
    with journal(folder, synchronous) as db:
        began = perf_counter()
        for run in range(n):
            for step in range(STEPS_A_RUN):
                db.execute(INSERT, row(run, step, small(step)))
        seconds = perf_counter() - began
    return Sample(seconds / n)


def runs_in_turn_normal(folder: Path, n: int) -> Sample:
    return runs_in_turn(folder, n, synchronous="NORMAL")


def runs_at_once(folder: Path, n: int, *, at_once: int = 50) -> Sample:
    """Write n runs, many at a time; a thread commits whatever is waiting, and a step waits for its commit."""
    with journal(folder) as db:
        return Sample(asyncio.run(_drive_runs(db, n, at_once)) / n)


async def _drive_runs(db: sqlite3.Connection, n: int, at_once: int) -> float:
    loop = asyncio.get_running_loop()
    waiting: queue.SimpleQueue[tuple[Row, asyncio.Future[None]] | None] = queue.SimpleQueue()

    def acknowledge(done: list[asyncio.Future[None]]) -> None:
        for future in done:
            future.set_result(None)

    def write() -> None:
        is_open = True
        while is_open:
            taken = [waiting.get()]
            while not waiting.empty():
                taken.append(waiting.get())
            is_open = None not in taken
            batch = [item for item in taken if item is not None]
            if batch:
                commit_together(db, [item for item, _ in batch])
                loop.call_soon_threadsafe(acknowledge, [future for _, future in batch])

    async def one(run: int) -> None:
        async with room:
            for step in range(STEPS_A_RUN):
                future: asyncio.Future[None] = loop.create_future()
                waiting.put((row(run, step, small(step)), future))
                await future

    room = asyncio.Semaphore(at_once)
    writer = asyncio.create_task(asyncio.to_thread(write))
    began = perf_counter()
    await asyncio.gather(*(one(run) for run in range(n)))
    seconds = perf_counter() - began
    waiting.put(None)
    await writer
    return seconds


def die(folder: str, steps: int) -> None:
    """Write some steps and end the process, so that the journal is left as it is after a crash."""
    with journal(Path(folder), "OFF") as db:
        for step in range(steps):
            db.execute(INSERT, row(0, step, small(step)))
        os._exit(DIED)


def resumed(folder: Path, n: int) -> Sample:
    """Read back nine tenths of n steps from the journal of a dead process."""
    done = n * 9 // 10
    run_python(DIE, str(folder), str(done), exits_with=DIED)
    began = perf_counter()
    with journal(folder) as db:
        values = {step: msgspec.json.decode(value) for step, value in db.execute(SELECT, ("0",))}
        seconds = perf_counter() - began
    assert len(values) == done
    return Sample(seconds)


def branched(folder: Path, n: int) -> Sample:
    """Await n branches, write them many to a commit, and join them in a commit of its own."""

    async def branch(seed: int) -> dict[str, Any]:
        return small(seed)

    async def work() -> Sample:
        began = perf_counter()
        values = await asyncio.gather(*(branch(k) for k in range(n)))
        for first in range(0, n, BRANCHES_A_COMMIT):
            steps = range(first, min(first + BRANCHES_A_COMMIT, n))
            commit_together(db, [row(0, step, values[step]) for step in steps])
        db.execute(INSERT, row(0, n, values))
        return Sample(perf_counter() - began)

    with journal(folder) as db:
        return asyncio.run(work())


def large_values(folder: Path, n: int) -> Sample:
    """Write n large values, each to a file that is flushed and renamed, and a row that names it."""
    values = [large() for _ in range(n)]
    with journal(folder) as db:
        began = perf_counter()
        for k, value in enumerate(values):
            place = folder / f"value{k}"
            with place.with_suffix(".new").open("wb") as file:
                file.write(value.encode())
                file.flush()
                os.fsync(file.fileno())
            place.with_suffix(".new").rename(place)
            db.execute(INSERT, row(0, k, place.name))
        return Sample((perf_counter() - began) / n)


def started(folder: Path, n: int) -> Sample:
    """Start n Python processes, one after the other, each of which commits one row."""
    began = perf_counter()
    for k in range(n):
        run_python(HELLO, str(folder / f"raw{k}.db"))
    return Sample((perf_counter() - began) / n)


def flush_latencies(folder: Path, n: int) -> list[float]:
    """Append n blocks of 4 KiB to a file, flush each, and return how long each took, sorted."""
    flush = getattr(os, "fdatasync", os.fsync)
    block, taken = os.urandom(4096), []
    with (folder / "probe").open("wb", buffering=0) as file:
        for _ in range(n):
            began = perf_counter()
            file.write(block)
            flush(file.fileno())
            taken.append(perf_counter() - began)
    return sorted(taken)
