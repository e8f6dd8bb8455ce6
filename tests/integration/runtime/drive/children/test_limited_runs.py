"""Runs that nodes start, of flows with limits: they wait for room, and so does who asks for them."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from everstep import AsyncHost, Context, Flow, Host, KeyRing, Limit, node
from everstep.errors import BadRequest
from tests.integration.runtime.drive.children.shops import children_of

pytestmark = pytest.mark.stores("memory", "sqlite", "postgres", "redis", "folder")


@node(output="parcel")
def pack(order: Any) -> str:
    return f"parcel {order}"


def shop(limit: Limit) -> Flow:
    ship = Flow("ship", [pack], limits=[limit])

    @node(output="parcels", halts=True)
    def send(orders: list[Any], ctx: Context) -> list[str]:
        children = [ctx.start(ship, {"order": order}, key=k) for k, order in enumerate(orders)]
        return [ctx.result(child)["parcel"] for child in children]

    return Flow("shop", [send], starts=[ship])


@pytest.mark.parametrize(
    "limit", [Limit("order", running=1), Limit("order", rate="2/300ms")], ids=["running", "rate"]
)
def test_children_that_a_limit_holds_back_are_driven_once_there_is_room(
    url: str, limit: Limit, caplog: pytest.LogCaptureFixture
) -> None:
    with Host(url) as host:
        result = host.run(shop(limit), {"orders": ["a"] * 5}, run_id="A")
        assert result["parcels"] == ["parcel a"] * 5
        assert {child.status for child in children_of(host, "A")} == {"completed"}
    assert "cannot be driven" not in caplog.text


@pytest.mark.parametrize("limits", [[], [Limit("key", running=1)]], ids=["free", "limited"])
def test_a_flow_that_starts_itself_is_driven_with_what_it_starts(url: str, limits: list[Limit]) -> None:
    @node(output="depth", halts=True)
    def dig(left: int, key: str, ctx: Context) -> int:
        if left == 0:
            return 0
        return int(ctx.result(ctx.start("dig", {"left": left - 1, "key": key}))["depth"]) + 1

    with Host(url) as host:
        flow = Flow("dig", [dig], limits=limits)
        assert host.run(flow, {"left": 3, "key": "k"}, run_id="A")["depth"] == 3
        host.start(flow, {"left": 2, "key": "k"}, run_id="B")
        assert host.resume("B", flow)["depth"] == 2


@pytest.mark.stores("sqlite")
@pytest.mark.parametrize(("is_sealed", "order"), [(False, [1]), (True, "a")])
def test_what_can_be_no_key_is_said_by_the_start_and_nothing_is_recorded(
    url: str, is_sealed: bool, order: Any
) -> None:
    told = []
    ship = Flow("ship", [pack], limits=[Limit("order", running=1)])

    @node(output="said")
    def send(order: Any, ctx: Context) -> str:
        try:
            ctx.start(ship, {"order": order})
        except BadRequest as error:
            told.append(error)
        return "said"

    keys = KeyRing({"2026": "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="}) if is_sealed else None
    with Host(url, encrypt=keys) as host:
        flow = Flow("shop", [send], starts=[ship])
        assert host.run(flow, {"order": order}, run_id="A").status == "completed"
        assert children_of(host, "A") == []
    assert "limit 'order'" in str(told[0])


def test_a_run_that_failed_is_reopened_though_its_key_is_full(url: str) -> None:
    go, is_well = threading.Event(), threading.Event()

    @node(output="x")
    def works(who: str, slow: bool) -> str:
        if slow:
            go.wait(20)
        elif not is_well.is_set():
            raise ValueError("not yet")
        return who

    flow = Flow("f", [works], limits=[Limit("who", running=1)])

    async def work() -> None:
        async with AsyncHost(url) as host:
            assert (await host.run(flow, {"who": "a", "slow": False}, run_id="A")).status == "failed"
            slow = asyncio.ensure_future(host.run(flow, {"who": "a", "slow": True}, run_id="B"))
            while not [run for run in await host.runs() if run.run_id == "B" and run.is_driven]:
                await asyncio.sleep(0.01)
            is_well.set()
            await host.fleet.reopen("A", flow)
            go.set()
            await slow
            await host.work([flow], until_idle=True)
            assert (await host.state("A")).status == "completed"

    asyncio.run(work())
