"""Random bodies of nodes, whose process dies anywhere: they never go another way than is recorded.

`EVERSTEP_SOAK=1` tries many more of them, those that follow from `EVERSTEP_SEED`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from random import Random

import pytest

from everstep.testing.simulation.checks import Broken, Judge, Reader
from everstep.testing.simulation.explore import Explorer, without_collector
from everstep.testing.simulation.faults import Fault
from everstep.testing.simulation.played import ITSELF
from everstep.testing.simulation.simulating import check
from everstep.testing.simulation.trial import End, FlowTrial
from everstep.testing.simulation.world import World
from tests.simulation.bodies.bodies import WAYS, flow_of, kinds_of, random_body

IS_SOAK = os.environ.get("EVERSTEP_SOAK") == "1"
SEED = int(os.environ.get("EVERSTEP_SEED", "0")) if IS_SOAK else 0
BODIES, DEATHS, SCHEDULES = (4000, 80, 20) if IS_SOAK else (12, 5, 1)
KINDS = (Fault.CRASH, Fault.POWER_CUT, Fault.LOST_REPLY, Fault.OUTAGE)
"""None that stops time: a body has its own time limits then, in what it does beside its calls."""


class BodyTrial(FlowTrial):
    """A node with a random body. What it comes to may be a matter of time, and then it stays so."""

    def __init__(self, seed: int) -> None:
        self.body = random_body(seed)
        is_remote, is_awaited = seed % 3 == 1, seed % 3 == 2
        super().__init__(
            flow_of(self.body),
            {"x": 1},
            doubles=ITSELF,
            is_chancy=True,
            is_remote=is_remote,
            is_awaited=is_awaited,
        )

    def judge(self, world: World, reader: Reader, whole: Mapping[str, End] | None) -> list[Broken]:
        broken = super().judge(world, reader, whole)
        for kept in Judge(world, reader).kept.values():
            for _, step in kept.steps:
                other = () if step.unit is None else (*step.unit.changed, *step.unit.unasked)
                if other:
                    broken.append(Broken("result", f"{step.path} went another way than recorded: {other}."))
        # Of parts that fail together one is heard of.
        return [one for one in broken if "exception was never retrieved" not in one.message]


@pytest.mark.slow
def test_a_node_goes_no_other_way_wherever_its_process_dies() -> None:
    kinds: Counter[str] = Counter()
    for seed in range(SEED * 1_000_003, SEED * 1_000_003 + BODIES):
        trial = BodyTrial(seed)
        kinds.update(kinds_of(trial.body))
        explorer = Explorer(trial, seed=seed, kinds=KINDS)
        try:
            with without_collector():
                check(explorer, explorer.whole)
                faults = [*explorer.single_faults()]
                for taken in Random(seed).sample(faults, min(DEATHS, len(faults))):
                    check(explorer, explorer.try_fault(taken))
                for number in range(SCHEDULES):
                    check(explorer, explorer.try_drawn(seed * 1000 + number, faults=3))
        finally:
            explorer.close()
    assert kinds.keys() >= {*WAYS, "call"}
