"""Every scenario of the crash matrix in a simulated world: more faults, more often, on two kinds of store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep.testing.simulation.explore import Explorer, without_collector
from everstep.testing.simulation.faults import Fault, Taken
from everstep.testing.simulation.simulating import check
from tests.acceptance.crash import lives
from tests.acceptance.crash.flows.outages import MORE_CUT_OFF
from tests.acceptance.crash.flows.phases import EXAMPLES, MORE_PHASED
from tests.acceptance.crash.flows.unknown import MORE_UNKNOWN
from tests.acceptance.crash.flows.waits import MORE_WAITING
from tests.simulation.scenarios import ScenarioTrial

IS_SOAK = os.environ.get("EVERSTEP_SOAK") == "1"
SEED = int(os.environ.get("EVERSTEP_SEED", "0")) if IS_SOAK else 0
SCENARIOS = lives.SCENARIOS | MORE_WAITING | MORE_UNKNOWN | MORE_CUT_OFF | MORE_PHASED | EXAMPLES
NOT_SIMULATED: dict[str, str] = {}
"""Scenarios of the matrix that no simulated world can run, with the reason."""
DEATHS = (Fault.CRASH, Fault.POWER_CUT, Fault.LOST_REPLY)
"""What the matrix does to a process, and to what it hears of the store."""
BY_CHANCE = 1500 if IS_SOAK else 4


@pytest.mark.parametrize("store", ["local", "remote"])
@pytest.mark.parametrize("name", [name for name in SCENARIOS if name not in NOT_SIMULATED])
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
    assert explorer.counts["schedules"] > len(explorer.points)


def one_death_each(explorer: Explorer, store: str) -> Iterator[Taken]:
    """Yield for each point one of what the matrix does there, in turn; on the other store the next one."""
    for place, (label, possible) in enumerate(explorer.points):
        deaths = [fault for fault in DEATHS if fault in possible]
        yield Taken(label, deaths[(place + (store == "remote")) % len(deaths)].value)


def test_every_scenario_of_the_matrix_is_simulated() -> None:
    assert set(lives.SCENARIOS) <= set(SCENARIOS)
    assert not NOT_SIMULATED
