"""Random flows of every shape, driven by three workers while anything goes wrong.

`EVERSTEP_SOAK=1` tries many more of them, those that follow from `EVERSTEP_SEED`.
"""

from __future__ import annotations

import pytest

from tests.simulation.randomly.fleet import ACTS, KINDS, MANY, Sampler, acts_of
from tests.simulation.soaking import size, soak

CASES, SCHEDULES = size(soak=(1000, 8), first=(14, 2))


@pytest.mark.slow
@pytest.mark.parametrize("store", ["local", "remote"])
def test_a_random_flow_ends_in_a_fleet_as_it_does_undisturbed(store: str) -> None:
    tried = soak("random", store, CASES, SCHEDULES)
    assert len(tried) > 8  # what goes wrong is not always the same


def test_a_sampler_draws_every_kind_of_part() -> None:
    kinds = {part.kind for seed in range(100) for part in Sampler(seed).case().design.parts}
    assert kinds == set(KINDS)


def test_an_operator_does_all_that_does_not_change_what_runs_come_to() -> None:
    acts = [act for seed in range(100) for act in acts_of(seed)]
    assert {act.what for act in acts} == set(ACTS)
    assert {act.which for act in acts if act.what == "many"} == set(range(len(MANY)))
