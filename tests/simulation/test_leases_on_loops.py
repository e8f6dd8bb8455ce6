"""Leases of a store that is only awaited: renewed on an event loop that runs, and on no other."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import pairwise

import pytest

from everstep import Flow, Host, node
from everstep.testing.simulation.hub import SECOND
from everstep.testing.simulation.played import ITSELF, played
from everstep.testing.simulation.world import Here, World


@node(output="a")
async def work(seconds: int) -> int:
    await asyncio.sleep(seconds)
    return seconds


WORKING = played(Flow("working", [work], durability="strong"), ITSELF)


def run(host: Host, run_id: str, seconds: int) -> None:
    host.run(WORKING, {"seconds": seconds}, run_id=run_id)


@pytest.mark.parametrize("seconds", [14, 15, 16, 100])
def test_a_lease_is_renewed_when_the_loop_that_was_there_first_has_stopped(seconds: int) -> None:
    """Renewals waited for that loop: the lease ran out, and closing the host never came to its end."""
    world = World(is_awaited=True)

    def program(here: Here) -> None:
        with here.host() as host:
            first = here.process.system.spawn(partial(run, host, "first", seconds), "first")
            here.sleep(1)
            second = here.process.system.spawn(partial(run, host, "second", 200), "second")
            first.join()
            second.join()
        assert world.hub.now < 202 * SECOND

    world.start("app", program)
    world.run()
    assert not world.troubles
    renewed = [int(line.split()[0]) / SECOND for line in world.ledger.trace if "renew [second" in line]
    assert len(renewed) > 10
    assert all(later - earlier < 20 for earlier, later in pairwise([1, *renewed])), renewed
