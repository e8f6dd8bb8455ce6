"""The simulation finds faults that are planted in the running code, without being told what to look for."""

from __future__ import annotations

import pytest

from everstep.testing.simulation.explore import Explorer
from everstep.testing.simulation.faults import Taken
from everstep.testing.simulation.played import ITSELF
from tests.simulation.planted import flows
from tests.simulation.planted.hunt import BRIEF, LONG, MOST, QUICK, Effort, hunt
from tests.simulation.planted.plants import CHOSEN, FINDINGS
from tests.simulation.planted.trials import TRIALS, Contest
from tests.simulation.soaking import SEED, size

PLANTS = {**CHOSEN, **FINDINGS}
PLACES = [(name, is_remote) for name, kind in TRIALS.items() for is_remote in kind.stores]
GLANCE = Effort(6, 3)


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_fault_is_found_and_told_in_few_decisions(name: str) -> None:
    plant = PLANTS[name]
    with plant.make():
        trial, is_remote = plant.first
        found = hunt(trial, QUICK, is_remote=is_remote)
    assert found is not None, f"{name} was not found"
    assert len(found.taken) <= MOST, [str(it) for it in found.taken]


@pytest.mark.parametrize("place", [p for p in PLACES if not TRIALS[p[0]].is_long], ids=str)
def test_nothing_is_found_where_nothing_is_planted(place: tuple[str, bool]) -> None:
    name, is_remote = place
    found = hunt(name, size(soak=LONG, first=GLANCE), is_remote=is_remote, seed=SEED)
    assert found is None, [str(it) for it in (*found.broken, *found.taken)]


def test_a_slow_node_keeps_its_run_where_leases_are_renewed_on_the_event_loop() -> None:
    trial = Contest(flows.deliveries(), {"order": 3}, doubles=ITSELF, is_remote=True, is_awaited=True)
    explorer = Explorer(trial)
    try:
        assert not explorer.whole.broken
        assert not explorer.try_chosen([Taken("app.1 before body mark 1", "slow")]).broken
    finally:
        explorer.close()


@pytest.mark.soak
@pytest.mark.parametrize("name", PLANTS)
def test_planted_faults_in_all_trials(name: str) -> None:
    by = {}
    for trial, is_remote in PLACES:
        with PLANTS[name].make():
            found = hunt(trial, BRIEF, is_remote=is_remote, seed=SEED)
        if found is not None:
            by[trial, is_remote] = found.broken[0].invariant
    print(f"{name}: found in {len(by)} of {len(PLACES)} trials: {by}")
    assert by
