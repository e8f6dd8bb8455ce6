"""Telling of a wait: at least once, also if the one that opened it died first."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from everstep import Flow, Host, node, parallel, wait
from everstep.client.host import AsyncHost
from everstep.errors import ScheduleNotFound, WaitSettled
from everstep.ports.durability import Handle, Notice, ScheduleState, ScheduleStatus
from everstep.runtime.waits import announce
from everstep.runtime.workers.worker import Stats
from everstep.testing import ManualClock

FLOW = Flow("f", [wait.approval("ok", notify="boss", context={"amount": 3})])


class Alarm:
    """A scheduler of the user's own, which may be out of order."""

    def __init__(self) -> None:
        self.set: dict[str, datetime] = {}
        self.is_broken = False
        self.cancelled: list[str] = []

    async def schedule_at(self, handle: Handle, at: datetime) -> str:
        if self.is_broken:
            raise OSError("no line")
        self.set[handle.wait_id] = at
        return f"alarm-{handle.wait_id}"

    async def schedule_after(self, handle: Handle, delay: timedelta) -> str:
        raise NotImplementedError

    async def cancel(self, schedule_id: str) -> None:
        if self.is_broken:
            raise OSError("no line")
        if self.set.pop(schedule_id.removeprefix("alarm-"), None) is None:
            raise ScheduleNotFound("there is no such alarm.")
        self.cancelled.append(schedule_id)

    async def status(self, schedule_id: str) -> ScheduleStatus:
        return ScheduleStatus(ScheduleState.PENDING)


@pytest.mark.parametrize("by", ["resume", "worker"])
@pytest.mark.parametrize("key", [None, "a key that is long enough"])
def test_a_notice_that_failed_is_given_again_with_a_token_that_works(
    tmp_path: Path, by: str, key: str | None
) -> None:
    clock, notices = ManualClock(), []
    is_broken = True

    def boss(notice: Notice) -> None:
        if is_broken:
            raise OSError("no line")
        notices.append(notice)

    with Host(f"sqlite:///{tmp_path}/runs.db", clock=clock, notifiers={"boss": boss}, key=key) as host:
        assert host.run(FLOW, run_id="A").status == "halted"
        assert notices == []
        is_broken = False
        host.resume("A", FLOW)
        assert notices == [], "the one that opened it may still be telling"
        clock.advance(60)
        if by == "resume":
            host.resume("A", FLOW)
            host.resume("A", FLOW)
        else:
            host.work([FLOW], until_idle=True)
            host.work([FLOW], until_idle=True)
        (notice,) = notices
        assert (notice.run_id, notice.node, notice.context) == ("A", "ok", {"amount": 3})
        host.answer(notice.token, {"approved": True})
        assert host.resume("A", FLOW)["ok"].approved


def test_a_scheduler_that_was_out_of_order_hears_of_the_wait_later(tmp_path: Path) -> None:
    clock, alarm = ManualClock(), Alarm()
    alarm.is_broken = True
    flow = Flow("f", [wait.timer("nap", duration="1h", scheduler="alarm")])
    with Host(f"sqlite:///{tmp_path}/runs.db", clock=clock, schedulers={"alarm": alarm}) as host:
        (nap,) = host.run(flow, run_id="A").waits
        assert alarm.set == {}
        alarm.is_broken = False
        clock.advance(60)
        host.work([flow], until_idle=True)
        assert alarm.set == {nap.id: nap.due_at}
        clock.advance(timedelta(hours=2))
        assert host.resume("A", flow).status == "halted", "only its own scheduler says when"
        host.waiting.fire(nap.id)
        assert host.resume("A", flow)["nap"].drift_ms == 3_660_000


@node(output="b")
def double(a: int) -> int:
    return 2 * a


@node(output="end")
def after() -> int:
    return 1


DOUBLING = Flow("doubling", [double])


