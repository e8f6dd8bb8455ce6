"""Schedules of every overlap, with pauses, changes, backfills and runs asked for, whatever goes wrong.

`EVERSTEP_SOAK=1` tries many more scripts, those that follow from `EVERSTEP_SEED`.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from everstep.model.waits import WaitRow
from everstep.runtime.operations.schedules import deciding, flow
from everstep.testing.simulation.explore import Explorer
from everstep.testing.simulation.simulating import check
from tests.simulation.schedules.timetables import Plan, TimetableTrial
from tests.simulation.soaking import size, soak
from tests.simulation.stores import FAULTS

SCRIPTS, SCHEDULES = size(soak=(200, 10), first=(4, 2))
PLAIN = Plan("S0", "quick", "13s", "allow", "0s", 1.0, 40.0, None, None, None, None)


@pytest.mark.slow
@pytest.mark.parametrize("store", ["local", "remote"])
def test_each_time_has_one_run_whatever_goes_wrong(store: str) -> None:
    assert soak("schedules", store, SCRIPTS, SCHEDULES)


@pytest.mark.slow
def test_each_time_has_one_run_whichever_write_a_process_dies_at() -> None:
    explorer = Explorer(TimetableTrial((PLAIN,)), kinds=[])
    try:
        check(explorer, explorer.whole)
        crashes = [one for one in explorer.single_faults() if one.label.endswith("crash")]
        assert len(crashes) > 20
        for one in crashes[:: size(soak=1, first=9)]:
            check(explorer, explorer.try_fault(one))
    finally:
        explorer.close()


def test_a_schedule_that_counts_from_its_waking_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = flow._due

    def due(state: Any, schedule_id: str, now: datetime) -> deciding.Due:
        found = honest(state, schedule_id, now)
        return deciding.Due(found.start, found.missed, now, found.wake) if found.start else found

    monkeypatch.setattr(flow, "_due", due)
    late = timedelta(seconds=14)
    assert late and "each time once" in _found()


def test_a_schedule_whose_runs_have_ids_of_their_own_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[WaitRow] = []
    monkeypatch.setattr(flow, "run_for", lambda name, at: f"{name}-{at:%H%M%S}-{len(seen)}")
    assert "each time once" in _found()


def _found() -> set[str]:
    """Return which promises a schedule in the way of a fault breaks."""
    explorer = Explorer(TimetableTrial((PLAIN,)), kinds=FAULTS["local"])
    try:
        found = {broken.invariant for broken in explorer.whole.broken}
        for number in range(6):
            found |= {broken.invariant for broken in explorer.try_drawn(number, faults=3).broken}
    finally:
        explorer.close()
    return found
