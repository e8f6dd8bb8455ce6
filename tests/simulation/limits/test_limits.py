"""Limits hold in a simulated fleet whatever goes wrong, and every run ends all the same.

`EVERSTEP_SOAK=1` tries many more seeds, those that follow from `EVERSTEP_SEED`.
"""

from __future__ import annotations

import pytest

from everstep.engine.limits import keys
from everstep.testing.simulation.explore import Explorer
from tests.simulation.limits.limited import trial
from tests.simulation.soaking import size, soak
from tests.simulation.stores import FAULTS

SEEDS, SCHEDULES = size(soak=(300, 8), first=(2, 2))


@pytest.mark.slow
@pytest.mark.parametrize("store", ["local", "remote"])
def test_no_key_has_more_starts_than_its_limit_and_every_run_ends(store: str) -> None:
    assert soak("limits", store, SEEDS, SCHEDULES)


def test_a_rate_that_forgets_what_began_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "open_at", lambda *given, **how: 0)
    explorer = Explorer(trial(0, "remote"), seed=0, kinds=FAULTS["remote"])
    try:
        assert "limits" in {broken.invariant for broken in explorer.whole.broken}
    finally:
        explorer.close()
