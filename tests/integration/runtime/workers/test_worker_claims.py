"""What a worker claims at a time, and what it remembers."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from everstep import Context, Durability, Flow, Host, Node, Status, node
from everstep.client.host import AsyncHost
from everstep.errors import LeaseConflict
from everstep.model.leases import Lease
from everstep.ports.store import RunRow
from everstep.runtime.workers.worker import REST
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


@pytest.mark.parametrize("url", ["memory:", "sqlite:///{}/runs.db"], ids=["memory", "sqlite"])
def test_a_worker_of_a_sync_host_drives_runs_of_sync_nodes_side_by_side(tmp_path: Path, url: str) -> None:
    meeting = threading.Barrier(4)

    @node(output="b")
    def meet(a: int) -> int:
        meeting.wait(20)
        return a

    flow = Flow("meet", [meet], durability="strong")
    with Host(url.format(tmp_path)) as host:
        for number in range(4):
            host.start(flow, {"a": number})
        assert host.work([flow], concurrency=4, until_idle=True).completed == 4


def test_a_sync_node_keeps_no_run_waiting_that_becomes_due_meanwhile(tmp_path: Path) -> None:
    has_ended = threading.Event()

    @node(output="b")
    def hold(a: int) -> int:
        if a == 0:
            with Host(url) as other:
                other.start(flow, {"a": 1})
            assert has_ended.wait(20)
        has_ended.set()
        return a

    flow, url = Flow("hold", [hold]), f"sqlite:///{tmp_path}/runs.db"
    with Host(url) as host:
        host.start(flow, {"a": 0})
        assert host.work([flow], concurrency=2, until_idle=True).completed == 2


def test_a_worker_that_drives_one_run_at_a_time_calls_its_nodes_where_it_is() -> None:
    called_on: list[threading.Thread] = []

    @node(output="b")
    def where(a: int) -> int:
        called_on.append(threading.current_thread())
        return a

    flow = Flow("where", [where])
    with Host("memory:") as host:
        host.start(flow, {"a": 0})
        host.work([flow], concurrency=1, until_idle=True)
        host.start(flow, {"a": 0})
        host.work([flow], concurrency=2, until_idle=True)
        host.run(flow, {"a": 0})
    here = threading.current_thread()
    assert [thread is here for thread in called_on] == [True, False, True]


def test_a_worker_begins_no_run_that_another_took_over_since_it_was_claimed(tmp_path: Path) -> None:
    clock, url = ManualClock(), f"sqlite:///{tmp_path}/runs.db"
    calls: Counter[tuple[str, str]] = Counter()
    is_inside, may_end = threading.Event(), threading.Event()
    others: list[threading.Thread] = []

    def take_over() -> None:
        with Host(url, clock=clock) as host:
            while True:
                clock.advance(10)
                try:
                    host.resume("r1", flow_of("second"))
                    return
                except LeaseConflict:  # the first host renewed its lease in time, as it may
                    continue

    def flow_of(who: str) -> Flow:
        @node(output="b", effects="effectful", idempotency_key="auto")
        async def charge(a: int, ctx: Context) -> int:
            calls[who, ctx.run_id] += 1
            if who == "second":
                is_inside.set()
                await asyncio.to_thread(may_end.wait, 20)
            elif ctx.run_id == "r0":  # it holds the loop past the lease of the other
                others.append(threading.Thread(target=take_over))
                others[0].start()
                assert is_inside.wait(120)
            return a

        return Flow("billing", [charge], durability=Durability("strong", lease_ttl=timedelta(seconds=5)))

    flow = flow_of("first")

    async def work() -> None:
        async with AsyncHost(url, clock=clock, owns_loop=True) as host:
            for number in range(2):
                await host.start(flow, {"a": number}, run_id=f"r{number}")
            worker = host.worker([flow])
            working = asyncio.ensure_future(worker.run())
            stats = worker.stats
            while stats.completed + stats.handed_back + stats.failed < 2:
                await asyncio.sleep(0.01)
            may_end.set()
            worker.stop()
            await working

    try:
        asyncio.run(work())
    finally:
        may_end.set()
        for other in others:
            other.join()
    assert calls == {("first", "r0"): 1, ("second", "r1"): 1}


def test_a_run_that_was_claimed_and_not_begun_is_handed_back_when_the_worker_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        async with AsyncHost(f"sqlite:///{tmp_path}/runs.db") as host:
            await host.start(MANY, {"a": 1}, run_id="r")
            store: Any = host.durability.checkpoint_store
            claim_due = store.claim_due

            async def and_cancel(**given: Any) -> Any:
                claimed = await claim_due(**given)
                working.cancel()
                return claimed

            monkeypatch.setattr(store, "claim_due", and_cancel)
            working = asyncio.ensure_future(host.worker([MANY]).run())
            await asyncio.gather(working, return_exceptions=True)
            assert not (await host.info("r")).is_driven

    asyncio.run(work())


def test_a_lease_that_was_claimed_for_a_short_time_is_renewed_within_it() -> None:
    clock, begun, may_end = ManualClock(), asyncio.Event(), asyncio.Event()
    brief = Flow("brief", [double], durability=Durability("strong", lease_ttl=timedelta(seconds=4)))

    @node(output="d")
    async def hold(a: int) -> int:
        begun.set()
        await may_end.wait()
        return a

    slow = Flow("slow", [hold], durability=Durability("strong", lease_ttl=timedelta(seconds=30)))

    async def work() -> None:
        async with AsyncHost("memory:", clock=clock) as host:
            await host.start(slow, {"a": 1}, run_id="r")
            store: Any = host.durability.checkpoint_store
            working = asyncio.ensure_future(host.work([brief, slow], until_idle=True))
            await begun.wait()
            lease = (await store.run("r")).lease
            assert lease.expires_at == clock.now() + timedelta(seconds=4)
            clock.advance(3)
            await host._runs.keeper.confirm(lease)
            assert (await store.run("r")).lease.expires_at == clock.now() + timedelta(seconds=30)
            may_end.set()
            await working

    asyncio.run(work())


def test_a_worker_does_not_end_while_runs_are_due_whose_group_was_full(tmp_path: Path) -> None:
    polite = Flow("polite", [double], max_per_group=1)
    with Host(f"sqlite:///{tmp_path}/runs.db") as host:
        for number in range(12):
            host.start(polite, {"a": number}, group=f"g{number % 3}")
        assert host.work([polite], until_idle=True).completed == 12


def test_a_worker_looks_again_if_a_run_ended_while_it_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    may_end = asyncio.Event()

    @node(output="b")
    async def hold(a: int) -> int:
        if a == 0:
            await may_end.wait()
        return a

    polite = Flow("polite", [hold], max_running=1)

    async def work() -> None:
        async with AsyncHost("memory:") as host:
            for number in range(2):
                await host.start(polite, {"a": number}, run_id=f"r{number}")
            store: Any = host.durability.checkpoint_store
            claim_due = store.claim_due

            async def while_one_ends(**given: Any) -> Any:
                claimed = await claim_due(**given)
                if not claimed and not may_end.is_set():
                    may_end.set()  # the flow was full, and is not any more when the claim returns
                    while (await host.info("r0")).status != "completed":
                        await asyncio.sleep(0)
                    await asyncio.sleep(0.01)
                return claimed

            monkeypatch.setattr(store, "claim_due", while_one_ends)
            assert (await host.work([polite], until_idle=True)).completed == 2

    asyncio.run(work())
