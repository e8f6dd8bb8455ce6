"""Acts on many runs while processes crash and others act on the same runs: each once, its record true.

`EVERSTEP_SOAK=1` tries many more scripts, those that follow from `EVERSTEP_SEED`.
"""

from __future__ import annotations

import pytest

from everstep.runtime.operations.bulk.acts import RunActs
from everstep.testing.simulation.explore import Explorer
from everstep.testing.simulation.faults import Fault
from everstep.testing.simulation.simulating import check
from tests.simulation.bulk.operators import BulkTrial, Script, Start
from tests.simulation.soaking import IS_SOAK, size, soak
from tests.simulation.stores import FAULTS

SCRIPTS, SCHEDULES = size(soak=(800, 12), first=(4, 3))
RETRIED = Script(tuple(Start(0.1 * k, f"R{k}", "fragile", 1) for k in range(3)), (), ((3.0, 0),))


@pytest.mark.slow
@pytest.mark.parametrize("store", ["local", "remote"])
def test_each_act_is_done_once_and_what_is_said_of_it_is_true_whatever_goes_wrong(store: str) -> None:
    assert soak("bulk", store, SCRIPTS, SCHEDULES)


@pytest.mark.slow
def test_a_retry_of_many_survives_a_crash_at_every_point() -> None:
    explorer = Explorer(BulkTrial(RETRIED), kinds=FAULTS["local"])
    try:
        check(explorer, explorer.whole)
        points = 0
        for fault in explorer.single_faults():
            if fault.label.startswith("worker-1") and (IS_SOAK or points < 120):
                check(explorer, explorer.try_fault(fault))
                points += 1
    finally:
        explorer.close()
    assert points > 50


async def _never(acts: RunActs, run_id: str) -> None:
    return None


def test_what_asks_for_no_record_of_what_was_done_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunActs, "_said", _never)
    explorer = Explorer(BulkTrial(RETRIED), kinds=FAULTS["local"])
    try:
        crashes = (fault for fault in explorer.single_faults() if fault.choice == Fault.CRASH)
        single = (fault for fault in crashes if " after put " in fault.label and fault.label[0] == "w")
        found = next((tried.broken for tried in map(explorer.try_fault, single) if tried.broken), ())
    finally:
        explorer.close()
    assert "bulk" in {broken.invariant for broken in found}
