"""The kinds of trials, by name, each as it follows from what a kept failure says of itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from everstep.testing.simulation.explore import Explorer
from everstep.testing.simulation.faults import Fault
from everstep.testing.simulation.trial import Trial
from tests.simulation import sqlite_flows
from tests.simulation.bodies.by_seed import KINDS as DEATHS
from tests.simulation.bodies.by_seed import async_trial, sync_trial
from tests.simulation.bodies.edited_trial import EditedTrial
from tests.simulation.bulk.operators import trial as bulk
from tests.simulation.flows import SUBJECTS
from tests.simulation.limits.limited import trial as limits
from tests.simulation.limits.singles import single_trial as singles
from tests.simulation.planted.trials import TRIALS
from tests.simulation.randomly.fleet import trial as randomly
from tests.simulation.schedules.timetables import trial as schedules
from tests.simulation.signals.senders import trial as signals
from tests.simulation.stores import FAULTS
from tests.simulation.timed.clocked import trial as timed
from tests.simulation.told.receivers import trial as told
from tests.simulation.users.everyone import trial as everyone
from tests.simulation.users.people import trial as users
from tests.simulation.voting.voters import trial as votes

Said = Mapping[str, Any]
"""A seed or a subject, and a store."""
_STEADY = [fault for fault in Fault if fault not in (Fault.CLOCK_AHEAD, Fault.CLOCK_BACK)]


class Kind(NamedTuple):
    """How trials of a kind are made, and what goes wrong in them by chance."""

    make: Callable[[Said], Trial]
    faults: Callable[[Said], Iterable[Fault]] = lambda said: Fault


def _of_fleet(make: Callable[[int, str], Trial]) -> Kind:
    return Kind(lambda said: make(said["seed"], said["store"]), lambda said: FAULTS[said["store"]])


KINDS: Mapping[str, Kind] = {
    "flow": Kind(lambda said: SUBJECTS[said["subject"]].trial(said["store"])),
    "trial": Kind(lambda said: TRIALS[said["subject"]].make(said["store"] == "remote")),
    "users": _of_fleet(users),
    "everyone": _of_fleet(everyone),
    "signals": _of_fleet(signals),
    "bulk": _of_fleet(bulk),
    "votes": _of_fleet(votes),
    "limits": _of_fleet(limits),
    "singles": _of_fleet(singles),
    "timed": _of_fleet(timed),
    "told": _of_fleet(told),
    "schedules": _of_fleet(schedules),
    "random": _of_fleet(randomly),
    "async body": Kind(lambda said: async_trial(said["seed"]), lambda said: DEATHS),
    "edited body": Kind(lambda said: EditedTrial(said["seed"]), lambda said: DEATHS),
    "sync body": Kind(lambda said: sync_trial(said["seed"]), lambda said: DEATHS),
    "sqlite": Kind(lambda said: sqlite_flows.trial(said["subject"])),
    "sqlite fleet": Kind(lambda said: sqlite_flows.fleet_trial(), lambda said: _STEADY),
}


def explorer_of(kind: str, said: Said) -> Explorer:
    """Return what tries schedules of a trial; it is to be closed."""
    found = KINDS[kind]
    return Explorer(found.make(said), seed=said.get("seed", 0), kinds=found.faults(said))
