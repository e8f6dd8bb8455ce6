"""Random bodies of nodes, whose process dies anywhere: they never go another way than is recorded.

`EVERSTEP_SOAK=1` tries many more of them, those that follow from `EVERSTEP_SEED`.
"""

from __future__ import annotations

import os
from collections import Counter
from random import Random

import pytest

from everstep.testing.simulation.explore import Explorer, without_collector
from everstep.testing.simulation.faults import Fault
from everstep.testing.simulation.simulating import check
from tests.simulation.bodies import async_bodies, sync_bodies
from tests.simulation.bodies.body_trial import BodyTrial
from tests.simulation.bodies.parts import LEAVES, kinds_of, random_body

IS_SOAK = os.environ.get("EVERSTEP_SOAK") == "1"
SEED = int(os.environ.get("EVERSTEP_SEED", "0")) if IS_SOAK else 0
BODIES, DEATHS, SCHEDULES = (600, 40, 10) if IS_SOAK else (12, 3, 1)
KINDS = (Fault.CRASH, Fault.POWER_CUT, Fault.LOST_REPLY, Fault.OUTAGE)
"""None that stops time: a body has its own time limits then, in what it does beside its calls."""


def try_body(trial: BodyTrial, seed: int) -> None:
    explorer = Explorer(trial, seed=seed, kinds=KINDS)
    try:
        with without_collector():
            check(explorer, explorer.whole)
            faults = [*explorer.single_faults()]
            for taken in Random(seed).sample(faults, min(DEATHS, len(faults))):
                check(explorer, explorer.try_fault(taken))
            for number in range(SCHEDULES):
                check(explorer, explorer.try_drawn(seed * 1000 + number, faults=3))
    finally:
        explorer.close()


def seeds() -> range:
    return range(SEED * 1_000_003, SEED * 1_000_003 + BODIES)


@pytest.mark.slow
def test_a_node_goes_no_other_way_wherever_its_process_dies() -> None:
    kinds: Counter[str] = Counter()
    for seed in seeds():
        body, wrong = random_body(seed, tuple(async_bodies.WAYS)), list[str]()
        found = {*kinds_of(body)}
        kinds.update(found)
        is_strict = not found & {"trip", *async_bodies.CHANCY}
        try_body(BodyTrial(async_bodies.flow_of(body, wrong), wrong, seed, is_strict=is_strict), seed)
    assert kinds.keys() == {*async_bodies.WAYS, *LEAVES}


@pytest.mark.slow
def test_a_sync_node_goes_no_other_way_wherever_its_process_dies() -> None:
    kinds: Counter[str] = Counter()
    for seed in seeds():
        body, wrong = random_body(seed, tuple(sync_bodies.WAYS)), list[str]()
        found = {*kinds_of(body)}
        kinds.update(found)
        try_body(
            BodyTrial(sync_bodies.flow_of(body, wrong), wrong, seed, is_strict="trip" not in found), seed
        )
    assert kinds.keys() == {*sync_bodies.WAYS, *LEAVES}
