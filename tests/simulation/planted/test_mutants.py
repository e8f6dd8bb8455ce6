"""Mutations that a seed drew are found, or change nothing that a user or a record could show."""

from __future__ import annotations

import os
from typing import NamedTuple

import pytest

from tests.simulation.planted.hunt import MOST
from tests.simulation.planted.mutants import Mutation, drawn, tried

SEED = 7
COUNT = 10
MANY = 40
"""So many take a processor a quarter of an hour, or less: another `EVERSTEP_SEED` draws others."""
TRIALS = (
    *("deliveries", "machines", "papers", "approvals", "rounds", "orders", "sensors", "parcels", "steps"),
    *("service", "contest", "groups", "fleet", "answers", "midway"),
)
"""All that are quick, those that find most first."""


class Found(NamedTuple):
    """The trial that finds a mutation first, and which promise it breaks there."""

    trial: str
    invariant: str


class Same(NamedTuple):
    """Why a mutation changes nothing that can be seen."""

    why: str


VERDICTS: dict[str, Found | Same] = {
    "everstep.stores.objects.store ObjectStore.introduce swapped arguments 1": Found("service", "progress"),
    "everstep.stores.memory.store _standing_at swapped statements 1": Found("contest", "no surprises"),
    "everstep.runtime.drive.apply _leave swapped arguments 2": Found("parcels", "no surprises"),
    "everstep.stores.objects.claims Claims._candidates swapped statements 4": Found("service", "progress"),
    "everstep.runtime.drive.channel ChannelDesk._draft inverted condition 9": Same(
        "`foresee` says what a sum will be, so that it need not be read when it takes its place; where "
        "nothing was foreseen it is read, and a value that is written whole is not asked for."
    ),
    "everstep.runtime.waits.open DriveWaits._opened swapped arguments 11": Found("midway", "result"),
    "everstep.runtime.drive.finish can_retry inverted condition 2": Found("deliveries", "result"),
    "everstep.stores.objects.lines Lines.look swapped arguments 2": Found(
        "deliveries", "raises AttributeError"
    ),
    "everstep.runtime.reader RunReader.structure inverted condition 3": Found("deliveries", "verify"),
    "everstep.runtime.drive.node_threads NodeThreads.__init__ swapped statements 7": Same(
        "`_idle` and `_is_closed` are set to constants, one after the other; nothing reads them in between, "
        "as no other thread knows the object yet."
    ),
}
"""By mutation, in the order in which they were drawn."""


@pytest.fixture(scope="module")
def mutations() -> dict[str, Mutation]:
    """What the seed draws: to know it, all that can be changed is parsed."""
    return {str(mutation): mutation for mutation in drawn(SEED, COUNT)}


def test_the_seed_draws_the_mutations_of_the_table(mutations: dict[str, Mutation]) -> None:
    """Where code that is among them changes, others are drawn: try them, and say what comes of it."""
    assert list(mutations) == list(VERDICTS)


@pytest.mark.slow
@pytest.mark.parametrize("name", VERDICTS)
def test_a_mutation_is_found_or_changes_nothing(name: str, mutations: dict[str, Mutation]) -> None:
    mutation, expected = mutations[name], VERDICTS[name]
    if isinstance(expected, Found):
        verdict = tried(mutation, [expected.trial], single=60, drawn=20)
        assert (verdict.trial, verdict.invariant) == expected
        assert verdict.decisions <= MOST
    else:
        verdict = tried(mutation, ["deliveries", "rounds", "machines"], single=6, drawn=3)
        assert verdict.invariant is None, f"it is found, so it does not hold that {expected.why}"


@pytest.mark.soak
def test_most_mutations_are_found() -> None:
    seed = int(os.environ.get("EVERSTEP_SEED", "1"))
    left = []
    for mutation in drawn(seed, MANY):
        verdict = tried(mutation, TRIALS, single=60, drawn=20)
        if verdict.invariant is None:
            left.append(f"{mutation}: {mutation.line}")
        assert verdict.decisions <= MOST, f"{mutation} takes {verdict.decisions}"
    print(f"seed {seed}: {MANY - len(left)} of {MANY} mutations were found; not found:", *left, sep="\n  ")
    assert len(left) < MANY * 0.7  # many lie in what only other stores, streams or migrations use
