"""Drills of a store with very many runs: what a claim, the metrics and clean-up cost among them."""

from __future__ import annotations

import asyncio
import json
import resource
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import fleet_limit, many_runs
from benchmarks.drills.kit import Drill, Found, Place, ms, sql
from benchmarks.drills.upgrades import ORDERS
from everstep import AsyncHost, Host
from everstep.registry import open_store
from everstep.runtime.system import SystemClock

FEW, BATCH, CLAIMS = 4_000, 20_000, 21
DUE_PART, OLD_PART = 0.48, 0.55
"""Which part of many runs is due for other flows, and which ended long ago: 120,000 and 137,000."""
DRIVEN = 3_000
DUE = f"""
INSERT INTO {{schema}}.runs ({many_runs.COLUMNS})
SELECT 'due-' || n, 'other-' || mod(n, 7), '1', '{many_runs.HASH}', 'running', n, 0
FROM generate_series(%d, %d) AS n
"""
MINE = f"""
INSERT INTO {{schema}}.runs ({many_runs.COLUMNS})
SELECT 'mine-' || n, 'mine', '1', '{many_runs.HASH}', 'running', n, 0 FROM generate_series(1, %d) AS n
"""
CHECKPOINT = """
INSERT INTO {schema}.checkpoints (run_key, sequence, checkpoint_id, keyframe, body)
SELECT run_key, 1, 'c-' || run_id, true, '' FROM {schema}.runs WHERE run_id LIKE 'mine-%'
"""


