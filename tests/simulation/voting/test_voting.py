"""People who vote on approvals at random times, while processes crash and runs are taken over and forked.

`EVERSTEP_SOAK=1` tries many more scripts, those that follow from `EVERSTEP_SEED`.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from everstep import Context
from everstep.engine import settling
from everstep.stores.objects import drafts
from everstep.testing.simulation.explore import Explorer, without_collector
from everstep.testing.simulation.simulating import check
from tests.simulation.users.test_users import KINDS, SKEWS
from tests.simulation.voting.voters import VotingTrial, script

IS_SOAK = os.environ.get("EVERSTEP_SOAK") == "1"
SEED = int(os.environ.get("EVERSTEP_SEED", "0")) if IS_SOAK else 0
SCRIPTS, SCHEDULES = (3000, 12) if IS_SOAK else (4, 3)


@pytest.fixture(autouse=True)
def unmarked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of this process may have loaded what marks which node runs: then no step is plain."""
    monkeypatch.setattr(Context, "marks", None)


def trial(seed: int, store: str) -> VotingTrial:
    is_remote = store == "remote"
    return VotingTrial(script(seed), is_remote=is_remote, skew=SKEWS[seed % 3] if is_remote else 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("store", ["local", "remote"])
def test_an_approval_is_decided_once_by_enough_names_that_may_whatever_goes_wrong(store: str) -> None:
    tried: Counter[str] = Counter()
    with without_collector():
        for seed in range(SEED * 1_000_003, SEED * 1_000_003 + SCRIPTS):
            explorer = Explorer(trial(seed, store), seed=seed, kinds=KINDS[store])
            try:
                check(explorer, explorer.whole)
                for number in range(SCHEDULES):
                    check(explorer, explorer.try_drawn(seed * 1000 + number, faults=3))
            finally:
                explorer.close()
            tried += explorer.counts
    print(f"{tried.pop('schedules')} schedules of voters on a {store} store, with {dict(tried)}")


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
        explorer = Explorer(trial(seed, "remote"), seed=seed, kinds=KINDS["remote"])
        try:
            found = {broken.invariant for broken in explorer.whole.broken}
        finally:
            explorer.close()
        if found:
            return found
    return set()
