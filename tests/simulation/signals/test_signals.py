"""Three workers, and users who send signals and publish events at random times.

`EVERSTEP_SOAK=1` tries many more scripts, those that follow from `EVERSTEP_SEED`.
"""

from __future__ import annotations

import os
from collections import Counter
from itertools import chain

import pytest

from everstep import Context
from everstep.testing.simulation.explore import Explorer, without_collector
from everstep.testing.simulation.faults import parse
from everstep.testing.simulation.simulating import check
from tests.simulation.planted.signals import PLANTS
from tests.simulation.signals.senders import SignalTrial, script
from tests.simulation.users.test_users import KINDS, SKEWS

IS_SOAK = os.environ.get("EVERSTEP_SOAK") == "1"
SEED = int(os.environ.get("EVERSTEP_SEED", "0")) if IS_SOAK else 0
SCRIPTS, SCHEDULES = (4000, 12) if IS_SOAK else (6, 4)


@pytest.fixture(autouse=True)
def unmarked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of this process may have loaded what marks which node runs: then no step is plain."""
    monkeypatch.setattr(Context, "marks", None)


def trial(seed: int, store: str) -> SignalTrial:
    is_remote = store == "remote"
    return SignalTrial(script(seed), is_remote=is_remote, skew=SKEWS[seed % 3] if is_remote else 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("store", ["local", "remote"])
def test_no_signal_and_no_event_is_lost_or_taken_twice_whatever_goes_wrong(store: str) -> None:
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
    print(f"{tried.pop('schedules')} schedules of a fleet on a {store} store, with {dict(tried)}")
    assert len(tried) >= len(KINDS[store]) - 3  # what goes wrong is not always the same


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_fault_is_found(name: str) -> None:
    plant = PLANTS[name]
    with plant.make():
        explorer = Explorer(SignalTrial(plant.plan, is_remote=True), kinds=plant.kinds)
        single = (taken for taken in explorer.single_faults() if taken.label.startswith(plant.at))
        schedules = chain([explorer.whole], map(explorer.try_fault, single))
        try:
            broken = next((tried.broken for tried in schedules if tried.broken), ())
        finally:
            explorer.close()
    assert {it.invariant for it in broken} == {plant.breaks}


@pytest.mark.parametrize("name", PLANTS)
def test_nothing_is_found_where_nothing_is_planted(name: str) -> None:
    explorer = Explorer(SignalTrial(PLANTS[name].plan, is_remote=True))
    try:
        check(explorer, explorer.whole)
    finally:
        explorer.close()


# -- schedules that once went wrong -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seed", "store", "drawn", "decisions"),
    [
        pytest.param(
            5012,
            "local",
            5012005,
            [
                "worker-3.1 before claim_due 8: power cut",
                "worker-1.2 before report 1: outage",
                "worker-2.2 before body second 1: crash",
                "worker-2.3 before put 3: outage",
            ],
            id="who looked for signals while the store was away dropped an effect that was made",
        ),
        pytest.param(
            109,
            "remote",
            109001,
            ["worker-2.1 after body third 1: stall"],
            id="an effect was made again with signals that had come since",
        ),
        pytest.param(
            11,
            "local",
            11,
            ["worker-2.1 after body muse/$tell 1: crash"],
            id="the first durable call of a node was made again with signals that had come since",
        ),
        pytest.param(
            11,
            "local",
            11,
            ["worker-2.1 after body muse/$more 1: crash"],
            id="a later one was",
        ),
    ],
)
def test_a_schedule_that_once_broke_a_promise_keeps_it(
    seed: int, store: str, drawn: int, decisions: list[str]
) -> None:
    explorer = Explorer(trial(seed, store), seed=seed, kinds=KINDS[store])
    try:
        check(explorer, explorer.try_chosen([*map(parse, decisions)], drawn))
    finally:
        explorer.close()
