"""Due times: kept by the store, or by schedulers that a host knows by alias."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from everstep import Flow, Host, wait
from everstep.codec.chain import Codecs
from everstep.errors import (
    BadRequest,
    InvalidDelay,
    ScheduleNotFound,
    UnknownScheduler,
    WaitClosed,
    WaitNotFound,
    WaitSettled,
)
from everstep.model.waits import SettledBy, WaitRow
from everstep.ports.durability import Handle, ResumeScheduler, ScheduleState, ScheduleStatus
from everstep.ports.store import CheckpointStore
from everstep.registry import open_store
from everstep.runtime.system import random_bytes
from everstep.runtime.waits.schedulers import Schedulers, StoreScheduler
from everstep.testing import ManualClock
from tests.integration.runtime.waits.open_waits import cancel_run, handle_of, open_wait

PLAIN = Codecs(random_bytes)

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
Story = Callable[[CheckpointStore, ManualClock, StoreScheduler], Awaitable[None]]


@pytest.fixture
def play(url: str) -> Callable[[Story], None]:
    def run(story: Story) -> None:
        async def whole() -> None:
            clock = ManualClock()
            store = open_store(url, clock).store
            await story(store, clock, StoreScheduler(store, clock, PLAIN))
            await store.close()

        asyncio.run(whole())

    return run


async def due(store: CheckpointStore, row: WaitRow) -> datetime | None:
    now = await store.wait(row.wait_id)
    assert now is not None
    return now.due_at


def test_a_time_is_kept_in_the_wait_and_fires_by_it(play: Callable[[Story], None]) -> None:
    async def story(store: CheckpointStore, clock: ManualClock, scheduler: StoreScheduler) -> None:
        assert isinstance(scheduler, ResumeScheduler)
        row = await open_wait(store, clock)
        assert await scheduler.schedule_at(handle_of(row), NOON) == row.wait_id
        assert await due(store, row) == NOON == await store.next_due()
        assert await scheduler.status(row.wait_id) == ScheduleStatus(ScheduleState.PENDING, NOON)
        clock.advance(timedelta(hours=13))
        assert await scheduler.status(row.wait_id) == ScheduleStatus(ScheduleState.PENDING, NOON)
        assert [w.settled_by for w in await store.fire(row.run_id)] == [SettledBy.CLOCK]
        assert await scheduler.status(row.wait_id) == ScheduleStatus(ScheduleState.FIRED, clock.now())

    play(story)


def test_a_delay_counts_from_now_and_a_later_time_replaces_it(play: Callable[[Story], None]) -> None:
    async def story(store: CheckpointStore, clock: ManualClock, scheduler: StoreScheduler) -> None:
        row = await open_wait(store, clock)
        clock.advance(60)
        await scheduler.schedule_after(handle_of(row), timedelta(hours=1))
        assert await due(store, row) == clock.now() + timedelta(hours=1)
        east = timezone(timedelta(hours=2))
        await scheduler.schedule_at(handle_of(row), datetime(2030, 1, 1, 14, tzinfo=east))
        assert await due(store, row) == NOON
        await scheduler.schedule_at(handle_of(row), clock.now() - timedelta(days=1))
        assert len(await store.fire(row.run_id)) == 1

    play(story)


def test_a_delay_into_the_past_or_a_time_without_a_zone_is_refused(play: Callable[[Story], None]) -> None:
    async def story(store: CheckpointStore, clock: ManualClock, scheduler: StoreScheduler) -> None:
        row = await open_wait(store, clock)
        with pytest.raises(InvalidDelay):
            await scheduler.schedule_after(handle_of(row), timedelta(seconds=-1))
        with pytest.raises(BadRequest, match="time zone"):
            await scheduler.schedule_at(handle_of(row), datetime(2030, 1, 1))
        assert await due(store, row) is None

    play(story)


def test_a_cancelled_time_never_comes(play: Callable[[Story], None]) -> None:
    async def story(store: CheckpointStore, clock: ManualClock, scheduler: StoreScheduler) -> None:
        row = await open_wait(store, clock, due_at=NOON)
        await scheduler.cancel(row.wait_id)
        assert await scheduler.status(row.wait_id) == ScheduleStatus(ScheduleState.CANCELLED)
        clock.advance(timedelta(days=1))
        assert await store.fire(row.run_id) == []
        with pytest.raises(ScheduleNotFound):
            await scheduler.cancel(row.wait_id)

    play(story)


def test_a_time_is_expired_once_its_wait_is_over_without_it(play: Callable[[Story], None]) -> None:
    async def story(store: CheckpointStore, clock: ManualClock, scheduler: StoreScheduler) -> None:
        answered = await open_wait(store, clock, due_at=NOON)
        await store.settle(answered.wait_id, by=SettledBy.ANSWER, answer=b"1")
        stopped = await open_wait(store, clock, due_at=NOON)
        await cancel_run(store, stopped)
        for row, error in ((answered, WaitSettled), (stopped, WaitClosed)):
            assert (await scheduler.status(row.wait_id)).state is ScheduleState.EXPIRED
            with pytest.raises(ScheduleNotFound):
                await scheduler.cancel(row.wait_id)
            with pytest.raises(error):
                await scheduler.schedule_at(handle_of(row), NOON)

    play(story)


def test_the_store_knows_nothing_of_what_others_keep(play: Callable[[Story], None]) -> None:
    async def story(store: CheckpointStore, clock: ManualClock, scheduler: StoreScheduler) -> None:
        other = await open_wait(store, clock, due_at=NOON, scheduler="cron")
        for schedule_id in (other.wait_id, "gone"):
            with pytest.raises(ScheduleNotFound):
                await scheduler.status(schedule_id)
            with pytest.raises(ScheduleNotFound):
                await scheduler.cancel(schedule_id)
        with pytest.raises(BadRequest, match="'cron'"):
            await scheduler.schedule_at(handle_of(other), NOON)
        with pytest.raises(WaitNotFound):
            await scheduler.schedule_at(Handle(run_id="r", flow_id="f", wait_id="gone"), NOON)

    play(story)


class Cron:
    async def schedule_at(self, handle: Handle, at: datetime) -> str:
        return f"{handle.wait_id}@{at}"

    async def schedule_after(self, handle: Handle, delay: timedelta) -> str:
        return f"{handle.wait_id}+{delay}"

    async def cancel(self, schedule_id: str) -> None:
        raise ScheduleNotFound(schedule_id)

    async def status(self, schedule_id: str) -> ScheduleStatus:
        raise ScheduleNotFound(schedule_id)


def schedulers(**others: Any) -> Schedulers:
    clock = ManualClock()
    return Schedulers(open_store("memory:", clock).store, clock, others, PLAIN)


def test_an_alias_names_a_scheduler_and_the_empty_one_the_stores() -> None:
    cron = Cron()
    assert schedulers(cron=cron).of("cron") is cron
    assert isinstance(schedulers(cron=cron).of(""), StoreScheduler)
    assert isinstance(schedulers().of(), StoreScheduler)


def test_an_unknown_alias_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(UnknownScheduler, match="no scheduler 'crom'") as caught:
        schedulers(cron=Cron(), quartz=Cron()).of("crom")
    assert caught.value.fix == "Did you mean 'cron'? It has 'cron', 'quartz'."
    with pytest.raises(UnknownScheduler) as caught:
        schedulers(cron=Cron()).of("alarm")
    assert caught.value.fix == "It has 'cron'."
    with pytest.raises(UnknownScheduler) as caught:
        schedulers().of("cron")
    assert caught.value.fix == "It has none; give the host schedulers={'cron': ...}."


def test_what_is_no_scheduler_is_refused_at_once() -> None:
    with pytest.raises(BadRequest, match="scheduler 'cron' is 5"):
        schedulers(cron=5)
    clock = ManualClock()
    with pytest.raises(BadRequest, match="is called ''"):
        Schedulers(open_store("memory:", clock).store, clock, {"": Cron()}, PLAIN)


def test_a_host_may_let_another_scheduler_keep_the_times_of_all_its_flows() -> None:
    kept: dict[str, datetime] = {}
    halted_at: set[str] = set()

    class Cloud:
        async def schedule_at(self, handle: Handle, at: datetime) -> str:
            kept[handle.wait_id] = at
            halted_at.add(handle.checkpoint_id)
            return handle.wait_id

        async def schedule_after(self, handle: Handle, delay: timedelta) -> str:
            raise AssertionError("not asked for")

        async def cancel(self, schedule_id: str) -> None:
            del kept[schedule_id]

        async def status(self, schedule_id: str) -> ScheduleStatus:
            raise AssertionError("not asked for")

    clock = ManualClock()
    flow = Flow("f", [wait.timer("nap", duration="1h"), wait.approval("ok", timeout="2h")])
    with Host("memory:", clock=clock, schedulers={"cloud": Cloud()}, scheduler="cloud") as host:
        waits = {opened.node: opened.id for opened in host.run(flow, run_id="r").waits}
        assert kept == {
            waits["nap"]: clock.now() + timedelta(hours=1),
            waits["ok"]: clock.now() + timedelta(hours=2),
        }
        assert halted_at == {host.history("r")[-1].checkpoint_id}
        clock.advance(3600)
        host.work([flow], until_idle=True)
        assert host.wait(waits["nap"]).status == "open", "its scheduler says when its time is over"
        host.waiting.fire(waits["nap"])
        host.answer(waits["ok"], {"approved": True})
        assert host.resume("r", flow)["ok"].approved
        assert waits["ok"] not in kept
    with pytest.raises(UnknownScheduler, match="cloud"):
        Host("memory:", scheduler="cloud")
