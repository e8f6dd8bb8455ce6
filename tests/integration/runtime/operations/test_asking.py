"""Questions that take the code of a flow: who answers, how soon, and that nothing of them is left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from everstep import AsyncHost, Flow, Host, chain, node, wait
from everstep.errors import BadRequest, FlowNotLoaded, NoAnswer, RunHalted, RunNotFound, StateCorrupted
from everstep.model.commits import asking_about
from everstep.model.leases import Taken, WorkerRow
from everstep.ports.retention import TombstoneFilter
from everstep.ports.store import RunFilter
from everstep.registry import Opened
from everstep.results import Diagnostic
from everstep.runtime.inputs import Given
from everstep.runtime.metrics.families import text_of
from everstep.runtime.operations.asking.flow import ask_flow
from everstep.runtime.operations.asking.question import About, Question, check_refusal, refusal
from everstep.runtime.workers.built_in import asking
from everstep.runtime.workers.worker import Worker
from everstep.stores.memory import MemoryData, MemoryStore
from everstep.testing.clock import ManualClock
from everstep.testing.killing import Crashed, Killer, crash, killing

pytestmark = pytest.mark.servers


@node(output="total")
def add(x: int) -> int:
    return x + 1


@node(output="sent")
def send(total: int) -> int:
    return total


ORDERS = Flow("orders", chain(add, wait.approval("sign"), send))
NAME = asking_about("orders")
Test = Callable[[AsyncHost], Coroutine[Any, Any, None]]


def with_host(test: Test) -> Callable[[str], None]:
    """Turn a test that awaits into one that pytest calls with each store."""

    def run(url: str) -> None:
        async def main() -> None:
            async with AsyncHost(url) as host:
                await host.run(ORDERS, {"x": 1}, run_id="A17")
                await test(host)
                assert await left(host) == []

        asyncio.run(main())

    run.__name__ = run.__qualname__ = test.__name__
    return run


@asynccontextmanager
async def worked(host: AsyncHost, flows: Iterable[Flow] = (ORDERS,), **options: Any) -> AsyncIterator[Worker]:
    """Keep a worker alive, with a host of its own where another can see the store."""
    if host.url == "memory:":
        async with working(host, flows, **options) as worker:
            yield worker
        return
    async with AsyncHost(host.url, metrics=True) as other, working(other, flows, **options) as worker:
        yield worker


@asynccontextmanager
async def working(host: AsyncHost, flows: Iterable[Flow], **options: Any) -> AsyncIterator[Worker]:
    worker = host.worker(flows, **options)
    task = asyncio.create_task(worker.run())
    name = worker.describe().worker_id
    while not any(one.id == name for one in await host.fleet.workers()):
        await asyncio.sleep(0.01)
    try:
        yield worker
    finally:
        worker.stop()
        await task


async def left(host: AsyncHost) -> list[str]:
    """Return what is left of questions: runs, and ids that are taken."""
    store: Any = host._services.store
    runs = [row.run_id for row in await store.list(RunFilter(flow_id=NAME, limit=100))]
    return runs + [one.run_id for one in await store.tombstones(TombstoneFilter())]


async def report_worker(host: AsyncHost, *, concurrency: int = 1, driving: int = 0, **about: Any) -> None:
    """Let a worker be alive that does nothing."""
    row = WorkerRow(
        worker_id="w",
        host="elsewhere",
        pid=1,
        flows=("orders",),
        concurrency=concurrency,
        started_at=host.clock.now(),
        driving=driving,
        takes=tuple(Taken(flow_id=name, flow_hash=flow_hash) for name, flow_hash in (asking("orders").key,)),
        release="9.9",
    )
    await host._services.store.report(msgspec.structs.replace(row, **about), timedelta(minutes=1))


# -- answers -------------------------------------------------------------------------------------------


@with_host
async def test_a_worker_answers_what_the_flow_itself_would_and_nothing_is_left(host: AsyncHost) -> None:
    async with worked(host) as worker:
        fleet = host.fleet
        assert await fleet.explain("A17") == await host.explain("A17", ORDERS)
        assert [step.path for step in (await fleet.explain("A17/add")).recorded] == ["add"]
        assert await fleet.report("orders") == await fleet.report(ORDERS)
        assert await fleet.findings("orders") == await fleet.findings(ORDERS)
        judged = await fleet.compat("orders")
        assert judged == await fleet.compat(ORDERS)
        assert (judged.is_whole, judged.runs["continues"], judged.groups[0].runs) == (True, 1, ["A17"])
        assert worker.stats.claimed == worker.stats.completed == 0
        assert "everstep.ask" not in await asyncio.to_thread(text_of, worker._services)
    assert [one.run_id for one in await host.runs()] == ["A17"]


@with_host
async def test_who_looks_on_is_told_of_no_question(host: AsyncHost) -> None:
    seen: list[str] = []

    async def look() -> None:
        async for message in host.changes():
            seen.extend(run.flow for run in message.runs)

    looking = asyncio.create_task(look())
    async with worked(host):
        for _ in range(10):
            await host.fleet.report("orders", within=20)
            assert [flow.flow for flow in await host.fleet.flows()] == ["orders"]
        await host.run(ORDERS, {"x": 2}, run_id="A18")
        while "orders" not in seen:
            await asyncio.sleep(0.01)
    looking.cancel()
    assert {*seen} == {"orders"}


@with_host
async def test_ten_ask_at_once_and_each_has_its_answer(host: AsyncHost) -> None:
    async with worked(host, concurrency=4):
        explain = (host.fleet.explain("A17", within=20) for _ in range(5))
        found = await asyncio.gather(*explain, *(host.fleet.report("orders", within=20) for _ in range(5)))
        told = await host.explain("A17", ORDERS)
        assert found == [told] * 5 + [await host.fleet.report(ORDERS)] * 5


@with_host
async def test_no_question_is_asked_of_a_fleet_without_the_flow(host: AsyncHost) -> None:
    with pytest.raises(FlowNotLoaded, match="no worker is alive") as none:
        await host.fleet.explain("A17")
    assert none.value.fix.startswith("Start one: everstep worker FILE.py")
    async with worked(host, [Flow("refunds", [add])]):
        with pytest.raises(FlowNotLoaded, match="no live worker has flow 'orders'"):
            await host.fleet.report("orders")
    await report_worker(host, takes=(), release="0.2.0")
    with pytest.raises(FlowNotLoaded, match=r"of everstep 0.2.0, which takes no questions"):
        await host.fleet.findings("orders")
    await report_worker(host, is_stopping=True)
    with pytest.raises(FlowNotLoaded, match="no worker is alive"):
        await host.fleet.compat("orders")


@with_host
async def test_a_question_that_none_answers_is_withdrawn_and_its_reason_told(host: AsyncHost) -> None:
    await report_worker(host, concurrency=3, driving=3)
    with pytest.raises(NoAnswer, match=r"busy, in all 3 slots; none answered within 0.3 s"):
        await host.fleet.explain("A17", within=0.3)
    await report_worker(host, concurrency=3, driving=1)
    with pytest.raises(NoAnswer, match=r"no worker with flow 'orders' answered within 0.1 s"):
        await host.fleet.explain("A17", within=0.1)
    assert await left(host) == []
    async with worked(host) as worker:
        await asyncio.sleep(0.2)
        assert not worker._driving


@with_host
async def test_what_a_worker_cannot_answer_is_the_error_that_it_would_be_here(host: AsyncHost) -> None:
    async with worked(host):
        with pytest.raises(RunNotFound, match="no run 'gone'"):
            await host.fleet._asked("explain", "orders", 20, ["gone"])
    with pytest.raises(BadRequest, match="within is '1h'"):
        await host.fleet.explain("A17", within="1h")
    with pytest.raises(RunNotFound):
        await host.fleet.explain("A99")


# -- what goes wrong -----------------------------------------------------------------------------------


def test_a_worker_whose_flow_is_at_its_limit_answers_and_a_full_one_says_so(url: str) -> None:
    @node(output="done")
    async def hold(x: int) -> int:
        await asyncio.sleep(60)
        return x

    holding = Flow("holding", [hold])

    async def run() -> None:
        async with AsyncHost(url) as host:
            await host.start(holding, {"x": 1}, run_id="H1")
            async with worked(host, [holding], concurrency=2, per_flow={"holding": 1}, grace=0) as worker:
                while not worker._driving:
                    await asyncio.sleep(0.01)
                assert (await host.fleet.explain("H1", within=20)).is_driven
            async with worked(host, [holding], concurrency=1, grace=0) as worker:
                while not (worker._driving and (await host.fleet.workers())[0].driving):
                    await asyncio.sleep(0.01)
                with pytest.raises(NoAnswer, match="busy, in all 1 slots"):
                    await host.fleet.report("holding", within=0.5)

    asyncio.run(run())


def test_an_answer_comes_before_other_runs_that_wait(url: str) -> None:
    """With one slot, and runs that were there before, the question is taken next."""
    taken: list[int] = []

    @node(output="done")
    async def note(x: int) -> int:
        taken.append(x)
        await asyncio.sleep(0.05)
        return x

    noting = Flow("noting", [note])

    async def run() -> None:
        async with AsyncHost(url) as host:
            for x in range(40):
                await host.start(noting, {"x": x}, priority=5)
            async with worked(host, [noting], concurrency=1):
                await host.fleet.report("noting", within=20)
                assert len(taken) < 35

    asyncio.run(run())


def test_a_bug_in_code_of_the_flow_is_told_and_its_text_stays_in_the_log(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    odd: list[str] = []

    def rule(flow: Flow, *_: Any) -> list[Diagnostic]:
        if odd:
            raise TypeError(odd[0])
        return []

    checked = Flow("checked", [add], rules=[rule])

    async def run() -> None:
        async with AsyncHost(url) as host, worked(host, [checked]):
            odd.append("c4n4ry")
            with pytest.raises(NoAnswer, match="met TypeError while it answered") as error:
                await host.fleet.findings("checked", within=20)
            assert "c4n4ry" not in str(error.value)
            assert "c4n4ry" in caplog.text

    asyncio.run(run())


def test_what_killed_askers_left_is_removed_by_the_next_and_by_clean_up() -> None:
    clock = ManualClock(auto=True)

    async def run() -> None:
        async with AsyncHost("memory:", clock=clock) as host:
            services, runs = host._services, host._runs
            made = ask_flow(services, runs.reader, "orders", [ORDERS])
            late = Question(about=About.REPORT, flow="orders", until=clock.now() - timedelta(seconds=1))
            for _ in range(2):
                await runs.start(made, Given({"question": late.told()}), None)
            await worked_once(host)
            assert len(await left(host)) == 2
            assert [row.status for row in await host.runs(flow=NAME)] == ["completed"] * 2
            newest = await host.runs(flow=NAME)
            told = (await host.state(newest[0].run_id))["answer"]
            with pytest.raises(NoAnswer, match="the time to answer was over"):
                check_refusal(told)
            await host.fleet.report(ORDERS)
            clock.advance(timedelta(minutes=2))
            await runs.start(made, Given({"question": late.told()}), None)
            async with worked(host):
                await host.fleet.report("orders")
            assert len(await left(host)) == 1, "one that was asked just now is not touched"
            clock.advance(timedelta(hours=2))
            await host.retention.gc()
            assert await left(host) == []

    asyncio.run(run())


async def worked_once(host: AsyncHost) -> None:
    await host.worker([ORDERS]).run(until_idle=True)


@pytest.mark.parametrize("is_answered", [True, False], ids=["answered", "withdrawn"])
def test_wherever_an_asker_dies_the_next_finds_its_answer_and_nothing_is_left(is_answered: bool) -> None:
    def opened(clock: ManualClock, data: MemoryData, killer: Killer | None = None) -> AsyncHost:
        store = MemoryStore(clock, data)
        place = Opened(store, store.artifacts, "memory:")
        return AsyncHost(place if killer is None else killing(place, by=killer), clock=clock)

    async def dies(at: int) -> list[str]:
        clock, data = ManualClock(), MemoryData()
        killer = Killer(at, act=crash)
        async with opened(clock, data) as other:
            async with opened(clock, data, killer) as dying:
                if is_answered:
                    async with working(other, [ORDERS]):
                        with suppress(Crashed):
                            await dying.fleet.report("orders", within=20)
                else:
                    await report_worker(other)
                    with suppress(Crashed, NoAnswer):
                        await dying.fleet.report("orders", within=0.03)
            clock.advance("2h")  # what it held runs out, and what it asked is old
            async with working(other, [ORDERS]):
                assert (await other.fleet.report("orders", within=20)).coverage == 1.0
            assert await left(other) == [], killer.points
        return killer.points

    points = 0
    for at in range(1, 100):
        points = len(asyncio.run(dies(at)))
        if points < at:
            break
    assert points >= 6, "it died before and after each write"


# -- the built-in flow ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["orders", "x", "y" * 128])
def test_the_flow_is_the_one_that_workers_know(name: str) -> None:
    with Host("memory:") as host:
        made = ask_flow(host._host._services, host._host._runs.reader, name)
    assert (made.name, made.plan.hash) == asking(name).key, "workers would not claim its runs"
    assert asking_about("y" * 127) != asking_about("y" * 128)


def test_an_error_comes_back_as_it_was() -> None:
    for error in (
        RunNotFound("there is no run 'x'.", fix="Look.", run_id="x"),
        StateCorrupted("it is damaged.", newest_valid=3),
        RunHalted("it waits."),
    ):
        with pytest.raises(type(error)) as found:
            check_refusal(refusal(error))
        assert found.value.to_wire() == error.to_wire()
    with pytest.raises(NoAnswer, match="a newer one"):
        check_refusal({"error": {"code": "of.later", "message": "a newer one", "fix": "", "details": {}}})
    check_refusal({"flow": "orders"})
