"""A host is closed at any time while two threads drive runs with it: it ends, and so do their calls."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import product
from typing import Any

import pytest

from everstep import Flow, Host, node
from everstep.client.lanes import PATIENCE
from everstep.errors import HostClosed
from everstep.testing.simulation.faults import Chosen, parse
from everstep.testing.simulation.hub import SECOND, current_thread
from everstep.testing.simulation.played import ITSELF, played
from everstep.testing.simulation.process import SimProcess
from everstep.testing.simulation.world import Here, World


@node(output="a", effects="effectful", idempotency_key="auto")
async def work(seconds: int) -> int:
    await asyncio.sleep(seconds)
    return seconds


@node(output="a", effects="effectful", idempotency_key="auto")
def hold(seconds: int) -> int:
    thread = current_thread()
    assert thread is not None and isinstance(thread.owner, SimProcess)
    thread.owner.hub.pass_time(seconds * SECOND)
    return seconds


@node(output="b")
def after(a: int) -> int:
    return a


FLOWS = {
    made.name: played(Flow(made.name, [made, after], durability="strong"), ITSELF) for made in (work, hold)
}
TIMES = (1, 14, 15, 17, 29)
"""Seconds until it is closed: leases are renewed every fifteen."""


def run(host: Host, kind: str, run_id: str, seconds: int, came: dict[str, Any]) -> None:
    try:
        came[run_id] = host.run(FLOWS[kind], {"seconds": seconds}, run_id=run_id)["b"]
    except HostClosed as error:
        came[run_id] = type(error)


def closed(world: World, first: str, second: str, at: int) -> dict[str, Any]:
    """Return what two threads heard, and how long it took to close their host."""
    came: dict[str, Any] = {}

    def program(here: Here) -> None:
        with here.host() as host:
            spawn = here.process.system.spawn
            threads = [spawn(partial(run, host, first, "first", 20, came), "first")]
            here.sleep(1)
            threads.append(spawn(partial(run, host, second, "second", 45, came), "second"))
            here.sleep(at)
            began = world.hub.now
            host.close()
            came["seconds"] = (world.hub.now - began) / SECOND
            for thread in threads:
                thread.join()

    world.start("app", program)
    world.run()
    assert not world.troubles
    return came


@pytest.mark.parametrize("is_awaited", [True, False], ids=["awaited", "elsewhere"])
@pytest.mark.parametrize(("first", "second"), [*product(FLOWS, FLOWS)])
def test_closing_a_host_ends_and_so_do_the_calls_of_its_threads(
    first: str, second: str, is_awaited: bool
) -> None:
    for at in TIMES:
        world = World(is_awaited=is_awaited, is_remote=True)
        came = closed(world, first, second, at)
        assert came["first"] == (20 if at > 19 else HostClosed), at
        assert came["second"] is HostClosed, at
        left = max(20 - 1 - at if first == "hold" else 0, 45 - at if second == "hold" else 0)
        assert came["seconds"] <= min(left, PATIENCE) + 1, at
        row = world.store.row("first")
        assert row is not None and row.lease is None, at


@pytest.mark.parametrize("decision", ["stall", "outage", "long outage", "lost request"])
def test_closing_a_host_ends_though_its_leases_cannot_be_renewed(decision: str) -> None:
    for first, second in product(FLOWS, FLOWS):
        world = World(0, Chosen([parse(f"app.1 before renew 1: {decision}")]), is_awaited=True)
        came = closed(world, first, second, 17)
        assert set(came) == {"first", "second", "seconds"}
        assert came["seconds"] <= PATIENCE + 120