def test_a_worker_of_other_flows_leaves_the_tokens_of_untold_waits_alone(tmp_path: Path) -> None:
    clock, url = ManualClock(), f"sqlite:///{tmp_path}/runs.db"

    def boss(notice: Notice) -> None:
        raise OSError("no line")

    with Host(url, clock=clock, notifiers={"boss": boss}) as host, Host(url, clock=clock) as other:
        token = host.run(FLOW, run_id="A").waits[0].token
        clock.advance(60)
        other.work([DOUBLING], until_idle=True)
        host.answer(token, {"approved": True})
        assert host.resume("A", FLOW)["ok"].approved


async def never(notice: Notice) -> None:
    await asyncio.Event().wait()


def test_a_notifier_that_never_returns_keeps_no_worker_from_its_work(tmp_path: Path) -> None:
    clock, url = ManualClock(), f"sqlite:///{tmp_path}/runs.db"

    def boss(notice: Notice) -> None:
        raise OSError("no line")

    with Host(url, clock=clock, notifiers={"boss": boss}) as host:
        host.run(FLOW, run_id="A")
    clock.advance(60)

    async def work() -> Stats:
        async with AsyncHost(url, clock=clock, notifiers={"boss": never}) as host:
            await host.start(DOUBLING, {"a": 1}, run_id="B")
            worker = host.worker([FLOW, DOUBLING])
            working = asyncio.ensure_future(worker.run())
            async with asyncio.timeout(10):
                while not (await host.info("B")).status.is_final:
                    await asyncio.sleep(0.01)
                worker.stop()
                return await working

    assert asyncio.run(work()).completed == 1


def test_a_notifier_that_never_returns_keeps_no_run_from_halting(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announce, "TIME_TO_TELL", timedelta(seconds=0.1))

    async def run() -> bool:
        async with AsyncHost(url, notifiers={"boss": never}) as host, asyncio.timeout(10):
            return (await host.run(FLOW)).status == "halted"

    assert asyncio.run(run())


BOTH = Flow("f", [wait.approval("ok", notify=["boss", "clerk"])])


@pytest.mark.parametrize("key", [None, "a key that is long enough"])
def test_one_that_was_notified_is_not_told_again_and_keeps_a_token_that_works(
    url: str, key: str | None
) -> None:
    clock = ManualClock()
    told: dict[str, list[Notice]] = {"boss": [], "clerk": []}
    is_broken = True

    def clerk(notice: Notice) -> None:
        if is_broken:
            raise OSError("no line")
        told["clerk"].append(notice)

    notifiers = {"boss": told["boss"].append, "clerk": clerk}
    with Host(url, clock=clock, notifiers=notifiers, key=key, base_url="http://here") as host:
        host.run(BOTH, run_id="A")
        for _ in range(3):
            clock.advance(60)
            host.resume("A", BOTH)
        is_broken = False
        for _ in range(2):
            clock.advance(60)
            host.resume("A", BOTH)
        (boss,), (later,) = told["boss"], told["clerk"]
        assert boss.token is not None
        assert (later.wait_id, later.token) == (boss.wait_id, None if key is None else boss.token)
        assert (later.link is None) is (key is None)
        host.answer(boss.token, {"approved": True})
        assert host.resume("A", BOTH)["ok"].approved


def test_one_that_was_notified_before_another_took_too_long_is_not_told_again(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announce, "TIME_TO_TELL", timedelta(seconds=1))  # enough for one on a busy machine
    clock = ManualClock()
    told: list[Notice] = []

    async def run() -> None:
        notifiers = {"boss": told.append, "clerk": never}
        async with AsyncHost(url, clock=clock, notifiers=notifiers) as host, asyncio.timeout(60):
            await host.run(BOTH, run_id="A")
            clock.advance(60)
            await host.resume("A", BOTH)
            assert len(told) == 1
            await host.answer(told[0].token, {"approved": True})

    asyncio.run(run())


