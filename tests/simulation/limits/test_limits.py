"""Limits hold in a simulated fleet whatever goes wrong, and every run ends all the same.

`EVERSTEP_SOAK=1` tries many more seeds, those that follow from `EVERSTEP_SEED`.
"""

from __future__ import annotations

import pytest

from everstep.engine.limits import keys
from everstep.engine.limits.slots import Standing
from everstep.runtime.guards import singletons
from everstep.testing.simulation.explore import Explorer
from tests.simulation.limits.limited import trial
from tests.simulation.limits.singles import single_trial
from tests.simulation.soaking import size, soak
from tests.simulation.stores import FAULTS

SINGLES = size(soak=(200, 8), first=(4, 1))
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


@pytest.mark.slow
@pytest.mark.parametrize("store", ["local", "remote"])
def test_of_a_key_that_one_run_has_alone_no_two_begin_and_none_is_accepted_beside_it(store: str) -> None:
    assert soak("singles", store, *SINGLES)


def test_a_claim_that_does_not_ask_who_has_a_key_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys.KeyRoom, "_others", lambda *given: [])
    broken = [broken for seed in range(8) for broken in wrong(seed)]
    assert "singles" in broken


def test_a_start_that_does_not_look_who_has_a_key_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(singletons, "standing", lambda *given, **how: Standing.OVER)
    assert "singles" in wrong(0)


def wrong(seed: int) -> set[str]:
    """Return what is broken in an undisturbed world."""
    explorer = Explorer(single_trial(seed, "remote"), seed=seed, kinds=FAULTS["remote"])
    try:
        return {broken.invariant for broken in explorer.whole.broken}
    finally:
        explorer.close()
