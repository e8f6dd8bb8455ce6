"""Burr with its SQLite persister, which inserts the whole state after each action."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any, ClassVar

from burr.core import ApplicationBuilder, action, default, expr
from burr.core.action import create_action
from burr.core.parallelism import MapStates
from burr.core.persistence import SQLitePersister
from burr.integrations.persisters.b_aiosqlite import AsyncSQLitePersister
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
    timed,
)


class Plan:
    """What the actions of this process do besides their work."""

    dies_in = 0
    resumed_at = 0.0
    told: ClassVar[Row] = {}
    values: ClassVar[list[str]] = []


class Reached(Exception):
    """The resumed run has come to its first action."""


@action(reads=["i"], writes=["i", "out"])
def step(state: Any) -> Any:
    i = state["i"] + 1
    if i == Plan.dies_in:
        os._exit(9)
    if Plan.resumed_at:
        Plan.told.update(emit_resume(i, Plan.resumed_at))
        raise Reached
    return state.update(i=i, out=small(i))


@action(reads=["i"], writes=["i", "out"])
async def async_step(state: Any) -> Any:
    return state.update(i=state["i"] + 1, out=small(state["i"] + 1))


@action(reads=["i", "messages"], writes=["i", "messages"])
def append(state: Any) -> Any:
    i = state["i"] + 1
    return state.update(i=i).append(messages=message(i))


@action(reads=["i"], writes=["i", "value"])
def large(state: Any) -> Any:
    return state.update(i=state["i"] + 1, value=Plan.values[state["i"]])


@action(reads=["i"], writes=["done"])
def end(state: Any) -> Any:
    return state.update(done=True)


@action(reads=["i"], writes=["done"])
async def async_end(state: Any) -> Any:
    return state.update(done=True)


@action(reads=["k"], writes=["out"])
def branch(state: Any) -> Any:
    return state.update(out=small(state["k"]))


class Fan(MapStates):
    """As many branches as `n` says."""

    reads, writes = ["n"], ["outs"]

    def action(self, state: Any, inputs: Any) -> Any:
        return create_action(branch, "branch")

    def states(self, state: Any, context: Any, inputs: Any) -> Iterator[Any]:
        for k in range(state["n"]):
            yield state.update(k=k)

    def reduce(self, state: Any, states: Any) -> Any:
        return state.update(outs=[each["out"] for each in states])


def persister(job: argparse.Namespace) -> Any:
    made = SQLitePersister(job.dbfile, connect_kwargs={"check_same_thread": False})
    force_sqlite(made.connection, job.sync)
    made.initialize()
    return made


def application(n: int, run: int, each: Any = step, last: Any = end) -> Any:
    """Return a builder of n actions, of which the last is the end."""
    return (
        ApplicationBuilder()
        .with_actions(step=each, end=last)
        .with_transitions(("step", "step", expr(f"i < {n - 1}")), ("step", "end", default))
        .with_identifiers(app_id=str(run), partition_key="bench")
    )


def begun(builder: Any, kept: Any, **state: Any) -> Any:
    return builder.with_state(i=0, **state).with_entrypoint("step").with_state_persister(kept)


def once(job: argparse.Namespace, each: Any, **state: Any) -> Row:
    kept = persister(job)
    with closing(kept.connection), Timer() as timer:
        begun(application(job.n, 1, each), kept, **state).build().run(halt_after=["end"])
    return finish(timed(timer, job.n), job, job.n)


def w1(job: argparse.Namespace) -> Row:
    return once(job, step)


def w2(job: argparse.Namespace) -> Row:
    return once(job, append, messages=[])


def w3(job: argparse.Namespace) -> Row:
    if job.conc == 1:
        kept = persister(job)
        with closing(kept.connection), Timer() as timer:
            for run in range(job.n):
                begun(application(RUNS_OF_STEPS, run), kept).build().run(halt_after=["end"])
    else:
        timer = asyncio.run(_at_once(job))
    return finish(timed(timer, job.n), job, job.n * RUNS_OF_STEPS)


async def _at_once(job: argparse.Namespace) -> Timer:
    kept = await AsyncSQLitePersister.from_values(job.dbfile)
    if job.sync != "default":
        await kept.connection.execute("PRAGMA journal_mode = WAL")
        await kept.connection.execute(f"PRAGMA synchronous = {job.sync.upper()}")
    await kept.initialize()
    room = asyncio.Semaphore(job.conc)

    async def one(run: int) -> None:
        async with room:
            builder = application(RUNS_OF_STEPS, run, async_step, async_end)
            app = await begun(builder, kept).abuild()
            await app.arun(halt_after=["end"])

    with Timer() as timer:
        await asyncio.gather(*(one(run) for run in range(job.n)))
    await kept.cleanup()
    return timer


def w4c(job: argparse.Namespace) -> None:
    Plan.dies_in = job.at + 1
    begun(application(job.at + 10, 1), persister(job)).build().run(halt_after=["end"])


def w4r(job: argparse.Namespace) -> Row:
    Plan.resumed_at = job.t_ready
    logging.disable(logging.CRITICAL)  # it tells of the exception that ends it here
    kept = persister(job)
    builder = application(job.at + 10, 1).initialize_from(
        kept, resume_at_next_action=True, default_state={"i": 0}, default_entrypoint="step"
    )
    with suppress(Reached):
        builder.with_state_persister(kept).build().run(halt_after=["end"])
    return Plan.told


def w5(job: argparse.Namespace) -> Row:
    kept = persister(job)
    builder = (
        ApplicationBuilder()
        .with_actions(fan=Fan(), end=end)
        .with_transitions(("fan", "end"))
        .with_state(n=job.n, i=0)
        .with_entrypoint("fan")
        .with_identifiers(app_id="1", partition_key="bench")
    )
    with closing(kept.connection), Timer() as timer:
        _, _, state = builder.with_state_persister(kept).build().run(halt_after=["end"])
    assert len(state["outs"]) == job.n
    return finish(timed(timer, job.n), job, job.n)


def w6(job: argparse.Namespace) -> Row:
    Plan.values = [payload(k) for k in range(1, job.n + 2)]
    return once(job, large)


def w7(job: argparse.Namespace) -> Row:
    job.n = 2  # a step and the end
    return w1(job)


if __name__ == "__main__":
    main("burr", {"w1": w1, "w2": w2, "w3": w3, "w4c": w4c, "w4r": w4r, "w5": w5, "w6": w6, "w7": w7})
