"""Which run killed the owners that died: decided by what leases say, in thousands of simulated fleets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from everstep.engine.leases import SUSPECT, beside, claim, is_hopeless, is_suspect, rest_of
from everstep.model.leases import Lease

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LIMIT = 3


def taken(held: Lease | None, owner: str, *, has_progressed: bool = False) -> Lease:
    """Return the lease of a caller that takes a run over from a dead owner."""
    epoch = held.epoch if held is not None else 0
    return claim(
        held,
        run_id="run",
        owner=owner,
        process=None,
        now=NOW,
        ttl=timedelta(seconds=30),
        newest_epoch=epoch,
        has_progressed=has_progressed,
        void_epoch=epoch,
    )


@pytest.mark.parametrize("seed", range(200))
def test_whatever_dies_beside_a_killer_is_never_abandoned_and_the_killer_is(seed: int) -> None:
    """A worker drives what is not suspect together, and suspects alone; some deaths have other reasons."""
    chance = Random(seed)
    killers = {f"k{n}" for n in range(chance.randint(1, 2))}
    calm = {f"r{n}" for n in range(chance.randint(1, 6))}
    leases: dict[str, Lease | None] = dict.fromkeys(sorted(killers | calm))
    abandoned: set[str] = set()
    for life in range(60):
        for run_id, held in leases.items():
            leases[run_id] = taken(held, beside(f"{life}"))
        held_now = {run_id: lease for run_id, lease in leases.items() if lease is not None}
        abandoned |= {run_id for run_id, lease in held_now.items() if is_hopeless(lease, LIMIT)}
        for run_id in abandoned:
            leases.pop(run_id, None)
        if chance.random() < 0.3:
            continue  # a person killed the worker before it drove anything
        alone = [run_id for run_id in leases if is_suspect(held_now[run_id])]
        together = [run_id for run_id in leases if run_id not in alone]
        if not killers & set(together):
            for run_id in together:
                del leases[run_id]  # it has completed
            for run_id in sorted(alone, key=lambda run_id: held_now[run_id].takeovers):
                leases[run_id] = taken(leases[run_id], f"{life}-alone")
                if run_id in killers:
                    break
                del leases[run_id]
        if not leases:
            break
    assert abandoned == killers


def test_a_suspect_rests_longer_after_each_death_that_it_caused() -> None:
    held: Lease | None = None
    rests = []
    for number in range(12):
        held = taken(held, f"{number}")
        rests.append(rest_of(held).total_seconds())
    assert rests == [0, 0, 0, 2, 4, 8, 16, 32, 60, 60, 60, 60]


def test_a_lower_limit_than_it_takes_to_suspect_a_run_abandons_no_neighbour() -> None:
    held: Lease | None = None
    for number in range(20):
        held = taken(held, beside(f"{number}"))
        assert not is_hopeless(held, 0)
    assert held is not None and held.takeovers == SUSPECT
    assert taken(held, "next", has_progressed=True).takeovers == 0
