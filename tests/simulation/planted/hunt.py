"""Looking for what is wrong with a trial, within limits, without knowing what it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import islice
from random import Random
from typing import NamedTuple

from everstep.model.enums import Status
from everstep.testing.simulation.checks import Broken
from everstep.testing.simulation.explore import Explorer, Tried, without_collector
from everstep.testing.simulation.trial import End
from tests.simulation.planted.trials import TRIALS


class Effort(NamedTuple):
    """How many schedules are tried of one trial: with one fault, and with several by chance."""

    single: int
    drawn: int


MOST = 10
"""A schedule with more decisions tells people little."""
QUICK, LONG = Effort(120, 40), Effort(1200, 800)
BRIEF = Effort(50, 20)
"""For each plant in every trial: there are a thousand such pairs."""


def hunt(name: str, effort: Effort, *, is_remote: bool, seed: int = 0) -> Tried | None:
    """Return the shortest schedule that was found to break a promise; none if none was found."""
    kind = TRIALS[name]
    explorer = Explorer(kind.make(is_remote), seed=seed, kinds=kind.faults)
    with closing(explorer), without_collector():
        if not kind.is_fatal and (broken := tuple(_uncompleted(explorer.ends))):
            return explorer.whole._replace(broken=broken)
        for tried in _schedules(explorer, effort, seed, is_long=kind.is_long):
            if tried.broken:
                return tried if len(tried.taken) < 2 else explorer.shrink(tried)
    return None


def _uncompleted(ends: Mapping[str, End]) -> Iterator[Broken]:
    """Yield what all schedules have in common, so that none differs from the uninterrupted one by it."""
    for run_id, end in ends.items():
        if end.status is not Status.COMPLETED:
            yield Broken("result", f"run {run_id!r} is {end.status.value}, though nothing went wrong.")


def _schedules(explorer: Explorer, effort: Effort, seed: int, *, is_long: bool) -> Iterator[Tried]:
    yield explorer.whole
    if is_long:
        return
    single = list(explorer.single_faults())
    Random(seed).shuffle(single)  # so that a few of them are from everywhere
    yield from map(explorer.try_fault, islice(single, effort.single))
    for number in range(effort.drawn):
        yield explorer.try_drawn(seed * 1_000_003 + number)
