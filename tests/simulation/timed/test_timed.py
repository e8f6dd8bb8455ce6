"""Runs that begin later and that deadlines end, while workers crash and clocks differ.

`EVERSTEP_SOAK=1` tries many more seeds, those that follow from `EVERSTEP_SEED`.
"""

from __future__ import annotations

import pytest

from everstep.runtime.drive.timed.keeping import KeptTimes
from everstep.testing.simulation.explore import Explorer
from tests.simulation.soaking import size, soak
from tests.simulation.stores import FAULTS
from tests.simulation.timed.clocked import trial

SEEDS, SCHEDULES = size(soak=(300, 8), first=(4, 2))


@pytest.mark.slow
@pytest.mark.parametrize("store", ["local", "remote"])
def test_no_run_begins_before_its_time_and_each_is_ended_once(store: str) -> None:
    assert soak("timed", store, SEEDS, SCHEDULES)


def test_a_drive_that_does_not_look_when_a_run_begins_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def begins(self: KeptTimes, *given: object) -> bool:
        self._state.delay = None
        return True

    monkeypatch.setattr(KeptTimes, "_begins", begins)
    assert "times" in _found()


def test_a_drive_that_does_not_say_that_a_deadline_ended_a_run_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(KeptTimes, "exceed", lambda self, error: None)
    assert "times" in _found()


def _found() -> set[str]:
    """Return which promises some undisturbed world breaks."""
    found: set[str] = set()
    for seed in range(3):
        explorer = Explorer(trial(seed, "remote"), seed=seed, kinds=FAULTS["remote"])
        try:
            found |= {broken.invariant for broken in explorer.whole.broken}
        finally:
            explorer.close()
    return found
