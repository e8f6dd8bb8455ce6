"""How often workers and clean-up ask the server: once for what is claimed, written or removed together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import psycopg
import pytest

from everstep import AsyncHost, Flow, Host, Retention, node
from everstep.model.leases import Quota
from everstep.ports.store import BlockingStore, RunFilter
from everstep.registry import open_store
from everstep.runtime.system import RealSystem, SystemClock
from everstep.runtime.workers.lease_renewal import LeaseKeeper
from everstep.stores.postgres.address import read_address
from everstep.testing import ManualClock
from everstep.testing.conformance.kit import TTL, Client, StoreKit
from tests.servers.proxy import proxy_before

SYNC = b"S\x00\x00\x00\x04"
"""What a client sends last before it waits for the server."""
RUNS = 32


@node(output="b")
async def step(a: int) -> int:
    return a + 1


FLOW = Flow("steps", [step], durability="strong")


@contextmanager
def counted(url: str, *, prepares: bool = False) -> Iterator[tuple[str, list[bytes]]]:
    """Give a URL, and what was sent to it, request by request, each with its statement."""
    trips: list[bytes] = []

    def count(request: bytes) -> bool:
        trips.extend([request] * request.count(SYNC))
        return False

    with proxy_before(url if prepares else f"{url}&prepare=off") as (proxy, through):
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
    tails, due = (sum(name in trip for trip in trips) for name in (b"AS asked (run_id)", b".due_8("))
    assert 1 <= tails <= due, trips  # one for what a claim found, however many runs that were
    assert due < RUNS / 2


@pytest.mark.parametrize(("quotas", "most"), [({}, 2), ({"steps": Quota(running=100)}, 6)], ids=["", "quota"])
def test_a_claim_takes_two_round_trips_and_with_a_quota_a_few_more(
    postgres_url: str, quotas: dict[str, Quota], most: int
) -> None:
    async def work(url: str, trips: list[bytes]) -> tuple[int, int]:
        async with AsyncHost(url) as host:
            await admit(host, RUNS)
        store = open_store(url, SystemClock()).store
        flows = [("steps", run.flow_hash) for run in await store.list(RunFilter(limit=1))]
        trips.clear()
        owner, ttl = (lambda: "me"), timedelta(seconds=30)
        claimed = await store.claim_due(
            flows=flows, new_owner=owner, ttl=ttl, process=None, limit=RUNS, quotas=quotas
        )
        asked = len(trips)
        await store.close()
        return len(claimed), asked

    with counted(postgres_url, prepares=True) as (url, trips):
        assert asyncio.run(work(url, trips)) == (RUNS, most)


def test_a_row_that_was_altered_keeps_no_other_from_being_claimed(postgres_url: str) -> None:
    schema = read_address(postgres_url).quoted_schema
    with Host(postgres_url) as host:
        names = [host.start(FLOW, {"a": 1}).run_id for _ in range(4)]
        for name, altered in zip(
            names, ("created_at = 9e18", "owner = 'x', expires_at = 1, process = '{'"), strict=False
        ):
            with psycopg.connect(read_address(postgres_url).url, autocommit=True) as db:
                db.execute(f"update {schema}.runs set {altered} where run_id = %s".encode(), (name,))
        assert host.work([FLOW], until_idle=True).completed == 2
        found = {run.run_id for run in host.runs(status="completed")}
    assert found == set(names[2:])
    with psycopg.connect(read_address(postgres_url).url) as db:
        told = db.execute(
            f"select needs_repair from {schema}.runs where run_id = any (%s)".encode(), (names[:2],)
        )
        assert all("was altered" in reason for (reason,) in told.fetchall())


def test_clean_up_asks_once_for_many_runs(postgres_url: str) -> None:
    with Host(postgres_url) as host:
        for _ in range(2 * RUNS):
            host.run(FLOW, {"a": 1})
    with counted(postgres_url) as (url, trips), Host(url) as host:
        found = host.retention.gc(retention=Retention(completed_for="0s"))
        assert len(found.runs) == 2 * RUNS
        assert len(trips) < RUNS
        assert host.fleet.counts().runs == {}


def test_forks_and_what_they_were_forked_from_go_in_one_pass(postgres_url: str) -> None:
    with Host(postgres_url) as host:
        oldest = host.run(FLOW, {"a": 1}).run_id
        first = host.fork(oldest, at=1).run_id
        for fork in (first, host.fork(first, at=1).run_id, host.fork(oldest, at=1).run_id):
            host.resume(fork, FLOW)
        found = host.retention.gc(retention=Retention(completed_for="0s"))
        assert (len(found.runs), found.spared) == (4, [])
        assert host.runs() == []


def test_the_leases_of_a_worker_are_renewed_together(postgres_url: str) -> None:
    clock = ManualClock()
    with counted(postgres_url) as (url, trips):
        opened = open_store(url, clock)
        client = Client(StoreKit(lambda: opened, clock, opened.store.capabilities))
        leases = [client.admit(f"run-{k}").lease() for k in range(5)]
        assert isinstance(opened.store, BlockingStore)
        keeper = LeaseKeeper(opened.store, opened.store, RealSystem(clock))

        async def keep() -> None:
            for lease in leases:
                keeper.keep(lease, TTL)
                clock.advance(TTL / 100)

        client.call(keep())
        trips.clear()
        clock.advance(TTL / 2)
        for lease in leases:
            while client.row(lease.run_id).lease == lease:
                clock.advance(0)
        assert sum(b"WITH mine AS" in trip for trip in trips) == 1
        for lease in leases:
            keeper.drop(lease)
        keeper.close()
        client.close()


def test_runs_that_are_removed_side_by_side_are_told_of_in_order(postgres_url: str) -> None:
    with Host(postgres_url) as host:
        names = [host.run(FLOW, {"a": 1}).run_id for _ in range(5)]
        found = host.retention.gc(retention=Retention(completed_for="0s"), dry_run=True)
        assert [one.run_id for one in found.runs] == names[::-1]
