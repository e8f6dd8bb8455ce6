"""Acts on many runs while processes crash and others act on the same runs: each once, its record true.

`EVERSTEP_SOAK=1` tries many more scripts, those that follow from `EVERSTEP_SEED`.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from everstep import Context
from everstep.runtime.operations.bulk.acts import RunActs
from everstep.testing.simulation.explore import Explorer, without_collector
from everstep.testing.simulation.faults import Fault, parse
from everstep.testing.simulation.simulating import check
from everstep.testing.simulation.story import told
from tests.simulation.bulk.operators import BulkTrial, Script, Start, script
from tests.simulation.users.test_users import KINDS, SKEWS

IS_SOAK = os.environ.get("EVERSTEP_SOAK") == "1"
SEED = int(os.environ.get("EVERSTEP_SEED", "0")) if IS_SOAK else 0
SCRIPTS, SCHEDULES = (3000, 12) if IS_SOAK else (4, 3)
RETRIED = Script(tuple(Start(0.1 * k, f"R{k}", "fragile", 1) for k in range(3)), (), ((3.0, 0),))

PAST = [
    # Stopped before it tagged a run, taken over by who found that run tagged by others, and then late.
    (540, "local", ["worker-1.1 before tag 2: stall"]),
]


@pytest.fixture(autouse=True)
def unmarked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of this process may have loaded what marks which node runs: then no step is plain."""
    monkeypatch.setattr(Context, "marks", None)


def trial(seed: int, store: str) -> BulkTrial:
    is_remote = store == "remote"
    return BulkTrial(script(seed), is_remote=is_remote, skew=SKEWS[seed % 3] if is_remote else 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("store", ["local", "remote"])
def test_each_act_is_done_once_and_what_is_said_of_it_is_true_whatever_goes_wrong(store: str) -> None:
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
    print(f"{tried.pop('schedules')} schedules of acts on many runs on a {store} store, with {dict(tried)}")


@pytest.mark.parametrize(
    ("seed", "store", "decisions"), PAST, ids=[f"{seed}: {', '.join(said)}" for seed, _, said in PAST]
)
def test_a_schedule_that_failed_once_does_not_fail_again(seed: int, store: str, decisions: list[str]) -> None:
    explorer = Explorer(trial(seed, store), kinds=KINDS[store])
    try:
        tried = explorer.try_chosen([parse(said) for said in decisions])
    finally:
        explorer.close()
    assert not tried.broken, told(tried)
    assert {parse(said) for said in decisions} <= set(tried.taken), "it is not reached any more"


@pytest.mark.slow
def test_a_retry_of_many_survives_a_crash_at_every_point() -> None:
    explorer = Explorer(BulkTrial(RETRIED), kinds=KINDS["local"])
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
    explorer = Explorer(BulkTrial(RETRIED), kinds=KINDS["local"])
    try:
        crashes = (fault for fault in explorer.single_faults() if fault.choice == Fault.CRASH)
        single = (fault for fault in crashes if " after put " in fault.label and fault.label[0] == "w")
        found = next((tried.broken for tried in map(explorer.try_fault, single) if tried.broken), ())
    finally:
        explorer.close()
    assert "bulk" in {broken.invariant for broken in found}
