"""How often workers and clean-up ask the server: once for what is claimed, written or removed together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from everstep import AsyncHost, Flow, Host, Retention, node
from tests.servers.proxy import proxy_before

RUNS = 32


@node(output="b")
async def step(a: int) -> int:
    return a + 1


FLOW = Flow("steps", [step], durability="strong")


@contextmanager
def counted(url: str) -> Iterator[tuple[str, Callable[[], int]]]:
    """Give a URL, and what tells how many scripts were called through it."""
    calls = 0

    def count(request: bytes) -> bool:
        nonlocal calls
        calls += request.count(b"EVALSHA")
        return False

    with proxy_before(url) as (proxy, through):
        proxy.cuts_request = count
        yield through, lambda: calls


async def admit(host: AsyncHost, runs: int) -> None:
    await asyncio.gather(*(host.start(FLOW, {"a": 1}) for _ in range(runs)))


def test_runs_are_admitted_without_being_read_back(redis_url: str) -> None:
    async def go(url: str, scripts: Callable[[], int]) -> int:
        async with AsyncHost(url) as host:
            await admit(host, 1)
            before = scripts()
            await admit(host, RUNS)
            return scripts() - before

    with counted(redis_url) as (url, scripts):
        assert asyncio.run(go(url, scripts)) < 4


def test_runs_that_are_claimed_together_are_read_and_ended_together(redis_url: str) -> None:
    async def work(url: str) -> int:
        async with AsyncHost(url) as host:
            await admit(host, RUNS)
            return (await host.work([FLOW], concurrency=RUNS, until_idle=True)).completed

    with counted(redis_url) as (url, scripts):
        assert asyncio.run(work(url)) == RUNS
        assert scripts() < RUNS


def test_clean_up_asks_once_for_many_runs(redis_url: str) -> None:
    with Host(redis_url) as host:
        for _ in range(2 * RUNS):
            host.run(FLOW, {"a": 1})
    with counted(redis_url) as (url, scripts), Host(url) as host:
        found = host.retention.gc(retention=Retention(completed_for="0s"))
        assert len(found.runs) == 2 * RUNS
        assert scripts() < RUNS
        assert host.fleet.counts().runs == {}
