"""LangGraph with its own savers, `durability="sync"`: a step is kept before the next begins.

Variant `delta` of w2 keeps the messages in its delta channel instead of a list with a reducer.
"""

from __future__ import annotations

import argparse
import asyncio
import operator
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Annotated, Any, TypedDict

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
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

CONNECTIONS = 20


class Counted(TypedDict, total=False):
    i: int
    n: int
    out: dict[str, Any]


class Valued(TypedDict, total=False):
    i: int
    n: int
    value: str


class Fanned(TypedDict, total=False):
    n: int
    outs: Annotated[list[Any], operator.add]
    total: int


class Reached(Exception):
    """The resumed run has come to its first step."""


@contextmanager
def saver(job: argparse.Namespace) -> Iterator[Any]:
    if job.store == "postgres":
        from langgraph.checkpoint.postgres import PostgresSaver

        with PostgresSaver.from_conn_string(job.dsn) as made:
            made.setup()
            yield made
    else:
        from langgraph.checkpoint.sqlite import SqliteSaver

        with SqliteSaver.from_conn_string(job.dbfile) as made:
            made.setup()
            force_sqlite(made.conn, job.sync)
            yield made


@asynccontextmanager
async def async_saver(job: argparse.Namespace) -> AsyncIterator[Any]:
    if job.store == "postgres":
        from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
        from psycopg.rows import dict_row
        from psycopg_pool import AsyncConnectionPool

        options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
        async with AsyncConnectionPool(
            job.dsn, min_size=CONNECTIONS, max_size=CONNECTIONS, kwargs=options
        ) as pool:
            made: Any = AsyncPostgresSaver(pool)
            await made.setup()
            yield made
    else:
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

        async with AsyncSqliteSaver.from_conn_string(job.dbfile) as made:
            await made.setup()
            if job.sync != "default":
                await made.conn.execute("PRAGMA journal_mode = WAL")
                await made.conn.execute(f"PRAGMA synchronous = {job.sync.upper()}")
            yield made


def looping(step: Callable[[Any], Any], state: Any = Counted) -> Any:
    """Return a graph that goes round until `i` is `n`."""
    graph = StateGraph(state)
    graph.add_node("step", step)
    graph.add_edge(START, "step")
    graph.add_conditional_edges("step", lambda s: "step" if s["i"] < s["n"] else END, ["step", END])
    return graph


def step(state: Any) -> dict[str, Any]:
    return {"i": state["i"] + 1, "out": small(state["i"] + 1)}


async def async_step(state: Any) -> dict[str, Any]:
    return step(state)


def thread(number: int, steps: int) -> dict[str, Any]:
    return {"configurable": {"thread_id": str(number)}, "recursion_limit": steps + 10}


def once(job: argparse.Namespace, graph: Any, given: dict[str, Any]) -> Row:
    """Run a graph of n steps once."""
    with saver(job) as kept:
        app = graph.compile(checkpointer=kept)
        with Timer() as timer:
            app.invoke(given, thread(1, job.n), durability="sync")
    return finish(timed(timer, job.n), job, job.n)


def w1(job: argparse.Namespace) -> Row:
    return once(job, looping(step), {"i": 0, "n": job.n})


def w2(job: argparse.Namespace) -> Row:
    if job.variant == "delta":
        from langgraph.channels.delta import DeltaChannel

        kept: Any = DeltaChannel(lambda old, new: [*old, *(each for part in new for each in part)])
    else:
        kept = operator.add
    fields = {"i": int, "n": int, "messages": Annotated[list, kept]}
    state = TypedDict("state", fields, total=False)  # type: ignore[operator]  # made at run time

    def append(state: Any) -> dict[str, Any]:
        return {"i": state["i"] + 1, "messages": [message(state["i"] + 1)]}

    return once(job, looping(append, state), {"i": 0, "n": job.n, "messages": []})


def w3(job: argparse.Namespace) -> Row:
    given = {"i": 0, "n": RUNS_OF_STEPS}
    if job.conc == 1:
        with saver(job) as kept:
            app = looping(step).compile(checkpointer=kept)
            with Timer() as timer:
                for run in range(job.n):
                    app.invoke(given, thread(run, RUNS_OF_STEPS), durability="sync")
    else:
        timer = asyncio.run(_at_once(job, given))
    return finish(timed(timer, job.n), job, job.n * RUNS_OF_STEPS)


async def _at_once(job: argparse.Namespace, given: dict[str, Any]) -> Timer:
    room = asyncio.Semaphore(job.conc)
    async with async_saver(job) as kept:
        app = looping(async_step).compile(checkpointer=kept)

        async def one(run: int) -> None:
            async with room:
                await app.ainvoke(given, thread(run, RUNS_OF_STEPS), durability="sync")

        with Timer() as timer:
            await asyncio.gather(*(one(run) for run in range(job.n)))
        return timer


def w4c(job: argparse.Namespace) -> None:
    def dying(state: Any) -> dict[str, Any]:
        if state["i"] == job.at:
            os._exit(9)
        return step(state)

    with saver(job) as kept:
        app = looping(dying).compile(checkpointer=kept)
        app.invoke({"i": 0, "n": job.at + 10}, thread(1, job.at + 10), durability="sync")


def w4r(job: argparse.Namespace) -> Row:
    told: Row = {}

    def telling(state: Any) -> dict[str, Any]:
        told.update(emit_resume(state["i"] + 1, job.t_ready))
        raise Reached

    with saver(job) as kept, suppress(Reached):
        app = looping(telling).compile(checkpointer=kept)
        app.invoke(None, thread(1, job.at + 10), durability="sync")
    return told


def w5(job: argparse.Namespace) -> Row:
    graph = StateGraph(Fanned)
    graph.add_node("branch", lambda state: {"outs": [small(state["i"])]})
    graph.add_node("join", lambda state: {"total": len(state["outs"])})
    graph.add_conditional_edges(
        START, lambda state: [Send("branch", {"i": k}) for k in range(state["n"])], ["branch"]
    )
    graph.add_edge("branch", "join")
    graph.add_edge("join", END)
    return once(job, graph, {"n": job.n})


def w6(job: argparse.Namespace) -> Row:
    values = [payload(k) for k in range(1, job.n + 1)]

    def large(state: Any) -> dict[str, Any]:
        return {"i": state["i"] + 1, "value": values[state["i"]]}

    return once(job, looping(large, Valued), {"i": 0, "n": job.n})


def w7(job: argparse.Namespace) -> Row:
    job.n = 1
    return w1(job)


if __name__ == "__main__":
    main("langgraph", {"w1": w1, "w2": w2, "w3": w3, "w4c": w4c, "w4r": w4r, "w5": w5, "w6": w6, "w7": w7})
