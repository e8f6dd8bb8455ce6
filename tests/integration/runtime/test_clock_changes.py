"""The time of the machine is set while runs are under way, as NTP or a resumed virtual machine does it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from everstep import AsyncHost, Context, Durability, Flow, Retry, Status, node
from everstep.engine import leases
from everstep.errors import LeaseConflict
from everstep.model.leases import Lease, Process
from everstep.runtime.system import SystemClock

HOUR = timedelta(hours=1)
TTL = timedelta(seconds=30)
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


class Wall(SystemClock):
    """The machine's clock, as it was set."""

    ahead = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self.ahead


@pytest.mark.parametrize("store", ["sqlite:///{}/runs.db", "file:{}/runs", "memory:"])
def test_a_run_whose_owner_lives_is_not_taken_over_when_the_clock_is_set_ahead(
    tmp_path: Path, store: str, request: pytest.FixtureRequest
) -> None:
    wall, made = Wall(), []

    async def main() -> None:
        begun, may_end = asyncio.Event(), asyncio.Event()

        @node(output="paid", effects="effectful", idempotency_key="auto")
        async def pay(amount: int) -> int:
            made.append(amount)
            begun.set()
            await may_end.wait()
            return amount

        flow = Flow("f", [pay], durability="strong")
        async with AsyncHost(store.format(tmp_path), clock=wall) as owner:
            driving = asyncio.create_task(owner.run(flow, {"amount": 1}, run_id="r"))
            await begun.wait()
            other = owner if store == "memory:" else AsyncHost(store.format(tmp_path), clock=wall)
            wall.ahead = timedelta(minutes=2)
            assert (await other.info("r")).is_driven
            assert (await other.work([flow], until_idle=True)).claimed == 0
            with pytest.raises(LeaseConflict):
                await other.resume("r", flow, at_once=True)
            may_end.set()
            assert (await driving).status is Status.COMPLETED
            if other is not owner:
                await other.close()

    asyncio.run(main())
    assert made == [1]


def test_a_renewed_lease_says_anew_how_long_it_lasts_since_boot(tmp_path: Path) -> None:
    async def main() -> None:
        may_end = asyncio.Event()

        @node(output="b")
        async def wait(a: int) -> int:
            await may_end.wait()
            return a

        short = Durability("strong", lease_ttl=timedelta(seconds=0.4))
        flow = Flow("f", [wait], durability=short)
        async with AsyncHost(f"sqlite:///{tmp_path}/runs.db") as host:
            driving = asyncio.create_task(host.run(flow, {"a": 1}, run_id="r"))
            seen: set[float | None] = set()
            while len(seen) < 3:
                store = host.durability.checkpoint_store
                row = await store.run("r") if store is not None else None
                if row is not None and row.lease is not None and row.lease.process is not None:
                    seen.add(row.lease.process.until)
                await asyncio.sleep(0.02)
            assert None not in seen
            may_end.set()
            await driving

    asyncio.run(main())


def owned(*, until: float | None = 130.0, boot: str = "boot") -> Lease:
    return Lease("r", "owner", 1, NOON + TTL, Process(boot, "pid:[1]", 7, 99, until))


def claimed(held: Lease, *, now: datetime, uptime: float, boot: str = "boot") -> Lease:
    mine = leases.noted(Process(boot, "pid:[1]", 8, 99), uptime, TTL)
    return leases.claim(
        held,
        run_id="r",
        owner="me",
        process=mine,
        now=now,
        ttl=TTL,
        newest_epoch=1,
        has_progressed=True,
        void_epoch=None,
    )


def test_what_the_owner_noted_since_boot_counts_for_those_of_the_same_boot() -> None:
    with pytest.raises(LeaseConflict) as caught:
        claimed(owned(), now=NOON + HOUR, uptime=120.0)
    assert caught.value.details["seconds_left"] == 10.0
    assert claimed(owned(), now=NOON + HOUR, uptime=131.0).epoch == 2
    assert claimed(owned(boot="another"), now=NOON + HOUR, uptime=120.0).epoch == 2
    assert claimed(owned(until=None), now=NOON + HOUR, uptime=120.0).epoch == 2


def test_a_lease_of_another_version_that_notes_nothing_since_boot_is_renewed_as_before() -> None:
    held, mine = owned(until=None), owned(until=200.0)
    longer = leases.renewed(held, mine, now=NOON, ttl=TTL)
    assert longer is not None and longer.process is not None and longer.process.until == 200.0


def test_a_pause_before_a_retry_is_no_longer_when_the_clock_is_set_back(tmp_path: Path) -> None:
    wall = Wall()

    @node(output="b", retry=Retry(1, first=0.2, jitter=0))
    async def flaky(ctx: Context) -> int:
        if ctx.attempt == 1:
            asyncio.get_running_loop().call_later(0.05, set_back)
            raise ConnectionError
        return ctx.attempt

    def set_back() -> None:
        wall.ahead = -HOUR

    async def main() -> None:
        async with AsyncHost(f"sqlite:///{tmp_path}/runs.db", clock=wall) as host:
            run = host.run(Flow("f", [flaky], durability="strong"), run_id="r")
            assert (await asyncio.wait_for(run, 30))["b"] == 2

    asyncio.run(main())


def test_a_sleeper_that_sleeps_until_a_time_sleeps_no_longer_when_the_clock_is_set_back() -> None:
    wall = Wall()

    def set_back() -> None:
        wall.ahead = -HOUR

    async def main() -> None:
        asyncio.get_running_loop().call_later(0.05, set_back)
        await asyncio.wait_for(wall.sleep_until(wall.now() + timedelta(seconds=0.15)), 30)

    asyncio.run(main())