def crowd(url: str, runs: int, due: int) -> None:
    """Fill a schema with runs, of which so many are due for flows that no worker has."""
    asyncio.run(many_runs.make(url))
    rest = max(runs - due, 100)
    many_runs.fill(url, 1, rest, rest // 10)
    for first in range(1, due + 1, BATCH):
        last = min(first + BATCH - 1, due)
        sql(url, DUE % (first, last), "VACUUM {schema}.tallies")
    sql(url, MINE % CLAIMS, CHECKPOINT, "VACUUM ANALYZE {schema}.runs", "VACUUM ANALYZE {schema}.tallies")


def large(here: Place) -> str:
    runs = here.servers.runs
    return here.servers.made("a crowd", lambda url: crowd(url, runs, int(runs * DUE_PART)))


async def timed(work: Callable[[Any], Awaitable[Any]], url: str) -> list[float]:
    store: Any = open_store(url, SystemClock()).store
    times = []
    for _ in range(CLAIMS):
        began = time.perf_counter()
        await work(store)
        times.append(time.perf_counter() - began)
    await store.close()
    return times


def claim(url: str, flow: str) -> float:
    """Return the best time of a claim of one run of a flow."""

    async def one(store: Any) -> None:
        await store.claim_due(
            flows=[(flow, many_runs.HASH)],
            new_owner=lambda: "me",
            ttl=timedelta(seconds=30),
            process=None,
            limit=1,
        )

    return min(asyncio.run(timed(one, url)))


def claim_beside_backlog(here: Place) -> Found:
    """A claim beside runs that are due for other flows: few of them, and very many."""
    few = here.postgres()
    crowd(few, 2 * FEW, FEW)
    many, due = large(here), int(here.servers.runs * DUE_PART)
    idle = claim(few, "flow"), claim(many, "flow")
    found = claim(few, "mine"), claim(many, "mine")
    now = (
        f"nothing to claim: {ms(idle[0])} beside {FEW:,} of others, {ms(idle[1])} beside {due:,}; "
        f"one run: {ms(found[0])} and {ms(found[1])}"
    )
    return Found(now, idle[1] < 0.01 and idle[1] < 3 * idle[0] and found[1] < 3 * found[0])


def metrics_of_many_runs(here: Place) -> Found:
    """`GET /metrics` of a service over that many runs."""
    service = here.serve(large(here), "--no-work", "--quiet")
    times = []
    for _ in range(CLAIMS):
        began = time.perf_counter()
        assert service.ask("GET", "/metrics")[0] == 200
        times.append(time.perf_counter() - began)
    counts = median(asyncio.run(timed(lambda store: store.counts(), large(here))))
    runs = here.servers.runs
    return Found(
        f"{ms(median(times))} over {runs:,} runs; what the store counts for it {ms(counts)}",
        median(times) < 0.05 and counts < 0.05,
    )


def gc_beside_driving(here: Place) -> Found:
    """What it takes of the processor, ours and the server's, to drive a run of no steps and to remove it."""
    url = here.postgres()
    watched = fleet_limit.WatchedPostgres(here.servers.watched())
    flow = fleet_limit.flow_of(0)

    def spent(work: Callable[[], Awaitable[Any]]) -> float:
        before = time.process_time() + watched.processor()

        async def it() -> None:
            await work()

        asyncio.run(it())
        return (time.process_time() + watched.processor() - before) / DRIVEN * 1e6

    async def drive() -> None:
        async with AsyncHost(url) as host:
            done = await host.work([flow], until_idle=True)
            assert done.completed == DRIVEN

    Host(url).close()
    spent(lambda: fleet_limit.admit(url, DRIVEN, 0))
    driving = spent(drive)
    removing = spent(lambda: fleet_limit.collect(url))
    with Host(url) as host:
        left = len(host.runs(limit=1))
    return Found(
        f"{removing:.0f} µs of processor to remove a run, {driving:.0f} µs to drive one",
        removing < driving and not left,
    )


COPY = """
INSERT INTO {schema}.runs (run_id, flow_id, flow_version, flow_hash, status, created_at, ended_at, epoch)
SELECT 'old-' || n, flow_id, flow_version, flow_hash, status, created_at - %d, ended_at - %d, epoch
FROM {schema}.runs, generate_series(%d, %d) AS n WHERE run_id = 'first'
"""
COPIES = """
INSERT INTO {schema}.checkpoints (run_key, sequence, checkpoint_id, keyframe, body)
SELECT copies.run_key, one.sequence, one.checkpoint_id || copies.run_id, one.keyframe, one.body
FROM {schema}.runs AS copies, {schema}.checkpoints AS one
JOIN {schema}.runs AS first ON first.run_key = one.run_key AND first.run_id = 'first'
WHERE copies.run_id LIKE 'old-%'
ON CONFLICT DO NOTHING
"""
WEEK = 7 * 86_400_000_000


def grow(url: str, first: int, last: int) -> None:
    """Copy a run that has ended, as if it had a week ago."""
    for start in range(first, last + 1, BATCH):
        sql(url, COPY % (WEEK, WEEK, start, min(start + BATCH - 1, last)))
    sql(url, COPIES, "VACUUM ANALYZE {schema}.runs", "VACUUM ANALYZE {schema}.checkpoints")


def dry_run_of_gc(here: Place) -> Found:
    """`everstep gc --dry-run` over runs of a week ago: of a few by 0.1.0 and by this, then of many."""
    url, many, old = here.postgres(), int(here.servers.runs * OLD_PART), here.old_release()
    watched = fleet_limit.WatchedPostgres(here.servers.watched())
    (here.folder / "flows.py").write_text(ORDERS)
    begun = here.call("run", "flows.py", "-i", "number=1", "--run-id", "first", "--store", url, source=old)
    assert begun.returncode == 0, begun.stderr

    def spent(source: Path | None, runs: int) -> float:
        """Return the processor time for a run, ours and the server's, in ms."""
        before, server = resource.getrusage(resource.RUSAGE_CHILDREN), watched.processor()
        done = here.call("gc", "--dry-run", "--keep-for", "1d", "--json", "--store", url, source=source)
        assert done.returncode == 0, done.stderr
        assert len(json.loads(done.stdout)["runs"]) == runs, done.stdout[:300]
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        own = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return (own + watched.processor() - server) / runs * 1000

    grow(url, 1, FEW)
    theirs = spent(old, FEW)
    assert here.call("migrate-store", "--store", url).returncode == 0
    ours = spent(None, FEW)
    theirs = min(theirs, spent(old, FEW))
    grow(url, FEW + 1, max(many, FEW))
    began = time.monotonic()
    of_many = spent(None, max(many, FEW))
    took = time.monotonic() - began
    now = (
        f"{took:.0f} s over {max(many, FEW):,} runs, {of_many:.2g} ms of processor a run "
        f"({ours:.2g} of {FEW:,}, where 0.1 beside it takes {theirs:.2g})"
    )
    return Found(now, ours < theirs / 2 and of_many < 1.5 * ours)


DRILLS = (
    Drill(
        "claim-beside-backlog",
        "2.2 ms beside 4,000 due runs of other flows, 44.9 ms beside 120,000",
        claim_beside_backlog,
    ),
    Drill(
        "metrics-of-many-runs", "94 ms a scrape over 260,000 runs, the table read whole", metrics_of_many_runs
    ),
    Drill("gc-beside-driving", "3 ms to remove a run, more than driving it took", gc_beside_driving),
    Drill("dry-run-of-gc", "56 s over 137,000 runs", dry_run_of_gc),
)
