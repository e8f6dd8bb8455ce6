"""The floor: the least code that keeps the same steps in the same store, without an engine around it.

One row of a journal for each step, and one commit. Variant `file` of w6 writes each value to a file of its
own, as a system that keeps large values apart would.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import queue
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
from contract import (
    RUNS_OF_STEPS,
    Row,
    Timer,
    emit_resume,
    finish,
    least_cpu,
    main,
    message,
    payload,
    small,
    timed,
)

TABLE = """CREATE TABLE IF NOT EXISTS steps(
    run TEXT, seq INTEGER, name TEXT, status TEXT, value {blob}, PRIMARY KEY(run, seq))"""
INSERT = "INSERT INTO steps VALUES(?, ?, ?, ?, ?)"
INSERT_PG = "INSERT INTO steps VALUES(%s, %s, %s, %s, %s)"
SELECT = "SELECT seq, value FROM steps WHERE run = 'r' ORDER BY seq"
PAD = "p" * 200
"""Makes a row about 300 bytes, as one of an engine is."""
BRANCHES_A_COMMIT = 50
CONNECTIONS = 20


def row(run: object, seq: int, value: Any) -> tuple[str, int, str, str, bytes]:
    return str(run), seq, "step", PAD, orjson.dumps(value)


def journal(job: argparse.Namespace) -> sqlite3.Connection:
    connection = sqlite3.connect(job.dbfile, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {'FULL' if job.sync == 'default' else job.sync.upper()}")
    connection.execute(TABLE.format(blob="BLOB") + " WITHOUT ROWID")
    return connection


def server(job: argparse.Namespace) -> Any:
    import psycopg

    connection = psycopg.connect(job.dsn, autocommit=True)
    connection.execute(TABLE.format(blob="BYTEA"))
    return connection


def opened(job: argparse.Namespace) -> tuple[Any, str]:
    """Return a connection and the statement that writes a row on it."""
    return (server(job), INSERT_PG) if job.store == "postgres" else (journal(job), INSERT)


def chain(job: argparse.Namespace, value: Callable[[int], Any]) -> Row:
    connection, insert = opened(job)
    with Timer() as timer:
        for k in range(1, job.n + 1):
            connection.execute(insert, row("r", k, value(k)))
    connection.close()
    return finish(timed(timer, job.n), job, job.n)


def w1(job: argparse.Namespace) -> Row:
    return chain(job, small)


def w2(job: argparse.Namespace) -> Row:
    return chain(job, message)


def w6(job: argparse.Namespace) -> Row:
    values = [payload(k) for k in range(1, job.n + 1)]
    if job.variant != "file":
        return chain(job, lambda k: values[k - 1])
    connection = journal(job)
    with Timer() as timer:
        for k, value in enumerate(values):
            place = Path(job.dir) / f"value-{k}"
            with place.with_suffix(".new").open("wb") as file:
                file.write(value.encode())
                file.flush()
                os.fdatasync(file.fileno())
            place.with_suffix(".new").rename(place)
            connection.execute(INSERT, row("r", k, str(place)))
    connection.close()
    return finish(timed(timer, job.n), job, job.n)


def w3(job: argparse.Namespace) -> Row:
    if job.conc == 1:
        connection, insert = opened(job)
        with Timer() as timer:
            for run in range(job.n):
                for k in range(RUNS_OF_STEPS):
                    connection.execute(insert, row(run, k, small(k)))
        connection.close()
    else:
        at_once = at_once_on_a_server if job.store == "postgres" else at_once_in_a_file
        timer = asyncio.run(at_once(job))
    return finish(timed(timer, job.n), job, job.n * RUNS_OF_STEPS)


async def at_once_on_a_server(job: argparse.Namespace) -> Timer:
    """Write each step on any of a few connections."""
    import asyncpg

    server(job).close()

    async def as_it_is(_: object) -> None:
        """Spare the pool the round trip with which it resets a connection."""

    insert = "INSERT INTO steps VALUES($1, $2, $3, $4, $5)"
    pool = await asyncpg.create_pool(job.dsn, min_size=CONNECTIONS, max_size=CONNECTIONS, reset=as_it_is)
    room = asyncio.Semaphore(job.conc)

    async def one(run: int) -> None:
        async with room:
            for k in range(RUNS_OF_STEPS):
                await pool.execute(insert, *row(run, k, small(k)))

    with Timer() as timer:
        await asyncio.gather(*(one(run) for run in range(job.n)))
    await pool.close()
    return timer


async def at_once_in_a_file(job: argparse.Namespace) -> Timer:
    """Let one thread commit whatever is waiting; a step goes on once its commit is made."""
    connection, loop = journal(job), asyncio.get_running_loop()
    waiting: queue.SimpleQueue[tuple[tuple[Any, ...], asyncio.Future[None]] | None] = queue.SimpleQueue()

    def acknowledge(futures: list[asyncio.Future[None]]) -> None:
        for future in futures:
            future.set_result(None)

    def write() -> None:
        while (first := waiting.get()) is not None:
            batch = [first]
            while not waiting.empty() and (item := waiting.get()) is not None:
                batch.append(item)
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(INSERT, [each for each, _ in batch])
            connection.execute("COMMIT")
            loop.call_soon_threadsafe(acknowledge, [future for _, future in batch])

    async def one(run: int) -> None:
        async with room:
            for k in range(RUNS_OF_STEPS):
                future = loop.create_future()
                waiting.put((row(run, k, small(k)), future))
                await future

    room, writer = asyncio.Semaphore(job.conc), threading.Thread(target=write)
    writer.start()
    with Timer() as timer:
        await asyncio.gather(*(one(run) for run in range(job.n)))
    waiting.put(None)
    writer.join()
    connection.close()
    return timer


def w4c(job: argparse.Namespace) -> None:
    connection, insert = opened(job)
    for k in range(1, job.at + 1):
        connection.execute(insert, row("r", k, small(k)))
    os._exit(9)


def w4r(job: argparse.Namespace) -> Row:
    connection, _ = opened(job)
    values = {seq: orjson.loads(value) for seq, value in connection.execute(SELECT).fetchall()}
    return emit_resume(max(values) + 1, job.t_ready)


def w5(job: argparse.Namespace) -> Row:
    connection = journal(job)

    async def branch(k: int) -> dict[str, Any]:
        return small(k)

    async def work() -> Timer:
        with Timer() as timer:
            values = await asyncio.gather(*(branch(k) for k in range(job.n)))
            for first in range(0, job.n, BRANCHES_A_COMMIT):
                batch = range(first, min(first + BRANCHES_A_COMMIT, job.n))
                connection.execute("BEGIN IMMEDIATE")
                connection.executemany(INSERT, [row("r", k, values[k]) for k in batch])
                connection.execute("COMMIT")
            connection.execute(INSERT, row("r", job.n, values))
        return timer

    timer = asyncio.run(work())
    connection.close()
    return finish(timed(timer, job.n), job, job.n)


def w7(job: argparse.Namespace) -> Row:
    job.n = 1
    return w1(job)


def cpu(job: argparse.Namespace) -> Row:
    connection = journal(job)
    runs = iter(range(1000))

    def work() -> None:
        run = next(runs)
        for k in range(job.n):
            connection.execute(INSERT, row(run, k, small(k)))

    return least_cpu(work, job.n)


if __name__ == "__main__":
    main(
        "raw",
        {"w1": w1, "w2": w2, "w3": w3, "w4c": w4c, "w4r": w4r, "w5": w5, "w6": w6, "w7": w7, "cpu": cpu},
    )
