"""Schedules of every overlap, with pauses, changes, backfills and runs asked for, whatever goes wrong.

`EVERSTEP_SOAK=1` tries many more scripts, those that follow from `EVERSTEP_SEED`.
"""

from __future__ import annotations

from datetime import datetime
from itertools import count

import msgspec
import pytest

from everstep.runtime.operations.schedules import deciding, flow
from everstep.runtime.operations.schedules.state import State
from everstep.testing.simulation.explore import Explorer
from everstep.testing.simulation.faults import Fault
from everstep.testing.simulation.simulating import check
from tests.simulation.schedules.timetables import Plan, TimetableTrial
from tests.simulation.soaking import size, soak
from tests.simulation.stores import FAULTS

SCRIPTS, SCHEDULES = size(soak=(200, 10), first=(3, 4))
PLAIN = Plan("S0", "quick", "13s", "allow", "0s", 1.0, 40.0, None, None, None, None)


@pytest.mark.slow
@pytest.mark.parametrize("store", ["local", "remote"])
def test_each_time_has_one_run_whatever_goes_wrong(store: str) -> None:
    assert soak("schedules", store, SCRIPTS, SCHEDULES)


@pytest.mark.slow
def test_each_time_has_one_run_whichever_write_a_process_dies_at() -> None:
    explorer = Explorer(TimetableTrial((PLAIN,)), kinds=[Fault.CRASH])
    try:
        check(explorer, explorer.whole)
        crashes = list(explorer.single_faults())
        assert len(crashes) > 20
        for one in crashes[:: size(soak=1, first=15)]:
            check(explorer, explorer.try_fault(one))
    finally:
        explorer.close()


def test_a_schedule_that_forgets_what_was_due_while_it_started_runs_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = flow._due

    def due(state: State, schedule_id: str, now: datetime) -> deciding.Due:
        found = honest(state, schedule_id, now)
        return found if not found.start else msgspec.structs.replace(found, start=found.start[-1:])

    monkeypatch.setattr(flow, "_due", due)
    assert "each time once" in _found()


def test_a_schedule_whose_runs_are_called_by_when_they_begin_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun = count()
    monkeypatch.setattr(flow, "run_for", lambda name, at: f"{name}-{next(begun)}")
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
