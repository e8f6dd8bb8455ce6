"""What it costs to look on, and what those are told who do while a store is slow, away, or left alone."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import aclosing
from datetime import timedelta
from importlib import import_module
from time import thread_time
from typing import Any

import pytest

from everstep import AsyncHost
from everstep.client.looking import changes as changes_of
from everstep.client.looking.changes import Changes
from everstep.errors import StoreUnavailable
from everstep.testing import ManualClock
from tests.integration.client.test_changes import Two, adding, asking, named, played, until

CLIENTS = 100


class Asked:
    """A store that counts what it is asked for, and can be out of reach."""

    def __init__(self, host: AsyncHost) -> None:
        self._store = host._services.store
        self.calls: Counter[str] = Counter()
        self.is_away = False
        host._services.store = self

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not callable(found):
            return found

        def counted(*args: Any, **options: Any) -> Any:
            self.calls[name] += 1
            if self.is_away:
                raise StoreUnavailable("the store is away.")
            return found(*args, **options)

        return counted


@pytest.mark.stores("memory", "sqlite", "folder", "postgres", "redis")
def test_a_hundred_who_look_on_ask_the_store_no_more_than_one(url: str) -> None:
    async def play(two: Two) -> None:
        await two.there.run(asking, {}, run_id="A0")
        store, told = Asked(two.here), list[Changes]()

        async def look_on() -> None:
            async with aclosing(two.here.changes()) as changes:
                async for one in changes:
                    told.append(one)

        everyone = [asyncio.ensure_future(look_on()) for _ in range(CLIENTS)]
        while len(told) < CLIENTS:
            await asyncio.sleep(0.01)
        await asyncio.sleep(1)
        store.calls.clear()
        began, busy = asyncio.get_running_loop().time(), thread_time()
        await asyncio.sleep(6)
        seconds = asyncio.get_running_loop().time() - began
        busy = thread_time() - busy
        assert store.calls.total() / seconds <= 2, store.calls
        assert busy / seconds < 0.05  # about 0.002 on a machine with nothing else to do
        assert len(told) == CLIENTS, "nothing has changed"
        await two.there.run(adding, {"x": 1}, run_id="A1")
        async with asyncio.timeout(15):
            while sum(any(r.status == "completed" for r in one.runs) for one in told) < CLIENTS:
                await asyncio.sleep(0.01)
        assert store.calls["list"] <= 2 * 6, "once for all of them, a few times"
        for task in everyone:
            task.cancel()
        await asyncio.gather(*everyone, return_exceptions=True)
        store.calls.clear()
        await asyncio.sleep(1)
        assert store.calls.total() == 0, "none looks on any more"

    played(url, play)


@pytest.mark.stores("sqlite")
def test_one_who_is_slow_gets_what_came_meanwhile_as_one_message(url: str) -> None:
    async def play(two: Two) -> None:
        async with aclosing(two.here.changes()) as slow, aclosing(two.here.changes()) as quick:
            await anext(slow)
            await anext(quick)
            for k in range(3):
                await two.there.run(adding, {"x": k}, run_id=f"A{k}")
                await until(quick, f"A{k}", "completed")
            assert named([await anext(slow)]) == {"A0", "A1", "A2"}

    played(url, play)


@pytest.mark.stores("sqlite")
def test_one_who_was_away_for_too_long_reads_all_again(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes_of, "KEPT", 2)

    async def play(two: Two) -> None:
        async with aclosing(two.here.changes()) as slow, aclosing(two.here.changes()) as quick:
            await anext(slow)
            await anext(quick)
            for k in range(4):
                await two.there.run(adding, {"x": k}, run_id=f"A{k}")
                await until(quick, f"A{k}", "completed")
            told = await anext(slow)
            assert (told.kind, told.runs) == ("refetch", [])
            await two.there.run(adding, {"x": 1}, run_id="B1")
            assert named(await until(slow, "B1", "completed")) == {"B1"}
        monkeypatch.setattr(changes_of, "REMEMBERED", 0.0)
        await asyncio.sleep(0.01)
        async with aclosing(two.here.changes(after=told.id)) as later:
            assert (await anext(later)).kind == "refetch"

    played(url, play)


@pytest.mark.stores("sqlite")
def test_a_store_that_is_away_is_told_of_once_and_all_is_read_again_after_it(url: str) -> None:
    async def play(two: Two) -> None:
        store = Asked(two.here)
        async with aclosing(two.here.changes()) as changes:
            assert (await anext(changes)).kind == "ready"
            store.is_away = True
            await two.there.run(adding, {"x": 1}, run_id="A1")
            async with asyncio.timeout(15):
                assert (await anext(changes)).kind == "trouble"
                async with aclosing(two.here.changes()) as another:
                    assert (await anext(another)).kind == "trouble"
                    store.is_away = False
                    assert (await anext(another)).kind == "refetch"
                assert (await anext(changes)).kind == "refetch"
            await two.there.run(adding, {"x": 1}, run_id="A2")
            assert named(await until(changes, "A2", "completed")) <= {"A1", "A2"}

    played(url, play)


@pytest.mark.stores("sqlite")
def test_a_run_whose_owner_is_gone_is_told_of_though_nothing_is_written(url: str) -> None:
    async def run() -> None:
        clock = ManualClock()
        async with AsyncHost(url, clock=clock) as host:
            await host.start(adding, {"x": 1}, run_id="A1")
            minute = timedelta(minutes=1)
            await host._services.store.lease("A1", owner="gone", ttl=minute, process=None)
            async with aclosing(host.changes("A1")) as changes:
                await anext(changes)
                assert (await host.info("A1")).is_driven
                clock.advance(2 * minute)
                told = await until(changes, "A1", "running")
                assert named(told) == {"A1"}
                assert not (await host.info("A1")).is_driven

    asyncio.run(run())


@pytest.mark.stores("postgres")
def test_a_server_is_asked_seldom_while_nothing_happens(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its watch asks five times a second while runs are driven; nothing of that is left when they are not."""
    asked: Counter[str] = Counter()

    def counting(module: str) -> None:
        place = import_module(module)
        rows = place.rows

        def counted(connection: Any, query: Any, *values: Any) -> Any:
            asked[str(query)[:60]] += 1
            return rows(connection, query, *values)

        monkeypatch.setattr(place, "rows", counted)

    for module in ("store", "watch", "claims"):
        counting(f"everstep.stores.postgres.{module}")
    monkeypatch.setattr("everstep.stores.postgres.watch.IDLE", 0.5)
    monkeypatch.setattr(changes_of, "STAYS_QUICK", 0.2)

    async def play(two: Two) -> None:
        async with aclosing(two.here.changes()) as changes:
            await anext(changes)
            await two.there.run(adding, {"x": 1}, run_id="A1")
            await until(changes, "A1", "completed")
            coming = asyncio.ensure_future(anext(changes))
            await asyncio.sleep(3)
            asked.clear()
            await asyncio.sleep(6)
            assert asked.total() / 6 <= 2, asked
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)

    played(url, play)
