"""`ManualClock` moves only when told, and wakes sleepers that are due."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta, timezone

import pytest

from everstep import Flow, Host, Retry, node
from everstep.errors import BadRequest
from everstep.testing import ManualClock


def test_time_stands_still_until_it_is_moved() -> None:
    clock = ManualClock()
    before = clock.now(), clock.monotonic()
    assert (clock.now(), clock.monotonic()) == before
    clock.advance(timedelta(minutes=1))
    clock.advance(2.5)
    assert (clock.now() - before[0], clock.monotonic() - before[1]) == (timedelta(seconds=62.5), 62.5)


def test_time_is_told_in_utc() -> None:
    clock = ManualClock(datetime(2030, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))))
    assert clock.now() == datetime(2030, 1, 1, tzinfo=UTC)
    assert clock.now().tzinfo is UTC


def test_a_start_without_a_time_zone_is_refused() -> None:
    with pytest.raises(BadRequest):
        ManualClock(datetime(2030, 1, 1))


@pytest.mark.parametrize("back", [-1, timedelta(microseconds=-1)])
def test_time_does_not_go_back(back: timedelta | float) -> None:
    clock = ManualClock()
    before = clock.now()
    with pytest.raises(BadRequest):
        clock.advance(back)
    assert clock.now() == before


def test_sleepers_wake_when_their_time_has_come_and_not_before() -> None:
    clock = ManualClock()
    start = clock.now()
    woken: list[int] = []

    async def sleep(seconds: int) -> None:
        await clock.sleep_until(start + timedelta(seconds=seconds))
        woken.append(seconds)

    async def watch() -> None:
        tasks = [asyncio.create_task(sleep(seconds)) for seconds in (30, 10, 20)]
        await settle()
        for moved, expected in ((9.999, []), (0.001, [10]), (15, [10, 20]), (100, [10, 20, 30])):
            clock.advance(moved)
            await settle()
            assert woken == expected
        await asyncio.gather(*tasks)

    asyncio.run(watch())


def test_a_time_that_has_passed_is_not_waited_for() -> None:
    clock = ManualClock()
    asyncio.run(clock.sleep_until(clock.now()))
    asyncio.run(clock.sleep_until(clock.now() - timedelta(days=1)))
    assert clock.monotonic() == 0


def test_sleepers_on_several_loops_are_woken_from_another_thread() -> None:
    clock = ManualClock()
    until = clock.now() + timedelta(hours=1)
    threads = [threading.Thread(target=lambda: asyncio.run(clock.sleep_until(until))) for _ in range(4)]
    for thread in threads:
        thread.start()
    clock.wait_for_sleepers(4)
    clock.advance(timedelta(hours=1))
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)


def test_a_cancelled_sleeper_is_forgotten() -> None:
    clock = ManualClock()

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(clock.sleep_until(clock.now() + timedelta(hours=1)), 0.001)

    asyncio.run(give_up())
    with pytest.raises(TimeoutError, match="0 sleep on the clock, 1 were expected"):
        clock.wait_for_sleepers(1, patience=0)
    clock.advance(timedelta(hours=2))


def test_a_sleeper_whose_loop_was_closed_does_no_harm() -> None:
    clock = ManualClock()
    loop = asyncio.new_event_loop()
    sleeper = loop.create_task(clock.sleep_until(clock.now() + timedelta(hours=1)))
    loop.run_until_complete(asyncio.sleep(0))
    clock.wait_for_sleepers(1)
    loop.close()
    clock.advance(timedelta(hours=2))
    assert not sleeper.done()
    sleeper.get_coro().close()
    sleeper._log_destroy_pending = False  # type: ignore[attr-defined]  # it was left pending on purpose


def test_an_automatic_clock_moves_to_a_sleeper() -> None:
    clock = ManualClock(auto=True)
    asyncio.run(clock.sleep_until(clock.now() + timedelta(days=365)))
    assert clock.monotonic() == 365 * 86_400
    asyncio.run(clock.sleep_until(clock.now() - timedelta(days=1)))
    assert clock.monotonic() == 365 * 86_400


def test_a_flow_with_hours_of_backoff_runs_at_once() -> None:
    tries: list[datetime] = []
    clock = ManualClock(auto=True)

    @node(output="done", retry=Retry(3, first=timedelta(hours=1), most=timedelta(hours=9), jitter=0))
    def stubborn() -> bool:
        tries.append(clock.now())
        if len(tries) < 4:
            raise ConnectionError
        return True

    with Host("memory:", clock=clock) as host:
        assert host.run(Flow("patient", [stubborn]))["done"] is True
    assert tries[-1] - tries[0] >= timedelta(hours=3)


def test_the_testing_package_loads_without_pytest() -> None:
    code = "import sys, everstep.testing; sys.exit('pytest' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


async def settle() -> None:
    """Let every task that can run do so."""
    for _ in range(5):
        await asyncio.sleep(0)
