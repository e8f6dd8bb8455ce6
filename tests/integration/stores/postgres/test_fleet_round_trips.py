"""How often workers and clean-up ask the server: once for what is claimed, written or removed together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from everstep import AsyncHost, Flow, Host, Retention, node
from tests.servers.proxy import proxy_before

SYNC = b"S\x00\x00\x00\x04"
"""What a client sends last before it waits for the server."""
RUNS = 32


@node(output="b")
async def step(a: int) -> int:
    return a + 1


FLOW = Flow("steps", [step], durability="strong")


@contextmanager
def counted(url: str) -> Iterator[tuple[str, list[bytes]]]:
    """Give a URL, and what was sent to it, request by request, each with its statement."""
    trips: list[bytes] = []

    def count(request: bytes) -> bool:
        trips.extend([request] * request.count(SYNC))
        return False

    with proxy_before(f"{url}&prepare=off") as (proxy, through):
        proxy.cuts_request = count
        yield through, trips


async def admit(host: AsyncHost, runs: int) -> None:
    await asyncio.gather(*(host.start(FLOW, {"a": 1}) for _ in range(runs)))


def test_runs_that_are_claimed_together_are_read_and_ended_together(postgres_url: str) -> None:
    async def work(url: str, runs: int) -> int:
        async with AsyncHost(url) as host:
            await admit(host, runs)
            return (await host.work([FLOW], concurrency=RUNS, until_idle=True)).completed

    with counted(postgres_url) as (url, trips):
        assert asyncio.run(work(url, RUNS)) == RUNS
    tails, due = (sum(name in trip for trip in trips) for name in (b"AS asked (run_id)", b".due_6("))
    assert 1 <= tails <= due, trips  # one for what a claim found, however many runs that were
    assert due < RUNS / 2


def test_clean_up_asks_once_for_many_runs(postgres_url: str) -> None:
    with Host(postgres_url) as host:
        for _ in range(2 * RUNS):
            host.run(FLOW, {"a": 1})
    with counted(postgres_url) as (url, trips), Host(url) as host:
        found = host.retention.gc(retention=Retention(completed_for="0s"))
        assert len(found.runs) == 2 * RUNS
        assert len(trips) < RUNS
        assert host.fleet.counts().runs == {}


def test_runs_that_are_removed_side_by_side_are_told_of_in_order(postgres_url: str) -> None:
    with Host(postgres_url) as host:
        names = [host.run(FLOW, {"a": 1}).run_id for _ in range(5)]
        found = host.retention.gc(retention=Retention(completed_for="0s"), dry_run=True)
        assert [one.run_id for one in found.runs] == names[::-1]
