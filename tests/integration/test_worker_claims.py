"""What a worker claims at a time, and what it remembers."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from everstep import Flow, Host, Node, Status, node
from everstep.client.host import AsyncHost
from everstep.model.leases import Lease
from everstep.ports.store import RunRow
from everstep.runtime.worker import REST
from everstep.testing import ManualClock


@node(output="b")
async def double(a: int) -> int:
    return 2 * a


@node(output="c")
async def triple(a: int) -> int:
    return 3 * a


MANY, FEW = Flow("many", [double]), Flow("few", [triple])


def test_a_limit_of_one_flow_makes_no_claim_of_the_others_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    async def work() -> None:
        async with AsyncHost("memory:") as host:
            for number in range(40):
                await host.start(MANY, {"a": number})
                await host.start(FEW, {"a": number})
            store: Any = host.durability.checkpoint_store
            claim_due = store.claim_due

            async def counted(**given: Any) -> Any:
                claimed = await claim_due(**given)
                sizes.append(len(claimed))
                return claimed

            monkeypatch.setattr(store, "claim_due", counted)
            worker = host.worker([MANY, FEW], concurrency=20, per_flow={"few": 1})
            assert (await worker.run(until_idle=True)).completed == 80

    asyncio.run(work())
    assert max(sizes) >= 19


def test_neither_limits_nor_concurrency_are_exceeded_and_no_flow_starves() -> None:
    live: Counter[str] = Counter()
    most: Counter[str] = Counter()
    order: list[str] = []

    def slow(name: str) -> Flow:
        @node(output=f"by_{name}")
        async def hold(a: int) -> int:
            live.update([name, "all"])
            for key in (name, "all"):
                most[key] = max(most[key], live[key])
            await asyncio.sleep(0.002)
            live.subtract([name, "all"])
            order.append(name)
            return a

        return Flow(name, [hold])

    crowd, rare = slow("crowd"), slow("rare")

    async def work() -> None:
        async with AsyncHost("memory:") as host:
            for number in range(60):
                await host.start(crowd, {"a": number})
            for number in range(6):
                await host.start(rare, {"a": number})
            worker = host.worker([crowd, rare], concurrency=4, per_flow={"rare": 2})
            assert (await worker.run(until_idle=True)).completed == 66

    asyncio.run(work())
    assert most["all"] <= 4 and most["rare"] <= 2
    assert order.index("rare") < 30, "a crowd that was there first keeps the others waiting"


def test_a_worker_forgets_runs_that_it_could_not_drive(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()

    async def work() -> None:
        async with AsyncHost("memory:", clock=clock) as host:
            for number in range(5):
                await host.start(MANY, {"a": number}, run_id=f"r{number}")
            worker = host.worker([MANY])
            store: Any = host.durability.checkpoint_store

            async def refuse(row: RunRow, lease: Lease, flow: Flow) -> None:
                await store.release_lease(lease)
                raise RuntimeError("not here")

            with monkeypatch.context() as patched:
                patched.setattr(host._runs, "drive_claimed", refuse)
                await worker.run(until_idle=True)
            assert len(worker._unfit) == 5
            for number in range(5):
                await host.cancel(f"r{number}")
            clock.advance(2 * REST[1])
            await worker.run(until_idle=True)
            assert worker._unfit == {}

    asyncio.run(work())


@pytest.mark.parametrize("url", ["memory:", "sqlite:///{}/runs.db"], ids=["memory", "sqlite"])
def test_two_flows_that_are_built_alike_are_not_taken_for_one_another(tmp_path: Path, url: str) -> None:
    def returning(value: int) -> Node:
        @node(output="b")
        def give(a: int) -> int:
            return value

        return give

    one, two = Flow("one", [returning(1)]), Flow("two", [returning(2)])
    assert one.plan.hash == two.plan.hash
    with Host(url.format(tmp_path)) as host:
        host.start(one, {"a": 0}, run_id="1")
        host.start(two, {"a": 0}, run_id="2")
        assert host.work([two], until_idle=True).claimed == 1
        host.start(two, {"a": 0}, run_id="3")
        assert host.work([one, two], until_idle=True).completed == 2
        assert [host.state(run_id)["b"] for run_id in "123"] == [1, 2, 2]


def test_a_run_that_ended_in_the_moment_of_the_claim_is_not_driven_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[int] = []

    @node
    def fails(a: int) -> None:
        calls.append(a)
        raise ValueError("no")

    async def work() -> None:
        async with AsyncHost("memory:") as host:
            flow = Flow("fails", [fails])
            assert (await host.run(flow, {"a": 1}, run_id="A")).status is Status.FAILED
            store: Any = host.durability.checkpoint_store
            given = [None]

            async def raced(**_: Any) -> Any:
                if not given:
                    return []
                given.pop()
                lease = await store.lease("A", owner="worker", ttl=timedelta(seconds=30), process=None)
                return [(await store.run("A"), lease)]

            monkeypatch.setattr(store, "claim_due", raced)
            await host.worker([flow]).run(until_idle=True)
            row = await store.run("A")
            assert (row.status, row.lease) == (Status.FAILED, None)

    asyncio.run(work())
    assert calls == [1]
