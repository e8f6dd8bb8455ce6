"""Three workers, and users who send signals and publish events at random times.

`EVERSTEP_SOAK=1` tries many more scripts, those that follow from `EVERSTEP_SEED`.
"""

from __future__ import annotations

from itertools import chain

import pytest

from everstep.testing.simulation.explore import Explorer
from everstep.testing.simulation.simulating import check
from tests.simulation.planted.signals import PLANTS
from tests.simulation.signals.senders import SignalTrial
from tests.simulation.soaking import size, soak
from tests.simulation.stores import FAULTS

SCRIPTS, SCHEDULES = size(soak=(350, 12), first=(6, 4))


@pytest.mark.slow
@pytest.mark.parametrize("store", ["local", "remote"])
def test_no_signal_and_no_event_is_lost_or_taken_twice_whatever_goes_wrong(store: str) -> None:
    tried = soak("signals", store, SCRIPTS, SCHEDULES)
    assert len(tried) >= len(FAULTS[store]) - 3  # what goes wrong is not always the same


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_fault_is_found(name: str) -> None:
    plant = PLANTS[name]
    with plant.make():
        explorer = Explorer(SignalTrial(plant.plan, is_remote=True), kinds=plant.kinds)
        single = (taken for taken in explorer.single_faults() if taken.label.startswith(plant.at))
        schedules = chain([explorer.whole], map(explorer.try_fault, single))
        try:
            broken = next((tried.broken for tried in schedules if tried.broken), ())
        finally:
            explorer.close()
    assert {it.invariant for it in broken} == {plant.breaks}


@pytest.mark.parametrize("name", PLANTS)
def test_nothing_is_found_where_nothing_is_planted(name: str) -> None:
    explorer = Explorer(SignalTrial(PLANTS[name].plan, is_remote=True))
    try:
        check(explorer, explorer.whole)
    finally:
        explorer.close()
