"""Limits of flows: workers and `host.run` keep to them together."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from everstep import AsyncHost, Flow, Host, KeyRing, Limit, node, wait
from everstep.errors import BadRequest, NoRoom
from everstep.testing import ManualClock


@node(output="b")
async def double(a: int, customer: str | None) -> int:
    return 2 * a


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Limit("k"),
        lambda: Limit("k", running=0),
        lambda: Limit("k", running=True),
        lambda: Limit("k", rate="100"),
        lambda: Limit("k", rate="0/1m"),
        lambda: Flow("f", [double], limits=[Limit("a", rate="100000/1m")]),
        lambda: Limit("k", rate="5/never"),
        lambda: Limit("a b", running=1),
        lambda: Limit("k", running=1, by=""),
        lambda: Flow("f", [double], limits=[Limit("customers", running=1)]),
        lambda: Flow("f", [double], limits=[Limit("a", running=1), Limit("a", rate="1/s")]),
        lambda: Flow("f", [double], limits=[Limit(f"k{n}", running=1, by="a") for n in range(5)]),
        lambda: Flow("f", [double], limits=Limit("a", running=1)),  # type: ignore[arg-type]
        lambda: Flow("f", [double], limits=["a"]),  # type: ignore[list-item]
        lambda: Flow("f", [double], limits=[Limit("a", running=1, weight=3)]),
    ],
)
def test_limits_that_mean_nothing_are_refused(wrong: Any) -> None:
    with pytest.raises(BadRequest):
        wrong()


@pytest.mark.parametrize(("rate", "per"), [("5/s", 1), ("100/1m", 60), ("7 / 90s", 90), ("1/h", 3600)])
def test_a_rate_is_so_many_in_a_span(rate: str, per: int) -> None:
    assert Limit("k", rate=rate).per() == (int(rate.split("/")[0]), timedelta(seconds=per))
    assert Limit.of_wire(Limit("k", rate=rate).to_wire()).per() == Limit("k", rate=rate).per()


def test_a_run_is_grouped_by_its_keys_and_by_nothing_else(host: Host) -> None:
    nested = Limit("who", running=1, by="order.customer.name")

    @node(output="b")
    def take(order: Any, region: str | int | None) -> int:
        return 1

    flow = Flow("f", [take], limits=[nested, Limit("region", rate="5/1m")])
    order = {"customer": {"name": "ann"}}
    long = "x" * 1000
    groups: dict[str, dict[str, Any]] = {
        "who=ann,region=7": {"order": order, "region": 7},
        "region=a%2Cb": {"order": {}, "region": "a,b"},
        "who=ann": {"order": order, "region": None},
    }
    for group, inputs in groups.items():
        assert host.run(flow, inputs).status == "completed"
        assert len(host.runs(group=group)) == 1
    host.run(flow, {"order": None, "region": long})
    assert len(max((run.group or "" for run in host.runs()), key=len)) < 100
    with pytest.raises(BadRequest, match="grouped by the keys"):
        host.run(flow, {"order": order, "region": 1}, group="mine")
    with pytest.raises(BadRequest, match="text, a number"):
        host.start(flow, {"order": {"customer": {"name": ["ann"]}}, "region": 1})


def test_a_key_is_plain_only_if_that_is_said(tmp_path: Path) -> None:
    secret = Flow("f", [double], limits=[Limit("customer", running=1)])
    plain = Flow("f", [double], limits=[Limit("customer", running=1, plain=True)])
    keys = KeyRing({"2026": "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="})
    with Host(f"sqlite:///{tmp_path}/runs.db", encrypt=keys) as host:
        with pytest.raises(BadRequest, match="plain=True"):
            host.start(secret, {"a": 1, "customer": "ann"})
        host.start(secret, {"a": 1, "customer": None})
        host.start(plain, {"a": 1, "customer": "ann"})


def test_of_a_key_so_many_run_at_once_and_keys_take_turns(url: str) -> None:
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()
    order: list[str] = []

    @node(output="b")
    async def work(customer: str) -> str:
        order.append(customer)
        running[customer] += 1
        most[customer] = max(most[customer], running[customer])
        await asyncio.sleep(0.001)
        running[customer] -= 1
        return customer

    flow = Flow("f", [work], limits=[Limit("customer", running=2)])

    async def work_it() -> None:
        async with AsyncHost(url) as host:
            for number in range(60):
                await host.start(flow, {"customer": "many"}, run_id=f"m{number}")
            for number in range(6):
                await host.start(flow, {"customer": "few"}, run_id=f"f{number}")
            await asyncio.gather(*(host.work([flow], until_idle=True, concurrency=4) for _ in range(2)))
            while any(run.status == "running" for run in await host.runs()):
                await host.work([flow], until_idle=True)

    asyncio.run(work_it())
    assert most == {"many": 2, "few": 2}
    assert len(order) == 66
    assert max(place for place, customer in enumerate(order) if customer == "few") < 24


def test_host_run_waits_for_room_as_workers_do(url: str) -> None:
    may_end, began = asyncio.Event(), list[int]()

    @node(output="b")
    async def hold(a: int, customer: str) -> int:
        began.append(a)
        await may_end.wait()
        return a

    flow = Flow("f", [hold], limits=[Limit("customer", running=1)])

    async def both() -> None:
        async with AsyncHost(url) as host:
            first = asyncio.ensure_future(host.run(flow, {"a": 1, "customer": "x"}, run_id="r1"))
            while not began:
                await asyncio.sleep(0.01)
            second = asyncio.ensure_future(host.run(flow, {"a": 2, "customer": "x"}, run_id="r2"))
            await host.start(flow, {"a": 3, "customer": "x"}, run_id="r3")
            await asyncio.sleep(0.15)
            assert began == [1]
            with pytest.raises(NoRoom, match="1 of 1 run"):
                await host._runs.resume("r3", flow, is_patient=False)
            may_end.set()
            assert (await first).status == "completed"
            assert (await second).status == "completed"
            assert (await host.work([flow], until_idle=True)).completed == 1
            assert sorted(began) == [1, 2, 3]

    asyncio.run(both())


def test_a_halted_run_makes_room_and_a_rate_counts_it_once(url: str) -> None:
    ask = wait.approval("ask", output="ok")

    @node(output="b")
    def after(ok: Any, customer: str) -> str:
        return customer

    flow = Flow("f", [ask, after], limits=[Limit("customer", running=1, rate="3/1h")])
    with Host(url) as host:
        for number in range(5):
            host.start(flow, {"customer": "x"}, run_id=f"r{number}")
        assert host.work([flow], until_idle=True).halted == 3
        for number in range(3):
            host.answer(host.waits(run_id=f"r{number}")[0].id, {"approved": True})
        assert host.work([flow], until_idle=True).completed == 3
        assert [str(host.info(f"r{number}").status) for number in range(5)] == ["completed"] * 3 + [
            "running"
        ] * 2


def test_a_rate_holds_while_time_is_moved(tmp_path: Path) -> None:
    clock = ManualClock()
    started: list[datetime] = []

    @node(output="b")
    async def note(a: int, customer: str) -> int:
        started.append(clock.now())
        return a

    flow = Flow("f", [note], limits=[Limit("customer", rate="4/1m")])

    async def work() -> None:
        async with AsyncHost(f"sqlite:///{tmp_path}/runs.db", clock=clock) as host:
            for number in range(20):
                await host.start(flow, {"a": number, "customer": "x"})
            for _ in range(40):
                await host.work([flow], until_idle=True)
                clock.advance(10)

    asyncio.run(work())
    assert len(started) == 20
    for at in started:
        assert sum(at <= other <= at + timedelta(minutes=1) for other in started) <= 4
    assert started[-1] - started[0] == timedelta(seconds=4 * 70)
