"""Runs that nodes start: each once, whatever crashes, and only what is declared."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from everstep import Context, Flow, Host, Status, node
from everstep.errors import BadRequest
from everstep.registry import open_store
from everstep.testing import ManualClock
from everstep.testing.killing import Crashed, Killer, crash, killing
from tests.integration.runtime.drive.children.shops import MODES, Shop, children_of

ORDERS = ["a", "b", "c"]


@pytest.mark.servers
@pytest.mark.parametrize("mode", MODES)
def test_each_is_started_once_and_says_by_whom(host: Host, mode: str) -> None:
    shop = Shop(mode)
    host.start(shop.flow, {"orders": ORDERS}, run_id="S")
    stats = host.work([shop.flow], until_idle=True)
    assert (stats.completed, shop.packed) == (4, dict.fromkeys(ORDERS, 1))
    children = children_of(host, "S")
    assert sorted(one.run_id for one in children) == sorted(host.state("S")["started"])
    assert {(one.flow, one.starter_run_id, one.starter_node, one.status) for one in children} == {
        ("ship", "S", "send@1", Status.COMPLETED)
    }
    assert host.info("S").starter_run_id is None
    again = host.run(shop.flow, {"orders": ORDERS}, run_id="S")
    assert (again.status, len(children_of(host, "S"))) == (Status.COMPLETED, 3)


@pytest.mark.stores("sqlite")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("durability", ["strong", "partial"])
def test_killed_at_every_write_each_is_started_once(tmp_path: Path, mode: str, durability: Any) -> None:
    clock = ManualClock()

    def live(shop: Shop, url: str, killer: Killer) -> None:
        with Host(killing(open_store(url, clock), by=killer), clock=clock) as host, suppress(Crashed):
            host.run(shop.flow, {"orders": ORDERS}, run_id="S")
            for one in children_of(host, "S"):
                host.resume(one.run_id, shop.ship)

    def finish(shop: Shop, url: str) -> tuple[Any, list[str]]:
        with Host(url, clock=clock) as host:
            host.start(shop.flow, {"orders": ORDERS}, run_id="S")
            host.work([shop.flow], until_idle=True)
            assert {one.status for one in host.runs()} == {Status.COMPLETED}
            return host.state("S")["started"], sorted(one.run_id for one in children_of(host, "S"))

    counted, whole = Killer(), f"sqlite:///{tmp_path}/whole.db"
    live(Shop(mode, durability=durability), whole, counted)
    expected = finish(Shop(mode), whole)
    assert expected[1] == sorted(expected[0]) and len(counted.points) > 10
    for at in range(1, len(counted.points) + 1):
        shop, url = Shop(mode, durability=durability), f"sqlite:///{tmp_path}/{at}.db"
        live(shop, url, Killer(at, act=crash))
        clock.advance(60)  # until the leases of the dead are over
        assert finish(shop, url) == expected, counted.points[at - 1]


def test_without_a_key_the_order_counts(host: Host) -> None:
    shop = Shop("sync")

    @node(output="ids")
    def twice(ctx: Context) -> list[str]:
        return [ctx.start(shop.ship, {"order": "a"}).run_id for _ in range(2)]

    found = host.run(Flow("twice", [twice], starts=[shop.ship]), run_id="S")["ids"]
    assert len({*found}) == 2
    steps = [step.path for record in host.history("S") for step in record.steps if "$" in step.path]
    assert steps == ["twice/$start-ship", "twice/$start-ship"]


def test_only_what_is_declared_is_started(host: Host) -> None:
    shop = Shop("sync")

    @node(output="id")
    def begin(ctx: Context) -> str:
        return str(ctx.start(shop.ship, {"order": "a"}).run_id)

    result = host.run(Flow("undeclared", [begin]), run_id="S")
    assert result.error is not None
    assert "'ship', which flow 'undeclared' does not declare" in result.error.message
    assert len(host.runs()) == 1
    with pytest.raises(BadRequest, match="starts two flows called 'ship'"):
        Flow("two", [begin], starts=[shop.ship, Flow("ship", [begin])])
    with pytest.raises(BadRequest, match="Give flows"):
        Flow("none", [begin], starts=[begin])  # type: ignore[list-item]
    with pytest.raises(BadRequest, match="kept nowhere"):
        Flow("off", [begin], starts=[Flow("ship", [begin], durability="off")])


def test_a_flow_may_start_itself_and_what_flows_inside_it_declare(host: Host) -> None:
    shop = Shop("sync")
    flows: dict[str, Flow] = {}

    @node(output="below")
    def descend(depth: int, ctx: Context) -> str:
        return str(ctx.start(flows["deep"], {"depth": depth - 1}).run_id) if depth else ""

    flows["deep"] = Flow("deep", [descend])
    host.start(flows["deep"], {"depth": 3})
    assert host.work([flows["deep"]], until_idle=True).completed == 4
    outer = Flow("outer", [shop.flow.as_node()])
    assert [one.name for one in outer.starts] == ["ship"]
    host.start(outer, {"orders": ORDERS}, run_id="S")
    host.work([outer], until_idle=True)
    assert {one.starter_node for one in children_of(host, "S")} == {"shop/send@1"}


def test_what_is_wrong_with_a_start_is_said_before_anything_is_recorded(host: Host) -> None:
    shop = Shop("sync")
    wrong: dict[str, Any] = {}

    @node(output="id")
    def begin(ctx: Context) -> str:
        return str(ctx.start(shop.ship, **wrong).run_id)

    flow = Flow("begins", [begin], starts=[shop.ship])
    for given, said in (
        ({"inputs": {}}, "Input 'order' is missing"),
        ({"inputs": {"order": "a"}, "on_parent_cancel": "die"}, "on_parent_cancel"),
        ({"inputs": {"order": "a"}, "priority": "high"}, "priority is 'high'"),
        ({"inputs": {"order": "a"}, "tags": ["!"]}, "tag"),
    ):
        wrong.clear()
        wrong.update(given)
        result = host.run(flow)
        assert result.error is not None and said in result.error.message
        assert children_of(host, result.run_id) == []
        assert not any("$" in step.path for record in host.history(result.run_id) for step in record.steps)


def test_what_it_is_started_with_is_kept(host: Host) -> None:
    shop = Shop("sync")

    @node(output="id")
    def begin(ctx: Context) -> str:
        how: dict[str, Any] = {
            "priority": 3,
            "group": "ann",
            "tags": {"vip": "1"},
            "on_parent_cancel": "leave",
        }
        return str(ctx.start("ship", {"order": "a"}, **how).run_id)

    child = host.run(Flow("begins", [begin], starts=[shop.ship]))["id"]
    info = host.info(child)
    assert (info.priority, info.group, info.tags) == (3, "ann", {"vip": "1"})


def test_inside_an_atomic_flow_and_without_records_it_is_refused(host: Host) -> None:
    shop = Shop("sync")
    atomic = Flow("around", [shop.flow.as_node(durability="atomic")])
    for flow, said in (
        (atomic, "started a run inside an atomic flow"),
        (Shop("sync", durability="off").flow, "its own run is kept nowhere"),
    ):
        result = host.run(flow, {"orders": ORDERS})
        assert result.error is not None and said in result.error.message
    assert len(host.runs()) == 1


def test_an_erased_child_counts_as_started_and_a_taken_id_does_not(host: Host) -> None:
    shop, fails = Shop("sync"), [True]

    @node(output="id")
    def begin(ctx: Context) -> str:
        child = ctx.start(shop.ship, {"order": "a"})
        if fails:
            raise ValueError("no")
        return str(child.run_id)

    flow = Flow("begins", [begin], starts=[shop.ship])
    host.run(flow, run_id="S")
    [child] = children_of(host, "S")
    host.resume(child.run_id, shop.ship)
    host.retention.erase(child.run_id)
    fails.clear()
    assert host.resume("S", flow)["id"] == child.run_id
    assert children_of(host, "S") == []
    host.fork("S", at=1, fork_id="F", keep_keys=True)
    assert host.resume("F", flow)["id"] == child.run_id
