"""Runs and waits by the million for `benchmarks/sizes.py`; apart from it as tables are filled by SQL.

One run in eight waits for a worker of a flow that is not asked for; of the first tenth, the others wait for a
timer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from everstep.model.enums import Status
from everstep.model.waits import SettledBy, WaitStatus
from everstep.ports.store import RunFilter, WaitFilter
from everstep.registry import open_store
from everstep.runtime.system import SystemClock

HASH = "0" * 64
COUNTS = "counts, as /metrics asks"
BATCH = 20_000
"""How many runs are put into PostgreSQL at once."""
COLUMNS = "run_id, flow_id, flow_version, flow_hash, status, created_at, epoch"
RUN = """
'run-' || n,
CASE WHEN n % 40 = 7 THEN 'rare' WHEN n % 8 = 1 THEN 'other' ELSE 'flow' END, '1', '{hash}',
CASE WHEN n % 8 = 1 THEN 'running' WHEN n % 40 = 3 THEN 'failed' WHEN n <= {waits} THEN 'halted'
     ELSE 'completed' END, n, 0
"""
WAITS = """
wait_id, run_key, flow_id, path, visit, kind, opened_at, details, due_at, scheduler, notifies, generation,
single_use, status, wake_at
"""
WAIT = """
'wait-' || run_key, run_key, flow_id, 'ask', 1, 'timer', 1, {nothing}, {due}, '', {no}, 1, {yes}, 'open',
{due}
"""


def fill(url: str, first: int, last: int, waits: int) -> None:
    """Put runs into the tables, and an open wait into each that is halted."""
    run, due = RUN.format(hash=HASH, waits=waits), "4000000000000000 + run_key"
    new = f"WHERE run_key >= {first}"
    if url.startswith("sqlite"):
        import apsw

        wait = WAIT.format(nothing="x''", due=due, no=0, yes=1)
        numbers = f"WITH RECURSIVE s (n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM s WHERE n < {last})"
        with apsw.Connection(url.removeprefix("sqlite:///").partition("?")[0]) as file:
            file.execute(f"{numbers} INSERT INTO runs (run_key, {COLUMNS}) SELECT n, {run} FROM s")
            file.execute(f"INSERT INTO waits ({WAITS}) SELECT {wait} FROM runs {new} AND status = 'halted'")
            file.execute(
                "INSERT INTO checkpoints (position, checkpoint_id, keyframe, body) "
                f"SELECT (run_key << 32) + 1, 'c' || run_key, 1, x'00' FROM runs {new}"
            )
        return
    _fill_postgres(url, run, due, first, last)


def _fill_postgres(url: str, run: str, due: str, first: int, last: int) -> None:
    import psycopg

    from everstep.stores.postgres.address import read_address

    at = read_address(url)
    s, wait = at.schema, WAIT.format(nothing="''", due=due, no="false", yes="true")
    with psycopg.connect(at.url, autocommit=True) as db:
        # A trigger would keep the plan that suits a hundred runs, and read all of them for each new one.
        db.execute("SET enable_seqscan = off")
        for start in range(first, last + 1, BATCH):
            end = min(start + BATCH - 1, last)
            these = f"FROM {s}.runs WHERE run_key BETWEEN {start} AND {end}"
            for query in (
                f"INSERT INTO {s}.runs ({COLUMNS}) SELECT {run} FROM generate_series({start}, {end}) AS n",
                f"INSERT INTO {s}.waits ({WAITS}) SELECT {wait} {these} AND status = 'halted'",
                f"INSERT INTO {s}.checkpoints (run_key, sequence, checkpoint_id, keyframe, body) "
                f"SELECT run_key, 1, 'c' || run_key, true, '' {these}",
                f"VACUUM {s}.tallies",  # as the server does by itself while runs come one by one
            ):
                db.execute(query.encode())
        for table in ("runs", "waits", "checkpoints"):
            db.execute(f"VACUUM ANALYZE {s}.{table}".encode())


def asked(store: Any) -> dict[str, Callable[[], Awaitable[Any]]]:
    """Return what is measured."""

    def claim() -> Any:
        return store.claim_due(
            flows=[("flow", HASH)], new_owner=lambda: "me", ttl=timedelta(seconds=30), process=None, limit=32
        )

    settled = (n for n in range(5, 100) if n % 8 != 1 and n % 40 != 3)

    def settle() -> Any:
        return store.settle(f"wait-{next(settled)}", by=SettledBy.ANSWER, answer=b"")

    return {
        "newest 50": lambda: store.list(RunFilter(limit=50)),
        "50 of a status": lambda: store.list(RunFilter(limit=50, status=Status.FAILED)),
        "50 of a flow": lambda: store.list(RunFilter(limit=50, flow_id="rare")),
        "claim beside a backlog of other flows": claim,
        COUNTS: lambda: store.counts(),
        "50 open waits": lambda: store.waits(WaitFilter(status=WaitStatus.OPEN, limit=50)),
        "next due timer": lambda: store.next_due(),
        "settle a wait": settle,
    }


async def measure(url: str) -> dict[str, float]:
    """Return how long each takes in ms, the best of some times; in SQLite, of the processor."""
    store: Any = open_store(url, SystemClock()).store
    now = time.process_time if url.startswith("sqlite") else time.perf_counter
    found: dict[str, float] = {}
    for name, ask in asked(store).items():
        times = []
        for _ in range(21):
            began = now()
            await ask()
            times.append(now() - began)
        found[name] = min(times) * 1000
    await store.close()
    return found


async def make(url: str) -> None:
    await open_store(url, SystemClock()).store.close()


def among(url: str, runs: int) -> dict[str, float]:
    """Fill an empty store with so many runs, and measure what is asked of it."""
    asyncio.run(make(url))
    fill(url, 1, runs, max(runs // 10, 100))
    return asyncio.run(measure(url))


def drop(url: str) -> None:
    """Remove the schema that a URL names."""
    import psycopg

    from everstep.stores.postgres.address import read_address

    at = read_address(url)
    with psycopg.connect(at.url, autocommit=True) as db:
        db.execute(f"DROP SCHEMA IF EXISTS {at.schema} CASCADE".encode())
