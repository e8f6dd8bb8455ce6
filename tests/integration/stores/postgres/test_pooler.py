"""Everything works behind a pooler in transaction mode, where no session stays with a client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import psycopg
import pytest

from everstep import AsyncHost, Flow, Host, Status, node, wait
from everstep.ports.store import Capabilities
from everstep.registry import open_store
from everstep.testing import ManualClock, StoreConformance, StoreKit
from everstep.testing.conformance.due import Changes
from everstep.testing.conformance.leases import Fencing, Leases
from everstep.testing.conformance.records import Atomicity, LostReplies, Records
from tests.servers.pooler import Pooler, pooler_before


@pytest.fixture
def pooler(postgres_url: str) -> Iterator[Pooler]:
    with pooler_before(postgres_url) as between:
        yield between


def test_a_statement_that_one_session_knows_is_unknown_to_the_next(pooler: Pooler) -> None:
    """The pooler of these tests does to a careless client what a real one does."""
    url = pooler.url.partition("?")[0]
    with (
        psycopg.connect(url, autocommit=True) as connection,
        pytest.raises(psycopg.errors.InvalidSqlStatementName),
    ):
        for _ in range(4):
            connection.execute("select 1", prepare=True)


class TestPooled(Records, Atomicity, LostReplies, Leases, Fencing, Changes):
    @pytest.fixture
    def store_kit(self, pooler: Pooler) -> StoreKit:
        clock = ManualClock()
        return StoreKit(
            lambda: open_store(pooler.url, clock),
            clock,
            Capabilities(
                durable=True,
                single_writer=True,
                remote=True,
                recodes=True,
                compares=True,
                takes_head=True,
                retains=True,
                restores=True,
                fences=True,
                has_inbox=True,
                has_labels=True,
                has_notices=True,
                pauses=True,
                has_children=True,
                limits=True,
                undoes=True,
                searches=True,
                has_events=True,
                audits=True,
                live=True,
            ),
        )


def test_the_suite_behind_the_pooler_is_part_of_the_whole() -> None:
    assert all(issubclass(StoreConformance, part) for part in TestPooled.__bases__)


def test_a_worker_hears_of_work_though_it_cannot_listen(
    pooler: Pooler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everstep.runtime.workers.worker.POLL", 3600.0)  # it does not look by itself

    @node(output="b")
    def add(a: int) -> int:
        return a + 1

    flow = Flow("f", [add, wait.approval("sure")], durability="strong")

    async def work() -> None:
        async with AsyncHost(pooler.url) as host:
            working = asyncio.ensure_future(host.work([flow]))
            await asyncio.sleep(0.5)  # it rests
            await host.start(flow, {"a": 1}, run_id="r")
            async with asyncio.timeout(60):
                while (await host.info("r")).status is not Status.HALTED:
                    await asyncio.sleep(0.02)
            [asked] = await host.waits("r")
            await host.answer(asked.id, {"approved": True})
            async with asyncio.timeout(60):
                while (await host.info("r")).status is not Status.COMPLETED:
                    await asyncio.sleep(0.02)
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    asyncio.run(work())


def test_many_runs_at_once_share_a_few_sessions(pooler: Pooler) -> None:
    @node(output="b")
    async def add(a: int) -> int:
        return a + 1

    flow = Flow("f", [add], durability="strong")

    async def drive() -> list[int]:
        async with AsyncHost(pooler.url) as host:
            results = await asyncio.gather(*(host.run(flow, {"a": k}) for k in range(50)))
            return [result["b"] for result in results]

    assert asyncio.run(drive()) == list(range(1, 51))
    assert pooler.handed_out < 20, "runs share their commits"
    with Host(pooler.url) as host:
        assert len(host.runs()) == 50
