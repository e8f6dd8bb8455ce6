"""A store that is full while it is asked whether waits are over: what is under way beside them is kept."""

from __future__ import annotations

import asyncio

import pytest

from everstep import Durability, Flow, chain, node, parallel, wait
from everstep.errors import StoreUnavailable
from everstep.testing.simulation.explore import Explorer
from everstep.testing.simulation.faults import Chosen, parse
from everstep.testing.simulation.fleet import FleetTrial, FleetWorld, WorkerPlace, persist
from everstep.testing.simulation.played import ITSELF, played
from everstep.testing.simulation.world import Here, World


@node(output="made", effects="effectful", idempotency_key="auto")
async def make(x: int) -> int:
    await asyncio.sleep(60)  # of the world's time
    return x


@node(output="end")
def end(rested: object, made: int) -> int:
    return made


REST = wait.timer("rest", duration=5, payload="x", output="rested")
RESTS = played(
    Flow("rests", chain(parallel(REST, make), end), durability=Durability("strong")),
    ITSELF,
)


def client(world: FleetWorld, here: Here) -> None:
    with here.host() as host:
        persist(here, lambda: host.start(RESTS, {"x": 1}, run_id="A"))
        while not persist(here, lambda: host.info("A")).status.is_final:
            here.sleep(5)


@pytest.mark.parametrize("is_remote", [False, True], ids=["local", "remote"])
@pytest.mark.parametrize("fault", ["full", "outage"])
def test_an_effect_goes_on_while_its_worker_asks_a_store_in_vain_for_answers(
    fault: str, is_remote: bool
) -> None:
    trial = FleetTrial({"w1": WorkerPlace([RESTS])}, {"client": client}, is_remote=is_remote)
    explorer = Explorer(trial)
    try:
        asked = [label for label, _ in explorer.points if " before fire " in label]
        assert len(asked) > 3
        for label in asked:
            world = trial.world(0, Chosen([parse(f"{label}: {fault}")]))
            world.run()
            assert [body.path for body in world.ledger.bodies] == ["make", "end"], world.ledger.lines()
            assert not world.troubles
            world.close()
    finally:
        explorer.close()


def test_who_waits_for_a_store_no_longer_says_which_effects_are_dropped() -> None:
    world = World(0, Chosen([parse("app.1 before fire 2: long outage")]))

    def program(here: Here) -> None:
        with here.host() as host, pytest.raises(StoreUnavailable):
            host.run(RESTS, {"x": 1}, run_id="A")
        here.sleep(200)

    world.start("app", program)
    world.run()
    told = [line for line in world.ledger.lines() if "is let go, and what make does is not kept" in line]
    assert len(told) == 1, world.ledger.lines()
