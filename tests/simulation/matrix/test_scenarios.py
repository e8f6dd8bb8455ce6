"""Every scenario of the crash matrix in a simulated world: more faults, more often, on two kinds of store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from everstep import Flow, node
from everstep.testing.simulation.explore import Explorer, without_collector
from everstep.testing.simulation.faults import Fault, Taken
from everstep.testing.simulation.hub import SECOND
from everstep.testing.simulation.played import ITSELF, played
from everstep.testing.simulation.simulating import check
from everstep.testing.simulation.world import Here, World
from tests.acceptance.crash import lives
from tests.acceptance.crash.flows.children import MORE_FAMILIES
from tests.acceptance.crash.flows.outages import MORE_CUT_OFF
from tests.acceptance.crash.flows.phases import EXAMPLES, MORE_PHASED
from tests.acceptance.crash.flows.sagas import MORE_SAGAS
from tests.acceptance.crash.flows.steps import MORE_STEPS
from tests.acceptance.crash.flows.unknown import MORE_UNKNOWN
from tests.acceptance.crash.flows.waits import MORE_WAITING
from tests.simulation.matrix.scenarios import ScenarioTrial
from tests.simulation.soaking import IS_SOAK, SEED, size

SCENARIOS = (
    lives.SCENARIOS
    | MORE_FAMILIES
    | MORE_WAITING
    | MORE_UNKNOWN
    | MORE_CUT_OFF
    | MORE_PHASED
    | MORE_STEPS
    | MORE_SAGAS
    | EXAMPLES
)
NOT_SIMULATED: dict[str, str] = {}
"""Scenarios of the matrix that no simulated world can run, with the reason."""
DEATHS = (Fault.CRASH, Fault.POWER_CUT, Fault.LOST_REPLY)
"""What the matrix does to a process, and to what it hears of the store."""
BY_CHANCE = size(soak=200, first=2)
"""Of each scenario: with every single fault, all of them take a processor a quarter of an hour."""


@pytest.mark.parametrize("store", ["local", "remote"])
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.soak) if name in EXAMPLES else name
        for name in SCENARIOS
        if name not in NOT_SIMULATED
    ],
)
def test_a_scenario_of_the_matrix_ends_as_if_nothing_had_gone_wrong(
    name: str, store: str, quick_folder: Path
) -> None:
    trial = ScenarioTrial(name, SCENARIOS[name], quick_folder, is_remote=store == "remote")
    explorer = Explorer(trial, seed=SEED)
    try:
        with without_collector():
            check(explorer, explorer.whole)
            for taken in explorer.single_faults() if IS_SOAK else one_death_each(explorer, store):
                check(explorer, explorer.try_fault(taken))
            for number in range(BY_CHANCE):
                check(explorer, explorer.try_drawn(SEED * 1_000_003 + number))
    finally:
        explorer.close()
    assert explorer.counts["schedules"] > len(explorer.points) // 8


def one_death_each(explorer: Explorer, store: str) -> Iterator[Taken]:
    """Yield for each eighth point one of what the matrix does there, in turn; those between elsewhere."""
    for place, (label, possible) in enumerate(explorer.points):
        if place % 8 != 4 * (store == "remote"):
            continue
        deaths = [fault for fault in DEATHS if fault in possible]
        yield Taken(label, deaths[place // 8 % len(deaths)].value)


def test_every_scenario_of_the_matrix_is_simulated() -> None:
    assert set(lives.SCENARIOS) <= set(SCENARIOS)
    assert not NOT_SIMULATED


# -- what these schedules have found ----------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [5, 100])
def test_closing_a_host_waits_for_an_effect_whose_lease_is_given_back_on_its_loop(seconds: int) -> None:
    """It asked for that on a loop that was closed, so that the lease stayed until it ran out."""
    world, found = World(is_awaited=True), []

    @node(output="a")
    async def stop(x: int) -> int:
        await asyncio.sleep(1)
        raise KeyboardInterrupt

    @node(output="b", effects="effectful", idempotency_key="auto")
    def send(x: int) -> int:
        world.hub.pass_time(seconds * SECOND)
        return x

    def program(here: Here) -> None:
        with suppress(KeyboardInterrupt), here.host() as host:
            host.run(played(Flow("f", [stop, send], durability="strong"), ITSELF), {"x": 1}, run_id="a")
        row = world.store.row("a")
        assert row is not None
        found.append((row.lease is None, world.hub.now // SECOND))
        here.sleep(200)

    world.start("app", program)
    world.run()
    is_free = seconds < 30  # longer than that no host waits; then the lease runs out
    assert found == [(is_free, seconds if is_free else 31)]
    assert not world.troubles
