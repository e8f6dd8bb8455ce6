"""Random bodies of nodes, whose process dies anywhere: they never go another way than is recorded.

`EVERSTEP_SOAK=1` tries many more of them, those that follow from `EVERSTEP_SEED`.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from everstep.testing.simulation.explore import without_collector
from everstep.testing.simulation.simulating import check
from tests.simulation.bodies import async_bodies, sync_bodies
from tests.simulation.bodies.by_seed import async_kinds, sync_kinds
from tests.simulation.bodies.parts import LEAVES
from tests.simulation.soaking import opened, seeds, size

BODIES, DEATHS, SCHEDULES = size(soak=(600, 40, 10), first=(12, 3, 1))


def try_body(kind: str, seed: int) -> None:
    with without_collector(), opened(kind, seed=seed) as explorer:
        check(explorer, explorer.whole)
        faults = [*explorer.single_faults()]
        for taken in Random(seed).sample(faults, min(DEATHS, len(faults))):
            check(explorer, explorer.try_fault(taken))
        for number in range(SCHEDULES):
            check(explorer, explorer.try_drawn(seed * 1000 + number, faults=3))


@pytest.mark.slow
def test_a_node_goes_no_other_way_wherever_its_process_dies() -> None:
    kinds: Counter[str] = Counter()
    for seed in seeds(BODIES):
        kinds.update(async_kinds(seed))
        try_body("async body", seed)
    assert kinds.keys() == {*async_bodies.WAYS, *LEAVES}


@pytest.mark.slow
def test_a_sync_node_goes_no_other_way_wherever_its_process_dies() -> None:
    kinds: Counter[str] = Counter()
    for seed in seeds(BODIES):
        kinds.update(sync_kinds(seed))
        try_body("sync body", seed)
    assert kinds.keys() == {*sync_bodies.WAYS, *LEAVES}