def test_a_token_that_was_revoked_is_not_replaced_by_a_sweep(url: str) -> None:
    clock, is_broken = ManualClock(), True
    told: list[Notice] = []

    def boss(notice: Notice) -> None:
        if is_broken:
            raise OSError("no line")
        told.append(notice)

    with Host(url, clock=clock, notifiers={"boss": boss}) as host:
        (ok,) = host.run(FLOW, run_id="A").waits
        host.waiting.revoke(ok.id)
        is_broken = False
        clock.advance(60)
        host.resume("A", FLOW)
        assert [notice.token for notice in told] == [None]


TIMED = Flow("f", [wait.approval("ok", timeout="1h", scheduler="alarm")])


def test_the_scheduler_forgets_a_wait_that_is_answered(url: str) -> None:
    alarm = Alarm()
    with Host(url, clock=ManualClock(), schedulers={"alarm": alarm}) as host:
        (ok,) = host.run(TIMED, run_id="A").waits
        host.answer(ok.id, {"approved": True})
        assert (alarm.set, alarm.cancelled) == ({}, [f"alarm-{ok.id}"])
        assert host.resume("A", TIMED)["ok"].approved
        assert len(alarm.cancelled) == 1


def test_a_caller_that_drives_a_run_on_cancels_what_the_answering_host_could_not(tmp_path: Path) -> None:
    alarm, clock, url = Alarm(), ManualClock(), f"sqlite:///{tmp_path}/runs.db"
    with Host(url, clock=clock, schedulers={"alarm": alarm}) as host, Host(url, clock=clock) as other:
        (ok,) = host.run(TIMED, run_id="A").waits
        other.answer(ok.id, {"approved": True})
        assert alarm.cancelled == []
        host.resume("A", TIMED)
        assert alarm.cancelled == [f"alarm-{ok.id}"]


def test_the_scheduler_forgets_the_waits_of_a_run_that_is_cancelled(url: str) -> None:
    alarm = Alarm()
    with Host(url, clock=ManualClock(), schedulers={"alarm": alarm}) as host:
        (ok,) = host.run(TIMED, run_id="A").waits
        host.cancel("A")
        assert alarm.cancelled == [f"alarm-{ok.id}"]


def test_the_scheduler_forgets_a_wait_that_its_group_no_longer_needs(url: str) -> None:
    alarm = Alarm()
    either = parallel(
        wait.approval("slow", timeout="1h", scheduler="alarm"), wait.callback("quick"), policy="first_success"
    )
    flow = Flow("f", double >> either >> after)
    with Host(url, clock=ManualClock(), schedulers={"alarm": alarm}) as host:
        waits = {w.node.split("/")[-1]: w for w in host.run(flow, {"a": 1}, run_id="A").waits}
        host.answer(waits["quick"].id, 1)
        assert host.resume("A", flow).status == "completed"
        assert alarm.cancelled == [f"alarm-{waits['slow'].id}"]


def test_a_scheduler_that_cannot_cancel_keeps_no_run_from_going_on(url: str) -> None:
    alarm = Alarm()
    with Host(url, clock=ManualClock(), schedulers={"alarm": alarm}) as host:
        (ok,) = host.run(TIMED, run_id="A").waits
        alarm.is_broken = True
        host.answer(ok.id, {"approved": True})
        with pytest.raises(WaitSettled):
            host.waiting.fire(ok.id)
        assert host.resume("A", TIMED).status == "completed"


def test_a_time_that_has_come_is_not_cancelled(url: str) -> None:
    alarm, clock = Alarm(), ManualClock()
    with Host(url, clock=clock, schedulers={"alarm": alarm}) as host:
        (ok,) = host.run(TIMED, run_id="A").waits
        clock.advance(3600)
        host.waiting.fire(ok.id)
        assert not host.resume("A", TIMED)["ok"].approved
        assert alarm.cancelled == []
