"""Random bodies of nodes, whose code is changed at random whenever their process dies.

No call is ever given what was recorded for another one, and all that differs from the records is reported.
`EVERSTEP_SOAK=1` tries many more of them, those that follow from `EVERSTEP_SEED`.
"""

from __future__ import annotations

import os
from collections import Counter
from random import Random

import pytest

from everstep.testing.simulation.explore import Explorer, without_collector
from everstep.testing.simulation.faults import Fault
from everstep.testing.simulation.simulating import check
from tests.simulation.bodies.edited_trial import EditedTrial
from tests.simulation.bodies.edits import EDITS

IS_SOAK = os.environ.get("EVERSTEP_SOAK") == "1"
SEED = int(os.environ.get("EVERSTEP_SEED", "0")) if IS_SOAK else 0
BODIES, DEATHS, SCHEDULES = (800, 30, 10) if IS_SOAK else (12, 4, 2)
KINDS = (Fault.CRASH, Fault.POWER_CUT, Fault.LOST_REPLY, Fault.OUTAGE)


@pytest.mark.slow
def test_no_call_is_given_what_is_recorded_of_another_however_its_code_is_changed() -> None:
    edits: Counter[str] = Counter()
    for seed in range(SEED * 1_000_003, SEED * 1_000_003 + BODIES):
        trial = EditedTrial(seed)
        edits.update(trial.edited.edits)
        explorer = Explorer(trial, seed=seed, kinds=KINDS)
        try:
            with without_collector():
                check(explorer, explorer.whole)
                faults = [it for it in explorer.single_faults() if it.choice == Fault.CRASH]
                for taken in Random(seed).sample(faults, min(DEATHS, len(faults))):
                    check(explorer, explorer.try_fault(taken))
                for number in range(SCHEDULES):
                    check(explorer, explorer.try_drawn(seed * 1000 + number, faults=4))
        finally:
            explorer.close()
    assert edits.keys() == EDITS
