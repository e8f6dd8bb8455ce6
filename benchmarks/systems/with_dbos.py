"""DBOS with its system database in SQLite or PostgreSQL: sync workflows, unless many are in flight."""

from __future__ import annotations

import argparse
import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, ClassVar

import sqlalchemy
from contract import (
    RUNS_OF_STEPS,
    Row,
    Timer,
    emit_resume,
    finish,
    force_sqlite,
    main,
    message,
    payload,
    small,
    tell,
    timed,
)
from dbos import DBOS

PATIENCE = 300.0


class Plan:
    """What the steps of this process do besides their work."""

    dies_in = 0
    resumed_at = 0.0
    told: ClassVar[Row] = {}
    reached = threading.Event()
    values: ClassVar[list[str]] = []


@DBOS.step()
def step(k: int) -> dict[str, Any]:
    if k == Plan.dies_in:
        os._exit(9)
    if Plan.resumed_at and not Plan.told:
        Plan.told.update(emit_resume(k, Plan.resumed_at))
        Plan.reached.set()
        time.sleep(PATIENCE)  # the process ends meanwhile
    return small(k)


@DBOS.step()
def append(k: int, messages: list[Any]) -> dict[str, Any]:
    return message(k)


@DBOS.step()
def large(k: int) -> str:
    return Plan.values[k]


@DBOS.step()
async def branch(k: int) -> dict[str, Any]:
    return small(k)


@DBOS.workflow()
def chain(n: int) -> None:
    for k in range(1, n + 1):
        step(k)


@DBOS.workflow()
def messages(n: int) -> int:
    kept: list[Any] = []
    for k in range(1, n + 1):
        kept.append(append(k, kept))
    return len(kept)


@DBOS.workflow()
def values(n: int) -> None:
    for k in range(n):
        large(k)


@DBOS.workflow()
async def fan(n: int) -> int:
    return len(await asyncio.gather(*(branch(k) for k in range(n))))


def launch(job: argparse.Namespace) -> None:
    if job.sync != "default":

        @sqlalchemy.event.listens_for(sqlalchemy.engine.Engine, "connect")
        def force(connection: Any, _: object) -> None:
            if isinstance(connection, sqlite3.Connection):
                force_sqlite(connection, job.sync)

    url = job.dsn if job.store == "postgres" else f"sqlite:///{job.dbfile}"
    DBOS(
        config={
            "name": "bench",
            "system_database_url": url,
            "log_level": "ERROR",
            "run_admin_server": False,
            "application_version": "1",
        }
    )
    DBOS.launch()


@contextmanager
def launched(job: argparse.Namespace) -> Iterator[None]:
    launch(job)
    try:
        yield
    finally:
        DBOS.destroy()


def once(job: argparse.Namespace, workflow: Any, steps: int) -> Row:
    with launched(job), Timer() as timer:
        workflow(job.n)
    return finish(timed(timer, steps), job, steps)


def w1(job: argparse.Namespace) -> Row:
    return once(job, chain, job.n)


def w2(job: argparse.Namespace) -> Row:
    return once(job, messages, job.n)


def w3(job: argparse.Namespace) -> Row:
    with launched(job), Timer() as timer:
        if job.conc == 1:
            for _ in range(job.n):
                chain(RUNS_OF_STEPS)
        else:
            with ThreadPoolExecutor(job.conc) as threads:
                list(threads.map(lambda _: chain(RUNS_OF_STEPS), range(job.n)))
    return finish(timed(timer, job.n), job, job.n * RUNS_OF_STEPS)


def w4c(job: argparse.Namespace) -> None:
    launch(job)
    Plan.dies_in = job.at + 1
    chain(job.at + 10)


def w4r(job: argparse.Namespace) -> None:
    Plan.resumed_at = job.t_ready
    launch(job)
    Plan.reached.wait(PATIENCE)
    tell("dbos", job, Plan.told)
    os._exit(0)  # its own end would wait for the workflow


def w5(job: argparse.Namespace) -> Row:
    async def work() -> Timer:
        with Timer() as timer:
            assert await fan(job.n) == job.n
        return timer

    with launched(job):
        timer = asyncio.run(work())
    return finish(timed(timer, job.n), job, job.n)


def w6(job: argparse.Namespace) -> Row:
    Plan.values = [payload(k) for k in range(1, job.n + 1)]
    return once(job, values, job.n)


def w7(job: argparse.Namespace) -> Row:
    job.n = 1
    return w1(job)


if __name__ == "__main__":
    main("dbos", {"w1": w1, "w2": w2, "w3": w3, "w4c": w4c, "w4r": w4r, "w5": w5, "w6": w6, "w7": w7})
