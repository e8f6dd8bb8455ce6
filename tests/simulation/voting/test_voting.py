"""People who vote on approvals at random times, while processes crash and runs are taken over and forked.

`EVERSTEP_SOAK=1` tries many more scripts, those that follow from `EVERSTEP_SEED`.
"""

from __future__ import annotations

import pytest

from everstep.engine import settling
from everstep.stores.objects import drafts
from everstep.testing.simulation.explore import Explorer
from tests.simulation.soaking import size, soak
from tests.simulation.stores import FAULTS
from tests.simulation.voting.voters import trial

SCRIPTS, SCHEDULES = size(soak=(800, 12), first=(4, 3))


@pytest.mark.slow
@pytest.mark.parametrize("store", ["local", "remote"])
def test_an_approval_is_decided_once_by_enough_names_that_may_whatever_goes_wrong(store: str) -> None:
    assert soak("votes", store, SCRIPTS, SCHEDULES)


def test_a_store_that_compares_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def changed(wait: object, change: object, was: object = None) -> object:
        return settling.changed(wait, change)  # type: ignore[arg-type]

    def settled(*given: object) -> object:
        return settling.settled(*given[:6])  # type: ignore[arg-type]

    monkeypatch.setattr(drafts, "changed", changed)
    monkeypatch.setattr(drafts, "settled", settled)
    assert "votes" in _found()


def _found() -> set[str]:
    """Return which promises some schedule breaks."""
    for seed in range(8):
        explorer = Explorer(trial(seed, "remote"), seed=seed, kinds=FAULTS["remote"])
        try:
            found = {broken.invariant for broken in explorer.whole.broken}
        finally:
            explorer.close()
        if found:
            return found
    return set()
