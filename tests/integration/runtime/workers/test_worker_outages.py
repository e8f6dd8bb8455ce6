"""What a worker does while its store is out of reach, slow, or forgets to answer."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from everstep import Context, Durability, Flow, node
from everstep.cli.commands.fleet.opening import opened
from everstep.client.host import AsyncHost
from everstep.errors import StoreUnavailable
from everstep.model.enums import Mode
from everstep.registry import Opened, open_store
from everstep.runtime.system import SystemClock
from everstep.runtime.workers import backpressure
from everstep.runtime.workers.backpressure import Pressure
from everstep.testing import ManualClock
from everstep.testing.killing import BlockingKillingStore

URLS = ["memory:", "sqlite:///{}/runs.db"]
STRONG = Durability(Mode.STRONG, lease_ttl=timedelta(seconds=5))


class Line:
    """A connection to the store that can be cut, or lose the reply to a write."""

    def __init__(self) -> None:
        self.is_cut = False
        self.loses: dict[str, int] = {}
        """How many replies of each kind get lost from now on."""
        self.asked: Counter[str] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def write(self, kind: str) -> Iterator[None]:
        self.check(kind)
        yield
        with self._lock:
            is_lost = self.loses.get(kind, 0) > 0
            self.loses[kind] = self.loses.get(kind, 0) - is_lost
        if is_lost:
            raise StoreUnavailable(f"the reply to {kind} was lost.")

    def check(self, kind: str) -> None:
        self.asked[kind] += 1
        if self.is_cut:
            raise StoreUnavailable("the line is cut.")


class Distant(BlockingKillingStore):
    """A store at the other end of a line. Reads fail too while it is cut."""

    def __init__(self, opened: Opened, line: Line) -> None:
        store: Any = opened.store
        super().__init__(store, store, line)
        self._line = line

    def changes(self) -> int:
        self._line.check("changes")
        return super().changes()

    async def report(self, *given: Any) -> None:
        self._line.check("report")
        await super().report(*given)

    def report_blocking(self, *given: Any) -> None:
        self._line.check("report")
        super().report_blocking(*given)

    async def leased(self, *given: Any) -> Any:
        self._line.check("leased")
        return await super().leased(*given)

    async def next_due(self, **given: Any) -> Any:
        self._line.check("next_due")
        return await super().next_due(**given)

    async def run(self, run_id: str) -> Any:
        self._line.check("run")
        return await super().run(run_id)

    async def waits(self, wanted: Any) -> Any:
        self._line.check("waits")
        return await super().waits(wanted)


async def until(is_so: Callable[[], Awaitable[bool]], seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not await is_so():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("url", URLS, ids=["memory", "sqlite"])
def test_an_outage_loses_no_step_repeats_none_and_is_told_of_once(
    tmp_path: Path, url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backpressure, "LONGEST", 0.2)
    line, calls = Line(), Counter[tuple[str, str]]()
    begun = 0

    async def note(name: str, ctx: Context) -> None:
        nonlocal begun
        calls[ctx.run_id, name] += 1
        begun += 1
        if begun == 8:
            line.is_cut = True  # while others are inside their nodes
        await asyncio.sleep(0.01)

    @node(output="b")
    async def first(a: int, ctx: Context) -> int:
        await note("first", ctx)
        return a + 1

    @node(output="c")
    async def second(b: int, ctx: Context) -> int:
        await note("second", ctx)
        return b + 1

    @node(output="d")
    async def third(c: int, ctx: Context) -> int:
        await note("third", ctx)
        return c + 1

    flow = Flow("outage", [first, second, third], durability=STRONG)

    async def work() -> None:
        clock = SystemClock()
        near = open_store(url.format(tmp_path), clock)
        async with AsyncHost(Opened(Distant(near, line), near.blobs, near.url)) as host:
            for number in range(12):
                await host.start(flow, {"a": number}, run_id=f"r{number}")
            worker = host.worker([flow], concurrency=6)
            working = asyncio.ensure_future(worker.run())

            async def is_cut() -> bool:
                return line.is_cut

            await until(is_cut)
            await asyncio.sleep(0.7)
            asked = sum(line.asked.values())
            await asyncio.sleep(0.5)
            assert sum(line.asked.values()) - asked < 120, "it does not back off"
            assert not working.done()
            line.is_cut = False

            async def all_ended() -> bool:
                return all(run.status.is_final for run in await host.runs())

            await until(all_ended)
            worker.stop()
            stats = await working
            assert stats.completed == 12
            for number in range(12):
                assert (await host.state(f"r{number}"))["d"] == number + 3

    with caplog.at_level(logging.WARNING, "everstep"):
        asyncio.run(work())
    assert len(calls) == 36
    assert set(calls.values()) == {1}, [step for step, count in calls.items() if count > 1]
    said = [record.message for record in caplog.records]
    assert len([text for text in said if "store unavailable (" in text]) == 1, said
    assert len([text for text in said if "store available again" in text]) == 1, said
    assert len(said) <= 4, said


@node(output="b")
async def double(a: int) -> int:
    return 2 * a


@node(output="c")
async def add(b: int) -> int:
    return b + 1


FLOW = Flow("doubling", [double, add], durability=STRONG)


def distant(url: str, folder: Path, line: Line) -> Opened:
    near = open_store(url.format(folder), SystemClock())
    return Opened(Distant(near, line), near.blobs, near.url)


@pytest.mark.parametrize("url", URLS, ids=["memory", "sqlite"])
def test_a_claim_whose_reply_was_lost_is_driven_without_waiting_for_its_lease(
    tmp_path: Path, url: str
) -> None:
    line = Line()
    long = Flow("doubling", [double, add], durability=Durability(Mode.STRONG, lease_ttl=timedelta(hours=1)))

    async def work() -> None:
        async with AsyncHost(distant(url, tmp_path, line)) as host:
            for number in range(5):
                await host.start(long, {"a": number}, run_id=f"r{number}")
            line.loses["claim_due"] = 2
            async with asyncio.timeout(20):
                stats = await host.work([long], concurrency=2, until_idle=True)
            assert stats.completed == stats.claimed == 5

    asyncio.run(work())
    assert line.loses["claim_due"] == 0


def test_a_worker_that_is_to_end_when_idle_says_that_the_store_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backpressure, "LONGEST", 0.05)
    line = Line()

    async def work() -> None:
        async with AsyncHost(distant(URLS[1], tmp_path, line)) as host:
            await host.start(FLOW, {"a": 1}, run_id="r")
            line.is_cut = True
            with pytest.raises(StoreUnavailable, match="the line is cut"):
                await host.work([FLOW], until_idle=True)
            line.is_cut = False
            assert (await host.work([FLOW], until_idle=True)).completed == 1

    asyncio.run(work())


def test_a_worker_can_be_stopped_during_an_outage(tmp_path: Path) -> None:
    line, begun = Line(), asyncio.Event()

    @node(output="c")
    async def cut(a: int) -> int:
        line.is_cut = not begun.is_set()
        begun.set()
        return a

    flow = Flow("cutting", [cut], durability=STRONG)

    async def work() -> None:
        async with AsyncHost(distant(URLS[1], tmp_path, line)) as host:
            await host.start(flow, {"a": 1}, run_id="r")
            worker = host.worker([flow], grace=0.1)
            working = asyncio.ensure_future(worker.run())
            await begun.wait()
            worker.stop()
            async with asyncio.timeout(15):
                assert (await working).handed_back == 1
            line.is_cut = False
            # Its lease could not be given back; it knows that no worker drives the run.
            async with asyncio.timeout(4):
                assert (await host.work([flow], until_idle=True)).completed == 1

    asyncio.run(work())


def test_pauses_grow_up_to_a_point_and_differ_by_chance() -> None:
    longest = [backpressure.pause(failures, 1.0) for failures in range(1, 12)]
    assert longest[:4] == [0.1, 0.2, 0.4, 0.8]
    assert max(longest) == backpressure.LONGEST
    assert backpressure.pause(3, 0.0) == backpressure.pause(3, 1.0) / 2


def test_a_slow_store_halves_what_is_driven_and_a_quick_one_brings_it_back() -> None:
    clock, lag = ManualClock(), 0.0
    pressure = Pressure(clock, 32, lambda: lag)
    pressure.adjust(32)
    assert (pressure.allowed, pressure.is_on) == (32, False)
    lag, seen = 0.3, []
    for _ in range(7):
        pressure.adjust(min(32, pressure.allowed))
        pressure.adjust(min(32, pressure.allowed))  # at most one change a second
        seen.append(pressure.allowed)
        clock.advance(1)
    assert seen == [16, 8, 4, 2, 1, 1, 1]
    lag, seen = 0.01, []
    for _ in range(10):
        pressure.adjust(pressure.allowed)
        seen.append(pressure.allowed)
        clock.advance(1)
    assert seen == [2, 3, 4, 6, 9, 13, 19, 28, 32, 32]
    assert not pressure.is_on


def test_a_worker_on_a_slow_store_claims_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backpressure, "TOO_SLOW", 0.02)
    monkeypatch.setattr(backpressure, "ADJUST", 0.0)
    slow, most = True, [0, 0]
    live = 0

    class Slow(Line):
        @contextmanager
        def write(self, kind: str) -> Iterator[None]:
            if kind == "put" and slow:
                threading.Event().wait(0.05)
            yield

    @node(output="b")
    async def count(a: int) -> int:
        nonlocal live
        live += 1
        most[slow] = max(most[slow], live)
        await asyncio.sleep(0.02)
        live -= 1
        return a

    flow = Flow("counting", [count], durability=STRONG)

    async def work() -> None:
        nonlocal slow
        async with AsyncHost(distant(URLS[0], tmp_path, Slow())) as host:
            slow = False
            for number in range(150):
                await host.start(flow, {"a": number})
            slow = True
            worker = host.worker([flow], concurrency=16)
            working = asyncio.ensure_future(worker.run())

            async def is_slowed() -> bool:
                return worker.describe().is_slowed

            await until(is_slowed)
            await asyncio.sleep(0.5)
            most[True] = live
            await asyncio.sleep(0.3)
            slow = False

            async def all_ended() -> bool:
                return not await host.runs(status="running")

            await until(all_ended)
            worker.stop()
            assert (await working).completed == 150
            assert not worker.describe().is_slowed

    asyncio.run(work())
    assert most[True] <= 4, f"it drove {most[True]} runs on a slow store"
    assert most[False] > 4


def test_a_worker_waits_for_a_store_that_is_not_there_when_it_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tries = 0

    def make() -> AsyncHost:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise StoreUnavailable("the database is starting.")
        return AsyncHost(f"sqlite:///{tmp_path}/runs.db")

    asyncio.run(opened(make, None).close())
    assert tries == 3
    assert capsys.readouterr().err.count("asking again until it is there") == 1
    tries = -100
    with pytest.raises(StoreUnavailable):
        opened(make, timedelta())
    assert tries == -99
